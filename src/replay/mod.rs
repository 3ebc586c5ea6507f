//! Replays a recorded log through the machine.
//!
//! There are two modes. *Verify* feeds only the recorded events and compares the machine's actions with
//! the recorded ones. *What-if* applies the machine's actions to
//! [`SimClusters`](throughline_sim::SimClusters), in addition to the recorded changes, and continues
//! after the last line until nothing is due.

mod outage;
pub(crate) mod overlay;
mod reading;
pub(crate) mod recording;
mod result;
mod span;
#[cfg(test)]
mod tests;
mod verify;
mod what_if;

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::sync::mpsc::sync_channel;

use crate::build_info;
use crate::core::contract::cause::State;
use crate::core::contract::event::{ClusterSpec, Event, EventKind};
use crate::core::contract::settings::Settings;
use crate::core::data::ids::ClusterName;
use crate::core::data::time::UnixMillis;
use crate::core::machine::Machine;
use crate::core::view::fleet::{Connector, Fleet};
use crate::event_log::{Header, LogEntry, LogError, LogReader, LogWriter};
pub use outage::Outage;
use reading::{BATCHES_MAX, read_batches};
use recording::Recording;
pub use result::{ActionRecord, Replay, ReplayMode, RequestCounts};
pub use span::Span;
use throughline_sim::CarrierRate;

#[derive(Clone, Debug)]
pub struct ReplayOptions {
    /// `None`: verify if the log contains outcomes, otherwise what-if. To detect that, the reader keeps
    /// lines in memory; for a file, [`holds_outcomes`](crate::event_log::holds_outcomes) avoids this.
    pub mode: Option<ReplayMode>,
    /// The longest virtual time after the last line.
    pub run_on_ms: u64,
    /// The delay from a hub's change to the edge's, in what-if.
    pub carrier_delay_ms: u64,
    /// The most changes that the carrier applies in a second, in what-if; `None`: no limit.
    pub carrier_rate: Option<CarrierRate>,
}

impl Default for ReplayOptions {
    fn default() -> Self {
        Self { mode: None, run_on_ms: 900_000, carrier_delay_ms: 50, carrier_rate: None }
    }
}

/// Replays a log. `settings` edits the settings from the header, or the defaults; `progress` is called
/// after every line; every event and action of the replay is written to `log`.
///
/// # Errors
/// The log can't be read, or the new one can't be written.
pub fn replay(
    reader: &mut LogReader<'_>,
    file: &str,
    settings: impl FnOnce(&mut Settings) -> anyhow::Result<()>,
    options: &ReplayOptions,
    log: Option<&mut dyn Write>,
    mut progress: impl FnMut(&LogReader<'_>) + Send,
) -> anyhow::Result<Replay> {
    let mut header = reader.header().clone();
    let is_foreign = header.settings.is_none();
    let mut edited = header.settings.take().unwrap_or_default();
    settings(&mut edited)?;
    let mut ahead = Vec::new();
    let mode = match options.mode {
        Some(mode) => mode,
        None => detect_mode(reader, &mut ahead)?,
    };
    let node_ids = header.node_ids();
    let recording = match mode {
        ReplayMode::Verify => Recording::default(),
        _ => Recording::with_symptoms(&header.clusters, &edited, node_ids),
    };
    let replay = Replay::new(file, mode, header.clusters.clone(), edited.clone());
    let machine = Machine::new(edited.clone()).with_node_ids(node_ids);
    let release = Some(build_info::VERSION.into());
    let header = Header { settings: Some(edited), recorded: false, release, ..header };
    let log = log.map(|sink| LogWriter::of_replay(sink, &header)).transpose()?;
    let joined = replay.clusters.iter().map(|cluster| cluster.name.clone()).collect();
    let mut rerun = Rerun { machine, replay, joined, log };
    let log_reader = &mut *reader;
    // Reading is about half of the work.
    let recording = std::thread::scope(|scope| {
        let (batches, lines) = sync_channel(BATCHES_MAX);
        let read = move || read_batches(log_reader, ahead, recording, &batches, &mut progress);
        let named = std::thread::Builder::new().name("replay-read".to_owned());
        let thread = named.spawn_scoped(scope, read)?;
        // Dropped at its end, so that the reader does not wait for room in this channel after an error.
        let lines = lines.into_iter().flatten();
        let result = match mode {
            ReplayMode::WhatIf | ReplayMode::Live => {
                what_if::run(&mut rerun, options, is_foreign, lines)
            }
            ReplayMode::Verify => verify::run(&mut rerun, lines),
        };
        result.map(|()| thread.join())
    })?;
    let Ok(recording) = recording else {
        anyhow::bail!("reading the log stopped unexpectedly; please report this as a bug")
    };
    let mut replay = rerun.replay;
    recording.finish(&mut replay);
    let warnings = reader.warnings();
    if mode != ReplayMode::Verify {
        replay.replayed = Outage::all(&replay.notes);
    } else {
        // First, because gaps may explain the differences that follow.
        let gaps = warnings.iter().filter(|warning| warning.is_gap);
        let gaps = gaps.map(|gap| format!("{}:{}: {}", gap.file, gap.line, gap.text));
        replay.problems.splice(0..0, gaps);
    }
    replay.warnings = warnings.iter().map(ToString::to_string).collect();
    Ok(replay)
}

/// Verify if one of the next [`DETECT_LINES_MAX`] lines contains an outcome, otherwise what-if. Appends
/// the lines read to `ahead`.
fn detect_mode(
    reader: &mut LogReader<'_>,
    ahead: &mut Vec<LogEntry>,
) -> Result<ReplayMode, LogError> {
    while ahead.len() < DETECT_LINES_MAX {
        let Some(line) = reader.next_line()? else { break };
        let is_outcome = matches!(
            &line,
            LogEntry::Event(event) if matches!(event.kind, EventKind::ActionFinished { .. })
        );
        ahead.push(line);
        if is_outcome {
            return Ok(ReplayMode::Verify);
        }
    }
    Ok(ReplayMode::WhatIf)
}

/// Limits the memory for lines of standard input that are read ahead.
const DETECT_LINES_MAX: usize = 200_000;

/// A machine that runs again. What enters and leaves it goes to the replay, and to a new log.
struct Rerun<'a> {
    machine: Machine,
    replay: Replay,
    /// The names of the replay's clusters.
    joined: BTreeSet<ClusterName>,
    log: Option<LogWriter<&'a mut dyn Write>>,
}

