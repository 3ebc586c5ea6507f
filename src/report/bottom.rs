//! The bottom line: what was written, what users saw and would have seen, the verdict.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use super::Options;
use super::index::Index;
use super::passage::confirms;
use super::style::Style::{self, Bold, Dim, Green, Plain, Red, Yellow};
use super::style::{Page, clock, count, duration, grouped};
use crate::core::action::Verb;
use crate::core::ids::{ClusterName, ObjectKey, Role};
use crate::core::time::UnixMillis;
use crate::outage::{Outage, OutageKind};
use crate::replay::{Mode, Replay};

/// So many connectors are told of one by one, of more the totals and the worst.
const SINGLY: usize = 6;
const WORST: usize = 5;
/// So many spans of one connector are told of one by one, the longest.
const SPANS: usize = 3;
const PROBLEMS: usize = 20;

const RECORDED: &str = "recorded";
const PLATFORM_KEY_NOTE: &str = "ended by the platform's own key, which Envoy Gateway 1.8 is known \
                                 not to act on: it may well have lasted longer";

/// What was written, what users saw, the verdict.
pub(super) fn line(
    replay: &Replay,
    index: &Index<'_>,
    options: &Options,
    page: &mut Page<'_>,
) -> io::Result<()> {
    page.gap()?;
    page.put(0, 2, &[(Bold, "Bottom line")])?;
    written(replay, index, options, page)?;
    suffered(replay, index, page)?;
    asked(replay, index, page)?;
    verdict(replay, page)
}

fn written(
    replay: &Replay,
    index: &Index<'_>,
    options: &Options,
    page: &mut Page<'_>,
) -> io::Result<()> {
    let mut by_verb: BTreeMap<Verb, usize> = BTreeMap::new();
    let mut by_fate: BTreeMap<&str, usize> = BTreeMap::new();
    let (mut all, mut confirmations) = (0, 0);
    for done in replay.actions.iter().filter(|done| index.wants(done)) {
        all += 1;
        *by_verb.entry(done.decision.action.verb).or_default() += 1;
        let fate = done.finished.as_ref().map_or("unfinished", |(_, outcome)| outcome.name());
        *by_fate.entry(fate).or_default() += 1;
        confirmations += usize::from(confirms(done, &replay.settings));
    }
    let about = if options.connector.is_some() { " for this connector" } else { "" };
    if all == 0 {
        return page.put(2, 4, &[(Plain, &format!("nothing written{about}"))]);
    }
    let verbs: Vec<_> = by_verb
        .iter()
        .map(|(verb, n)| match (verb, confirmations) {
            (Verb::Touch, 1..) => {
                format!("{} ({} of them to confirm)", count(*n, "touch"), grouped(confirmations))
            }
            _ => count(*n, verb.as_str()),
        })
        .collect();
    let (style, fates) = match by_fate.get("applied") {
        Some(n) if *n == all && all == 1 => (Plain, "applied".to_owned()),
        Some(n) if *n == all => (Plain, "all applied".to_owned()),
        _ => {
            let fates: Vec<_> =
                by_fate.iter().map(|(fate, n)| format!("{} {fate}", grouped(*n))).collect();
            (Yellow, fates.join(", "))
        }
    };
    let what = format!("{}{about}: {}; ", count(all, "action"), verbs.join(", "));
    page.put(2, 4, &[(Plain, &what), (style, &fates)])
}

/// What users got.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Pain {
    Refused,
    DeadTunnel,
}

impl Pain {
    fn of(kind: OutageKind) -> Self {
        match kind {
            OutageKind::Offline | OutageKind::OtherNode => Pain::Refused,
            OutageKind::StaleOnline => Pain::DeadTunnel,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Pain::Refused => "503",
            Pain::DeadTunnel => "dead tunnel",
        }
    }
}

/// Spans of one connector at one edge, or of many.
#[derive(Default)]
struct Spans<'a> {
    all: Vec<&'a Outage>,
    total_ms: u64,
    worst_ms: u64,
    /// One was not over at the end.
    open: bool,
    gateways: usize,
}

