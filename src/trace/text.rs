//! Traces and tables for people.

use std::io::{self, Write};

use super::{HopTrace, Row, Snapshot, Source, State, Trace};
use crate::core::action::Hop;
use crate::core::time::UnixMillis;
use crate::core::view::SaysView;
use crate::report::Options;
use crate::report::style::{Page, Style, count, duration, moment};

/// Gateways of one line that are named.
const NAMES_MAX: usize = 3;

impl State {
    fn style(self) -> Style {
        match self {
            State::Wrong => Style::Red,
            State::Unknown | State::Pending => Style::Yellow,
            State::Ok => Style::Green,
        }
    }
}

/// One line of a trace: a hop, or the gateways of one edge that are alike.
struct Line<'t> {
    hop: &'t HopTrace,
    says: String,
    age: String,
    writer: String,
}

/// Writes traces, one after another.
///
/// # Errors
/// Those of `out`.
pub fn traces(traces: &[Trace], options: &Options, out: &mut dyn Write) -> io::Result<()> {
    let mut page = Page::new(out, options);
    for (i, trace) in traces.iter().enumerate() {
        if i > 0 {
            page.gap()?;
        }
        one(trace, &mut page)?;
    }
    page.finish()
}

fn one(trace: &Trace, page: &mut Page<'_>) -> io::Result<()> {
    let name = trace.upstream.as_ref().map(ToString::to_string);
    let place = trace.replica.as_ref().map(|place| format!("{place} at hub and edges"));
    let names: Vec<_> = name.into_iter().chain(place).collect();
    let subject = match names.is_empty() {
        true => trace.hops.iter().find_map(|hop| hop.object.as_ref()).map(ToString::to_string),
        false => Some(names.join("; ")),
    };
    let at = format!("{} UTC, {}", moment(trace.at_ms), from(trace.source));
    page.put(
        0,
        2,
        &[(Style::Bold, &subject.unwrap_or_default()), (Style::Dim, &format!("  {at}"))],
    )?;
    page.gap()?;
    let lines: Vec<_> = grouped(&trace.hops).iter().map(|group| line(trace, group)).collect();
    let width = |cell: for<'l> fn(&'l Line<'_>) -> &'l str| {
        lines.iter().map(|line| cell(line).chars().count()).max().unwrap_or(0)
    };
    let widths = [
        width(|line| line.hop.cluster.as_str()),
        width(|line| &line.says),
        width(|line| &line.age),
    ];
    for line in &lines {
        put_line(line, widths, page)?;
    }
    page.gap()?;
    bottom(trace, page)
}

fn from(source: Source) -> &'static str {
    match source {
        Source::Live => "from the clusters",
        Source::State => "from a running instance",
        Source::Log => "from a run's event log",
        Source::Recording => "from a recording without throughline",
    }
}

/// Gateways of one edge that have one fate are one line.
fn grouped(hops: &[HopTrace]) -> Vec<Vec<&HopTrace>> {
    let mut groups: Vec<Vec<&HopTrace>> = Vec::new();
    for hop in hops {
        let alike = |other: &HopTrace| {
            let manager = |h: &HopTrace| h.writer.as_ref().map(|writer| writer.manager.clone());
            hop.hop == Hop::Touched
                && (other.hop, &other.cluster) == (hop.hop, &hop.cluster)
                && (other.state, other.cause) == (hop.state, hop.cause)
                && manager(other) == manager(hop)
        };
        match groups.iter_mut().find(|group| group.first().is_some_and(|other| alike(other))) {
            Some(group) => group.push(hop),
            None => groups.push(vec![hop]),
        }
    }
    groups
}

