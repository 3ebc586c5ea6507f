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

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, Write};
use std::sync::mpsc::sync_channel;

use crate::build_info;
use crate::core::contract::action::Decision;
use crate::core::contract::cause::State;
use crate::core::contract::event::{ClusterSpec, Event, EventKind};
use crate::core::contract::settings::Settings;
use crate::core::data::ids::{ActionId, ClusterName};
use crate::core::data::time::UnixMillis;
use crate::core::status::trigger::NodeIds;
use crate::core::view::fleet::{Connector, Fleet};
use crate::event_log::{Header, LogEntry, LogError, LogReader, LogWriter};
pub use outage::Outage;
use reading::{BATCHES_MAX, read_batches};
use recording::Recording;
pub use result::{ActionRecord, ConnectorNames, Replay, ReplayMode, ReplayVerdict, RequestCounts};
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
    /// The delay from a decision to its write, in what-if.
    pub write_ms: u64,
}

impl Default for ReplayOptions {
    fn default() -> Self {
        let carrier_delay_ms = 50;
        let carrier_rate = None;
        Self { mode: None, run_on_ms: 900_000, carrier_delay_ms, carrier_rate, write_ms: 10 }
    }
}

/// Replays a log. `settings` edits the settings from the header, or the defaults; `progress` is called
/// after every line; every event and action of the replay is written to `log`.
///
/// # Errors
/// The log can't be read, or the new one can't be written.
pub fn replay<R: BufRead + Send, W: Write>(
    reader: &mut LogReader<R>,
    file: &str,
    settings: impl FnOnce(&mut Settings) -> anyhow::Result<()>,
    options: &ReplayOptions,
    log: Option<W>,
    mut progress: impl FnMut(&LogReader<R>) + Send,
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
    let mut builder = ReplayBuilder::new(file, mode, header.clusters.clone(), edited.clone());
    builder.node_ids = header.node_ids();
    let release = Some(build_info::VERSION.into());
    let header = Header { settings: Some(edited), recorded: false, release, ..header };
    let log = log.map(|sink| LogWriter::of_replay(sink, &header)).transpose()?;
    let Replay { clusters, settings, .. } = &builder.replay;
    let recording = match mode {
        ReplayMode::Verify => Recording::of_names(),
        _ => Recording::new(clusters, settings, builder.node_ids),
    };
    let log_reader = &mut *reader;
    // Reading is about half of the work.
    let recording = std::thread::scope(|scope| {
        let (batches, lines) = sync_channel(BATCHES_MAX);
        let read = move || read_batches(log_reader, ahead, recording, &batches, &mut progress);
        let named = std::thread::Builder::new().name("replay-read".to_owned());
        let thread = named.spawn_scoped(scope, read)?;
        let mut batch = Vec::new().into_iter();
        let next = || loop {
            if let Some(line) = batch.next() {
                return Ok(Some(line));
            }
            match lines.recv() {
                Ok(Ok(lines)) => batch = Vec::into_iter(lines),
                Ok(Err(error)) => return Err(error),
                Err(_) => return Ok(None),
            }
        };
        let result = match mode {
            ReplayMode::WhatIf | ReplayMode::Live => {
                what_if::run(&mut builder, options, is_foreign, next, log)
            }
            ReplayMode::Verify => verify::run(&mut builder, next, log),
        };
        // After an error the reader would wait for room in this channel.
        drop(lines);
        result.map(|()| thread.join())
    })?;
    let Ok(recording) = recording else {
        anyhow::bail!("reading the log stopped unexpectedly; please report this as a bug")
    };
    recording.finish(&mut builder.replay);
    if mode != ReplayMode::Verify {
        builder.replay.replayed = Outage::all(&builder.replay.notes);
    } else {
        // First, because gaps may explain the differences that follow.
        let gaps =
            reader.gaps().into_iter().map(|gap| format!("{}:{}: {}", gap.file, gap.line, gap.text));
        builder.replay.verdict.problems.splice(0..0, gaps);
    }
    let mut replay = builder.finish();
    replay.warnings = reader.warnings().iter().map(ToString::to_string).collect();
    Ok(replay)
}

/// Verify if one of the next [`DETECT_LINES_MAX`] lines contains an outcome, otherwise what-if. Appends
/// the lines read to `ahead`.
fn detect_mode<R: BufRead>(
    reader: &mut LogReader<R>,
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

struct ReplayBuilder {
    replay: Replay,
    node_ids: NodeIds,
    /// Each action's index in `replay.actions`.
    action_indexes: BTreeMap<ActionId, usize>,
    /// Every cluster that joined at any time.
    joined: BTreeSet<ClusterName>,
}

impl ReplayBuilder {
    fn new(file: &str, mode: ReplayMode, clusters: Vec<ClusterSpec>, settings: Settings) -> Self {
        Self {
            action_indexes: BTreeMap::new(),
            joined: clusters.iter().map(|cluster| cluster.name.clone()).collect(),
            replay: Replay::new(file, mode, clusters, settings),
            node_ids: NodeIds::default(),
        }
    }

    fn begin(&mut self, at: UnixMillis) {
        self.replay.first_at = at;
        self.replay.last_at = at;
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

    /// Handles an event that was fed to the machine.
    fn take(&mut self, event: Event) {
        if let EventKind::ActionFinished { id, outcome } = event.kind
            && let Some(&index) = self.action_indexes.get(&id)
            && let Some(record) = self.replay.actions.get_mut(index)
        {
            record.finished = Some((event.at, outcome));
        }
    }

    fn add_decision(&mut self, decision: Decision) {
        self.action_indexes.insert(decision.action.id, self.replay.actions.len());
        self.replay.actions.push(ActionRecord { decision, finished: None });
    }

    fn add_problems(&mut self, problems: Vec<String>) {
        self.replay.verdict.problems.extend(problems);
    }

    fn finish(self) -> Replay {
        let mut replay = self.replay;
        replay.verdict.good = replay.verdict.problems.is_empty();
        replay
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
