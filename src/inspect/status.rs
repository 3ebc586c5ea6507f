//! Prints a fleet: a row for each connector, then the counts and the problems.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::io::{self, Write};

use super::{not_writing, origin};
use crate::core::contract::cause::{Cause, Hop, Severity, State};
use crate::core::data::ids::ClusterName;
use crate::core::data::time::UnixMillis;
use crate::core::view::fleet::{Connector, Fleet, HopView};
use crate::core::view::group::GroupView;
use crate::outside_text::one_line;
use crate::report::ReportOptions;
use crate::report::style::{Style, TextWriter, count, duration, unbroken};

const COLUMNS: [&str; 9] =
    ["UPSTREAM", "CONNECTOR", "EDGES", "LIVENESS", "STATE", "HOP", "CAUSE", "FOR", "GATEWAYS"];

/// Whether an operator has to act: it is held, late or unknown. A paused connector is intended.
pub fn needs_a_look(connector: &Connector) -> bool {
    let mut worst = connector.hops.iter().filter(|hop| hop.state == connector.state);
    connector.state > State::Pending && !worst.all(|hop| hop.cause == Some(Cause::Paused))
}

/// Sorts the connectors by state, the worst first.
pub fn sort(connectors: &mut [Connector]) {
    connectors.sort_by_key(|connector| Reverse(connector.state));
}

pub(super) const fn style(state: State) -> Style {
    match state {
        State::Ok => Style::Green,
        State::Pending | State::Held | State::Unknown => Style::Yellow,
        State::Stuck => Style::Red,
    }
}

/// Writes the remedy. Its commands are not wrapped, so that they can be pasted.
pub(super) fn put_remedy(remedy: &str, writer: &mut TextWriter<'_>) -> io::Result<()> {
    let remedy = one_line(remedy);
    let parts = remedy.split('`').enumerate();
    let unbroken =
        |(i, part): (usize, &str)| if i % 2 == 1 { unbroken(part) } else { part.to_owned() };
    let remedy: Vec<_> = parts.map(unbroken).collect();
    writer.put(2, 4, &[(Style::Plain, &format!("→\u{a0}{}", remedy.join("`")))])
}

/// Pads the cells of each column to the widest. They are not wrapped, so that a name stays whole for
/// `grep` and for copying.
pub(super) fn align<const N: usize>(rows: &mut [[String; N]]) {
    for i in 0..N {
        let width = rows.iter().map(|row| row[i].chars().count()).max().unwrap_or(0);
        for row in &mut *rows {
            row[i] = format!("{:width$}", row[i]);
        }
    }
}

/// The cells of a row, in the order of [`COLUMNS`].
fn cells(connector: &Connector, fleet: &Fleet) -> [String; 9] {
    let upstream = connector.upstream.as_ref();
    let name = upstream.map(|up| &up.object).or(connector.name.as_ref());
    let worst = connector.worst();
    let edges: Vec<_> = connector.hops_of(Hop::Carried).filter(|hop| hop.says.is_some()).collect();
    let edges = match edges[..] {
        [] => "-".to_owned(),
        [one] => one.cluster.to_string(),
        _ => count(edges.len(), "edge"),
    };
    let liveness = match connector.online {
        Some(true) => "online",
        Some(false) => "offline",
        None => "?",
    };
    let cause = worst.and_then(|hop| hop.cause).map_or("", Cause::as_str);

    [
        upstream.map_or("-", |upstream| upstream.cluster.as_str()).to_owned(),
        name.map_or("-".to_owned(), ToString::to_string),
        edges,
        liveness.to_owned(),
        connector.state.as_str().to_owned(),
        worst.map_or("", |hop| hop.hop.as_str()).to_owned(),
        cause.to_owned(),
        age(connector, fleet),
        gateways(connector),
    ]
}

