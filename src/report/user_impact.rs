//! The outages for users in the recording, compared with those with throughline.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;

use serde_json::{Value, json};

use super::model::Report;
use super::style::Style::{self, Bold, Dim, Green, Plain, Red, Yellow};
use super::style::{TextWriter, borrowed, clock, count, duration, grouped};
use crate::core::contract::symptom::Symptom;
use crate::core::data::ids::{ClusterName, NamespacedName, Role};
use crate::core::data::time::UnixMillis;
use crate::replay::{Outage, Replay, ReplayMode};

/// The most connectors listed, the worst first; the totals cover all.
pub(super) const LISTED_MAX: usize = 6;
/// The most outages listed for a connector, the longest first.
const LISTED_OUTAGES_MAX: usize = 3;

const PLATFORM_KEY_NOTE: &str = "counted as over when the platform's own key was written; Envoy \
                                 Gateway 1.8 ignores that key, so it may have lasted longer";

/// Some outages of one timeline.
struct OutageTotals<'a> {
    outages: Vec<&'a Outage>,
    /// The end of the timeline, where an open outage is cut off.
    end: UnixMillis,
}

impl OutageTotals<'_> {
    fn lasted_ms(&self, outage: &Outage) -> u64 {
        outage.until.unwrap_or(self.end).since(outage.from)
    }

    fn total_ms(&self) -> u64 {
        self.outages.iter().fold(0_u64, |sum, outage| sum.saturating_add(self.lasted_ms(outage)))
    }

    fn longest_ms(&self) -> u64 {
        self.outages.iter().map(|outage| self.lasted_ms(outage)).max().unwrap_or(0)
    }

    /// Whether an outage was open at the end.
    fn is_open(&self) -> bool {
        self.outages.iter().any(|outage| outage.until.is_none())
    }

    fn gateways(&self) -> usize {
        self.outages.iter().map(|outage| outage.gateways).max().unwrap_or(0)
    }

    /// E.g. `at least 1 min 2 s in 4 outages, the longest 52.2 s`.
    fn text(&self) -> String {
        let at_least = if self.is_open() { "at least " } else { "" };
        let total = duration(self.total_ms());
        match self.outages.len() {
            0 => "none".to_owned(),
            1 => format!("{at_least}{total}"),
            n => format!(
                "{at_least}{total} in {}, the longest {}",
                count(n, "outage"),
                duration(self.longest_ms())
            ),
        }
    }

    /// The totals for many connectors.
    fn sum_text(&self) -> String {
        let connectors: BTreeSet<_> = self.outages.iter().map(|outage| &outage.connector).collect();
        let of = format!(
            "{} in total ({}, {})",
            duration(self.total_ms()),
            count(self.outages.len(), "outage"),
            count(connectors.len(), "connector")
        );
        let open = self.outages.iter().filter(|outage| outage.until.is_none()).count();
        match (self.outages.len(), open) {
            (0, _) => "none".to_owned(),
            (_, 0) => of,
            _ => format!("at least {of}, {} not over at the end", grouped(open)),
        }
    }
}

/// The outages of one connector at one edge with one symptom.
struct Comparison<'a> {
    recorded: OutageTotals<'a>,
    replayed: OutageTotals<'a>,
}

impl Comparison<'_> {
    fn new(replay: &Replay) -> Self {
        let none = |end| OutageTotals { outages: Vec::new(), end };
        Self { recorded: none(replay.last_at), replayed: none(replay.ended_at) }
    }

    /// Both totals; only the recorded one for a verify.
    fn text(&self, recorded_label: &str, has_replayed: bool) -> Vec<(Style, String)> {
        let style = if self.recorded.outages.is_empty() { Plain } else { Red };
        let mut text = vec![(style, format!("{recorded_label}: {}", self.recorded.text()))];
        if has_replayed {
            let total_ms = self.replayed.total_ms();
            let is_better = total_ms < self.recorded.total_ms() || total_ms == 0;
            let style = if is_better && !self.replayed.is_open() { Green } else { Red };
            text.push((Plain, "; ".to_owned()));
            text.push((style, format!("with throughline: {}", self.replayed.text())));
        }
        text
    }
}

