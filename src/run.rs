//! The whole program, live: watches → bus → machine → executor → outcomes → machine.
//!
//! One task owns the machine and runs this loop. It sleeps until there is an event, an outcome, a
//! deadline or a query. Everything that enters and leaves the machine goes to the event log.
//!
//! After each event it carries out the machine's decisions about discovered clusters (`changes.rs`).
//! The configuration file decides about configured clusters.

mod banner;
mod changes;
mod election;

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Context;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, MissedTickBehavior, interval, timeout_at};
use tracing::{info, warn};

use crate::admin::{self, Query};
use crate::config::{ClusterConfig, Config, ConfigSource, DiscoveryConfig, follow};
use crate::core::contract::event::EventKind;
use crate::core::view::fleet::{Fleet, Source};
use crate::discovery::Discovery;
use crate::engine::Engine;
use crate::environment::{is_simulated, spawn};
use crate::events::{Poster, Recorder};
use crate::leader::LeaderElection;
use crate::leader::gate::{Gate, GateKeeper};
use crate::leader::group::Group;
use crate::metrics::MachineCounts;
use crate::observer::Observer;
use changes::machine_settings;

/// The longest queue of queries from the admin port.
const QUERIES_MAX: usize = 16;

/// The least time for each of the last steps, releasing the Lease and writing the rest of the event log,
/// even after the grace period.
const LAST_STEP_MIN: Duration = Duration::from_millis(500);

/// The longest time that a stopping run still sends Kubernetes Events.
const LAST_EVENTS_MAX: Duration = Duration::from_millis(500);

/// How often a run with discovery asks for upstreams that hub objects name and no source offers.
const ASK_FOR_UNKNOWN_EVERY: Duration = Duration::from_secs(10);

/// A live run.
pub struct Run {
    config: Config,
    engine: Engine,
    /// Opens the gate; `None` without an election.
    keeper: Option<GateKeeper>,
    /// The clusters of the configuration file after each reload.
    reloads: mpsc::Receiver<Vec<ClusterConfig>>,
    /// `None` if discovery is not configured.
    discovery: Option<Discovery>,
    recorder: Option<Recorder>,
    /// The admin port, if the caller has bound it.
    listener: Option<TcpListener>,
}

/// Runs until `stop` turns true, then finishes the writes in flight. Follows the file that `config` was
/// loaded from, and SIGHUP.
///
/// # Errors
/// SIGHUP can't be listened for, the admin port is taken, or the event log can't be created. A cluster
/// that can't be reached is not an error.
pub async fn run(
    config: Config,
    source: ConfigSource,
    stop: watch::Receiver<bool>,
) -> anyhow::Result<()> {
    let run = Run::new(config, None);
    let metrics = run.engine.metrics.clone();
    let problems = run.engine.outside.clone();
    let reloads = follow(source, &run.config, metrics, problems).context("listening for SIGHUP")?;
    run.with_reloads(reloads).until(stop).await
}

impl Run {
    /// Prepares a run. The observer receives everything that enters and leaves the machine.
    pub fn new(config: Config, observer: Option<Box<dyn Observer>>) -> Self {
        let settings = machine_settings(&config);
        let (gate, keeper) = if config.election_cluster().is_some() {
            let (gate, keeper) = Gate::closed();
            (gate, Some(keeper))
        } else {
            (Gate::always_open(), None)
        };
        let engine = Engine::new(&config, settings, gate, observer);
        let shard = engine.machine.settings().shard;
        // A dry run leads nobody: beside a run, it would hide that no instance leads.
        if !config.dry_run {
            let group = Group::new(&config.leader_election.lease_name, shard);
            engine.metrics.set_lease_name(&group.own_lease());
        }
        let (_, reloads) = mpsc::channel(1);
        let discovery = None;
        let recorder = None;
        let listener = None;
        Self { config, engine, keeper, reloads, discovery, recorder, listener }
    }