fn line<'t>(trace: &Trace, group: &[&'t HopTrace]) -> Line<'t> {
    let hop = group[0];
    let says = match (hop.hop, &hop.says) {
        (Hop::Touched, _) => gateways(group),
        (_, Some(says)) => said(says),
        (_, None) if hop.state == State::Unknown => "?".to_owned(),
        (Hop::Upstream, None) => "not there".to_owned(),
        (_, None) => "nothing".to_owned(),
    };
    let latest = group.iter().max_by_key(|hop| hop.since_ms).map_or(hop, |hop| hop);
    let age = latest.since_ms.map_or(String::new(), |at| {
        let more = if latest.at_least { "> " } else { "" };
        format!("{more}{}", duration(trace.at_ms.since(at)))
    });
    let writer = latest.writer.as_ref().map_or(String::new(), |writer| {
        format!("by {}, {} ago", writer.manager, duration(trace.at_ms.since(writer.at_ms)))
    });
    Line { hop, says, age, writer }
}

fn said(says: &SaysView) -> String {
    let node = says.node.as_ref().map_or(String::new(), |node| format!(" {node}"));
    format!("{}{node}", if says.online { "online" } else { "offline" })
}

fn gateways(group: &[&HopTrace]) -> String {
    let names: Vec<_> = group.iter().filter_map(|hop| Some(&*hop.object.as_ref()?.name)).collect();
    match names.len() {
        0 if group[0].state == State::Unknown => "?".to_owned(),
        0 => "no gateway".to_owned(),
        n if n <= NAMES_MAX => names.join(", "),
        n => format!("{} … ({})", names[0], count(n, "gateway")),
    }
}

fn put_line(line: &Line<'_>, widths: [usize; 3], page: &mut Page<'_>) -> io::Result<()> {
    let [cluster, says, age] = widths;
    let hop = line.hop;
    let state = format!("{:7}", hop.state.as_str());
    let rest = format!(
        "  {:8}  {:cluster$}  {:says$}  {:>age$}",
        hop.hop.as_str(),
        hop.cluster.as_str(),
        line.says,
        line.age
    );
    page.put(
        2,
        21,
        &[
            (hop.state.style(), &state),
            (Style::Plain, &rest),
            (Style::Dim, "  "),
            (Style::Dim, &line.writer),
        ],
    )
}

/// Where hops of one line are.
fn place(hop: &HopTrace, group: &[&HopTrace]) -> String {
    let at = format!("{}, {}", hop.hop.as_str(), hop.cluster);
    match hop.hop {
        Hop::Touched if hop.object.is_some() => format!("{at}, {}", gateways(group)),
        _ => at,
    }
}

fn bottom(trace: &Trace, page: &mut Page<'_>) -> io::Result<()> {
    let Some(first) = trace.first() else {
        page.put(0, 2, &[(Style::Green, "Every hop agrees.")])?;
        return notes(trace, page);
    };
    let head = match first.state {
        State::Pending => "On its way: ",
        State::Unknown => "Can't be told at ",
        State::Wrong | State::Ok => "Stuck at ",
    };
    let groups = grouped(&trace.hops);
    let group = groups.iter().find(|group| group.iter().any(|hop| std::ptr::eq(*hop, first)));
    let at = format!("{head}{}: ", place(first, group.map_or(&[first], |group| group)));
    page.put(0, 2, &[(first.state.style(), &at), (Style::Plain, &format!("{}.", first.why))])?;
    if !first.expected.is_empty() && first.state != State::Unknown && first.hop != Hop::Touched {
        page.put(2, 4, &[(Style::Plain, &format!("It should say: {}.", first.expected))])?;
    }
    if !first.remedies.is_empty() {
        page.put(0, 2, &[(Style::Bold, "What to do:")])?;
    }
    for remedy in &first.remedies {
        page.put(2, 4, &[(Style::Plain, "- "), (Style::Plain, remedy)])?;
    }
    let mut told = vec![first.why.as_str()];
    for group in grouped(&trace.hops) {
        let hop = group[0];
        if hop.state != State::Ok && !told.contains(&hop.why.as_str()) {
            told.push(&hop.why);
            let at = format!("Also at {}: ", place(hop, &group));
            page.put(0, 2, &[(hop.state.style(), &at), (Style::Plain, &format!("{}.", hop.why))])?;
        }
    }
    notes(trace, page)
}