pub(super) fn user_impact(report: &Report<'_>, writer: &mut TextWriter<'_>) -> io::Result<()> {
    let replay = report.replay;
    let has = |role| report.has(role);
    let has_replayed = replay.mode != ReplayMode::Verify;
    let comparisons = comparisons(report);
    let unseen = unseen_connectors(report);
    if unseen > 0 && has(Role::Upstream) && has(Role::Hub) && has(Role::Edge) {
        let connectors = count(unseen, "connector");
        let text = format!("time with 503: unknown for {connectors} whose upstream the log lacks");
        writer.put(2, 4, &[(Yellow, &text)])?;
    }
    if comparisons.is_empty() {
        let tiers = [Role::Upstream, Role::Hub, Role::Edge];
        let text = match tiers.into_iter().find(|role| !has(*role)) {
            Some(role) => {
                let role = role.as_str();
                format!("time with 503: unknown, because the log has no {role} cluster")
            }
            None if has_replayed => "503 in the recording: none; with throughline: none".to_owned(),
            None => "503 in the recording: none".to_owned(),
        };
        return writer.put(2, 4, &[(Plain, &text)]);
    }
    let mut worst: Vec<_> = comparisons.iter().collect();
    if worst.len() > LISTED_MAX {
        totals(report, has_replayed, writer)?;
        worst.sort_by_key(|(_, c)| {
            Reverse((c.replayed.is_open(), c.recorded.total_ms(), c.replayed.total_ms()))
        });
    }
    let less_affected = worst.len().saturating_sub(LISTED_MAX);
    worst.truncate(LISTED_MAX);
    worst.sort_by_key(|(subject, _)| *subject);
    compared(report, &worst, has_replayed, writer)?;
    if less_affected > 0 {
        writer.put(2, 4, &[(Dim, &format!("… {} less affected", grouped(less_affected)))])?;
    }
    Ok(())
}

/// Each connector at each edge, with its longest outages.
fn compared(
    report: &Report<'_>,
    comparisons: &[(&Subject<'_>, &Comparison<'_>)],
    has_replayed: bool,
    writer: &mut TextWriter<'_>,
) -> io::Result<()> {
    let mut last_heading = None;
    for ((edge, connector, seen), comparison) in comparisons {
        if last_heading.replace((edge, connector)) != Some((edge, connector)) {
            let label = report.label(connector);
            writer.put(2, 4, &[(Bold, &label), (Plain, &format!(" at {edge}"))])?;
        }
        let label = format!("{seen} in the recording");
        let mut text = comparison.text(&label, has_replayed);
        let Comparison { recorded, replayed } = comparison;
        let gateways = recorded.gateways().max(replayed.gateways());
        text.push((Plain, format!(" ({})", count(gateways, "gateway"))));
        writer.put(4, 6, &borrowed(&text))?;
        list_outages("in the recording", recorded, "at the end of the recording", writer)?;
        if replayed.is_open() || replayed.longest_ms() >= 1000 {
            list_outages("with throughline", replayed, "at the end", writer)?;
        }
    }
    Ok(())
}

/// The number of connectors without evidence, because the log contains nothing of their upstream.
fn unseen_connectors(report: &Report<'_>) -> usize {
    let replay = report.replay;
    let has = |name: &str| {
        let mut upstreams = replay.clusters.iter().filter(|c| c.roles.contains(&Role::Upstream));
        upstreams.any(|cluster| cluster.name.as_str() == name)
    };
    let wanted = replay.upstreams.iter().filter(|(hub, _)| report.includes(hub));
    wanted.filter(|(_, (cluster, _))| !has(cluster)).count()
}

/// The edge, the connector, and the symptom for users.
type Subject<'a> = (&'a ClusterName, &'a NamespacedName, &'static str);
type Comparisons<'a> = BTreeMap<Subject<'a>, Comparison<'a>>;

fn comparisons<'a>(report: &Report<'a>) -> Comparisons<'a> {
    let replay = report.replay;
    let mut comparisons = Comparisons::new();
    for outage in &report.outages.recorded {
        let key = (&outage.edge, &outage.connector, outage.symptom.users_get());
        let comparison = comparisons.entry(key).or_insert_with(|| Comparison::new(replay));
        comparison.recorded.outages.push(outage);
    }
    for outage in &report.outages.replayed {
        let key = (&outage.edge, &outage.connector, outage.symptom.users_get());
        let comparison = comparisons.entry(key).or_insert_with(|| Comparison::new(replay));
        comparison.replayed.outages.push(outage);
    }
    comparisons
}

