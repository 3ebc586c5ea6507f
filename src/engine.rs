//! The parts that a live run and the one-shot commands share: the machine, the executor that
//! carries out its actions, and the event log of everything that enters and leaves the machine.
//! The owner of an engine runs its loop.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::apply::Applier;
use crate::client::ClusterClient;
use crate::clock::{Clock, sleep_until_opt};
use crate::config::{ClusterConfig, Config, EventLogConfig};
use crate::core::contract::event::{Event, EventKind};
use crate::core::contract::settings::Settings;
use crate::core::data::ids::{ClusterName, Kind};
use crate::core::data::time::UnixMillis;
use crate::core::machine::Machine;
use crate::event_log::{ClusterSpec, Header};
use crate::executor::{Executor, FinishedAction};
use crate::grouping::GATHER_MS;
use crate::leader::gate::Gate;
use crate::live_log::{DeletedRoutes, LiveLog};
use crate::metrics::Metrics;
use crate::run_log::Observer;
use crate::watch::WatchTask;

/// The machine, with its inputs and outputs.
pub(crate) struct Engine {
    pub(crate) clusters: ClusterClients,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) clock: Clock,
    pub(crate) machine: Machine,
    pub(crate) executor: Executor,
    event_log: EventLogConfig,
    /// `None` until it is opened, and without a file.
    log: Option<LiveLog>,
    observers: Vec<Box<dyn Observer>>,
}

pub(crate) type ClusterClients = BTreeMap<ClusterName, Arc<ClusterClient>>;

/// Clients for the configured clusters; nothing is connected yet.
pub(crate) fn cluster_clients(config: &Config, metrics: &Arc<Metrics>) -> ClusterClients {
    let cluster = |c: &ClusterConfig| Arc::new(ClusterClient::new(c.clone(), metrics.clone()));
    config.clusters.iter().map(|c| (c.name.clone(), cluster(c))).collect()
}

/// The event log's header for these clusters.
pub(crate) fn log_header(clusters: &ClusterClients, settings: &Settings) -> Header {
    let spec =
        |c: &Arc<ClusterClient>| ClusterSpec { name: c.name().clone(), roles: c.roles().to_vec() };
    let clusters = clusters.values().map(spec).collect();
    Header { clusters, settings: Some(settings.clone()), recorded: false }
}

/// Starts a watch for each of the kinds that `kinds` names for a cluster; events go to `bus`.
pub(crate) fn start_watches(
    clusters: &ClusterClients,
    config: &Config,
    kinds: impl Fn(&ClusterClient) -> Vec<Kind>,
    bus: &mpsc::Sender<EventKind>,
    metrics: &Metrics,
) -> JoinSet<()> {
    let mut watches = JoinSet::new();
    for cluster in clusters.values() {
        for kind in kinds(cluster) {
            let (cluster, watch) = (cluster.clone(), config.watch.clone());
            watches.spawn(WatchTask::new(cluster, kind, watch, bus.clone(), metrics).run());
        }
    }
    watches
}

/// The watches that [`start_watches`] starts.
pub(crate) fn watched_kinds(
    clusters: &ClusterClients,
    kinds: impl Fn(&ClusterClient) -> Vec<Kind>,
) -> BTreeSet<(ClusterName, Kind)> {
    clusters
        .values()
        .flat_map(|c| kinds(c).into_iter().map(|kind| (c.name().clone(), kind)))
        .collect()
}

/// Watches that have neither finished their first list nor failed: a one-shot command waits for
/// these before it shows anything.
#[derive(Debug)]
pub(crate) struct PendingLists(BTreeSet<(ClusterName, Kind)>);

impl PendingLists {
    pub(crate) fn new(
        clusters: &ClusterClients,
        kinds: impl Fn(&ClusterClient) -> Vec<Kind>,
    ) -> Self {
        Self(watched_kinds(clusters, kinds))
    }