impl Rerun<'_> {
    /// Adds the header's clusters, at the time of the first event.
    fn begin(&mut self, at: UnixMillis) {
        self.replay.first_at = at;
        self.replay.last_at = at;
        for cluster in &self.replay.clusters {
            self.machine.handle_event(&Event { at, kind: cluster.added() });
        }
    }

    /// Counts an event of the log.
    fn count_recorded(&mut self, event: &Event) {
        self.replay.events += 1;
        if let EventKind::ClusterAdded { cluster, roles } = &event.kind
            && self.joined.insert(cluster.clone())
        {
            let spec = ClusterSpec { name: cluster.clone(), roles: roles.clone() };
            self.replay.clusters.push(spec);
        }
    }

    /// Feeds an event to the machine. Returns the number of its decisions.
    fn feed(&mut self, event: Event) -> io::Result<usize> {
        if let Some(log) = &mut self.log {
            log.event(&event)?;
        }
        self.machine.handle_event(&event);
        if let EventKind::ActionFinished { id, outcome } = event.kind {
            self.replay.finished(event.at, id, outcome);
        }
        let before = self.replay.actions.len();
        while let Some(decision) = self.machine.poll_action() {
            if let Some(log) = &mut self.log {
                log.action(&decision)?;
            }
            self.replay.decided(decision);
        }
        while let Some(note) = self.machine.poll_note() {
            self.replay.notes.push(note);
        }
        while let Some(change) = self.machine.poll_membership() {
            self.replay.memberships.push((event.at, change));
        }
        Ok(self.replay.actions.len() - before)
    }

    /// Ends the new log.
    fn flush(&mut self) -> io::Result<()> {
        self.log.as_mut().map_or(Ok(()), LogWriter::flush)
    }
}

/// The reasons for no convergence, one sentence each: connectors that are neither ok nor held, and
/// actions in flight.
pub(crate) fn not_converged(fleet: &Fleet) -> Vec<String> {
    let is_open = |connector: &&Connector| !matches!(connector.state, State::Ok | State::Held);
    let mut problems: Vec<_> = fleet.connectors.iter().filter(is_open).map(open_text).collect();
    match fleet.in_flight {
        0 => {}
        1 => problems.push("1 action is still in flight".to_owned()),
        n => problems.push(format!("{n} actions are still in flight")),
    }
    problems
}

fn open_text(connector: &Connector) -> String {
    let name = connector.title();
    let state = connector.state.as_str();
    let Some(hop) = connector.worst() else { return format!("{name} is {state}") };
    let place = format!("{} ({})", hop.hop.as_str(), hop.cluster);
    let why = hop.message.as_ref().map_or(String::new(), |message| format!(": {message}"));
    format!("{name} is {state} at {place}{why}")
}