    /// Applies the lists of clusters that `reloads` receives during the run.
    #[must_use]
    pub fn with_reloads(self, reloads: mpsc::Receiver<Vec<ClusterConfig>>) -> Self {
        Self { reloads, ..self }
    }

    /// Serves the admin port on `listener` instead of `admin.address`.
    #[must_use]
    pub fn listening(self, listener: TcpListener) -> Self {
        Self { listener: Some(listener), ..self }
    }

    /// Runs until `stop` turns true.
    ///
    /// # Errors
    /// The admin port is taken, or the event log can't be created.
    pub async fn until(mut self, mut stop: watch::Receiver<bool>) -> anyhow::Result<()> {
        let (bus, mut events) = mpsc::channel(self.config.constants.watch.queue);
        let (queries, mut asked) = mpsc::channel(QUERIES_MAX);
        let listener = match self.listener.take() {
            Some(listener) => Some(listener),
            None => listen(self.config.admin.address).await?,
        };
        self.engine.open_log(&self.config.event_log)?;
        banner::log(&self.config, self.engine.machine.settings().orphans.mode);
        let admin = listener.map(|listener| self.serve_admin(listener, queries, stop.clone()));
        let settings = self.engine.machine.settings().clone();
        self.engine.fleet.start_watches(move |roles| settings.kinds_watched(roles), bus);
        let (leadership_changes, mut leadership) = mpsc::unbounded_channel();
        let workers = self.start_events();
        let election = self.start_election(&leadership_changes);
        let mut discovered = self.start_discovery();
        if election.is_none() {
            self.engine.metrics.set_leader(true, None);
            self.engine.handle_event(EventKind::LeadershipAcquired);
        }

        let mut unknown_due = interval(ASK_FOR_UNKNOWN_EVERY);
        unknown_due.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let discovers = self.discovery.is_some();
        while !*stop.borrow() {
            self.carry_out_memberships();
            let engine = &mut self.engine;
            let deadline = engine.deadline();
            let reports = engine.reports_due();
            tokio::select! {
                // The rarest first: none of them delays the watches for long.
                biased;
                _ = stop.changed() => {}
                Some(kind) = leadership.recv() => engine.handle_event(kind),
                Some(note) = engine.reported.recv() => engine.handle_outside(note),
                Some(clusters) = self.reloads.recv() => self.reload(clusters),
                _ = unknown_due.tick(), if discovers => self.ask_for_unknown(),
                Some(kind) = discovered.recv() => self.handle_discovered(kind),
                () = reports => engine.report_due(),
                () = deadline => engine.handle_event(EventKind::TimedOut),
                finished = engine.executor.next_finished() => engine.handle_finished(finished),
                Some(query) = asked.recv() => answer(engine, query),
                Some(message) = events.recv() => engine.handle_watch_message(message),
            }
        }

        self.engine.fleet.stop();
        self.finish(election, leadership).await;
        if let Some(workers) = workers {
            // Ends once the last Event is sent.
            let _ = tokio::time::timeout(LAST_EVENTS_MAX, workers.join_all()).await;
        }
        if let Some(admin) = admin {
            admin.abort();
        }
        Ok(())
    }

    fn serve_admin(
        &self,
        listener: TcpListener,
        queries: mpsc::Sender<Query>,
        stop: watch::Receiver<bool>,
    ) -> AbortHandle {
        if let Ok(address) = listener.local_addr() {
            info!(%address, "admin port listening");
        }
        let access = self.config.admin.state;
        let metrics = self.engine.metrics.clone();
        spawn(admin::serve(listener, access, metrics, queries, stop)).abort_handle()
    }

    /// Posts Kubernetes Events to the hub, to edges and to the cluster of the Lease; not in a dry
    /// run.
    fn start_events(&mut self) -> Option<JoinSet<()>> {
        if self.config.dry_run || !self.config.events.enabled {
            return None;
        }
        let mut clusters = self.engine.fleet.table().all();
        clusters.retain(|cluster| self.gets_events(cluster));
        let (recorder, workers) = Recorder::start(
            clusters,
            self.config.constants.events_per_minute,
            self.engine.metrics.clone(),
        );
        self.engine.poster = Some(Poster::new(recorder.clone()));
        self.recorder = Some(recorder);
        Some(workers)
    }

