//! The text report's parts before the summary: the description of the replay, each connector's story,
//! and the open problems.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashSet};
use std::io;

use super::model::{Report, Story};
use super::story_entry::{Seen, StoryEntry, likewise, story_entries, style_of, subject_of};
use super::style::Style::{Bold, Dim, Plain, Yellow};
use super::style::{
    ROWS_MAX, Style, TextWriter, borrowed, clock, count, duration, grouped, moment, offset,
};
use crate::config::role_name;
use crate::core::contract::event::ClusterSpec;
use crate::core::data::ids::NamespacedName;
use crate::replay::{Replay, ReplayMode, Span};

/// A longer story is cut in the middle: this many entries at its beginning and end remain.
const FIRST_ENTRIES: usize = 28;
const LAST_ENTRIES: usize = 12;
/// With more connectors, only the most affected have a story.
const STORIES_MAX: usize = 24;

pub(super) fn head(replay: &Replay, writer: &mut TextWriter<'_>) -> io::Result<()> {
    let how = match replay.mode {
        ReplayMode::WhatIf => "what throughline would have done (what-if)",
        ReplayMode::Verify => "what throughline did, compared with what it decides now (verify)",
        ReplayMode::Live => "played into in-memory clusters, with throughline running on them",
    };
    writer.put(0, 2, &[(Bold, &replay.file), (Plain, ": "), (Plain, how)])?;
    let events = count(replay.events, "event");
    if replay.events == 0 && replay.first_at == replay.last_at {
        writer.put(2, 2, &[(Plain, &events)])?;
    } else {
        let from = moment(replay.first_at);
        let to = moment(replay.last_at);
        let same_day = from.get(..10) == to.get(..10);
        let to = if same_day { to.get(11..).unwrap_or(&to) } else { &to };
        let took = duration(replay.last_at.since(replay.first_at));
        writer.put(2, 2, &[(Plain, &format!("{events} from {from} to {to} UTC ({took})"))])?;
    }
    let roles = |cluster: &ClusterSpec| {
        cluster.roles.iter().map(|role| role_name(*role)).collect::<Vec<_>>().join(", ")
    };
    let shown = replay.clusters.iter().take(ROWS_MAX);
    let shown: Vec<_> =
        shown.map(|cluster| format!("{} ({})", cluster.name, roles(cluster))).collect();
    let more = replay.clusters.len().saturating_sub(shown.len());
    let more = if more > 0 { format!(" … {} more", grouped(more)) } else { String::new() };
    let title = if replay.clusters.len() == 1 { "cluster" } else { "clusters" };
    if !shown.is_empty() {
        writer.put(2, 4, &[(Plain, &format!("{title}: {}{more}", shown.join(", ")))])?;
    }
    if let Some(rate) = replay.carrier_rate {
        writer.put(2, 4, &[(Plain, &format!("the simulated carrier takes at most {rate}"))])?;
    }
    Ok(())
}

/// Each connector's story, and the actions that belong to no single connector.
pub(super) fn connectors(report: &Report<'_>, writer: &mut TextWriter<'_>) -> io::Result<()> {
    let (quiet, eventful): (Vec<_>, Vec<_>) = report.connectors.iter().partition(|h| h.is_empty());
    let selected = most_affected(report, &eventful);
    let show_all = report.only.is_some();
    for (at, story) in eventful.iter().enumerate() {
        if selected.as_ref().is_some_and(|selected| !selected.contains(&at)) {
            continue;
        }
        writer.gap()?;
        let mut title = format!(" ({})", story.full_name());
        if story.actions.is_empty() {
            title.push_str(", no writes");
        }
        writer.put(0, 2, &[(Bold, &story.label), (Plain, &title)])?;
        if let (Some(_), Some(hub)) = (story.upstream, story.hub) {
            writer.put(2, 4, &[(Dim, &format!("at the hub and the edges: {hub}"))])?;
        }
        let entries = story_entries(report, story, Seen::default());
        let key = story.key().filter(|_| !show_all);
        write_entries(report.replay, &entries, key, show_all, writer)?;
    }
    if selected.is_some() {
        let more = count(eventful.len() - STORIES_MAX, "less affected connector");
        writer.gap()?;
        writer.put(0, 2, &[(Dim, &format!("… {more} (--connector NAMESPACE/NAME shows one)"))])?;
    }
    nothing_to_do(&quiet, writer)?;
    if !report.others.is_empty() {
        writer.gap()?;
        writer.put(0, 2, &[(Bold, "Not tied to one connector")])?;
        let entries = story_entries(report, &report.others, Seen::default());
        write_entries(report.replay, &entries, None, false, writer)?;
    }
    Ok(())
}

