//! What was known at a moment of an event log: its lines up to then drive a machine, and nothing else
//! does.

use std::io::BufRead;

use anyhow::bail;

use super::witness::believed;
use super::{Snapshot, Source, Witness, looking};
use crate::core::event::{Event, Happened};
use crate::core::machine::Machine;
use crate::core::time::UnixMillis;
use crate::event_log::{Line, Reader};

/// A moment of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// That of its last line.
    End,
    /// A time.
    Time(UnixMillis),
    /// So many milliseconds after its first line.
    After(u64),
}

/// Reads the log up to the moment. `acted`: throughline was acting when it was written, as its header
/// or its outcomes say; else nothing is decided. Gives warnings beside.
///
/// # Errors
/// The log can't be read, has no lines, or begins after the moment.
pub fn snapshot<R: BufRead>(
    reader: &mut Reader<R>,
    at: At,
    acted: bool,
) -> anyhow::Result<(Snapshot, Vec<String>)> {
    let header = reader.header().clone();
    let settings = header.settings.unwrap_or_default();
    let source = if acted { Source::Log } else { Source::Recording };
    let mut witness = Witness::new(&settings.mirror.nudge_key);
    let mut machine = Machine::new(if acted { settings } else { looking(&settings) });
    let (mut first, mut last) = (None, UnixMillis(0));
    let mut goes_on = false;
    while let Some(line) = reader.next_line()? {
        let Line::Event(event) = line else { continue };
        if first.is_none() {
            first = Some(event.at);
            for spec in &header.clusters {
                let (cluster, roles) = (spec.name.clone(), spec.roles.clone());
                let what = Happened::ClusterAdded { cluster, roles };
                machine.handle_event(&Event { at: event.at, what });
            }
        }
        if moment(at, first).is_some_and(|at| event.at > at) {
            goes_on = true;
            break;
        }
        last = event.at;
        witness.hear(&event.what);
        let what = if acted { event.what } else { believed(event.what) };
        machine.handle_event(&Event { at: event.at, what });
        while machine.poll_action().is_some() {}
        while machine.poll_note().is_some() {}
    }
    let Some(first) = first else { bail!("the log holds no event: there is no moment to look at") };
    let mut warnings: Vec<_> = reader.warnings().iter().map(ToString::to_string).collect();
    let at = moment(at, Some(first)).unwrap_or(last);
    if at < first {
        bail!("--at {at}: the log begins at {first}");
    }
    if !goes_on && at > last {
        warnings.push(format!("the log ends at {last}: what is shown is as it was then"));
    }
    machine.handle_timeout(if goes_on { at } else { last });
    let mut view = machine.view();
    view.tell_errors(witness.errors());
    Ok((Snapshot { source, view, late: None, witness }, warnings))
}

fn moment(at: At, first: Option<UnixMillis>) -> Option<UnixMillis> {
    match at {
        At::End => None,
        At::Time(at) => Some(at),
        At::After(ms) => Some(first?.plus(ms)),
    }
}