    /// Starts discovery, if it is configured. The channel receives the sources' events.
    fn start_discovery(&mut self) -> mpsc::Receiver<EventKind> {
        let (bus, events) = mpsc::channel(self.config.constants.watch.queue);
        let Config { discovery, .. } = &self.config;
        if discovery != &DiscoveryConfig::default() {
            let fleet = &self.engine.fleet;
            let table = fleet.table();
            let connections = fleet.connections();
            let metrics = &self.engine.metrics;
            let started = Discovery::start(&self.config, table, None, connections, bus, metrics);
            if let Some(projects) = started.projects() {
                self.engine.executor.set_projects(projects);
            }
            self.discovery = Some(started);
        }
        events
    }

    /// Finishes the writes in flight within the grace period, then releases the Lease.
    async fn finish(
        mut self,
        election: Option<LeaderElection>,
        mut leadership: mpsc::UnboundedReceiver<EventKind>,
    ) {
        let until = Instant::now() + Duration::from_millis(self.config.constants.shutdown_grace_ms);
        let left = || until.saturating_duration_since(Instant::now()).max(LAST_STEP_MIN);
        let engine = &mut self.engine;
        let waiting = engine.executor.stop();
        let under_way = engine.executor.in_flight();
        info!(waiting, under_way, "stopping: dropping queued writes, finishing those in flight");
        while engine.executor.is_busy() {
            let Ok(finished) = timeout_at(until, engine.executor.next_finished()).await else {
                let abandoned = engine.executor.in_flight();
                warn!(abandoned, "stopping: writes did not finish in time");
                break;
            };
            engine.handle_finished(finished);
        }
        // With writes in flight, the Lease must expire instead: no other instance may lead before they
        // have ended.
        if engine.executor.in_flight() == 0
            && let Some(election) = election
        {
            election.release(left()).await;
            while let Ok(kind) = leadership.try_recv() {
                engine.handle_event(kind);
            }
        }
        self.engine.report_rest();
        drop((self.recorder, self.discovery));
        self.engine.finish_log(left()).await;
        info!("stopped");
    }
}

/// Binds the admin port. A simulation has no clients for it.
async fn listen(address: SocketAddr) -> anyhow::Result<Option<TcpListener>> {
    if is_simulated() {
        return Ok(None);
    }
    let listener = TcpListener::bind(address).await.with_context(|| {
        format!(
            "cannot listen on {address} (admin.address): choose another port, or 0 for any free one"
        )
    })?;
    Ok(Some(listener))
}

fn answer(engine: &Engine, query: Query) {
    let machine = &engine.machine;
    // A dropped receiver is not an error: the HTTP request was cancelled.
    match query {
        Query::Ping(reply) => drop(reply.send(())),
        Query::Counts(reply) => {
            let states = machine.states();
            let members = machine.membership_counts();
            drop(reply.send(MachineCounts { states, members }));
        }
        Query::State(reply) => {
            // Not the time of the last event, which may be hours ago.
            let fleet = machine.fleet(Source::Instance, &|_| None);
            let problems = engine.problems.open(&|_| None);
            drop(reply.send(Fleet { at_ms: engine.clock.now(), problems, ..fleet }));
        }
        Query::PassedHops(reply) => drop(reply.send(engine.hops.all())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Format;

    #[tokio::test]
    async fn a_dry_run_does_not_say_that_it_leads() {
        let says = |dry_run| {
            let run = Run::new(Config { dry_run, ..Config::default() }, None);
            run.engine.metrics.text(None, Format::Plain).contains("leader_election_master_status")
        };
        assert_eq!([false, true].map(says), [true, false]);
    }
}
