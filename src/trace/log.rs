//! A snapshot of one moment of an event log: the lines up to then are fed to a machine.

use std::io::BufRead;

use anyhow::bail;

use super::managed_fields::without_gateway_writers;
use super::{ClusterAccess, ManagedFieldsIndex, Snapshot, SnapshotSource, read_only_settings};
use crate::core::contract::event::{Event, EventKind};
use crate::core::data::time::UnixMillis;
use crate::core::machine::Machine;
use crate::event_log::{LogEntry, LogReader};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogMoment {
    /// The time of the last line.
    End,
    Time(UnixMillis),
    /// Milliseconds after the first line.
    Offset(u64),
}

/// Reads the log up to a moment; returns the snapshot and warnings. `acted` says that throughline was
/// writing when the log was made, so that the machine decides as it did then; without it the machine
/// only observes.
///
/// # Errors
/// The log can't be read, holds no event, or begins after the moment.
pub fn snapshot<R: BufRead>(
    reader: &mut LogReader<R>,
    at: LogMoment,
    acted: bool,
) -> anyhow::Result<(Snapshot, Vec<String>)> {
    let header = reader.header().clone();
    let node_ids = header.node_ids();
    let settings = header.settings.unwrap_or_default();
    let source = if acted { SnapshotSource::Log } else { SnapshotSource::Recording };
    let mut managed_fields = ManagedFieldsIndex::new(&settings.mirror.nudge_key);
    let settings = if acted { settings } else { read_only_settings(&settings) };
    let mut machine = Machine::new(settings).with_node_ids(node_ids);
    let (mut first, mut last) = (None, UnixMillis(0));
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
        managed_fields.observe(&event.kind);
        let kind = if acted { event.kind } else { without_gateway_writers(event.kind) };
        machine.handle_event(&Event { at: event.at, kind });
        while machine.poll_action().is_some() {}
        while machine.poll_note().is_some() {}
        while machine.poll_membership().is_some() {}
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
    let mut view = machine.view();
    view.tell_errors(managed_fields.watch_errors());
    Ok((
        Snapshot {
            source,
            view,
            stall_limits: None,
            managed_fields,
            access: ClusterAccess::default(),
        },
        warnings,
    ))
}

fn moment(at: LogMoment, first: Option<UnixMillis>) -> Option<UnixMillis> {
    match at {
        LogMoment::End => None,
        LogMoment::Time(at) => Some(at),
        LogMoment::Offset(ms) => Some(first?.plus(ms)),
    }
}
