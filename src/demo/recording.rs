//! The log to play, read as a whole.

use std::collections::{BTreeMap, BTreeSet};
use std::io::BufRead;

use anyhow::bail;

use crate::core::event::{Event, Happened};
use crate::core::ids::{ClusterName, Kind};
use crate::core::settings::Settings;
use crate::event_log::{Line, Reader};
use crate::outage::Outages;
use crate::replay::{Mode, Replay, Way};

/// The incident that is played when no log is named; part of the program.
const INCIDENT: &[u8] = include_bytes!("../../fixtures/incident-503.jsonl");
const INCIDENT_NAME: &str = "incident-503.jsonl (built in)";

/// A log, ready to be played.
pub(super) struct Recording {
    /// What there is to tell of it, and what users saw in it; nothing of the run yet.
    pub(super) replay: Replay,
    pub(super) events: Vec<Event>,
    /// So many events are what was there at the start.
    pub(super) at_first: usize,
    /// The kinds that the recording lists, by cluster: of others it knows nothing.
    pub(super) listed: BTreeMap<ClusterName, BTreeSet<Kind>>,
    /// Watches were lost.
    pub(super) has_outages: bool,
}

impl Recording {
    /// Reads the log at `path`, or the one that is built in.
    ///
    /// # Errors
    /// It can't be read, or names no clusters.
    pub(super) fn read(path: Option<&str>) -> anyhow::Result<Self> {
        match path {
            Some(path) => Self::take(path, &mut Reader::open(path)?),
            None => Self::take(INCIDENT_NAME, &mut Reader::decompressing(INCIDENT_NAME, INCIDENT)?),
        }
    }

    fn take<R: BufRead>(file: &str, reader: &mut Reader<R>) -> anyhow::Result<Self> {
        let header = reader.header().clone();
        if header.clusters.is_empty() {
            bail!("{file}: the header names no clusters, so there is nothing to serve");
        }
        let mut settings: Settings = header.settings.unwrap_or_default();
        // The second one would come a minute later.
        settings.touch.confirm_after_ms.truncate(1);
        let mut replay = Replay::new(file, Mode::Live, header.clusters, settings);
        let mut outages = Outages::new(&replay.clusters, &replay.settings, true);
        let mut listed: BTreeMap<ClusterName, BTreeSet<Kind>> = BTreeMap::new();
        let mut events = Vec::new();
        while let Some(line) = reader.next_line()? {
            let Line::Event(event) = line else { continue };
            outages.observe(&event);
            if let Happened::ListFinished { cluster, kind } = &event.what {
                listed.entry(cluster.clone()).or_default().insert(*kind);
            }
            events.push(event);
        }
        let way = |(cluster, source, replica)| Way { upstream: Some((cluster, source)), replica };
        replay.ways = outages.ways().into_iter().map(way).collect();
        replay.recorded = outages.finish();
        replay.events = u64::try_from(events.len()).unwrap_or(u64::MAX);
        replay.first_at = events.first().map(|event| event.at).unwrap_or_default();
        replay.last_at = events.last().map(|event| event.at).unwrap_or_default();
        replay.warnings = reader.warnings().iter().map(ToString::to_string).collect();
        let at_first = at_first(&events);
        let is_lost = |event: &Event| matches!(event.what, Happened::WatchLost { .. });
        let has_outages = events.iter().any(is_lost);
        Ok(Self { replay, events, at_first, listed, has_outages })
    }
}

/// How many events tell what was there at the start: all up to the first change, or to the
/// second list of the same.
fn at_first(events: &[Event]) -> usize {
    let mut begun = BTreeSet::new();
    let is_change = |event: &Event| match &event.what {
        Happened::Applied { .. }
        | Happened::Deleted { .. }
        | Happened::WatchLost { .. }
        | Happened::WatchResumed { .. } => true,
        Happened::ListStarted { cluster, kind } => !begun.insert((cluster.clone(), *kind)),
        _ => false,
    };
    events.iter().position(is_change).unwrap_or(events.len())
}
