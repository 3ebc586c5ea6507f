//! What a live run and a single look have in common: the machine, the executor that carries out
//! what it decides, and the event log of all that enters and leaves it. Whoever owns an engine
//! turns its loop.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::apply::Apply;
use crate::client::Cluster;
use crate::clock::{Clock, until};
use crate::config::{ClusterConfig, Config, EventLogConfig};
use crate::core::event::{Event, Happened};
use crate::core::ids::{ClusterName, Kind};
use crate::core::machine::Machine;
use crate::core::settings::Settings;
use crate::event_log::{ClusterSpec, Header};
use crate::executor::{Executor, Finished};
use crate::gate::Gate;
use crate::live_log::LiveLog;
use crate::metrics::Metrics;
use crate::narrate::Listen;
use crate::watch::Watch;

/// The machine, and what stands on both sides of it.
pub(crate) struct Engine {
    pub(crate) clusters: Clusters,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) clock: Clock,
    pub(crate) machine: Machine,
    pub(crate) executor: Executor,
    log: Option<LiveLog>,
    listeners: Vec<Box<dyn Listen>>,
}

pub(crate) type Clusters = BTreeMap<ClusterName, Arc<Cluster>>;

/// The clusters of a configuration; nothing is connected yet.
pub(crate) fn clusters(config: &Config, metrics: &Arc<Metrics>) -> Clusters {
    let cluster = |c: &ClusterConfig| Arc::new(Cluster::new(c.clone(), metrics.clone()));
    config.clusters.iter().map(|c| (c.name.clone(), cluster(c))).collect()
}

/// The header of their event log.
pub(crate) fn header(clusters: &Clusters, settings: &Settings) -> Header {
    let spec = |c: &Arc<Cluster>| ClusterSpec { name: c.name().clone(), roles: c.roles().to_vec() };
    let clusters = clusters.values().map(spec).collect();
    Header { clusters, settings: Some(settings.clone()), recorded: false }
}

/// Starts the watches of these kinds, by the cluster; their events go to `bus`.
pub(crate) fn watch(
    clusters: &Clusters,
    config: &Config,
    kinds: impl Fn(&Cluster) -> Vec<Kind>,
    bus: &mpsc::Sender<Happened>,
    metrics: &Metrics,
) -> JoinSet<()> {
    let mut watches = JoinSet::new();
    for cluster in clusters.values() {
        for kind in kinds(cluster) {
            let (cluster, watch) = (cluster.clone(), config.watch.clone());
            watches.spawn(Watch::new(cluster, kind, watch, bus.clone(), metrics).run());
        }
    }
    watches
}

/// The watches that [`watch`] starts.
pub(crate) fn watched(
    clusters: &Clusters,
    kinds: impl Fn(&Cluster) -> Vec<Kind>,
) -> BTreeSet<(ClusterName, Kind)> {
    clusters
        .values()
        .flat_map(|c| kinds(c).into_iter().map(|kind| (c.name().clone(), kind)))
        .collect()
}

/// Watches that were neither listed nor lost yet: what a first look waits for.
#[derive(Debug)]
pub(crate) struct Unlisted(BTreeSet<(ClusterName, Kind)>);

impl Unlisted {
    /// All of them.
    pub(crate) fn all(clusters: &Clusters, kinds: impl Fn(&Cluster) -> Vec<Kind>) -> Self {
        Self(watched(clusters, kinds))
    }

    /// Something happened, which may be that one was listed, or lost.
    pub(crate) fn hear(&mut self, what: &Happened) {
        if let Happened::ListFinished { cluster, kind }
        | Happened::WatchLost { cluster, kind, .. } = what
        {
            self.0.remove(&(cluster.clone(), *kind));
        }
    }

    /// There is none left.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Engine {
    /// The clusters of `config`, decided on by `settings`; leader-only work is led to while `gate` is
    /// open. Nothing is connected yet.
    ///
    /// # Errors
    /// The event log can't be had.
    pub(crate) fn new(
        config: &Config,
        settings: Settings,
        gate: Gate,
        event_log: &EventLogConfig,
        listeners: Vec<Box<dyn Listen>>,
    ) -> anyhow::Result<Self> {
        let metrics = Arc::new(Metrics::new());
        let clusters = clusters(config, &metrics);
        let executor = Executor::new(
            Apply::new(clusters.clone(), Duration::from_millis(config.executor.timeout_ms)),
            gate,
            config.executor.clone(),
            config.dry_run,
            metrics.clone(),
        );
        let header = header(&clusters, &settings);
        let log = LiveLog::start(event_log, &header, metrics.clone())?;
        let (mut machine, clock) = (Machine::new(settings), Clock::start());
        let at = clock.now();
        for ClusterSpec { name: cluster, roles } in header.clusters {
            // The header says so already.
            machine.handle_event(&Event { at, what: Happened::ClusterAdded { cluster, roles } });
        }
        Ok(Self { clusters, metrics, clock, machine, executor, log, listeners })
    }

    /// One more hears what happens from now on.
    pub(crate) fn listen(&mut self, listener: Box<dyn Listen>) {
        self.listeners.push(listener);
    }

    /// Starts the watches of these kinds, by the cluster; their events go to `bus`.
    pub(crate) fn watch(
        &self,
        config: &Config,
        kinds: impl Fn(&Cluster) -> Vec<Kind>,
        bus: &mpsc::Sender<Happened>,
    ) -> JoinSet<()> {
        watch(&self.clusters, config, kinds, bus, &self.metrics)
    }

    /// Sleeps until the machine's deadline as it is now, or for ever where there is none.
    pub(crate) fn due(&self) -> impl Future<Output = ()> + use<> {
        until(self.machine.poll_deadline().map(|(at, _)| self.clock.instant(at)))
    }

    /// Something happened: the machine hears it, and what it decides is led to.
    pub(crate) fn take(&mut self, what: Happened) {
        let event = Event { at: self.clock.now(), what };
        if let Some(log) = &mut self.log {
            log.event(&event);
        }
        for listener in &mut self.listeners {
            listener.event(&event);
        }
        let began = Instant::now();
        self.machine.handle_event(&event);
        self.metrics.event_handled(began.elapsed());
        while let Some(decision) = self.machine.poll_action() {
            if let Some(log) = &mut self.log {
                log.action(&decision);
            }
            for listener in &mut self.listeners {
                listener.decided(&decision);
            }
            self.executor.submit(decision);
        }
        while let Some(note) = self.machine.poll_note() {
            self.metrics.note(&note);
            let subject = self.machine.subject(&note.what);
            for listener in &mut self.listeners {
                listener.noted(&note);
                if let Some(subject) = &subject {
                    listener.noted_about(&note, subject);
                }
            }
        }
    }

    /// An action came to its end: the machine hears its outcome.
    pub(crate) fn finished(&mut self, finished: Finished) {
        self.metrics.action_finished(&finished.decision.action, &finished.outcome, finished.took);
        for listener in &mut self.listeners {
            listener.finished(&finished);
        }
        let (id, outcome) = (finished.decision.action.id, finished.outcome);
        self.take(Happened::ActionFinished { id, outcome });
    }

    /// Writes what the event log still has to write, for as long as `grace`.
    pub(crate) async fn end(self, grace: Duration) {
        if let Some(log) = self.log {
            end(log, grace).await;
        }
    }
}

/// Writes what an event log still has to write, for as long as `grace`.
pub(crate) async fn end(log: LiveLog, grace: Duration) {
    drop(tokio::task::spawn_blocking(move || log.finish(grace)).await);
}
