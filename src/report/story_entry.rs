//! The lines of a connector's story: hops, actions and problems in order of time, with related ones in
//! one line.

use std::collections::{BTreeMap, HashSet};

use serde::{Serialize, Serializer};

use super::model::{PassedHop, Report, Story, error_of};
use super::style::{Style, clock, count, duration, grouped};
use crate::core::contract::action::Verb;
use crate::core::contract::cause::{Hop, Severity};
use crate::core::contract::settings::Settings;
use crate::core::data::ids::{ActionId, ClusterName};
use crate::core::data::time::UnixMillis;
use crate::core::status::trigger::Trigger;
use crate::replay::{ActionRecord, Replay, Span};

/// Touches of different gateways form one entry if they have the same reason and are at most this far
/// apart, and so do problems of one cause in one cluster. An edge writes one bundle for each window; a
/// person who touches the gateways one by one makes many writes.
const BUNDLE_MS: u64 = 1_500;

/// Slower writes are reported with their duration.
const SLOW_MS: u64 = 1_000;

/// One line of a story.
#[derive(Serialize)]
pub(super) struct StoryEntry {
    pub(super) at_ms: UnixMillis,
    /// `upstream`, a hop, a verb, `confirm`, `began`, `ended` or `notice`.
    kind: &'static str,
    /// The state that upstream or a hop changed to.
    #[serde(skip_serializing_if = "Option::is_none")]
    online: Option<bool>,
    /// The severity of the problem that began or ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    severity: Option<Severity>,
    #[serde(serialize_with = "without_styles")]
    pub(super) text: Vec<(Style, String)>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    actions: Vec<ActionId>,
}

fn without_styles<S: Serializer>(text: &[(Style, String)], s: S) -> Result<S::Ok, S::Error> {
    s.serialize_str(&text.iter().map(|(_, text)| text.as_str()).collect::<String>())
}

impl StoryEntry {
    pub(super) fn notice(at_ms: UnixMillis, text: String) -> Self {
        let text = vec![(Style::Dim, text)];
        Self { at_ms, kind: "notice", online: None, severity: None, text, actions: Vec::new() }
    }

    /// The entry of related happenings.
    fn of(group: &[Happening<'_>]) -> Option<Self> {
        let first = group.first()?;
        let records: Vec<_> = group.iter().filter_map(Happening::record).collect();
        let (online, severity, kind, text) = match first.what {
            What::Upstream { online, before } => {
                (Some(online), None, "upstream", vec![upstream_text(online, before)])
            }
            What::Passed { hop, online, after_upstream_ms, .. } => {
                let hops: Vec<_> = group.iter().filter_map(Happening::hop).collect();
                (Some(online), None, hop.as_str(), passed_text(&hops, online, after_upstream_ms))
            }
            What::Written { record, is_confirmation } => {
                let verb = record.decision.action.verb.as_str();
                let kind = if is_confirmation { "confirm" } else { verb };
                (None, None, kind, written_text(record, &records, is_confirmation))
            }
            What::Problem { began, span } => {
                let kind = if began { "began" } else { "ended" };
                (None, Some(span.severity), kind, problem_text(began, span, group.len()))
            }
        };
        let actions = records.iter().map(|record| record.decision.action.id).collect();
        Some(Self { at_ms: first.at, kind, online, severity, text, actions })
    }
}

/// The notes and actions of a live run that were already printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    notes: usize,
    /// Later actions have higher ids.
    last_action: Option<ActionId>,
}

impl Seen {
    pub fn all_of(replay: &Replay) -> Self {
        let last_action = replay.actions.last().map(|record| record.decision.action.id);
        Self { notes: replay.notes.len(), last_action }
    }

    fn has(&self, record: &ActionRecord) -> bool {
        self.last_action.is_some_and(|last| record.decision.action.id <= last)
    }
}

/// An event in a connector's story.
struct Happening<'a> {
    at: UnixMillis,
    what: What<'a>,
}

#[derive(Clone, Copy)]
enum What<'a> {
    /// `before`: the upstream state before, if known.
    Upstream {
        online: bool,
        before: Option<bool>,
    },
    /// `after_upstream_ms`: the time since the upstream change, if that was observed.
    Passed {
        hop: Hop,
        cluster: &'a ClusterName,
        online: bool,
        after_upstream_ms: Option<u64>,
    },
    Written {
        record: &'a ActionRecord,
        is_confirmation: bool,
    },
    Problem {
        began: bool,
        span: &'a Span,
    },
}