fn notes(trace: &Trace, page: &mut Page<'_>) -> io::Result<()> {
    for note in &trace.notes {
        page.put(0, 2, &[(Style::Dim, "Note: "), (Style::Plain, &format!("{note}."))])?;
    }
    if trace.hops.iter().all(|hop| hop.writer.is_none()) {
        let why = match trace.source {
            Source::State => {
                "/state does not tell who wrote each last; without --state it is asked for"
            }
            _ => "who wrote each last is not known: there are no managedFields",
        };
        page.put(0, 2, &[(Style::Dim, "Note: "), (Style::Plain, &format!("{why}."))])?;
    }
    Ok(())
}

/// The cells of a row, in the order of [`HEAD`].
fn cells(row: &Row, at: UnixMillis) -> [String; 7] {
    let upstream = row.upstream.as_ref().map_or("-", |place| place.cluster.as_str());
    let name = row.upstream.as_ref().map(|place| &place.object).or(row.replica.as_ref());
    let several = |clusters: &[crate::core::ids::ClusterName], one: &str| match clusters {
        [] => "-".to_owned(),
        [cluster] => cluster.to_string(),
        more => count(more.len(), one),
    };
    let place = format!("{} / {}", several(&row.hubs, "hub"), several(&row.edges, "edge"));
    let online = match row.online {
        Some(true) => "online",
        Some(false) => "offline",
        None => "?",
    };
    [
        upstream.to_owned(),
        name.map_or("-".to_owned(), ToString::to_string),
        place,
        online.to_owned(),
        row.phase.as_str().to_owned(),
        row.since_ms.map_or("-".to_owned(), |since| duration(at.since(since))),
        format!("{}/{}", row.announced, row.gateways),
    ]
}

const HEAD: [&str; 7] = ["UPSTREAM", "CONNECTOR", "HUB / EDGE", "IS", "PHASE", "FOR", "ANNOUNCED"];

/// Writes rows as a table; under each that is stuck, where and why. `snapshot` is what they were
/// made of; `head`: with the names of the columns.
///
/// # Errors
/// Those of `out`.
pub fn rows(
    snapshot: &Snapshot,
    rows: &[Row],
    head: bool,
    options: &Options,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut page = Page::new(out, options);
    let table: Vec<_> = rows.iter().map(|row| cells(row, snapshot.view.at_ms)).collect();
    let width = |i: usize| {
        let cells = table.iter().map(|cells| cells[i].chars().count());
        cells.chain([HEAD[i].len()]).max().unwrap_or(0)
    };
    let widths: [usize; 7] = std::array::from_fn(width);
    let spelled = |cells: &[&str; 7]| {
        let padded = cells.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}"));
        padded.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    if head {
        page.put(0, 4, &[(Style::Bold, &spelled(&HEAD))])?;
    }
    for (row, cells) in rows.iter().zip(&table) {
        let cells: [&str; 7] = std::array::from_fn(|i| cells[i].as_str());
        let style = if row.state == State::Ok { Style::Plain } else { row.state.style() };
        page.put(0, 4, &[(style, &spelled(&cells))])?;
        if let Some(stuck) = &row.stuck {
            let at = format!("{}, {}: ", stuck.hop.as_str(), stuck.cluster);
            page.put(4, 6, &[(Style::Bold, &at), (Style::Plain, &stuck.why)])?;
        }
    }
    page.finish()
}

/// Writes how many there are, and how many of them are stuck.
///
/// # Errors
/// Those of `out`.
pub fn summary(
    snapshot: &Snapshot,
    rows: &[Row],
    options: &Options,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut page = Page::new(out, options);
    let stuck = rows.iter().filter(|row| row.stuck.is_some()).count();
    let coming = rows.iter().filter(|row| row.state == State::Pending).count();
    let at = format!("{} UTC, {}", moment(snapshot.view.at_ms), from(snapshot.source));
    let style = if stuck > 0 { Style::Red } else { Style::Green };
    let text = format!("{}, {stuck} stuck, {coming} on their way", count(rows.len(), "connector"));
    page.put(0, 2, &[(style, &text), (Style::Dim, "  "), (Style::Dim, &at)])?;
    page.finish()
}
