//! The state at one time of an event log: the lines up to then are fed to a machine.

use anyhow::bail;

use super::read_only_settings;
use super::writers::Writers;
use crate::core::contract::event::{Event, EventKind, Outcome};
use crate::core::contract::note::NoteKind;
use crate::core::data::time::UnixMillis;
use crate::core::machine::Machine;
use crate::core::view::fleet::{Fleet, Source};
use crate::event_log::{LogEntry, LogReader};
use crate::problems::Problems;

/// A time of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogMoment {
    Time(UnixMillis),
    /// Milliseconds after the first line.
    Offset(u64),
}

/// Reads the log up to a time, or to its last line; returns the state at that time, and warnings.
/// `acted` means that throughline was writing when the log was made, so that the machine decides as it
/// did then; otherwise the machine only observes.
///
/// # Errors
/// The log can't be read, contains no event, or begins after that time.
pub fn fleet(
    reader: &mut LogReader<'_>,
    at: Option<LogMoment>,
    acted: bool,
) -> anyhow::Result<(Fleet, Vec<String>)> {
    let header = reader.header().clone();
    let node_ids = header.node_ids();
    let settings = header.settings.unwrap_or_default();
    let source = if acted { Source::Log } else { Source::Recording };
    let mut writers = Writers::new(&settings.mirror.nudge_key);
    let mut problems = Problems::default();
    let settings = if acted { settings } else { read_only_settings(&settings) };
    let mut machine = Machine::new(settings).with_node_ids(node_ids);
    let mut first = None;
    let mut last = UnixMillis(0);
    let mut has_more = false;
    while let Some(line) = reader.next_line()? {
        let LogEntry::Event(event) = line else { continue };
        if first.is_none() {
            first = Some(event.at);
            for spec in &header.clusters {
                machine.handle_event(&Event { at: event.at, kind: spec.added() });
            }
        }
        if moment(at, first).is_some_and(|at| event.at > at) {
            has_more = true;
            break;
        }
        last = event.at;
        writers.observe(&event.kind);
        let kind = if acted { event.kind } else { writers.without_doubts(event.kind) };
        machine.handle_event(&Event { at: event.at, kind });
        follow(&mut machine, &mut problems, event.at, acted);
    }
    let Some(first) = first else { bail!("the log holds no events") };
    let mut warnings: Vec<_> = reader.warnings().iter().map(ToString::to_string).collect();
    let at = moment(at, Some(first)).unwrap_or(last);
    if at < first {
        bail!("--at {at} is before the log begins ({first})");
    }
    if !has_more && at > last {
        warnings.push(format!("the log ends at {last}, before --at; this is the state at its end"));
    }
    let at = if has_more { at } else { last };
    machine.handle_event(&Event { at, kind: EventKind::TimedOut });
    follow(&mut machine, &mut problems, at, acted);
    let mut fleet = machine.fleet(source, &|_| None);
    writers.add_to(&mut fleet);
    fleet.problems = problems.open(&|_| None);
    Ok((fleet, warnings))
}

/// Takes the machine's notes. Its decisions are already in the log, or are not attempted.
pub fn follow(machine: &mut Machine, problems: &mut Problems, at: UnixMillis, acted: bool) {
    while let Some(decision) = machine.poll_action() {
        if !acted {
            let id = decision.action.id;
            let kind = EventKind::ActionFinished { id, outcome: Outcome::Dropped };
            machine.handle_event(&Event { at, kind });
        }
    }
    while machine.poll_membership().is_some() {}
    while let Some(note) = machine.poll_note() {
        match note.kind {
            NoteKind::Began(problem) => problems.begin(note.at, problem, None),
            NoteKind::Ended(problem) => problems.end(note.at, &problem),
            NoteKind::HopPassed { .. } | NoteKind::Symptom { .. } => {}
        }
    }
}

fn moment(at: Option<LogMoment>, first: Option<UnixMillis>) -> Option<UnixMillis> {
    match at? {
        LogMoment::Time(at) => Some(at),
        LogMoment::Offset(ms) => Some(first?.plus(ms)),
    }
}
