//! The story: what was replayed, what happened to each connector, what needs a person.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashSet};
use std::io;

use super::Options;
use super::index::{Chapter, Index};
use super::passage::{Passage, missing, parts, passages};
use super::style::Style::{Bold, Dim, Plain, Red, Yellow};
use super::style::{Page, clock, count, duration, grouped, moment, offset};
use crate::core::action::{Noted, Verb};
use crate::core::event::Outcome;
use crate::core::ids::{ClusterName, ObjectKey, Role};
use crate::core::keep::Keep;
use crate::core::time::UnixMillis;
use crate::replay::{Mode, Replay};

/// Of a longer story the first and the last so many passages are told.
const FIRST: usize = 28;
const LAST: usize = 12;
/// So many connectors are told of at length, the worst ones when there are more.
const CHAPTERS: usize = 24;
/// Longer lists of anything else are cut.
const ROWS: usize = 20;

/// What was replayed.
pub(super) fn head(replay: &Replay, page: &mut Page<'_>) -> io::Result<()> {
    let how = match replay.mode {
        Mode::WhatIf => "what throughline would have done (what-if)",
        Mode::Verify => "what throughline did, decided again (verify)",
        Mode::Live => "played into clusters in memory, with throughline running on them",
    };
    page.put(0, 2, &[(Bold, &replay.file), (Plain, ": "), (Plain, how)])?;
    let events = count(usize::try_from(replay.events).unwrap_or(usize::MAX), "event");
    if replay.events == 0 && replay.first_at == replay.last_at {
        page.put(2, 2, &[(Plain, &events)])?;
    } else {
        let (from, to) = (moment(replay.first_at), moment(replay.last_at));
        let same_day = from.get(..10) == to.get(..10);
        let to = if same_day { to.get(11..).unwrap_or(&to) } else { &to };
        let took = duration(replay.last_at.since(replay.first_at));
        page.put(2, 2, &[(Plain, &format!("{events} from {from} to {to} UTC ({took})"))])?;
    }
    let role = |role: &Role| match role {
        Role::Upstream => "upstream",
        Role::Downstream => "hub",
        Role::Edge => "edge",
    };
    let shown: Vec<_> = replay
        .clusters
        .iter()
        .take(ROWS)
        .map(|c| {
            format!("{} ({})", c.name, c.roles.iter().map(role).collect::<Vec<_>>().join(", "))
        })
        .collect();
    let more = replay.clusters.len().saturating_sub(shown.len());
    let more = if more > 0 { format!(" … {} more", grouped(more)) } else { String::new() };
    let title = if replay.clusters.len() == 1 { "cluster" } else { "clusters" };
    if !shown.is_empty() {
        page.put(2, 4, &[(Plain, &format!("{title}: {}{more}", shown.join(", ")))])?;
    }
    Ok(())
}

/// What happened to each connector; and what was written for no one connector.
pub(super) fn connectors(
    replay: &Replay,
    index: &Index<'_>,
    options: &Options,
    page: &mut Page<'_>,
) -> io::Result<()> {
    if let Some(only) = &options.connector
        && index.chapters.is_empty()
    {
        page.gap()?;
        return page.put(0, 2, &[(Yellow, &format!("{only}: no such connector in this log"))]);
    }
    let (quiet, eventful): (Vec<_>, Vec<_>) = index.chapters.iter().partition(|c| c.is_quiet());
    let told = worst(replay, index, &eventful);
    let tell_all = options.connector.is_some();
    for (at, chapter) in eventful.iter().enumerate() {
        if told.as_ref().is_some_and(|told| !told.contains(&at)) {
            continue;
        }
        page.gap()?;
        let mut title = format!(" ({})", chapter.place());
        if chapter.actions.is_empty() {
            title.push_str(", never written");
        }
        page.put(0, 2, &[(Bold, &chapter.label), (Plain, &title)])?;
        if let (Some(_), Some(replica)) = (chapter.upstream, chapter.replica) {
            page.put(2, 4, &[(Dim, &format!("at hub and edges: {replica}"))])?;
        }
        let key = chapter.key().filter(|_| !tell_all);
        tell(replay, &passages(chapter, &replay.settings), key, tell_all, page)?;
    }
    if told.is_some() {
        let more = eventful.len() - CHAPTERS;
        page.gap()?;
        let text = format!(
            "… {} with less to tell (--connector NAMESPACE/NAME tells of one)",
            count(more, "more connector")
        );
        page.put(0, 2, &[(Dim, &text)])?;
    }
    if !quiet.is_empty() {
        page.gap()?;
    }
    let shown = if quiet.len() > ROWS { ROWS / 2 } else { quiet.len() };
    for chapter in quiet.iter().take(shown) {
        page.put(0, 2, &[(Bold, &chapter.label), (Plain, ": nothing to do, never written")])?;
    }
    if quiet.len() > shown {
        let text = format!(
            "… {}: nothing to do, never written",
            count(quiet.len() - shown, "more connector")
        );
        page.put(0, 2, &[(Plain, &text)])?;
    }
    if !index.others.is_empty() {
        page.gap()?;
        page.put(0, 2, &[(Bold, "Written for no one connector")])?;
        tell(replay, &passages(&index.for_no_one(), &replay.settings), None, false, page)?;
    }
    Ok(())
}

