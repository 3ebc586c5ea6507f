//! Prints traces.

use std::io::{self, Write};

use super::diagnose::liveness_text;
use super::table_text::align;
pub use super::table_text::{rows, summary};
use super::{HopCause, HopState, HopTrace, SnapshotSource, Trace};
use crate::core::contract::note::Hop;
use crate::core::data::time::UnixMillis;
use crate::report::style::{Style, TextWriter, duration, moment};
use crate::report::{ReportOptions, put_remedy};

const GATEWAY_NAMES_MAX: usize = 3;

impl HopState {
    pub(super) fn style(self) -> Style {
        match self {
            HopState::Wrong => Style::Red,
            HopState::Unknown | HopState::Pending => Style::Yellow,
            HopState::Deferred | HopState::Ok => Style::Green,
        }
    }
}

/// A hop's name in prose; in JSON and in event logs the last two are `arrived` and `touched`.
pub(super) const fn hop_name(hop: Hop) -> &'static str {
    match hop {
        Hop::Upstream => "upstream",
        Hop::Mirrored => "mirrored",
        Hop::Arrived => "carried",
        Hop::Touched => "announced",
    }
}

/// One line of a trace: a hop, or all gateways of one edge that have the same state.
struct Line<'t> {
    hop: &'t HopTrace,
    says: String,
    age: String,
    writer: String,
}

/// # Errors
/// Those of `out`.
pub fn traces(traces: &[Trace], options: &ReportOptions, out: &mut dyn Write) -> io::Result<()> {
    let mut writer = TextWriter::new(out, options);
    for (i, trace) in traces.iter().enumerate() {
        if i > 0 {
            writer.gap()?;
        }
        put_trace(trace, &mut writer)?;
    }
    writer.finish()
}

fn put_trace(trace: &Trace, writer: &mut TextWriter<'_>) -> io::Result<()> {
    let name = trace.upstream.as_ref().map(ToString::to_string);
    let hub_name = trace.hub_key.as_ref().map(|key| format!("{key} at hub and edges"));
    let names: Vec<_> = name.into_iter().chain(hub_name).collect();
    let subject = match names.is_empty() {
        true => trace.hops.iter().find_map(|hop| hop.object.as_ref()).map(ToString::to_string),
        false => Some(names.join("; ")),
    };
    let at = format!("{} UTC, {}", moment(trace.at_ms), source_text(trace.source));
    writer.put(
        0,
        2,
        &[(Style::Bold, &subject.unwrap_or_default()), (Style::Dim, &format!("  {at}"))],
    )?;
    writer.gap()?;
    let groups = group_gateways(&trace.hops);
    let lines: Vec<_> = groups.iter().map(|group| line(trace, group)).collect();
    put_lines(&lines, writer)?;
    writer.gap()?;
    put_verdict(trace, &groups, writer)
}

pub(super) const fn source_text(source: SnapshotSource) -> &'static str {
    match source {
        SnapshotSource::Live => "from the clusters",
        SnapshotSource::State => "from a running instance",
        SnapshotSource::Log => "from a run's event log",
        SnapshotSource::Recording => "from a recording without throughline",
    }
}

