//! A connector's story: hops, actions and problems in order of time, related ones grouped into one entry.

use std::collections::{BTreeMap, HashSet};

use super::model::{Report, Story};
use super::style::{Style, clock, count, duration, grouped};
use crate::core::contract::action::Verb;
use crate::core::contract::cause::Severity;
use crate::core::contract::event::Outcome;
use crate::core::contract::note::{Hop, NoteKind};
use crate::core::contract::settings::Settings;
use crate::core::data::ids::{ClusterName, ObjectKey};
use crate::core::data::time::UnixMillis;
use crate::core::status::trigger::Trigger;
use crate::replay::{ActionRecord, Span};

/// Touches of different gateways form one entry if they have the same reason and are at most this
/// far apart, and so do problems of one cause in one cluster. An edge writes one bundle per window; a person who
/// touches the gateways one by one makes many writes.
const BUNDLE_MS: u64 = 1_500;

/// Slower writes are reported with their duration.
const SLOW_MS: u64 = 1_000;

pub(super) struct StoryEntry<'a> {
    pub(super) at: UnixMillis,
    kind: EntryKind<'a>,
}

/// How many notes and actions were printed before.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Seen {
    pub(super) notes: usize,
    pub(super) actions: usize,
}

enum EntryKind<'a> {
    Upstream {
        online: bool,
        /// The upstream state before, if known.
        before: Option<bool>,
    },
    /// Hops passed at the same moment.
    Passed {
        hops: Vec<(Hop, &'a ClusterName)>,
        online: bool,
        /// Since the upstream change, if that was seen.
        after_upstream_ms: Option<u64>,
    },
    /// The same write to one or more objects.
    Written {
        records: Vec<&'a ActionRecord>,
        objects: HashSet<&'a ObjectKey>,
        is_confirmation: bool,
    },
    /// Problems of one cause in one cluster.
    Problem { began: bool, spans: Vec<&'a Span> },
}

pub(super) fn story_entries<'a>(report: &'a Report<'_>, story: &Story<'_>) -> Vec<StoryEntry<'a>> {
    new_entries(report, story, Seen::default())
}

/// The entries of what was not seen before.
pub(super) fn new_entries<'a>(
    report: &'a Report<'_>,
    story: &Story<'_>,
    seen: Seen,
) -> Vec<StoryEntry<'a>> {
    let mut single = hop_entries(report, story, seen);
    let mut add = |at, kind| single.push(StoryEntry { at, kind });
    for at in story.actions.iter().filter(|at| **at >= seen.actions) {
        let Some(record) = report.replay.actions.get(*at) else { continue };
        let objects = HashSet::from([&record.decision.action.object]);
        let is_confirmation = is_confirmation(record, &report.replay.settings);
        let kind = EntryKind::Written { records: vec![record], objects, is_confirmation };
        add(record.decision.at, kind);
    }
    for span in report.problems_of(story) {
        let kind = |began| EntryKind::Problem { began, spans: vec![span] };
        if span.began_at >= seen.notes {
            add(span.reported_ms, kind(true));
        }
        if let Some((at, _)) = span.ended_ms.zip(span.ended_at).filter(|(_, at)| *at >= seen.notes)
        {
            add(at, kind(false));
        }
    }
    single.sort_by_key(|entry| (entry.at, entry.kind.rank()));
    let mut grouped: Vec<StoryEntry<'a>> = Vec::with_capacity(single.len());
    for entry in single {
        let not_absorbed = match grouped.last_mut() {
            Some(last) => last.absorb(entry),
            None => Some(entry),
        };
        grouped.extend(not_absorbed);
    }
    grouped
}

