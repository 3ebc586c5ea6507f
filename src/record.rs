//! The watches of a live run, written to an event log and nothing else: no machine, no executor, no
//! request but lists and watches. What it writes replays as a what-if, by the settings of the
//! configuration.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::client::Cluster;
use crate::clock::Clock;
use crate::config::{Config, EventLogConfig};
use crate::core::event::{Event, Happened};
use crate::core::ids::{ClusterName, Kind, ObjectKey};
use crate::engine;
use crate::event_log::Header;
use crate::live_log::LiveLog;
use crate::metrics::Metrics;
use crate::run::kinds_watched;

/// What is still to be written at the end may take so long.
const GRACE: Duration = Duration::from_secs(10);

/// A recording that runs.
pub struct Recording {
    log: LiveLog,
    file: PathBuf,
    keep: u32,
    clock: Clock,
    metrics: Arc<Metrics>,
    events: mpsc::Receiver<Happened>,
    watches: JoinSet<()>,
    tally: Tally,
}

impl std::fmt::Debug for Recording {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Recording").field("file", &self.file).finish_non_exhaustive()
    }
}

/// What was recorded so far.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Events written, or about to be.
    pub events: u64,
    /// Connectors that are known now, in all clusters together.
    pub connectors: BTreeSet<(ClusterName, ObjectKey)>,
    /// Watches, in all clusters together.
    pub watches: usize,
    /// How often a watch was lost.
    pub losses: u64,
    /// Watches that show nothing now: not listed yet, or lost.
    pub dark: BTreeSet<(ClusterName, Kind)>,
}

impl Tally {
    fn take(&mut self, what: &Happened) {
        self.events += 1;
        match what {
            Happened::Listed { cluster, object } | Happened::Applied { cluster, object }
                if object.kind() == Kind::Connector =>
            {
                self.connectors.insert((cluster.clone(), object.meta.key()));
            }
            Happened::Deleted { cluster, object } if object.kind() == Kind::Connector => {
                self.connectors.remove(&(cluster.clone(), object.meta.key()));
            }
            Happened::ListStarted { cluster, kind: Kind::Connector } => {
                self.connectors.retain(|(at, _)| at != cluster);
            }
            Happened::ListFinished { cluster, kind } | Happened::WatchResumed { cluster, kind } => {
                self.dark.remove(&(cluster.clone(), *kind));
            }
            Happened::WatchLost { cluster, kind, .. } => {
                self.losses += 1;
                self.dark.insert((cluster.clone(), *kind));
            }
            _ => {}
        }
    }
}

impl Recording {
    /// Begins to watch what a live run with this configuration would watch, and writes it to `log`.
    ///
    /// # Errors
    /// The event log can't be had, or there is one of that name already.
    pub fn start(config: &Config, log: &EventLogConfig) -> anyhow::Result<Self> {
        let file = log.file.clone().context("a recording needs a file to write to")?;
        refuse_existing(&file)?;
        let (settings, metrics) = (config.settings(), Arc::new(Metrics::new()));
        let clusters = engine::clusters(config, &metrics);
        let header = Header { recorded: true, ..engine::header(&clusters, &settings) };
        let started = LiveLog::start(log, &header, metrics.clone())?;
        let (bus, events) = mpsc::channel(config.watch.queue);
        let kinds = |cluster: &Cluster| kinds_watched(cluster.roles(), &settings);
        let watches = engine::watch(&clusters, config, kinds, &bus, &metrics);
        let dark = engine::watched(&clusters, kinds);
        Ok(Self {
            log: started.context("a recording needs an event log")?,
            file,
            keep: log.keep,
            clock: Clock::start(),
            metrics,
            events,
            watches,
            tally: Tally { watches: dark.len(), dark, ..Tally::default() },
        })
    }

    /// Takes the next thing that happens. Nothing is lost when this is given up while it waits.
    pub async fn next(&mut self) {
        match self.events.recv().await {
            Some(what) => self.take(what),
            // The watches end with this alone.
            None => std::future::pending().await,
        }
    }

    fn take(&mut self, what: Happened) {
        self.tally.take(&what);
        self.log.event(&Event { at: self.clock.now(), what });
    }

    /// What was recorded so far.
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// The bytes of the log's files, of those that are kept, as far as they are written.
    pub fn bytes(&self) -> u64 {
        bytes(&self.file, self.keep)
    }

    /// Stops watching, and writes what is still to be written. Gives what was recorded, the bytes of
    /// its files, and how many lines the disk did not take.
    pub async fn finish(mut self) -> (Tally, u64, u64) {
        self.watches.shutdown().await;
        while let Ok(what) = self.events.try_recv() {
            self.take(what);
        }
        engine::end(self.log, GRACE).await;
        (self.tally, bytes(&self.file, self.keep), self.metrics.log_lines_lost_so_far())
    }
}

/// The name of a part that was rotated away.
fn part(file: &Path, number: u32) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(format!(".{number}"));
    name.into()
}

fn bytes(file: &Path, keep: u32) -> u64 {
    let parts = (1..=keep).map(|number| part(file, number));
    std::iter::once(file.to_owned())
        .chain(parts)
        .map_while(|file| std::fs::metadata(file).ok())
        .map(|metadata| metadata.len())
        .sum()
}

/// A log that is there is somebody's evidence. Pipes and devices are written to as they are.
fn refuse_existing(file: &Path) -> anyhow::Result<()> {
    let is_log = |file: &Path| std::fs::metadata(file).is_ok_and(|m| m.is_file());
    for taken in [file.to_owned(), part(file, 1)] {
        if is_log(&taken) {
            bail!(
                "{} is there already, and a recording overwrites nothing: give another file, or \
                 move that one away",
                taken.display()
            );
        }
    }
    Ok(())
}
