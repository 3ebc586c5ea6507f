//! The whole program, live: watches → bus → machine → executor → outcomes → machine.
//!
//! One task owns the machine and turns this loop; it sleeps until an event, an outcome, a deadline
//! or a question comes. Everything that enters and leaves the machine goes to the event log.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout_at};
use tracing::{info, warn};

use crate::admin::{self, Query};
use crate::apply::Apply;
use crate::client::Cluster;
use crate::clock::Clock;
use crate::config::Config;
use crate::core::event::{Event, Happened};
use crate::core::ids::{ClusterName, Kind, Role};
use crate::core::machine::Machine;
use crate::core::settings::{OrphanMode, Settings};
use crate::event_log::{ClusterSpec, Header};
use crate::executor::{Executor, Finished};
use crate::gate::{Gate, GateKeeper};
use crate::leader::{Leader, identity, lease::Lease};
use crate::live_log::LiveLog;
use crate::metrics::{Levels, Metrics};
use crate::narrate::{Listen, Narrator};
use crate::watch::Watch;

/// Questions that may wait for the loop.
const QUERIES: usize = 16;

/// The Lease is tried to be released for so long, also when the grace period is used up.
const RELEASE: Duration = Duration::from_millis(500);

/// A live run.
pub struct Run {
    config: Config,
    clusters: BTreeMap<ClusterName, Arc<Cluster>>,
    metrics: Arc<Metrics>,
    clock: Clock,
    machine: Machine,
    executor: Executor,
    /// Opens the gate; absent when there is no election.
    keeper: Option<GateKeeper>,
    log: Option<LiveLog>,
    listeners: Vec<Box<dyn Listen>>,
}

impl std::fmt::Debug for Run {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Run").finish_non_exhaustive()
    }
}

/// Runs until `stop` turns true, then ends what is under way.
///
/// # Errors
/// The admin port or the event log can't be had. A cluster that can't be reached is no error.
pub async fn run(config: Config, stop: watch::Receiver<bool>) -> anyhow::Result<()> {
    Run::new(config, Vec::new())?.until(stop).await
}

impl Run {
    /// A run that has not begun. `listeners` hear everything, beside the log.
    ///
    /// # Errors
    /// The event log can't be had.
    pub fn new(config: Config, mut listeners: Vec<Box<dyn Listen>>) -> anyhow::Result<Self> {
        let metrics = Arc::new(Metrics::new());
        let clusters: BTreeMap<_, _> = config
            .clusters
            .iter()
            .map(|c| (c.name.clone(), Arc::new(Cluster::new(c.clone(), metrics.clone()))))
            .collect();
        let mut settings = config.settings();
        // Nothing arrives anywhere in a dry run: nothing to nudge for.
        settings.mirror.nudge &= !config.dry_run;
        let timeout = Duration::from_millis(config.executor.timeout_ms);
        let (gate, keeper) = if config.election_cluster().is_some() {
            let (gate, keeper) = Gate::closed();
            (gate, Some(keeper))
        } else {
            (Gate::always_open(), None)
        };
        let executor = Executor::new(
            Apply::new(clusters.clone(), timeout),
            gate,
            config.executor.clone(),
            config.dry_run,
            metrics.clone(),
        );
        let spec =
            |c: &Arc<Cluster>| ClusterSpec { name: c.name().clone(), roles: c.roles().to_vec() };
        let header = Header {
            clusters: clusters.values().map(spec).collect(),
            settings: Some(settings.clone()),
        };
        let log = LiveLog::start(&config.event_log, &header, metrics.clone())?;
        listeners.push(Box::new(Narrator::default()));
        let machine = Machine::new(settings);
        let clock = Clock::start();
        let mut run =
            Self { config, clusters, metrics, clock, machine, executor, keeper, log, listeners };
        let at = run.clock.now();
        for ClusterSpec { name: cluster, roles } in header.clusters {
            // The header says so already.
            run.machine
                .handle_event(&Event { at, what: Happened::ClusterAdded { cluster, roles } });
        }
        Ok(run)
    }