    /// Removes the watch that this event says is listed or lost.
    pub(crate) fn observe(&mut self, kind: &EventKind) {
        if let EventKind::ListFinished { cluster, kind }
        | EventKind::WatchLost { cluster, kind, .. } = kind
        {
            self.0.remove(&(cluster.clone(), *kind));
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Engine {
    /// An engine for the clusters of `config`. Actions that only the leader may take are sent while
    /// `gate` is open. Nothing is connected yet, and the event log is not open.
    pub(crate) fn new(
        config: &Config,
        settings: Settings,
        gate: Gate,
        event_log: &EventLogConfig,
        observers: Vec<Box<dyn Observer>>,
    ) -> Self {
        let metrics = Arc::new(Metrics::new());
        let clusters = cluster_clients(config, &metrics);
        let timeout = Duration::from_millis(config.executor.timeout_ms);
        let mut applier = Applier::new(clusters.clone(), timeout);
        if let Some(file) = &event_log.file {
            applier = applier.with_backup(DeletedRoutes::beside(file));
        }
        let executor =
            Executor::new(applier, gate, config.executor.clone(), config.dry_run, metrics.clone());
        let header = log_header(&clusters, &settings);
        let (mut machine, clock) = (Machine::new(settings), Clock::start());
        let at = clock.now();
        for cluster in &header.clusters {
            // Not logged: the header names these clusters.
            machine.handle_event(&Event { at, kind: cluster.added() });
        }
        let (event_log, log) = (event_log.clone(), None);
        Self { clusters, metrics, clock, machine, executor, event_log, log, observers }
    }

    /// Opens the event log, if one is configured: after all else that can fail at a start, and before
    /// anything enters the machine, because a start that fails must leave the log before it alone.
    ///
    /// # Errors
    /// The event log can't be created.
    pub(crate) fn open_log(&mut self) -> anyhow::Result<()> {
        let header = log_header(&self.clusters, self.machine.settings());
        self.log = LiveLog::start(&self.event_log, &header, self.metrics.clone())?;
        Ok(())
    }

    /// Adds an observer of everything from now on.
    pub(crate) fn add_observer(&mut self, observer: Box<dyn Observer>) {
        self.observers.push(observer);
    }

    /// As [`start_watches`], for this engine's clusters.
    pub(crate) fn start_watches(
        &self,
        config: &Config,
        kinds: impl Fn(&ClusterClient) -> Vec<Kind>,
        bus: &mpsc::Sender<EventKind>,
    ) -> JoinSet<()> {
        start_watches(&self.clusters, config, kinds, bus, &self.metrics)
    }

    /// Sleeps until the machine's current deadline; forever when it has none.
    pub(crate) fn deadline(&self) -> impl Future<Output = ()> + use<> {
        sleep_until_opt(self.machine.poll_deadline().map(|(at, _)| self.clock.instant(at)))
    }

    /// Sleeps until an observer has something to report; forever when none has.
    pub(crate) fn observers_due(&self) -> impl Future<Output = ()> + use<> {
        let due = self.observers.iter().filter_map(|observer| observer.due()).min();
        sleep_until_opt(due.map(|at| self.clock.instant(at)))
    }

    /// Lets the observers report what is due.
    pub(crate) fn report_due(&mut self) {
        self.report_until(self.clock.now());
    }

    /// Lets the observers report what would be due soon: the run ends.
    pub(crate) fn report_rest(&mut self) {
        self.report_until(self.clock.now().plus(GATHER_MS));
    }

    fn report_until(&mut self, now: UnixMillis) {
        for observer in &mut self.observers {
            observer.on_due(now);
        }
    }

    /// Feeds one event to the machine and submits the resulting actions.
    pub(crate) fn handle_event(&mut self, kind: EventKind) {
        let event = Event { at: self.clock.now(), kind };
        if let Some(log) = &mut self.log {
            log.event(&event);
        }
        for observer in &mut self.observers {
            observer.on_event(&event);
        }
        let began = Instant::now();
        self.machine.handle_event(&event);
        self.metrics.event_handled(began.elapsed());
        while let Some(decision) = self.machine.poll_action() {
            if let Some(log) = &mut self.log {
                log.action(&decision);
            }
            for observer in &mut self.observers {
                observer.on_decision(&decision);
            }
            self.executor.submit(decision);
        }
        while let Some(note) = self.machine.poll_note() {
            self.metrics.count_note(&note);
            let subject = self.machine.involved_object(&note.kind);
            for observer in &mut self.observers {
                observer.on_note(&note);
                if let Some(subject) = &subject {
                    observer.on_object_note(&note, subject);
                }
            }
        }
    }

    /// Feeds the outcome of an action to the machine.
    pub(crate) fn handle_finished(&mut self, finished: FinishedAction) {
        self.metrics.action_finished(&finished.decision.action, &finished.outcome, finished.took);
        let at = self.clock.now();
        for observer in &mut self.observers {
            observer.on_finished(at, &finished);
        }
        let (id, outcome) = (finished.decision.action.id, finished.outcome);
        self.handle_event(EventKind::ActionFinished { id, outcome });
    }

    /// Writes the rest of the event log, for at most `grace`.
    pub(crate) async fn finish_log(self, grace: Duration) {
        if let Some(log) = self.log {
            finish_log(log, grace).await;
        }
    }
}

/// Writes the rest of an event log, for at most `grace`.
pub(crate) async fn finish_log(log: LiveLog, grace: Duration) {
    drop(tokio::task::spawn_blocking(move || log.finish(grace)).await);
}
