//! The whole program, live: watches → bus → machine → executor → outcomes → machine.
//!
//! One task owns the machine and runs this loop. It sleeps until there is an event, an outcome, a
//! deadline or a query. Everything that enters and leaves the machine goes to the event log.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};
use tracing::{info, warn};

use crate::admin::{self, Query};
use crate::client::ClusterClient;
use crate::config::Config;
use crate::core::contract::event::EventKind;
use crate::core::data::ids::Role;
use crate::core::view::View;
use crate::engine::Engine;
use crate::events::{Recorder, Reporter};
use crate::leader::gate::{Gate, GateKeeper};
use crate::leader::{LeaderElection, identity, lease::LeaseClient};
use crate::metrics::MachineCounts;
use crate::run_log::{Observer, RunLog};

/// The queue of queries from the admin port.
const QUERIES_MAX: usize = 16;

/// The least time for releasing the Lease, also when the grace period is over.
const RELEASE_MIN: Duration = Duration::from_millis(500);

/// The longest that a stopping run still sends Kubernetes Events.
const LAST_EVENTS_MAX: Duration = Duration::from_millis(500);

/// The least time for writing the rest of the event log, also when the grace period is over.
const LOG_MIN: Duration = Duration::from_millis(500);

/// A live run.
pub struct Run {
    config: Config,
    engine: Engine,
    /// Opens the gate; `None` without an election.
    keeper: Option<GateKeeper>,
}

impl std::fmt::Debug for Run {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Run").finish_non_exhaustive()
    }
}

/// Runs until `stop` turns true, then finishes the writes in flight.
///
/// # Errors
/// The admin port is taken, or the event log can't be created. A cluster that can't be reached is
/// not an error.
pub async fn run(config: Config, stop: watch::Receiver<bool>) -> anyhow::Result<()> {
    Run::new(config, Vec::new()).until(stop).await
}

impl Run {
    /// Prepares a run. `observers` see everything that the log for people is written from.
    pub fn new(config: Config, mut observers: Vec<Box<dyn Observer>>) -> Self {
        let mut settings = config.settings();
        // In a dry run no mirrored value ever reaches an edge, so every one would be nudged.
        settings.mirror.nudge &= !config.dry_run;
        let (gate, keeper) = if config.election_cluster().is_some() {
            let (gate, keeper) = Gate::closed();
            (gate, Some(keeper))
        } else {
            (Gate::always_open(), None)
        };
        observers.push(Box::new(RunLog::new(&settings)));
        let engine = Engine::new(&config, settings, gate, &config.event_log, observers);
        Self { config, engine, keeper }
    }

    /// Runs until `stop` turns true.
    ///
    /// # Errors
    /// The admin port is taken, or the event log can't be created.
    pub async fn until(mut self, mut stop: watch::Receiver<bool>) -> anyhow::Result<()> {
        let (bus, mut events) = mpsc::channel(self.config.watch.queue);
        let (queries, mut asked) = mpsc::channel(QUERIES_MAX);
        let address = self.config.admin.address;
        let listener = tokio::net::TcpListener::bind(address).await.with_context(|| {
            format!("cannot listen on {address} (admin.address): choose another port, or 0 for any free one")
        })?;
        let address = listener.local_addr().context("the admin port's address")?;
        self.engine.open_log()?;
        info!(%address, "admin port listening");
        let mut stopping = stop.clone();
        let stopped = async move {
            let _ = stopping.wait_for(|stop| *stop).await;
        };
        let (access, metrics) = (self.config.admin.state, self.engine.metrics.clone());
        let admin = tokio::spawn(admin::serve(listener, access, metrics, queries, stopped));
        let settings = self.engine.machine.settings();
        let kinds = |cluster: &ClusterClient| settings.kinds_watched(cluster.roles());
        let mut watches = self.engine.start_watches(&self.config, kinds, &bus);
        drop(bus);
        let (leadership_changes, mut leadership) = mpsc::unbounded_channel();
        let events_out = self.start_events();
        let recorder = events_out.as_ref().map(|(recorder, _)| recorder.clone());
        let election = self.start_election(&leadership_changes, recorder);
        if election.is_none() {
            self.engine.metrics.set_leader(true);
            self.engine.handle_event(EventKind::LeadershipAcquired);
        }

        while !*stop.borrow() {
            let engine = &mut self.engine;
            let (deadline, reports) = (engine.deadline(), engine.observers_due());
            tokio::select! {
                Some(kind) = events.recv() => engine.handle_event(kind),
                Some(kind) = leadership.recv() => engine.handle_event(kind),
                finished = engine.executor.next_finished() => engine.handle_finished(finished),
                () = deadline => engine.handle_event(EventKind::TimedOut),
                () = reports => engine.report_due(),
                Some(query) = asked.recv() => answer(engine, query),
                _ = stop.changed() => {}
            }
        }

        watches.shutdown().await;
        self.finish(election, leadership).await;
        if let Some((recorder, workers)) = events_out {
            // The workers end once their queues are empty.
            drop(recorder);
            let _ = tokio::time::timeout(LAST_EVENTS_MAX, workers.join_all()).await;
        }
        admin.abort();
        Ok(())
    }