fn hop_entries<'a>(report: &'a Report<'_>, story: &Story<'_>, seen: Seen) -> Vec<StoryEntry<'a>> {
    let mut entries = Vec::with_capacity(story.hops.len() + story.actions.len());
    let mut upstream: Option<(UnixMillis, bool)> = None;
    for at in &story.hops {
        let Some(note) = report.replay.notes.get(*at) else { continue };
        let NoteKind::HopPassed { cluster, hop, online, .. } = &note.kind else { continue };
        let kind = if *hop == Hop::Upstream {
            let before = upstream.replace((note.at, *online)).map(|(_, before)| before);
            EntryKind::Upstream { online: *online, before }
        } else {
            let same = upstream.filter(|(_, upstream_online)| upstream_online == online);
            let after_upstream_ms = same.map(|(at, _)| note.at.since(at));
            EntryKind::Passed { hops: vec![(*hop, cluster)], online: *online, after_upstream_ms }
        };
        if *at >= seen.notes {
            entries.push(StoryEntry { at: note.at, kind });
        }
    }
    entries
}

/// Whether a touch repeats what its gateway announces already.
pub(super) fn is_confirmation(record: &ActionRecord, settings: &Settings) -> bool {
    record.decision.action.annotations.iter().any(|(key, value)| {
        *key == settings.touch.key
            && value.as_deref().and_then(Trigger::parse).is_some_and(|trigger| trigger.c > 0)
    })
}

/// The API server's answer to an action that failed.
pub(super) fn error_of(outcome: &Outcome) -> Option<&str> {
    outcome.error().map(|error| &*error.text).filter(|error| !error.is_empty())
}

impl<'a> EntryKind<'a> {
    /// Orders entries of the same millisecond: causes before effects.
    fn rank(&self) -> (u8, &'a str, &'a str) {
        match self {
            EntryKind::Upstream { .. } => (0, "", ""),
            EntryKind::Written { records, .. } => match records.first().map(|r| &r.decision) {
                Some(first) if first.action.verb == Verb::Touch => {
                    (3, first.action.cluster.as_str(), &first.because)
                }
                _ => (1, "", ""),
            },
            EntryKind::Passed { hops, .. } if hops.iter().any(|(hop, _)| *hop == Hop::Touched) => {
                (4, "", "")
            }
            EntryKind::Passed { .. } => (2, "", ""),
            EntryKind::Problem { began, spans } => {
                let (cause, cluster) = subject_of(spans);
                (5 + u8::from(*began), cause, cluster)
            }
        }
    }
}

impl<'a> StoryEntry<'a> {
    /// Merges the next entry into this one, or returns it if they do not belong together.
    fn absorb(&mut self, next: Self) -> Option<Self> {
        match (&mut self.kind, next.kind) {
            (
                EntryKind::Written { records, objects, is_confirmation },
                EntryKind::Written {
                    records: next_records,
                    objects: next_objects,
                    is_confirmation: next_is_confirmation,
                },
            ) if *is_confirmation == next_is_confirmation
                && is_one_bundle(records, &next_records)
                && next_objects.is_disjoint(objects) =>
            {
                records.extend(next_records);
                objects.extend(next_objects);
                None
            }
            (
                EntryKind::Passed { hops, online, .. },
                EntryKind::Passed { hops: next_hops, online: next_online, .. },
            ) if self.at == next.at
                && *online == next_online
                && hops.iter().chain(&next_hops).all(|(hop, _)| *hop != Hop::Touched) =>
            {
                hops.extend(next_hops);
                None
            }
            (
                EntryKind::Problem { began, spans },
                EntryKind::Problem { began: next_began, spans: more },
            ) if *began == next_began
                && subject_of(spans) == subject_of(&more)
                && next.at.since(self.at) <= BUNDLE_MS =>
            {
                spans.extend(more);
                None
            }
            (_, kind) => Some(StoryEntry { at: next.at, kind }),
        }
    }