impl<'a> Spans<'a> {
    fn add(&mut self, outage: &'a Outage, end: UnixMillis) {
        let ms = outage.until.unwrap_or(end).since(outage.from);
        self.all.push(outage);
        self.total_ms = self.total_ms.saturating_add(ms);
        self.worst_ms = self.worst_ms.max(ms);
        self.open |= outage.until.is_none();
        self.gateways = self.gateways.max(outage.gateways);
    }

    /// `at least 1 min 2 s in 4 spans, the longest 52.2 s`.
    fn words(&self) -> String {
        let at_least = if self.open { "at least " } else { "" };
        let total = duration(self.total_ms);
        match self.all.len() {
            0 => "none".to_owned(),
            1 => format!("{at_least}{total}"),
            n => format!(
                "{at_least}{total} in {}, the longest {}",
                count(n, "span"),
                duration(self.worst_ms)
            ),
        }
    }
}

/// What was recorded beside what would have been.
#[derive(Default)]
struct Sides<'a> {
    recorded: Spans<'a>,
    replayed: Spans<'a>,
}

impl Sides<'_> {
    fn words(&self, recorded: &str, what_if: bool) -> Vec<(Style, String)> {
        let style = if self.recorded.all.is_empty() { Plain } else { Red };
        let mut words = vec![(style, format!("{recorded}: {}", self.recorded.words()))];
        if what_if {
            let better = self.replayed.total_ms < self.recorded.total_ms;
            let good = better || self.replayed.total_ms == 0 && !self.replayed.open;
            words.push((Plain, "; ".to_owned()));
            let style = if good && !self.replayed.open { Green } else { Red };
            words.push((style, format!("with throughline: {}", self.replayed.words())));
        }
        words
    }
}

fn suffered(replay: &Replay, index: &Index<'_>, page: &mut Page<'_>) -> io::Result<()> {
    let has = |role| replay.clusters.iter().any(|cluster| cluster.roles.contains(&role));
    let what_if = replay.mode != Mode::Verify;
    let sides = sides(replay, index);
    if sides.is_empty() {
        let text = match (has(Role::Upstream), has(Role::Edge)) {
            (true, true) if what_if => "503 as recorded: none; with throughline: none",
            (true, true) => "503 as recorded: none",
            (false, _) => "how long users saw 503 cannot be told: the log has no upstream cluster",
            (_, false) => "how long users saw 503 cannot be told: the log has no edge cluster",
        };
        return page.put(2, 4, &[(Plain, text)]);
    }
    if sides.len() > SINGLY {
        return totals(&sides, index, what_if, page);
    }
    let mut headed = None;
    for ((edge, connector, pain), sides) in &sides {
        if headed.replace((edge, connector)) != Some((edge, connector)) {
            let label = index.label(connector);
            page.put(2, 4, &[(Bold, &label), (Plain, &format!(" at {edge}"))])?;
        }
        let mut words = sides.words(&format!("{} as recorded", pain.name()), what_if);
        let gateways = sides.recorded.gateways.max(sides.replayed.gateways);
        words.push((Plain, format!(" ({})", count(gateways, "gateway"))));
        page.put(4, 6, &super::passage::parts(&words))?;
        spans(RECORDED, &sides.recorded, replay.last_at, page)?;
        if sides.replayed.open || sides.replayed.worst_ms >= 1000 {
            spans("with throughline", &sides.replayed, replay.ended_at, page)?;
        }
    }
    Ok(())
}

type ByConnector<'a> = BTreeMap<(&'a ClusterName, &'a ObjectKey, Pain), Sides<'a>>;

fn sides<'a>(replay: &'a Replay, index: &Index<'_>) -> ByConnector<'a> {
    let mut sides = ByConnector::new();
    let wanted = |outage: &&Outage| index.has(&outage.connector);
    for outage in replay.recorded.iter().filter(wanted) {
        let key = (&outage.edge, &outage.connector, Pain::of(outage.kind));
        sides.entry(key).or_default().recorded.add(outage, replay.last_at);
    }
    for outage in replay.replayed.iter().filter(wanted) {
        let key = (&outage.edge, &outage.connector, Pain::of(outage.kind));
        sides.entry(key).or_default().replayed.add(outage, replay.ended_at);
    }
    sides
}