/// How long the connector has been in its state; for one that is ok, since its last hop became ok.
fn age(connector: &Connector, fleet: &Fleet) -> String {
    let ages = connector.hops.iter().filter_map(|hop| Some((hop.since_ms?, hop.at_least)));
    let since = match connector.worst() {
        Some(worst) => worst.since_ms.map(|since| (since, worst.at_least)),
        // Of two equal times, the certain one.
        None => ages.max_by_key(|(since, at_least)| (*since, !at_least)),
    };
    since.map_or("-".to_owned(), |(since, at_least)| since_text(since, at_least, fleet.at_ms))
}

pub(super) fn since_text(since: UnixMillis, at_least: bool, now: UnixMillis) -> String {
    let more = if at_least { "> " } else { "" };
    format!("{more}{}", duration(now.since(since)))
}

/// `2/2` if the gateways announce the current upstream state, `2/2 stale` if they announce another one
/// or it is unknown, `?/2` if they are not visible. What throughline does not touch does not count.
fn gateways(connector: &Connector) -> String {
    let counts = |hop: &&HopView| !matches!(hop.cause, Some(Cause::NoGateway | Cause::RuleOff));
    let hops: Vec<_> = connector.hops_of(Hop::Announced).filter(counts).collect();
    if hops.iter().any(|hop| hop.state == State::Unknown) {
        return format!("?/{}", hops.len());
    }
    let announced = hops.iter().filter(|hop| hop.state == State::Ok);
    let is_stale = announced.clone().any(|hop| is_stale_at(connector, &hop.cluster));
    let stale = if is_stale { " stale" } else { "" };
    format!("{}/{}{stale}", announced.count(), hops.len())
}

/// Whether an edge is not known to have the current upstream value. Without a hub, the edge's own value
/// is the one to announce.
fn is_stale_at(connector: &Connector, edge: &ClusterName) -> bool {
    let mut before = connector
        .hops
        .iter()
        .filter(|hop| hop.hop < Hop::Carried || (hop.hop == Hop::Carried && hop.cluster == *edge));
    before.any(|hop| hop.state > State::Ok && hop.says != hop.expected)
        || connector.hops_of(Hop::Upstream).any(|hop| hop.state == State::Unknown)
}

/// Writes the rows of these connectors as a table; `head` adds the names of the columns.
///
/// # Errors
/// Those of `out`.
pub fn rows(
    fleet: &Fleet,
    connectors: &[Connector],
    head: bool,
    options: &ReportOptions,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut writer = TextWriter::new(out, options);
    let head_cells = COLUMNS.map(str::to_owned);
    let row_cells = connectors.iter().map(|connector| cells(connector, fleet));
    let mut table: Vec<_> = std::iter::once(head_cells).chain(row_cells).collect();
    align(&mut table);
    let line = |cells: &[String; 9]| unbroken(cells.join("  ").trim_end());
    if head {
        writer.put(0, 4, &[(Style::Bold, &line(&table[0]))])?;
    }
    for (connector, cells) in connectors.iter().zip(&table[1..]) {
        let is_ok = connector.state == State::Ok;
        let style = if is_ok { Style::Plain } else { style(connector.state) };
        writer.put(0, 4, &[(style, &line(cells))])?;
    }
    writer.finish()
}