impl<'a> Happening<'a> {
    fn record(&self) -> Option<&'a ActionRecord> {
        match self.what {
            What::Written { record, .. } => Some(record),
            _ => None,
        }
    }

    fn hop(&self) -> Option<(Hop, &'a ClusterName)> {
        match self.what {
            What::Passed { hop, cluster, .. } => Some((hop, cluster)),
            _ => None,
        }
    }

    /// Orders happenings of the same millisecond: causes before effects.
    fn rank(&self) -> (u8, &'a str, &'a str) {
        match self.what {
            What::Upstream { .. } => (0, "", ""),
            What::Written { record, .. } => match &record.decision {
                touch if touch.action.verb == Verb::Touch => {
                    (3, touch.action.cluster.as_str(), &touch.because)
                }
                _ => (1, "", ""),
            },
            What::Passed { hop: Hop::Announced, .. } => (4, "", ""),
            What::Passed { .. } => (2, "", ""),
            What::Problem { began, span } => {
                let (cause, cluster) = subject_of(span);
                (5 + u8::from(began), cause, cluster)
            }
        }
    }

    /// Whether it belongs to the same entry as the happenings before it.
    fn continues(&self, group: &[Self]) -> bool {
        let (Some(first), Some(last)) = (group.first(), group.last()) else { return false };
        match (last.what, self.what) {
            (
                What::Written { record, is_confirmation },
                What::Written { record: next, is_confirmation: confirms },
            ) => is_confirmation == confirms && is_one_bundle(record, next),
            (What::Passed { hop, online, .. }, What::Passed { hop: next, online: is, .. }) => {
                last.at == self.at && online == is && ![hop, next].contains(&Hop::Announced)
            }
            (What::Problem { began, span }, What::Problem { began: begins, span: next }) => {
                let is_alike = began == begins && subject_of(span) == subject_of(next);
                is_alike && self.at.since(first.at) <= BUNDLE_MS
            }
            _ => false,
        }
    }
}

/// The entries not printed before.
pub(super) fn story_entries(report: &Report<'_>, story: &Story<'_>, seen: Seen) -> Vec<StoryEntry> {
    let mut all = hops(story, seen);
    for record in story.actions.iter().filter(|record| !seen.has(record)) {
        let is_confirmation = is_confirmation(record, &report.replay.settings);
        let what = What::Written { record, is_confirmation };
        all.push(Happening { at: record.decision.at, what });
    }
    for span in report.problems_of(story) {
        let begun = Some((true, span.reported_ms, span.began_at));
        let ended = span.ended_ms.zip(span.ended_at).map(|(at, noted)| (false, at, noted));
        let both = [begun, ended].into_iter().flatten();
        for (began, at, _) in both.filter(|(.., noted)| *noted >= seen.notes) {
            all.push(Happening { at, what: What::Problem { began, span } });
        }
    }
    all.sort_by_key(|happening| (happening.at, happening.rank()));
    let mut groups: Vec<Vec<Happening<'_>>> = Vec::new();
    // The last group's objects: a second write to an object starts another entry.
    let mut written = HashSet::new();
    for happening in all {
        let object = happening.record().map(|record| &record.decision.action.object);
        match groups.last_mut() {
            Some(group)
                if happening.continues(group)
                    && object.is_none_or(|object| written.insert(object)) =>
            {
                group.push(happening);
            }
            _ => {
                written = object.into_iter().collect();
                groups.push(vec![happening]);
            }
        }
    }
    groups.iter().filter_map(|group| StoryEntry::of(group)).collect()
}

fn hops<'a>(story: &Story<'a>, seen: Seen) -> Vec<Happening<'a>> {
    let mut hops = Vec::with_capacity(story.hops.len() + story.actions.len());
    let mut upstream: Option<(UnixMillis, bool)> = None;
    for &PassedHop { at_ms: at, hop, cluster, online, noted_at, .. } in &story.hops {
        let what = if hop == Hop::Upstream {
            let before = upstream.replace((at, online)).map(|(_, before)| before);
            What::Upstream { online, before }
        } else {
            let same = upstream.filter(|(_, upstream_online)| *upstream_online == online);
            let after_upstream_ms = same.map(|(since, _)| at.since(since));
            What::Passed { hop, cluster, online, after_upstream_ms }
        };
        if noted_at >= seen.notes {
            hops.push(Happening { at, what });
        }
    }
    hops
}

/// Whether a touch repeats the value that its gateway already announces.
pub(super) fn is_confirmation(record: &ActionRecord, settings: &Settings) -> bool {
    record.decision.action.annotations.iter().any(|(key, value)| {
        *key == settings.touch.key
            && value.as_deref().and_then(Trigger::parse).is_some_and(|trigger| trigger.c > 0)
    })
}