    /// For scripts: `upstream`, a hop, a verb, `confirm`, `began` or `ended`.
    pub(super) fn kind_name(&self) -> &'static str {
        match &self.kind {
            EntryKind::Upstream { .. } => "upstream",
            EntryKind::Passed { hops, .. } => hops.first().map_or("", |(hop, _)| hop.as_str()),
            EntryKind::Written { is_confirmation: true, .. } => "confirm",
            EntryKind::Written { records, .. } => {
                records.first().map_or("", |record| record.decision.action.verb.as_str())
            }
            EntryKind::Problem { began: true, .. } => "began",
            EntryKind::Problem { .. } => "ended",
        }
    }

    /// How bad the problem is that began or ended.
    pub(super) fn severity(&self) -> Option<Severity> {
        match &self.kind {
            EntryKind::Problem { spans, .. } => spans.first().map(|span| span.severity),
            _ => None,
        }
    }

    /// The state that upstream or a hop changed to.
    pub(super) fn online(&self) -> Option<bool> {
        match &self.kind {
            EntryKind::Upstream { online, .. } | EntryKind::Passed { online, .. } => Some(*online),
            _ => None,
        }
    }

    pub(super) fn actions(&self) -> &[&'a ActionRecord] {
        match &self.kind {
            EntryKind::Written { records, .. } => records,
            _ => &[],
        }
    }

    pub(super) fn text(&self) -> Vec<(Style, String)> {
        match &self.kind {
            EntryKind::Upstream { online, before } => vec![upstream_text(*online, *before)],
            EntryKind::Passed { hops, online, after_upstream_ms } => {
                passed_text(hops, *online, *after_upstream_ms)
            }
            EntryKind::Written { records, is_confirmation, .. } => {
                written_text(records, *is_confirmation)
            }
            EntryKind::Problem { began, spans } => problem_text(*began, spans),
        }
    }
}

/// The cause and the cluster.
pub(super) fn subject_of<'a>(spans: &[&'a Span]) -> (&'a str, &'a str) {
    spans.first().map_or(("", ""), |span| (span.cause.as_str(), span.about.cluster.as_str()))
}

/// Red, yellow or plain, as the problem is bad.
pub(super) fn style_of(span: &Span) -> Style {
    match span.severity {
        Severity::Error => Style::Red,
        Severity::Warning => Style::Yellow,
        Severity::Info => Style::Plain,
    }
}

/// How many more of so many problems are like the first.
pub(super) fn likewise(problems: usize) -> String {
    match problems {
        0 | 1 => String::new(),
        2 => " Likewise 1 other.".to_owned(),
        more => format!(" Likewise {} others.", grouped(more - 1)),
    }
}

fn problem_text(began: bool, spans: &[&Span]) -> Vec<(Style, String)> {
    let Some(first) = spans.first() else { return Vec::new() };
    let cause = first.cause.as_str();
    let lasted = duration(first.ended_ms.unwrap_or_default().since(first.since_ms));
    let title = match began {
        true => (style_of(first), cause.to_owned()),
        false => (Style::Green, format!("{cause} ended after {lasted}")),
    };
    let others = likewise(spans.len());
    let mut text = vec![title, (Style::Plain, format!(": {}{others}", first.message))];
    if began && first.since_ms < first.reported_ms {
        text.push((Style::Dim, format!(" Since {}.", clock(first.since_ms))));
    }
    text
}

fn is_one_bundle(records: &[&ActionRecord], more: &[&ActionRecord]) -> bool {
    let (Some(last), Some(next)) = (records.last(), more.first()) else { return false };
    let (last, next) = (&last.decision, &next.decision);
    last.action.verb == Verb::Touch
        && next.action.verb == Verb::Touch
        && next.at.since(last.at) <= BUNDLE_MS
        && last.action.cluster == next.action.cluster
        && last.because == next.because
}

fn state_word(online: bool) -> &'static str {
    if online { "online" } else { "offline" }
}

fn upstream_text(online: bool, before: Option<bool>) -> (Style, String) {
    let state = state_word(online);
    match before {
        Some(before) if before == online => {
            (Style::Bold, format!("status changes upstream, still {state}"))
        }
        Some(_) => (Style::Bold, format!("goes {state} upstream")),
        None => (Style::Bold, format!("is {state} upstream")),
    }
}