/// The longest spans, each with its beginning and end.
fn spans(side: &str, spans: &Spans<'_>, end: UnixMillis, page: &mut Page<'_>) -> io::Result<()> {
    let lasted = |outage: &Outage| outage.until.unwrap_or(end).since(outage.from);
    let mut longest = spans.all.clone();
    let the_end = if side == RECORDED { "the end of the recording" } else { "the end" };
    longest.sort_by_key(|outage| std::cmp::Reverse(lasted(outage)));
    longest.truncate(SPANS);
    longest.sort_by_key(|outage| outage.from);
    for outage in longest {
        let what = match outage.kind {
            OutageKind::Offline => "programmed offline",
            OutageKind::OtherNode => "programmed to another node",
            OutageKind::StaleOnline => "programmed online",
        };
        let ms = duration(lasted(outage));
        let first = outage.first_right.map(|at| duration(at.since(outage.from)));
        let end = match (first, outage.until) {
            (Some(first), Some(_)) if outage.gateways > 1 => {
                format!("the first gateway right after {first}, the last after {ms}")
            }
            (_, Some(_)) => format!("right after {ms}"),
            (Some(first), None) => {
                format!(
                    "the first gateway right after {first}, the last still wrong at {the_end}, after {ms}"
                )
            }
            (None, None) => format!("still so at {the_end}, after {ms}"),
        };
        let text = format!("{}: {what}; {end}", clock(outage.from));
        page.put(6, 8, &[(Dim, &format!("{side} from ")), (Plain, &text)])?;
        if outage.by_platform_key {
            page.put(8, 8, &[(Yellow, PLATFORM_KEY_NOTE)])?;
        }
    }
    let more = spans.all.len().saturating_sub(SPANS);
    if more > 0 {
        page.put(6, 8, &[(Dim, &format!("… {} shorter", grouped(more)))])?;
    }
    Ok(())
}

/// For many connectors: all added up, and the worst.
fn totals(
    sides: &ByConnector<'_>,
    index: &Index<'_>,
    what_if: bool,
    page: &mut Page<'_>,
) -> io::Result<()> {
    for pain in [Pain::Refused, Pain::DeadTunnel] {
        let mut of_pain: Vec<_> = sides.iter().filter(|((.., p), _)| *p == pain).collect();
        if of_pain.is_empty() {
            continue;
        }
        let sides_of = |side: for<'s> fn(&'s Sides<'_>) -> &'s Spans<'s>| {
            sum(of_pain.iter().map(|((_, connector, _), sides)| (*connector, side(sides))))
        };
        let (recorded, none, _) = sides_of(|sides| &sides.recorded);
        let style = if none { Plain } else { Red };
        page.put(2, 4, &[(style, &format!("{} as recorded: {recorded}", pain.name()))])?;
        if what_if {
            let (replayed, _, open) = sides_of(|sides| &sides.replayed);
            let text = format!("{} with throughline: {replayed}", pain.name());
            page.put(2, 4, &[(if open { Red } else { Green }, &text)])?;
        }
        of_pain.sort_by_key(|(_, s)| {
            std::cmp::Reverse((s.replayed.open, s.recorded.total_ms, s.replayed.total_ms))
        });
        for ((edge, connector, _), sides) in of_pain.iter().take(WORST) {
            let mut words = vec![(Plain, format!("{} at {edge}: ", index.label(connector)))];
            words.extend(sides.words("as recorded", what_if));
            page.put(4, 6, &super::passage::parts(&words))?;
        }
        if let more @ 1.. = of_pain.len().saturating_sub(WORST) {
            page.put(4, 6, &[(Dim, &format!("… {} shorter", grouped(more)))])?;
        }
        let keyed = of_pain.iter().flat_map(|(_, s)| &s.recorded.all);
        if let n @ 1.. = keyed.filter(|outage| outage.by_platform_key).count() {
            let text = format!("{} of the recorded: {PLATFORM_KEY_NOTE}", count(n, "span"));
            page.put(4, 6, &[(Yellow, &text)])?;
        }
    }
    Ok(())
}