/// Lists the longest outages in order of time. `end` names the end of their timeline.
fn list_outages(
    label: &str,
    totals: &OutageTotals<'_>,
    end: &str,
    writer: &mut TextWriter<'_>,
) -> io::Result<()> {
    let mut longest = totals.outages.clone();
    longest.sort_by_key(|outage| Reverse(totals.lasted_ms(outage)));
    longest.truncate(LISTED_OUTAGES_MAX);
    longest.sort_by_key(|outage| outage.from);
    for outage in longest {
        let programmed = match outage.symptom {
            Symptom::Offline => "programmed offline",
            Symptom::OtherNode => "programmed to another node",
            Symptom::StaleOnline => "programmed online",
        };
        let lasted = duration(totals.lasted_ms(outage));
        let first = outage.first_recovered.map(|at| duration(at.since(outage.from)));
        let recovery = match (first, outage.until) {
            (Some(first), Some(_)) if outage.gateways > 1 => {
                format!("the first gateway recovered after {first}, the last after {lasted}")
            }
            (_, Some(_)) => format!("recovered after {lasted}"),
            (Some(first), None) => format!(
                "the first gateway recovered after {first}, the last was still wrong {end}, after \
                 {lasted}"
            ),
            (None, None) => format!("still wrong {end}, after {lasted}"),
        };
        let text = format!("{}: {programmed}; {recovery}", clock(outage.from));
        writer.put(6, 8, &[(Dim, &format!("{label} from ")), (Plain, &text)])?;
        if outage.by_platform_key {
            writer.put(8, 8, &[(Yellow, PLATFORM_KEY_NOTE)])?;
        }
    }
    let more = totals.outages.len().saturating_sub(LISTED_OUTAGES_MAX);
    if more > 0 {
        let text = format!("… {}", count(more, "shorter outage"));
        writer.put(6, 8, &[(Dim, &text)])?;
    }
    Ok(())
}

/// For many connectors: the totals by symptom.
fn totals<'a>(
    report: &Report<'a>,
    has_replayed: bool,
    writer: &mut TextWriter<'_>,
) -> io::Result<()> {
    let replay = report.replay;
    for seen in [Symptom::Offline, Symptom::StaleOnline].map(Symptom::users_get) {
        let of = |outages: &[&'a Outage], end| {
            let all = outages.iter().copied();
            OutageTotals { outages: all.filter(|o| o.symptom.users_get() == seen).collect(), end }
        };
        let recorded = of(&report.outages.recorded, replay.last_at);
        let replayed = of(&report.outages.replayed, replay.ended_at);
        if recorded.outages.is_empty() && replayed.outages.is_empty() {
            continue;
        }
        let text = format!("{seen} in the recording: {}", recorded.sum_text());
        writer.put(2, 4, &[(Red, &text)])?;
        if has_replayed {
            let style = if replayed.is_open() { Red } else { Green };
            let text = format!("{seen} with throughline: {}", replayed.sum_text());
            writer.put(2, 4, &[(style, &text)])?;
        }
    }
    Ok(())
}

/// The outages of each connector at each edge, for the HTML page.
pub(super) fn figures<'a>(report: &Report<'a>) -> HashMap<&'a NamespacedName, Vec<Value>> {
    let total = |side: &OutageTotals<'_>| json!({ "ms": side.total_ms(), "text": side.text(), "open": side.is_open() });
    // The recording of a verify already includes throughline's effect.
    let has_replayed = report.replay.mode != ReplayMode::Verify;
    let mut figures: HashMap<_, Vec<_>> = HashMap::new();
    for ((edge, connector, seen), comparison) in comparisons(report) {
        figures.entry(connector).or_default().push(json!({
            "edge": edge,
            "symptom": seen,
            "recorded": total(&comparison.recorded),
            "replayed": has_replayed.then(|| total(&comparison.replayed)),
        }));
    }
    figures
}
