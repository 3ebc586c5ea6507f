//! The whole program, live: watches → bus → machine → executor → outcomes → machine.
//!
//! One task owns the machine and turns this loop; it sleeps until an event, an outcome, a deadline
//! or a question comes. Everything that enters and leaves the machine goes to the event log.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};
use tracing::{info, warn};

use crate::admin::{self, Query};
use crate::client::Cluster;
use crate::config::Config;
use crate::core::event::Happened;
use crate::core::ids::{Kind, Role};
use crate::core::settings::{OrphanMode, Settings};
use crate::core::view::View;
use crate::engine::Engine;
use crate::events::{Recorder, Reporter};
use crate::gate::{Gate, GateKeeper};
use crate::leader::{Leader, identity, lease::Lease};
use crate::metrics::Levels;
use crate::narrate::{Listen, Narrator};

/// Questions that may wait for the loop.
const QUERIES: usize = 16;

/// The Lease is tried to be released for so long, also when the grace period is used up.
const RELEASE: Duration = Duration::from_millis(500);

/// At the end, Events are still sent for so long.
const EVENTS: Duration = Duration::from_millis(500);

/// A live run.
pub struct Run {
    config: Config,
    engine: Engine,
    /// Opens the gate; absent when there is no election.
    keeper: Option<GateKeeper>,
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
        let mut settings = config.settings();
        // Nothing arrives anywhere in a dry run: nothing to nudge for.
        settings.mirror.nudge &= !config.dry_run;
        let (gate, keeper) = if config.election_cluster().is_some() {
            let (gate, keeper) = Gate::closed();
            (gate, Some(keeper))
        } else {
            (Gate::always_open(), None)
        };
        listeners.push(Box::new(Narrator::default()));
        let engine = Engine::new(&config, settings, gate, &config.event_log, listeners)?;
        Ok(Self { config, engine, keeper })
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
        let (access, metrics) = (self.config.admin.state, self.engine.metrics.clone());
        let admin = tokio::spawn(admin::serve(listener, access, metrics, ask, stopped));
        let settings = self.engine.machine.settings();
        let kinds = |cluster: &Cluster| kinds_watched(cluster.roles(), settings);
        let mut watches = self.engine.watch(&self.config, kinds, &bus);
        drop(bus);
        let (tell, mut leadership) = mpsc::unbounded_channel();
        let recording = self.start_events();
        let leader = self.start_election(&tell, recording.as_ref().map(|(r, _)| r.clone()));
        if leader.is_none() {
            self.engine.metrics.leader(true);
            self.engine.take(Happened::LeadershipAcquired);
        }

        while !*stop.borrow() {
            let engine = &mut self.engine;
            let due = engine.due();
            tokio::select! {
                Some(what) = events.recv(), if engine.executor.has_room() => engine.take(what),
                Some(what) = leadership.recv() => engine.take(what),
                finished = engine.executor.finished() => engine.finished(finished),
                () = due => engine.take(Happened::TimedOut),
                Some(query) = queries.recv() => answer(engine, query),
                _ = stop.changed() => {}
            }
        }

        watches.shutdown().await;
        self.finish(leader, leadership).await;
        if let Some((recorder, workers)) = recording {
            // What is left to send is sent, if that is soon.
            drop(recorder);
            let _ = tokio::time::timeout(EVENTS, workers.join_all()).await;
        }
        admin.abort();
        Ok(())
    }

    /// Leaves Events at the hub, at edges and where the Lease is; not in a dry run.
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
        let (recorder, workers) = Recorder::start(clusters, self.engine.metrics.clone());
        let settings = self.engine.machine.settings().clone();
        self.engine.listen(Box::new(Reporter::new(recorder.clone(), settings)));
        Some((recorder, workers))
    }

    /// Takes part in the election, where there is one.
    fn start_election(
        &mut self,
        tell: &mpsc::UnboundedSender<Happened>,
        events: Option<Recorder>,
    ) -> Option<Leader> {
        let (keeper, cluster) = (self.keeper.take()?, self.config.election_cluster()?.clone());
        let (rules, election) = (self.config.election_rules(), &self.config.leader_election);
        let lease = Lease::new(
            Arc::new(Cluster::new(cluster, self.engine.metrics.clone())),
            election.lease_namespace.clone(),
            election.lease_name.clone(),
            Duration::from_millis(rules.try_ms()),
            events,
        );
        let (tell, metrics) = (tell.clone(), self.engine.metrics.clone());
        Some(Leader::start(lease, identity(), rules, keeper, tell, metrics))
    }

    /// Ends what is under way, within the grace period, and gives up the Lease after that.
    async fn finish(
        mut self,
        leader: Option<Leader>,
        mut leadership: mpsc::UnboundedReceiver<Happened>,
    ) {
        let until = Instant::now() + Duration::from_millis(self.config.shutdown.grace_ms);
        let engine = &mut self.engine;
        let waiting = engine.executor.clear();
        let (_, under_way) = engine.executor.load();
        info!(waiting, under_way, "stopping: what waits is given up, what is under way is ended");
        while engine.executor.load().1 > 0 {
            let Ok(finished) = timeout_at(until, engine.executor.finished()).await else {
                let (_, abandoned) = engine.executor.load();
                warn!(abandoned, "writes did not end within the grace period and are abandoned");
                break;
            };
            engine.finished(finished);
            engine.executor.clear();
        }
        // A Lease whose holder still has writes on their way must run out.
        if let Some(leader) = leader.filter(|_| engine.executor.load().1 == 0) {
            leader.release(until.saturating_duration_since(Instant::now()).max(RELEASE)).await;
            while let Ok(what) = leadership.try_recv() {
                engine.take(what);
            }
            engine.executor.clear();
        }
        let grace = until.saturating_duration_since(Instant::now());
        self.engine.end(grace.max(Duration::from_millis(500))).await;
        info!("stopped");
    }
}

fn answer(engine: &Engine, query: Query) {
    let machine = &engine.machine;
    // Whoever asked may have gone.
    match query {
        Query::Ping(reply) => drop(reply.send(())),
        Query::Levels(reply) => {
            let phases = machine.phases();
            drop(reply.send(Levels { phases, orphans: machine.orphan_counts() }));
        }
        Query::State(reply) => {
            // At rest the last event may be hours ago.
            let view = View { at_ms: engine.clock.now(), ..machine.view() };
            drop(reply.send(Box::new(view)));
        }
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