/// Which connectors to tell of when there are too many: those still stuck, those
/// whose users suffered longest, those with most to tell.
fn worst(replay: &Replay, index: &Index<'_>, eventful: &[&Chapter<'_>]) -> Option<HashSet<usize>> {
    if eventful.len() <= CHAPTERS {
        return None;
    }
    let stuck: HashSet<&ObjectKey> =
        index.stalls.iter().filter(|s| s.ended_at.is_none()).map(|s| &s.stall.connector).collect();
    let mut suffered: BTreeMap<&ObjectKey, u64> = BTreeMap::new();
    for outage in replay.recorded.iter().chain(&replay.replayed) {
        *suffered.entry(&outage.connector).or_default() +=
            outage.until.unwrap_or(replay.last_at).since(outage.from);
    }
    let mut ranked: Vec<_> = eventful
        .iter()
        .enumerate()
        .map(|(at, chapter)| {
            let is_stuck = chapter.replica.is_some_and(|key| stuck.contains(key));
            let ms = chapter.replica.and_then(|key| suffered.get(key)).copied().unwrap_or(0);
            let much = chapter.notes.len() + chapter.actions.len();
            (Reverse((is_stuck, ms, much)), at)
        })
        .collect();
    ranked.sort_unstable();
    Some(ranked.into_iter().take(CHAPTERS).map(|(_, at)| at).collect())
}

