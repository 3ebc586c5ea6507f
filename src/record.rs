//! Records the watches of a live run in an event log, without a machine or an executor: the only
//! requests are lists and watches. The log replays as a what-if with the configuration's settings.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use tokio::sync::mpsc;
use tracing::warn;

use crate::clock::Clock;
use crate::config::{Config, EventLogConfig};
use crate::core::contract::event::{Event, EventKind};
use crate::core::data::ids::{ClusterName, Kind, NamespacedName, Role};
use crate::engine;
use crate::event_log::Header;
use crate::fleet::Fleet;
use crate::live_log::{LiveLog, numbered};
use crate::metrics::Metrics;
use crate::problems::Outside;
use crate::watch::WatchMessage;

/// The longest time for writing the rest of the log at the end.
const GRACE: Duration = Duration::from_secs(10);

/// A running recording.
pub struct WatchRecorder {
    log: LiveLog,
    file: PathBuf,
    clock: Clock,
    metrics: Arc<Metrics>,
    events: mpsc::Receiver<WatchMessage>,
    fleet: Fleet,
    stats: RecordingStats,
}

/// The state of a recording so far.
#[derive(Clone, Debug, Default)]
pub struct RecordingStats {
    pub events: u64,
    /// The connector of each Connector object.
    connectors: BTreeMap<(ClusterName, NamespacedName), ConnectorId>,
    /// The number of watches, in all clusters.
    pub watches: usize,
    /// The number of lost watches.
    pub losses: u64,
    /// Watches that are not listed yet, or lost.
    pub not_live: BTreeSet<(ClusterName, Kind)>,
}

/// The upstream cluster of a connector and its name there. A hub or edge Connector without upstream
/// labels has no cluster; its name is the same as upstream.
type ConnectorId = (Option<ClusterName>, NamespacedName);

impl RecordingStats {
    /// The number of connectors that exist now. Each counts once, in however many tiers it has a
    /// Connector.
    pub fn connectors(&self) -> usize {
        self.connectors.values().collect::<HashSet<_>>().len()
    }

    fn count(&mut self, kind: &EventKind, is_upstream: impl Fn(&ClusterName) -> bool) {
        self.events += 1;
        match kind {
            EventKind::Listed { cluster, object } | EventKind::Applied { cluster, object }
                if object.kind() == Kind::Connector =>
            {
                let key = object.meta.key();
                let id = match object.meta.upstream() {
                    Ok((upstream, namespace, name)) => {
                        (Some(upstream.as_str().into()), NamespacedName::new(namespace, name))
                    }
                    Err(_) => (is_upstream(cluster).then(|| cluster.clone()), key.clone()),
                };
                self.connectors.insert((cluster.clone(), key), id);
            }
            EventKind::Deleted { cluster, object } if object.kind() == Kind::Connector => {
                self.connectors.remove(&(cluster.clone(), object.meta.key()));
            }
            EventKind::ListStarted { cluster, kind: Kind::Connector } => {
                self.connectors.retain(|(at, _), _| at != cluster);
            }
            EventKind::ListFinished { cluster, kind }
            | EventKind::WatchResumed { cluster, kind } => {
                self.not_live.remove(&(cluster.clone(), *kind));
            }
            EventKind::WatchLost { cluster, kind, .. } => {
                self.losses += 1;
                self.not_live.insert((cluster.clone(), *kind));
            }
            _ => {}
        }
    }
}

impl WatchRecorder {
    /// Starts the watches that a live run with this configuration would start, and writes their
    /// events to `file`.
    ///
    /// # Errors
    /// The event log can't be created, or the file exists already.
    pub fn start(config: &Config, file: PathBuf) -> anyhow::Result<Self> {
        refuse_existing(&file)?;
        let log = EventLogConfig { file: Some(file.clone()), ..config.event_log.clone() };
        let settings = config.settings();
        let metrics = Arc::new(Metrics::new());
        let mut fleet = Fleet::new(config, &metrics);
        let header = Header { recorded: true, ..engine::log_header(fleet.table(), &settings) };
        let started = LiveLog::start(&log, &header, metrics.clone(), Outside::default())?;
        let (bus, events) = mpsc::channel(config.constants.watch.queue);
        fleet.start_watches(move |roles| settings.kinds_watched(roles), bus);
        let not_live = fleet.watched_kinds();
        Ok(Self {
            log: started.context("a recording needs an event log")?,
            file,
            clock: Clock::start(),
            metrics,
            events,
            fleet,
            stats: RecordingStats { watches: not_live.len(), not_live, ..Default::default() },
        })
    }

    /// Records the next event. Cancel-safe.
    pub async fn next(&mut self) {
        match self.events.recv().await {
            Some(message) => self.record(message.kind),
            // The channel closes only when `finish` stops the watches.
            None => std::future::pending().await,
        }
    }

    fn record(&mut self, kind: EventKind) {
        if let EventKind::WatchLost { cluster, kind, error } = &kind {
            warn!(%cluster, %kind, %error, "watch lost; retrying");
        }
        self.stats.count(&kind, |cluster| {
            let cluster = self.fleet.table().get(cluster);
            cluster.is_some_and(|cluster| cluster.roles().contains(&Role::Upstream))
        });
        self.log.event(&Event { at: self.clock.now(), kind });
    }

    pub fn stats(&self) -> &RecordingStats {
        &self.stats
    }

    /// The size of the log's files, including rotated ones.
    pub fn bytes(&self) -> u64 {
        bytes(&self.file)
    }

    /// Stops the watches and writes the rest of the log. Its last line gives the end of the recording:
    /// an outage that is still open lasted until then. Returns the state, the size of the files, and
    /// the number of lines that could not be written.
    pub async fn finish(mut self) -> (RecordingStats, u64, u64) {
        self.fleet.stop();
        while let Ok(message) = self.events.try_recv() {
            self.record(message.kind);
        }
        self.record(EventKind::RecordingEnded);
        self.log.finish(GRACE).await;
        (self.stats, bytes(&self.file), self.metrics.log_lines_lost())
    }
}

fn bytes(file: &Path) -> u64 {
    (0..)
        .map_while(|number| std::fs::metadata(numbered(file, number)).ok())
        .map(|metadata| metadata.len())
        .sum()
}

/// Refuses to overwrite an existing log, which may be evidence. Pipes and devices are written to.
fn refuse_existing(file: &Path) -> anyhow::Result<()> {
    let is_file = |file: &Path| std::fs::metadata(file).is_ok_and(|m| m.is_file());
    for taken in [0, 1].map(|number| numbered(file, number)) {
        if is_file(&taken) {
            bail!(
                "{} exists, and a recording overwrites nothing: choose another file, or move that \
                 one away",
                taken.display()
            );
        }
    }
    Ok(())
}