    /// Posts Kubernetes Events to the hub, to edges and to the cluster of the Lease; not in a dry
    /// run.
    fn start_events(&mut self) -> Option<(Recorder, JoinSet<()>)> {
        if self.config.dry_run || !self.config.events.enabled {
            return None;
        }
        let election = self.config.election_cluster().map(|cluster| &cluster.name);
        let mut clusters: Vec<_> = self.engine.clusters.values().cloned().collect();
        clusters.retain(|cluster| {
            let upstream_alone = cluster.roles().iter().all(|role| *role == Role::Upstream);
            !upstream_alone || election == Some(cluster.name())
        });
        let (recorder, workers) = Recorder::start(
            clusters,
            self.config.events.max_per_minute,
            self.engine.metrics.clone(),
        );
        let settings = self.engine.machine.settings().clone();
        self.engine.add_observer(Box::new(Reporter::new(recorder.clone(), settings)));
        Some((recorder, workers))
    }

    /// Joins the election, if one is configured.
    fn start_election(
        &mut self,
        changes: &mpsc::UnboundedSender<EventKind>,
        recorder: Option<Recorder>,
    ) -> Option<LeaderElection> {
        let (keeper, cluster) = (self.keeper.take()?, self.config.election_cluster()?.clone());
        let (timings, election) = (self.config.election_timings(), &self.config.leader_election);
        let lease = LeaseClient::new(
            Arc::new(ClusterClient::new(cluster, self.engine.metrics.clone())),
            election.lease_namespace.clone(),
            election.lease_name.clone(),
            Duration::from_millis(timings.request_ms()),
            recorder,
        );
        let (changes, metrics) = (changes.clone(), self.engine.metrics.clone());
        let orphans = self.engine.machine.settings().orphans.mode;
        Some(LeaderElection::start(lease, identity(), timings, keeper, orphans, changes, metrics))
    }

    /// Finishes the writes in flight within the grace period, then releases the Lease.
    async fn finish(
        mut self,
        election: Option<LeaderElection>,
        mut leadership: mpsc::UnboundedReceiver<EventKind>,
    ) {
        let until = Instant::now() + Duration::from_millis(self.config.shutdown.grace_ms);
        let engine = &mut self.engine;
        let waiting = engine.executor.drop_queued();
        let under_way = engine.executor.in_flight();
        info!(waiting, under_way, "stopping: dropping queued writes, finishing those in flight");
        while engine.executor.is_busy() {
            let Ok(finished) = timeout_at(until, engine.executor.next_finished()).await else {
                let abandoned = engine.executor.in_flight();
                warn!(abandoned, "stopping: writes did not finish within shutdown.graceMs");
                break;
            };
            engine.handle_finished(finished);
            engine.executor.drop_queued();
        }
        // While this instance still has writes in flight, its Lease must expire instead: nobody
        // else may lead before they have ended.
        if let Some(election) = election.filter(|_| engine.executor.in_flight() == 0) {
            election
                .release(until.saturating_duration_since(Instant::now()).max(RELEASE_MIN))
                .await;
            while let Ok(kind) = leadership.try_recv() {
                engine.handle_event(kind);
            }
            engine.executor.drop_queued();
        }
        self.engine.report_rest();
        let grace = until.saturating_duration_since(Instant::now());
        self.engine.finish_log(grace.max(LOG_MIN)).await;
        info!("stopped");
    }
}

fn answer(engine: &Engine, query: Query) {
    let machine = &engine.machine;
    // A dropped receiver is not an error: the HTTP request was cancelled.
    match query {
        Query::Ping(reply) => drop(reply.send(())),
        Query::Counts(reply) => {
            let phases = machine.phases();
            drop(reply.send(MachineCounts { phases, orphans: machine.orphan_counts() }));
        }
        Query::State(reply) => {
            // Not the time of the last event, which may be hours ago.
            let view = View { at_ms: engine.clock.now(), ..machine.view() };
            drop(reply.send(Box::new(view)));
        }
    }
}