/// Writes the number of connectors in each state, the problems of the shown connectors and of the
/// clusters, and the source of the data.
///
/// # Errors
/// Those of `out`.
pub fn summary(
    fleet: &Fleet,
    connectors: &[Connector],
    options: &ReportOptions,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut writer = TextWriter::new(out, options);
    let all = usize::try_from(fleet.counts.values().sum::<u64>()).unwrap_or(usize::MAX);
    let counts = fleet.counts.iter().filter(|(_, n)| **n > 0);
    let worst = counts.clone().map(|(state, _)| *state).max().unwrap_or(State::Ok);
    let counts: Vec<_> = counts.map(|(state, n)| format!("{n} {}", state.as_str())).collect();
    let colon = if counts.is_empty() { "" } else { ": " };
    let total = format!("{}{colon}{}", count(all, "connector"), counts.join(", "));
    writer.put(0, 2, &[(style(worst), &total)])?;

    for cause in causes(fleet, connectors) {
        let concerned = match cause.connectors {
            0 => String::new(),
            n => format!(", {}", count(n, "connector")),
        };
        // A problem of an instance has no cluster.
        let place = match cause.cluster.as_str() {
            "" => String::new(),
            name => format!("{name}: "),
        };
        let head = format!("{place}{}{concerned}: ", cause.cause.as_str());
        let is_bad = cause.cause.info().severity == Severity::Error;
        let style = if is_bad { Style::Red } else { Style::Yellow };
        writer.put(0, 2, &[(style, &head), (Style::Plain, &one_line(&cause.message))])?;
        if !cause.remedy.is_empty() {
            put_remedy(&cause.remedy, &mut writer)?;
        }
    }
    if let Some(why) = not_writing(fleet) {
        writer.put(0, 2, &[(Style::Yellow, &why)])?;
    }
    writer.put(0, 2, &[(Style::Dim, &origin(fleet))])?;
    writer.finish()
}

/// The text of one cause.
struct CauseLine<'f> {
    cause: Cause,
    cluster: &'f ClusterName,
    message: String,
    remedy: String,
    /// How many of the connectors have it.
    connectors: usize,
}

/// The open problems that need a line, the worst first, and the other causes of held or unknown
/// connectors. Problems of connectors are limited to the shown ones.
fn causes<'f>(fleet: &'f Fleet, shown: &'f [Connector]) -> Vec<CauseLine<'f>> {
    let mut lines: Vec<_> = fleet.problems.iter().filter(|of| is_worth_a_line(of.cause)).collect();
    lines.retain(|group| {
        let concerns = |connector: &&Connector| has(connector, group.cause, &group.cluster);
        shown.iter().any(|connector| concerns(&connector))
            || !fleet.connectors.iter().any(|connector| concerns(&connector))
    });
    let line = |group: &'f GroupView| CauseLine {
        cause: group.cause,
        cluster: &group.cluster,
        message: group.message.clone(),
        remedy: group.remedy.clone(),
        connectors: shown.iter().filter(|of| has(of, group.cause, &group.cluster)).count(),
    };
    let mut lines: Vec<_> = lines.into_iter().map(line).collect();
    lines.extend(others(fleet, shown));
    lines.sort_by_key(|line| (Reverse(line.cause.info().severity), Reverse(line.connectors)));
    lines
}

/// Whether a cause needs a line: not if it is only deferred, ends by itself or is intended.
fn is_worth_a_line(cause: Cause) -> bool {
    let info = cause.info();
    info.severity > Severity::Info || info.state.is_some() || cause == Cause::TouchesQueued
}

/// Whether a connector has a problem of this cause, in the cluster or as one of that upstream.
fn has(connector: &Connector, cause: Cause, cluster: &ClusterName) -> bool {
    let is_of = connector.upstream.as_ref().is_some_and(|upstream| upstream.cluster == *cluster);
    let mut hops = connector.hops.iter().filter(|hop| hop.cause == Some(cause));
    hops.any(|hop| is_of || hop.cluster == *cluster)
}

/// The causes of held, unknown or stuck connectors that are not open problems.
fn others<'f>(fleet: &Fleet, shown: &'f [Connector]) -> Vec<CauseLine<'f>> {
    let mut found: BTreeMap<(Cause, &ClusterName), CauseLine<'f>> = BTreeMap::new();
    for connector in shown {
        let Some(worst) = connector.worst() else { continue };
        let (Some(cause), Some(message)) = (worst.cause, &worst.message) else { continue };
        if fleet
            .problems
            .iter()
            .any(|group| has(connector, group.cause, &group.cluster) && group.cause == cause)
        {
            continue;
        }
        let line = found.entry((cause, &worst.cluster)).or_insert_with(|| CauseLine {
            cause,
            cluster: &worst.cluster,
            message: message.clone(),
            remedy: worst.remedy.clone().unwrap_or_default(),
            connectors: 0,
        });
        line.connectors += 1;
    }
    found.into_values().collect()
}