fn passed_text(
    hops: &[(Hop, &ClusterName)],
    online: bool,
    after_upstream_ms: Option<u64>,
) -> Vec<(Style, String)> {
    let delay = match after_upstream_ms {
        Some(0) => ", immediately".to_owned(),
        Some(ms) => format!(", {} after upstream", duration(ms)),
        None => String::new(),
    };
    let state = state_word(online);
    if let [(Hop::Touched, edge)] = hops {
        let style = if online { Style::Green } else { Style::Plain };
        return vec![
            (style, format!("every gateway at {edge} announces {state}")),
            (Style::Dim, delay),
        ];
    }
    let places = match hops {
        [(_, hub), (_, edge)] if hub == edge => format!("at hub and edge ({hub})"),
        _ => hops.iter().map(|hop| place(*hop)).collect::<Vec<_>>().join(", "),
    };
    vec![(Style::Plain, format!("{state} {places}")), (Style::Dim, delay)]
}

fn place((hop, cluster): (Hop, &ClusterName)) -> String {
    match hop {
        Hop::Mirrored => format!("at the hub ({cluster})"),
        _ => format!("at the edge ({cluster})"),
    }
}

fn written_text(records: &[&ActionRecord], is_confirmation: bool) -> Vec<(Style, String)> {
    let Some(first) = records.first() else { return Vec::new() };
    let (action, because) = (&first.decision.action, &first.decision.because);
    let (cluster, object) = (&action.cluster, &action.object);
    let removes = action.annotations.iter().all(|(_, value)| value.is_none());
    let what = match action.verb {
        Verb::Mirror if removes => format!("hub annotation removed ({cluster})"),
        Verb::Mirror => format!("hub annotation written ({cluster})"),
        Verb::Nudge => format!("nudged at the hub ({cluster})"),
        Verb::Delete => format!("route {object} deleted at the hub ({cluster})"),
        Verb::Touch => {
            let touched = if is_confirmation { "touched again" } else { "touched" };
            let mut names: Vec<_> =
                records.iter().map(|r| r.decision.action.object.name.as_str()).collect();
            names.sort_unstable();
            names.dedup();
            let gateways = count(names.len(), "gateway");
            match names.as_slice() {
                [name] => format!("gateway {name} {touched} at {cluster}"),
                [_, _] | [_, _, _] => {
                    format!("{gateways} {touched} at {cluster} ({})", names.join(", "))
                }
                [first, .., last] => {
                    format!("{gateways} {touched} at {cluster} ({first} … {last})")
                }
                [] => String::new(),
            }
        }
    };
    let style = if is_confirmation { Style::Plain } else { Style::Bold };
    let span_ms = records.last().map_or(0, |last| last.decision.at.since(first.decision.at));
    let within = match span_ms {
        0 => String::new(),
        ms => format!(" within {}", duration(ms)),
    };
    let mut text = vec![(style, what + &within), (Style::Dim, format!(": {because}"))];
    text.extend(outcomes_text(records).map(|outcomes| (Style::Yellow, outcomes)));
    let slowest_ms = records
        .iter()
        .filter_map(|r| r.finished.as_ref().map(|(at, _)| at.since(r.decision.at)))
        .max();
    if let Some(ms) = slowest_ms.filter(|ms| *ms > SLOW_MS) {
        text.push((Style::Yellow, format!("; took {}", duration(ms))));
    }
    text
}

/// The outcomes, unless all actions were applied.
fn outcomes_text(records: &[&ActionRecord]) -> Option<String> {
    let name =
        |record: &ActionRecord| record.finished.as_ref().map_or("unfinished", |(_, o)| o.name());
    let mut by_name: BTreeMap<&str, usize> = BTreeMap::new();
    for record in records {
        *by_name.entry(name(record)).or_default() += 1;
    }
    let failed = records.iter().find(|record| name(record) != "applied")?;
    let error = failed.finished.as_ref().and_then(|(_, outcome)| error_of(outcome));
    let error = error.map(|error| format!(": {error}")).unwrap_or_default();
    Some(match by_name.len() {
        1 => format!(" → {}{error}", name(failed)),
        _ => {
            let counts: Vec<_> = by_name.iter().map(|(name, n)| format!("{n} {name}")).collect();
            let object = &failed.decision.action.object.name;
            format!(" → {} (first: {object}{error})", counts.join(", "))
        }
    })
}

pub(super) fn borrowed(text: &[(Style, String)]) -> Vec<(Style, &str)> {
    text.iter().map(|(style, text)| (*style, text.as_str())).collect()
}