    /// Runs until `stop` turns true.
    ///
    /// # Errors
    /// The admin port can't be had.
    pub async fn until(mut self, mut stop: watch::Receiver<bool>) -> anyhow::Result<()> {
        let (bus, mut events) = mpsc::channel(self.config.watch.queue);
        let (ask, mut queries) = mpsc::channel(QUERIES);
        let address = self.config.admin.address;
        let listener = tokio::net::TcpListener::bind(address).await.with_context(|| {
            format!("listening on {address} (admin.address): choose another one, or port 0 for any")
        })?;
        let address = listener.local_addr().context("the admin port's address")?;
        info!(%address, "admin port listening");
        let mut stopping = stop.clone();
        let stopped = async move {
            let _ = stopping.wait_for(|stop| *stop).await;
        };
        let (access, metrics) = (self.config.admin.state, self.metrics.clone());
        let admin = tokio::spawn(admin::serve(listener, access, metrics, ask, stopped));
        let mut watches = self.start_watches(&bus);
        drop(bus);
        let (tell, mut leadership) = mpsc::unbounded_channel();
        let leader = self.start_election(&tell);
        if leader.is_none() {
            self.metrics.leader(true);
            self.take(Happened::LeadershipAcquired);
        }

        while !*stop.borrow() {
            let deadline = self.machine.poll_deadline().map(|(at, _)| self.clock.instant(at));
            let due = async {
                match deadline {
                    Some(at) => sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                Some(what) = events.recv(), if self.executor.has_room() => self.take(what),
                Some(what) = leadership.recv() => self.take(what),
                finished = self.executor.finished() => self.finished(finished),
                () = due => self.take(Happened::TimedOut),
                Some(query) = queries.recv() => self.answer(query),
                _ = stop.changed() => {}
            }
        }

        watches.shutdown().await;
        self.finish(leader, leadership).await;
        admin.abort();
        Ok(())
    }

    /// Takes part in the election, where there is one.
    fn start_election(&mut self, tell: &mpsc::UnboundedSender<Happened>) -> Option<Leader> {
        let (keeper, cluster) = (self.keeper.take()?, self.config.election_cluster()?.clone());
        let (rules, election) = (self.config.election_rules(), &self.config.leader_election);
        let lease = Lease::new(
            Arc::new(Cluster::new(cluster, self.metrics.clone())),
            election.lease_namespace.clone(),
            election.lease_name.clone(),
            Duration::from_millis(rules.try_ms()),
        );
        let (tell, metrics) = (tell.clone(), self.metrics.clone());
        Some(Leader::start(lease, identity(), rules, keeper, tell, metrics))
    }

    fn start_watches(&self, bus: &mpsc::Sender<Happened>) -> JoinSet<()> {
        let mut watches = JoinSet::new();
        for cluster in self.clusters.values() {
            for kind in kinds_watched(cluster.roles(), self.machine.settings()) {
                let (cluster, watch) = (cluster.clone(), self.config.watch.clone());
                let watch = Watch::new(cluster, kind, watch, bus.clone(), &self.metrics);
                watches.spawn(watch.run());
            }
        }
        watches
    }

    /// Something happened: the machine hears it, and what it decides is led to.
    fn take(&mut self, what: Happened) {
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
            for listener in &mut self.listeners {
                listener.noted(&note);
            }
        }
    }

    fn finished(&mut self, finished: Finished) {
        self.metrics.action_finished(&finished.decision.action, &finished.outcome, finished.took);
        for listener in &mut self.listeners {
            listener.finished(&finished);
        }
        let (id, outcome) = (finished.decision.action.id, finished.outcome);
        self.take(Happened::ActionFinished { id, outcome });
    }

    fn answer(&self, query: Query) {
        // Whoever asked may have gone.
        match query {
            Query::Ping(reply) => drop(reply.send(())),
            Query::Levels(reply) => {
                let phases = self.machine.phases();
                drop(reply.send(Levels { phases, orphans: self.machine.orphan_counts() }));
            }
            Query::State(reply) => drop(reply.send(Box::new(self.machine.view()))),
        }
    }

    /// Ends what is under way, within the grace period, and gives up the Lease after that.
    async fn finish(
        mut self,
        leader: Option<Leader>,
        mut leadership: mpsc::UnboundedReceiver<Happened>,
    ) {
        let until = Instant::now() + Duration::from_millis(self.config.shutdown.grace_ms);
        let waiting = self.executor.clear();
        let (_, under_way) = self.executor.load();
        info!(waiting, under_way, "stopping: what waits is given up, what is under way is ended");
        while self.executor.load().1 > 0 {
            let Ok(finished) = timeout_at(until, self.executor.finished()).await else {
                let (_, abandoned) = self.executor.load();
                warn!(abandoned, "writes did not end within the grace period and are abandoned");
                break;
            };
            self.finished(finished);
            self.executor.clear();
        }
        // A Lease whose holder still has writes on their way must run out.
        if let Some(leader) = leader.filter(|_| self.executor.load().1 == 0) {
            leader.release(until.saturating_duration_since(Instant::now()).max(RELEASE)).await;
            while let Ok(what) = leadership.try_recv() {
                self.take(what);
            }
            self.executor.clear();
        }
        if let Some(log) = self.log.take() {
            let grace = until.saturating_duration_since(Instant::now());
            let done = tokio::task::spawn_blocking(move || {
                log.finish(grace.max(Duration::from_millis(500)));
            });
            drop(done.await);
        }
        info!("stopped");
    }
}

/// The kinds that matter in a cluster, by its roles.
pub fn kinds_watched(roles: &[Role], settings: &Settings) -> Vec<Kind> {
    let has = |role| roles.contains(&role);
    let (upstream, hub, edge) = (has(Role::Upstream), has(Role::Downstream), has(Role::Edge));
    let orphans = settings.orphans.mode != OrphanMode::Off;
    let combined = upstream && (hub || edge);
    Kind::ALL
        .into_iter()
        .filter(|kind| match kind {
            Kind::Connector => true,
            Kind::HttpProxy => edge,
            Kind::Gateway => edge || (upstream && orphans),
            Kind::HttpRoute => hub && orphans,
            Kind::Namespace => upstream || combined,
        })
        .collect()
}
