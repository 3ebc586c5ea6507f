//! The event log that the demo plays, read into memory.

use std::collections::BTreeSet;

use anyhow::bail;

use crate::core::contract::event::{Event, EventKind};
use crate::core::contract::settings::Settings;
use crate::core::data::ids::{ClusterName, Kind};
use crate::event_log::{LogEntry, LogReader};
use crate::replay::recording::Recording;
use crate::replay::{Replay, ReplayMode};

/// The incident that the demo plays by default.
const INCIDENT: &[u8] = include_bytes!("../../fixtures/incident-503.jsonl");
const INCIDENT_NAME: &str = "incident-503.jsonl (built in)";

/// An event log, ready to play.
pub(super) struct DemoLog {
    /// The report so far: the outages for users in the recording, and nothing of the run yet.
    pub(super) replay: Replay,
    pub(super) events: Vec<Event>,
    /// The number of first events, which list the initial state of the clusters.
    pub(super) initial_count: usize,
    /// The kinds that the recording lists; it does not contain any others.
    pub(super) listed: BTreeSet<(ClusterName, Kind)>,
    /// Whether watches were lost.
    pub(super) has_outages: bool,
}

impl DemoLog {
    /// Reads the log at `path`, or the built-in one.
    ///
    /// # Errors
    /// The log cannot be read, or its header names no clusters.
    pub(super) fn read(path: Option<&str>) -> anyhow::Result<Self> {
        match path {
            Some(path) => Self::load(path, &mut LogReader::open(path)?),
            None => Self::load(INCIDENT_NAME, &mut LogReader::new(INCIDENT_NAME, INCIDENT)?),
        }
    }

    fn load(file: &str, reader: &mut LogReader<'_>) -> anyhow::Result<Self> {
        let header = reader.header().clone();
        if header.clusters.is_empty() {
            bail!("{file}: the header names no clusters, so there is nothing to serve");
        }
        let node_ids = header.node_ids();
        let mut settings: Settings = header.settings.unwrap_or_default();
        // The second confirmation would come a minute later.
        settings.touch.confirm_after_ms.truncate(1);
        let mut replay = Replay::new(file, ReplayMode::Live, header.clusters, settings);
        let mut recording = Recording::with_symptoms(&replay.clusters, &replay.settings, node_ids);
        let mut listed = BTreeSet::new();
        let mut events = Vec::new();
        while let Some(line) = reader.next_line()? {
            recording.add(&line);
            let LogEntry::Event(event) = line else { continue };
            if let EventKind::ListFinished { cluster, kind } = &event.kind {
                listed.insert((cluster.clone(), *kind));
            }
            events.push(event);
        }
        recording.finish(&mut replay);
        replay.events = u64::try_from(events.len()).unwrap_or(u64::MAX);
        replay.first_at = events.first().map(|event| event.at).unwrap_or_default();
        replay.last_at = events.last().map(|event| event.at).unwrap_or_default();
        replay.warnings = reader.warnings().iter().map(ToString::to_string).collect();
        let initial_count = initial_count(&events);
        let is_lost = |event: &Event| matches!(event.kind, EventKind::WatchLost { .. });
        let has_outages = events.iter().any(is_lost);
        Ok(Self { replay, events, initial_count, listed, has_outages })
    }
}

/// The number of events of the initial state: all up to the first change, or up to the second list of
/// the same kind.
fn initial_count(events: &[Event]) -> usize {
    let mut listed = BTreeSet::new();
    let is_change = |event: &Event| match &event.kind {
        EventKind::Applied { .. }
        | EventKind::Deleted { .. }
        | EventKind::WatchLost { .. }
        | EventKind::WatchResumed { .. } => true,
        EventKind::ListStarted { cluster, kind } => !listed.insert((cluster.clone(), *kind)),
        _ => false,
    };
    events.iter().position(is_change).unwrap_or(events.len())
}
