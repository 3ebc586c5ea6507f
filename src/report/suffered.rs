//! What users saw, beside what they would have: in words, and as figures.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use serde::Serialize;

use super::index::Index;
use super::style::Style::{self, Bold, Dim, Green, Plain, Red, Yellow};
use super::style::{Page, clock, count, duration, grouped};
use crate::core::ids::{ClusterName, ObjectKey, Role};
use crate::core::time::UnixMillis;
use crate::outage::{Outage, OutageKind};
use crate::replay::{Mode, Replay};

/// So many connectors are told of one by one, of more the totals and the worst.
pub(super) const SINGLY: usize = 6;
const WORST: usize = 5;
/// So many spans of one connector are told of one by one, the longest.
const SPANS: usize = 3;

const RECORDED: &str = "recorded";
const PLATFORM_KEY_NOTE: &str = "ended by the platform's own key, which Envoy Gateway 1.8 is known \
                                 not to act on: it may well have lasted longer";

/// What users got.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(super) enum Pain {
    #[serde(rename = "503")]
    Refused,
    #[serde(rename = "dead tunnel")]
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

/// What users saw, beside what they would have.
pub(super) fn suffered(replay: &Replay, index: &Index<'_>, page: &mut Page<'_>) -> io::Result<()> {
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

/// One side of a [`Figure`].
#[derive(Serialize)]
pub(super) struct Side {
    /// All spans added up.
    ms: u64,
    words: String,
    /// One was not over at the end.
    open: bool,
}

impl Side {
    fn new(spans: &Spans<'_>) -> Self {
        let (ms, words) = (spans.total_ms, spans.words());
        Self { ms, words, open: spans.open }
    }
}

/// What the users of one connector saw at one edge, beside what they would have.
#[derive(Serialize)]
pub(super) struct Figure<'a> {
    edge: &'a ClusterName,
    /// Its name at hub and edges.
    #[serde(skip)]
    pub(super) connector: &'a ObjectKey,
    pain: Pain,
    recorded: Side,
    /// None in a verify: what was recorded is what throughline did.
    replayed: Option<Side>,
}

/// What users saw, a figure for each connector, edge and pain.
pub(super) fn figures<'a>(replay: &'a Replay, index: &Index<'_>) -> Vec<Figure<'a>> {
    let what_if = replay.mode != Mode::Verify;
    let figure = |((edge, connector, pain), sides): (_, Sides<'_>)| Figure {
        edge,
        connector,
        pain,
        recorded: Side::new(&sides.recorded),
        replayed: what_if.then(|| Side::new(&sides.replayed)),
    };
    sides(replay, index).into_iter().map(figure).collect()
}