/// Spans of many connectors in words; whether there are none; whether one was not over.
fn sum<'a>(parts: impl Iterator<Item = (&'a ObjectKey, &'a Spans<'a>)>) -> (String, bool, bool) {
    let mut connectors = BTreeSet::new();
    let (mut ms, mut spans, mut open) = (0_u64, 0, 0);
    for (connector, part) in parts.filter(|(_, part)| !part.all.is_empty()) {
        connectors.insert(connector);
        ms = ms.saturating_add(part.total_ms);
        spans += part.all.len();
        open += part.all.iter().filter(|outage| outage.until.is_none()).count();
    }
    if spans == 0 {
        return ("none".to_owned(), true, false);
    }
    let (spans, connectors) = (count(spans, "span"), count(connectors.len(), "connector"));
    let mut words = format!("{} added up over {spans} of {connectors}", duration(ms));
    if open > 0 {
        words = format!("at least {words}, {} not over at the end", grouped(open));
    }
    (words, false, open > 0)
}

/// What the API servers of a live run were asked.
fn asked(replay: &Replay, index: &Index<'_>, page: &mut Page<'_>) -> io::Result<()> {
    if replay.requests.is_empty() {
        return Ok(());
    }
    let mut by_verb: BTreeMap<&str, u64> = BTreeMap::new();
    for requests in &replay.requests {
        *by_verb.entry(requests.verb).or_default() += requests.count;
    }
    let number = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
    let words: Vec<_> = by_verb.iter().map(|(verb, n)| count(number(*n), verb)).collect();
    let (style, needless) = match replay.needless_writes() {
        0 => (Plain, "no needless write".to_owned()),
        n => (Yellow, count(number(n), "write") + " that changed nothing"),
    };
    let words = format!("the API servers were asked for {}; ", words.join(", "));
    page.put(2, 4, &[(Plain, &words), (style, &needless)])?;
    let labels: Vec<_> = index
        .chapters
        .iter()
        .filter(|chapter| chapter.actions.is_empty())
        .map(|chapter| chapter.label.as_str())
        .collect();
    let more = match labels.len().saturating_sub(SINGLY) {
        0 => String::new(),
        more => format!(" and {}", count(more, "more connector")),
    };
    let some = labels.get(..labels.len().min(SINGLY)).unwrap_or_default().join(", ");
    match labels.is_empty() {
        true => Ok(()),
        false => page.put(2, 4, &[(Plain, &format!("never written: {some}{more}"))]),
    }
}

fn verdict(replay: &Replay, page: &mut Page<'_>) -> io::Result<()> {
    let has = |role| replay.clusters.iter().any(|cluster| cluster.roles.contains(&role));
    let (word, why) = match replay.mode {
        Mode::Verify => {
            let why = match replay.actions.len() {
                0 => "no actions, as recorded".to_owned(),
                n => format!("{}, the same as recorded", count(n, "action")),
            };
            ("verified", why)
        }
        Mode::WhatIf | Mode::Live => {
            let hub = "every hub annotation means what upstream says";
            let edge = "every gateway announces what its edge says";
            let why = match (has(Role::Downstream), has(Role::Edge)) {
                (true, false) => hub.to_owned(),
                (false, true) => edge.to_owned(),
                _ => format!("{hub}, {edge}"),
            };
            ("converged", why)
        }
    };
    if replay.verdict.good {
        return page.put(2, 4, &[(Green, word), (Plain, &format!(": {why}"))]);
    }
    let problems = &replay.verdict.problems;
    page.put(
        2,
        4,
        &[
            (Red, &format!("NOT {word}:")),
            (Plain, &format!(" {}", count(problems.len(), "problem"))),
        ],
    )?;
    for problem in problems.iter().take(PROBLEMS) {
        page.put(4, 6, &[(Plain, problem)])?;
    }
    if let more @ 1.. = problems.len().saturating_sub(PROBLEMS) {
        page.put(4, 6, &[(Dim, &format!("… {} more (--output json has all)", grouped(more)))])?;
    }
    Ok(())
}