/// The cause and the cluster.
pub(super) fn subject_of(span: &Span) -> (&str, &str) {
    (span.cause.as_str(), span.about.cluster.as_str())
}

/// Red, yellow or plain, by severity.
pub(super) fn style_of(span: &Span) -> Style {
    match span.severity {
        Severity::Error => Style::Red,
        Severity::Warning => Style::Yellow,
        Severity::Info => Style::Plain,
    }
}

/// The number of similar problems besides the first.
pub(super) fn likewise(problems: usize) -> String {
    match problems {
        0 | 1 => String::new(),
        2 => " Likewise 1 other.".to_owned(),
        more => format!(" Likewise {} others.", grouped(more - 1)),
    }
}

/// The text for `first`, which is one of `alike` similar problems.
fn problem_text(began: bool, first: &Span, alike: usize) -> Vec<(Style, String)> {
    let cause = first.cause.as_str();
    let lasted = duration(first.ended_ms.unwrap_or_default().since(first.since_ms));
    let title = match began {
        true => (style_of(first), cause.to_owned()),
        false => (Style::Green, format!("{cause} ended after {lasted}")),
    };
    let others = likewise(alike);
    let mut text = vec![title, (Style::Plain, format!(": {}{others}", first.message))];
    if began && first.since_ms < first.reported_ms {
        text.push((Style::Dim, format!(" Since {}.", clock(first.since_ms))));
    }
    text
}

fn is_one_bundle(last: &ActionRecord, next: &ActionRecord) -> bool {
    let last = &last.decision;
    let next = &next.decision;
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
    if let [(Hop::Announced, edge)] = hops {
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

fn written_text(
    first: &ActionRecord,
    records: &[&ActionRecord],
    is_confirmation: bool,
) -> Vec<(Style, String)> {
    let action = &first.decision.action;
    let because = &first.decision.because;
    let cluster = &action.cluster;
    let object = &action.object;
    let removes = action.annotations.iter().all(|(_, value)| value.is_none());
    let what = match action.verb {
        Verb::Mirror if removes => format!("hub annotation removed ({cluster})"),
        Verb::Mirror => format!("hub annotation written ({cluster})"),
        Verb::Nudge => format!("nudged at the hub ({cluster})"),
        Verb::Delete => format!("route {object} deleted at the hub ({cluster})"),
        Verb::Touch => touched_text(records, cluster, is_confirmation),
    };
    let style = if is_confirmation { Style::Plain } else { Style::Bold };
    let within = match records.last().map_or(0, |last| last.decision.at.since(first.decision.at)) {
        0 => String::new(),
        ms => format!(" within {}", duration(ms)),
    };
    let mut text = vec![(style, what + &within), (Style::Dim, format!(": {because}"))];
    text.extend(outcomes_text(records).map(|outcomes| (Style::Yellow, outcomes)));
    let took = |r: &&ActionRecord| r.finished.as_ref().map(|(at, _)| at.since(r.decision.at));
    if let Some(ms) = records.iter().filter_map(took).max().filter(|ms| *ms > SLOW_MS) {
        text.push((Style::Yellow, format!("; took {}", duration(ms))));
    }
    text
}

fn touched_text(records: &[&ActionRecord], cluster: &ClusterName, again: bool) -> String {
    let touched = if again { "touched again" } else { "touched" };
    let mut names: Vec<_> = records.iter().map(|r| r.decision.action.object.name()).collect();
    names.sort_unstable();
    names.dedup();
    let listed = match names.as_slice() {
        [name] => return format!("gateway {name} {touched} at {cluster}"),
        [first, _, _, .., last] => format!("{first} … {last}"),
        few => few.join(", "),
    };
    format!("{} {touched} at {cluster} ({listed})", count(names.len(), "gateway"))
}

/// The outcomes, unless all actions were applied.
fn outcomes_text(records: &[&ActionRecord]) -> Option<String> {
    let mut by_name: BTreeMap<&str, usize> = BTreeMap::new();
    for record in records {
        *by_name.entry(record.outcome_name()).or_default() += 1;
    }
    let failed = records.iter().find(|record| record.outcome_name() != "applied")?;
    let error = failed.finished.as_ref().and_then(|(_, outcome)| error_of(outcome));
    let error = error.map(|error| format!(": {error}")).unwrap_or_default();
    Some(match by_name.len() {
        1 => format!(" → {}{error}", failed.outcome_name()),
        _ => {
            let counts: Vec<_> = by_name.iter().map(|(name, n)| format!("{n} {name}")).collect();
            let object = failed.decision.action.object.name();
            format!(" → {} (first: {object}{error})", counts.join(", "))
        }
    })
}