fn nothing_to_do(quiet: &[&Story<'_>], writer: &mut TextWriter<'_>) -> io::Result<()> {
    if quiet.is_empty() {
        return Ok(());
    }
    writer.gap()?;
    let shown = if quiet.len() > ROWS_MAX { ROWS_MAX / 2 } else { quiet.len() };
    for story in quiet.iter().take(shown) {
        writer.put(0, 2, &[(Bold, &story.label), (Plain, ": nothing to do, no writes")])?;
    }
    if quiet.len() > shown {
        let more = count(quiet.len() - shown, "more connector");
        writer.put(0, 2, &[(Plain, &format!("… {more}: nothing to do, no writes"))])?;
    }
    Ok(())
}

/// Selects the connectors with a story if there are too many: first those still stuck, then those
/// with the longest outages, then those with the longest stories.
fn most_affected(report: &Report<'_>, eventful: &[&Story<'_>]) -> Option<HashSet<usize>> {
    if eventful.len() <= STORIES_MAX {
        return None;
    }
    let replay = report.replay;
    let mut outage_ms: BTreeMap<&NamespacedName, u64> = BTreeMap::new();
    for outage in replay.recorded.iter().chain(&replay.replayed) {
        let until = outage.until.unwrap_or(replay.last_at);
        *outage_ms.entry(&outage.connector).or_default() += until.since(outage.from);
    }
    let mut ranked: Vec<_> = eventful
        .iter()
        .enumerate()
        .map(|(at, story)| {
            let is_stuck = report.is_stuck(story);
            let ms = story.hub.and_then(|key| outage_ms.get(key)).copied().unwrap_or(0);
            let len = story.hops.len() + story.actions.len() + story.problems.len();
            (Reverse((is_stuck, ms, len)), at)
        })
        .collect();
    ranked.sort_unstable();
    Some(ranked.into_iter().take(STORIES_MAX).map(|(_, at)| at).collect())
}

/// Writes the entries in order of time; abridged unless `all`.
fn write_entries(
    replay: &Replay,
    entries: &[StoryEntry],
    key: Option<&NamespacedName>,
    all: bool,
    writer: &mut TextWriter<'_>,
) -> io::Result<()> {
    let shown = FIRST_ENTRIES + LAST_ENTRIES;
    let cut = if all { 0 } else { entries.len().saturating_sub(shown) };
    let widest = offset(replay.ended_at.since(replay.first_at)).len();
    let mut in_recording = true;
    for (i, entry) in entries.iter().enumerate() {
        if cut > 0 && (FIRST_ENTRIES..FIRST_ENTRIES + cut).contains(&i) {
            if i == FIRST_ENTRIES {
                let hint = key.map(|key| format!(" (--connector {key} shows all)"));
                let text = format!("… {} more{}", grouped(cut), hint.unwrap_or_default());
                writer.put(2, 4, &[(Dim, &text)])?;
            }
            continue;
        }
        if in_recording && entry.at_ms > replay.last_at {
            in_recording = false;
            writer.put(2, 4, &[(Dim, "– end of the recording; actions that were still due –")])?;
        }
        let since_start = offset(entry.at_ms.since(replay.first_at));
        let time = format!("{}  {since_start:>widest$}  ", clock(entry.at_ms));
        let mut line = vec![(Dim, time.as_str())];
        line.extend(borrowed(&entry.text));
        writer.put(2, 2 + time.chars().count(), &line)?;
    }
    Ok(())
}

/// The problems at the end, the worst first and one row for each cause and cluster, and warnings.
pub(super) fn still_open(report: &Report<'_>, writer: &mut TextWriter<'_>) -> io::Result<()> {
    let replay = report.replay;
    let mut open: Vec<&Span> = report.problems.iter().filter(|span| span.is_open()).collect();
    open.sort_by_key(|span| (Reverse(span.severity), subject_of(span)));
    let alike: Vec<_> = open.chunk_by(|a, b| subject_of(a) == subject_of(b)).collect();
    let rows = alike.iter().filter_map(|alike| {
        let first = alike.first()?;
        let lasted = duration(replay.ended_at.since(first.since_ms));
        let since = clock(first.since_ms);
        let others = likewise(alike.len());
        let text = format!(" for {lasted}, since {since}: {}{others}", first.message);
        Some(vec![(style_of(first), first.cause.as_str().to_owned()), (Plain, text)])
    });
    section(writer, "Not over at the end", rows.collect())?;
    let warnings = replay.warnings.iter().map(|warning| vec![(Yellow, warning.clone())]);
    section(writer, "Warnings about the log", warnings.collect())
}

/// Writes a list with a title; nothing if it is empty.
fn section(
    writer: &mut TextWriter<'_>,
    title: &str,
    rows: Vec<Vec<(Style, String)>>,
) -> io::Result<()> {
    if rows.is_empty() {
        return Ok(());
    }
    writer.gap()?;
    writer.put(0, 2, &[(Bold, title)])?;
    writer.rows(2, rows.into_iter())
}