/// Puts the gateways of one edge that have the same state, cause and writer into one line.
fn group_gateways(hops: &[HopTrace]) -> Vec<Vec<&HopTrace>> {
    let mut groups: Vec<Vec<&HopTrace>> = Vec::new();
    for hop in hops {
        let belongs_with = |other: &HopTrace| {
            let manager = |h: &HopTrace| h.writer.as_ref().map(|writer| writer.manager.clone());
            hop.hop == Hop::Touched
                && (other.hop, &other.cluster) == (hop.hop, &hop.cluster)
                && (other.state, other.cause) == (hop.state, hop.cause)
                && manager(other) == manager(hop)
        };
        match groups.iter_mut().find(|group| group.first().is_some_and(|other| belongs_with(other)))
        {
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
        (_, Some(says)) => liveness_text(Some(says)),
        (_, None) if hop.state == HopState::Unknown => "?".to_owned(),
        (Hop::Upstream, None) => "no Connector".to_owned(),
        (_, None) if hop.cause.is_some_and(HopCause::is_missing_connector) => {
            "no Connector".to_owned()
        }
        (_, None) => liveness_text(None),
    };
    let latest = group.iter().max_by_key(|hop| hop.since_ms).map_or(hop, |hop| hop);
    let age = latest.since_ms.map_or(String::new(), |at| {
        let more = if latest.at_least { "> " } else { "" };
        format!("{more}{}", duration(trace.at_ms.since(at)))
    });
    let writer = latest.writer.as_ref().map_or(String::new(), |writer| {
        let more = if latest.writer_at_least { "> " } else { "" };
        format!("by {}, {more}{} ago", writer.manager, duration(trace.at_ms.since(writer.at_ms)))
    });
    Line { hop, says, age, writer }
}

fn gateways(group: &[&HopTrace]) -> String {
    let names: Vec<_> = group.iter().filter_map(|hop| Some(&*hop.object.as_ref()?.name)).collect();
    match names.len() {
        0 if group[0].state == HopState::Unknown => "?".to_owned(),
        0 => "no gateway".to_owned(),
        n if n <= GATEWAY_NAMES_MAX => names.join(", "),
        n => format!("{} and {} more", names[0], n - 1),
    }
}

fn put_lines(lines: &[Line<'_>], writer: &mut TextWriter<'_>) -> io::Result<()> {
    let age_width = lines.iter().map(|line| line.age.chars().count()).max().unwrap_or(0);
    let cells = |Line { hop, says, age, .. }: &Line<'_>| {
        // As wide as the usual states and the longest hop, whatever this trace has.
        let (state, name) = (hop.state.as_str(), hop_name(hop.hop));
        let cluster = hop.cluster.to_string();
        [
            format!("{state:7}"),
            format!("{name:9}"),
            cluster,
            says.clone(),
            format!("{age:>age_width$}"),
        ]
    };
    let mut table: Vec<_> = lines.iter().map(cells).collect();
    align(&mut table);
    for (line, [state, rest @ ..]) in lines.iter().zip(&table) {
        let (style, rest) = (line.hop.state.style(), format!("  {}  ", rest.join("  ")));
        let parts = [(style, &**state), (Style::Plain, &rest), (Style::Dim, &line.writer)];
        writer.put(2, 22, &parts)?;
    }
    Ok(())
}

/// `mirrored (hub)`, `announced (edge, app-1)`.
fn location(hop: &HopTrace, group: &[&HopTrace]) -> String {
    let (name, cluster) = (hop_name(hop.hop), &hop.cluster);
    match hop.hop {
        Hop::Touched if hop.object.is_some() => format!("{name} ({cluster}, {})", gateways(group)),
        _ => format!("{name} ({cluster})"),
    }
}

fn put_verdict(
    trace: &Trace,
    groups: &[Vec<&HopTrace>],
    writer: &mut TextWriter<'_>,
) -> io::Result<()> {
    let Some(first) = trace.first() else {
        writer.put(0, 2, &[(Style::Green, "Every hop agrees.")])?;
        return put_notes(trace, writer);
    };
    let verdict = match first.state {
        HopState::Pending => "Pending at",
        HopState::Deferred => "Deferred at",
        HopState::Unknown => "Unknown at",
        HopState::Wrong | HopState::Ok => "Stuck at",
    };
    let group = groups.iter().find(|group| group.iter().any(|hop| std::ptr::eq(*hop, first)));
    let location_of_first = location(first, group.map_or(&[first], |group| group));
    let is_idle = first.state == HopState::Wrong && first.cause.is_some_and(HopCause::is_idle);
    let verdict = if is_idle { "Not" } else { verdict };
    let head = format!("{verdict} {location_of_first}: ");
    writer.put(
        0,
        2,
        &[(first.state.style(), &head), (Style::Plain, &cause_text(first, trace.at_ms))],
    )?;
    if !first.expected.is_empty() && first.state != HopState::Unknown && first.hop != Hop::Touched {
        writer.put(2, 4, &[(Style::Plain, &format!("Expected: {}.", first.expected))])?;
    }
    if !first.remedies.is_empty() {
        writer.put(0, 2, &[(Style::Bold, "What to do:")])?;
    }
    for remedy in &first.remedies {
        put_remedy(writer, 2, "- ", remedy)?;
    }
    let mut shown = vec![first.why.as_str()];
    for group in groups {
        let hop = group[0];
        if hop.state != HopState::Ok && !shown.contains(&hop.why.as_str()) {
            shown.push(&hop.why);
            let head = format!("Also at {}: ", location(hop, group));
            writer.put(
                0,
                2,
                &[(hop.state.style(), &head), (Style::Plain, &cause_text(hop, trace.at_ms))],
            )?;
        }
    }
    put_events(trace, writer)?;
    put_notes(trace, writer)
}

fn put_events(trace: &Trace, writer: &mut TextWriter<'_>) -> io::Result<()> {
    if trace.events.is_empty() {
        return Ok(());
    }
    let head = "Kubernetes Events about it, which API servers keep for an hour:";
    writer.put(0, 2, &[(Style::Bold, head)])?;
    trace.events.iter().try_for_each(|command| put_remedy(writer, 2, "- ", command))
}

fn cause_text(hop: &HopTrace, now: UnixMillis) -> String {
    format!("{}{}.", hop.why, next_attempt(hop.next_attempt_ms, now))
}

pub(super) fn next_attempt(at: Option<UnixMillis>, now: UnixMillis) -> String {
    at.map_or(String::new(), |at| format!("; next attempt in {} s", at.since(now).div_ceil(1000)))
}

fn put_notes(trace: &Trace, writer: &mut TextWriter<'_>) -> io::Result<()> {
    for note in &trace.notes {
        writer.put(0, 2, &[(Style::Dim, "Note: "), (Style::Plain, &format!("{note}."))])?;
    }
    if trace.hops.iter().all(|hop| hop.writer.is_none()) {
        let note = match trace.source {
            SnapshotSource::State => {
                "/state does not include the last writers; without --state the trace shows them"
            }
            _ => "the last writers are not known: the objects have no managedFields",
        };
        writer.put(0, 2, &[(Style::Dim, "Note: "), (Style::Plain, &format!("{note}."))])?;
    }
    Ok(())
}