/// Passages in order of time; abridged unless `all`.
fn tell(
    replay: &Replay,
    passages: &[Passage<'_>],
    key: Option<&ObjectKey>,
    all: bool,
    page: &mut Page<'_>,
) -> io::Result<()> {
    let cut = if all || passages.len() <= FIRST + LAST { 0 } else { passages.len() - FIRST - LAST };
    let widest = offset(replay.ended_at.since(replay.first_at)).len();
    let mut in_recording = true;
    for (i, passage) in passages.iter().enumerate() {
        if cut > 0 && (FIRST..FIRST + cut).contains(&i) {
            if i == FIRST {
                let to = key.map(|key| format!(" (--connector {key} tells all)"));
                let text = format!("… {} more{}", grouped(cut), to.unwrap_or_default());
                page.put(2, 4, &[(Dim, &text)])?;
            }
            continue;
        }
        if in_recording && passage.at > replay.last_at {
            in_recording = false;
            page.put(2, 4, &[(Dim, "– the recording ends; what was still due –")])?;
        }
        let since_start = offset(passage.at.since(replay.first_at));
        let time = format!("{}  {since_start:>widest$}  ", clock(passage.at));
        let words = passage.words();
        let mut line = vec![(Dim, time.as_str())];
        line.extend(parts(&words));
        page.put(2, 2 + time.chars().count(), &line)?;
    }
    Ok(())
}

/// What needs a person: stalls that are not over, anomalies, orphans, warnings.
pub(super) fn troubles(
    replay: &Replay,
    index: &Index<'_>,
    options: &Options,
    page: &mut Page<'_>,
) -> io::Result<()> {
    let open: Vec<_> = index.stalls.iter().filter(|span| span.ended_at.is_none()).collect();
    section(page, "Stalled at the end", &open, |span| {
        let stall = span.stall;
        let waited = duration(replay.ended_at.since(stall.since));
        vec![
            (Red, format!("{} {}", index.label(&stall.connector), missing(stall))),
            (Plain, format!(", for {waited} since {}: {}", clock(stall.since), stall.reason)),
        ]
    })?;
    let near = options.connector.is_some().then(|| concerned(replay, index));
    let anomalies: Vec<_> = replay
        .notes
        .iter()
        .filter_map(|note| match &note.what {
            Noted::Anomaly(anomaly) => Some((note.at, anomaly)),
            _ => None,
        })
        .filter(|(_, anomaly)| match (&near, &anomaly.object) {
            (Some(near), Some(object)) => near.contains(object),
            _ => true,
        })
        .collect();
    section(page, "Anomalies", &anomalies, |(at, anomaly)| {
        let kind = format!("{:?}", anomaly.anomaly);
        let object = anomaly.object.as_ref().map(|o| format!(" {o}")).unwrap_or_default();
        vec![
            (Dim, format!("{}  ", clock(*at))),
            (Yellow, spaced(&kind)),
            (Plain, format!(", {}{object}: {}", anomaly.cluster, anomaly.detail)),
        ]
    })?;
    if options.connector.is_none() {
        orphans(replay, page)?;
    }
    section(
        page,
        "Warnings of the reader",
        &replay.warnings.iter().collect::<Vec<_>>(),
        |warning| vec![(Yellow, (*warning).clone())],
    )
}

/// The objects whose anomalies concern the one connector asked for: itself and its gateways.
fn concerned<'a>(replay: &'a Replay, index: &Index<'a>) -> HashSet<&'a ObjectKey> {
    let mut near = HashSet::new();
    for chapter in &index.chapters {
        near.extend(chapter.replica);
        near.extend(chapter.upstream.map(|(_, key)| key));
    }
    let wanted = replay.actions.iter().filter(|done| index.wants(done));
    near.extend(wanted.map(|done| &done.decision.action.object));
    near
}

/// Each route's latest judgement, and whether it was deleted.
fn orphans(replay: &Replay, page: &mut Page<'_>) -> io::Result<()> {
    type Judged<'a> = (UnixMillis, Option<&'a str>);
    let mut latest: BTreeMap<(&ClusterName, &ObjectKey), Judged<'_>> = BTreeMap::new();
    for note in &replay.notes {
        if let Noted::Orphan { cluster, route, kept } = &note.what {
            latest.insert((cluster, route), (note.at, kept.map(Keep::text)));
        }
    }
    let deleted: HashSet<_> = replay
        .actions
        .iter()
        .filter(|done| matches!(done.finished, Some((_, Outcome::Applied { .. }))))
        .map(|done| &done.decision.action)
        .filter(|action| action.verb == Verb::Delete)
        .map(|action| (&action.cluster, &action.object))
        .collect();
    let rows: Vec<_> = latest.into_iter().collect();
    section(page, "Orphaned routes", &rows, |((cluster, route), (at, kept))| {
        let fate = match kept {
            _ if deleted.contains(&(*cluster, *route)) => "an orphan, deleted".to_owned(),
            Some(why) => format!("kept: {why}"),
            None => "an orphan, not deleted".to_owned(),
        };
        vec![(Dim, format!("{}  ", clock(*at))), (Plain, format!("{route} at {cluster}: {fate}"))]
    })
}

/// A titled list, cut when long; nothing when empty.
fn section<T>(
    page: &mut Page<'_>,
    title: &str,
    rows: &[T],
    words: impl Fn(&T) -> Vec<(super::style::Style, String)>,
) -> io::Result<()> {
    if rows.is_empty() {
        return Ok(());
    }
    page.gap()?;
    page.put(0, 2, &[(Bold, title)])?;
    for row in rows.iter().take(ROWS) {
        page.put(2, 4, &parts(&words(row)))?;
    }
    if rows.len() > ROWS {
        let text = format!("… {} more (--output json has all)", grouped(rows.len() - ROWS));
        page.put(2, 4, &[(Dim, &text)])?;
    }
    Ok(())
}

/// `OversizedStatus` as `oversized status`.
fn spaced(kind: &str) -> String {
    let mut out = String::with_capacity(kind.len() + 2);
    for (i, c) in kind.char_indices() {
        if c.is_ascii_uppercase() && i > 0 {
            out.push(' ');
        }
        out.push(c.to_ascii_lowercase());
    }
    out
}
