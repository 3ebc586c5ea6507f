//! Finds orphaned routes, and deletes each once if a person says so. Uses the machine, the watches and
//! the safeguards of a live run, and nothing else of it.

mod restore;

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};

use crate::config::{Config, EventLogConfig};
use crate::core::contract::event::EventKind;
use crate::core::contract::settings::{OrphanMode, OrphanSettings, Settings};
use crate::core::data::ids::{ClusterName, ObjectKey, Role};
use crate::core::data::shard::{Shard, Shards};
use crate::core::data::time::UnixMillis;
use crate::core::orphans::keep_reason::{KeepReason, OrphanCandidate};
use crate::discovery::joiner::{self, Joiner};
use crate::engine::{Engine, PendingLists};
use crate::leader::gate::{Gate, Gates};
use crate::watch::WatchMessage;

pub use restore::{DeletedRoute, DeletedRoutesFound, deleted_routes};

/// How much longer than the settling time to wait for routes whose settling has started again.
const SETTLE_GRACE: Duration = Duration::from_secs(5);

/// Follows the clusters through their watches, and deletes orphans on request.
pub struct OrphanCleanup {
    engine: Engine,
    events: mpsc::Receiver<WatchMessage>,
    joiner: Option<Joiner>,
    pending_lists: PendingLists,
    /// In the order in which the deletes ended.
    results: Vec<DeleteResult>,
}

impl std::fmt::Debug for OrphanCleanup {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OrphanCleanup").finish_non_exhaustive()
    }
}

#[derive(Clone, Debug, serde::Serialize)]
pub struct DeleteResult {
    /// The hub.
    pub cluster: ClusterName,
    #[serde(flatten)]
    pub route: ObjectKey,
    /// The outcome's name in the event log; `applied` means deleted.
    pub outcome: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl OrphanCleanup {
    /// Starts the watches. Nothing is deleted before [`OrphanCleanup::delete`]; the deletes and the
    /// deleted routes are written to `log`.
    ///
    /// # Errors
    /// The event log can't be opened.
    pub fn start(config: &Config, log: Option<EventLogConfig>) -> anyhow::Result<Self> {
        // All shards are looked at: no election is taken part in.
        let mut settings = Settings { shards: Shards::ONE, ..config.settings() };
        (settings.mirror.enabled, settings.touch.enabled) = (false, false);
        settings.orphans.mode = OrphanMode::Delete;
        let (gates, log) = (Gates::one(Gate::always_open()), log.unwrap_or_default());
        let mut engine = Engine::new(config, settings, gates, &log, Vec::new());
        engine.open_log()?;
        let (bus, events) = mpsc::channel(config.watch.queue);
        let kinds =
            |roles: &[Role]| roles.iter().flat_map(|role| role.orphan_kinds()).copied().collect();
        engine.fleet.start_watches(kinds, bus);
        let joiner = Joiner::start(config, &engine, &[]);
        if let Some(projects) = joiner.as_ref().and_then(Joiner::projects) {
            engine.executor.set_projects(projects);
        }
        let sources = joiner.as_ref().map(|joiner| joiner.sources().clone()).unwrap_or_default();
        let pending_lists = PendingLists::new(&engine.fleet, sources);
        Ok(Self { engine, events, joiner, pending_lists, results: Vec::new() })
    }

    /// Waits until every list is complete or has failed once.
    pub async fn wait_for_lists(&mut self) {
        while !self.pending_lists.is_empty() {
            self.next_event().await;
        }
        if let Some(joiner) = &self.joiner {
            joiner.ask_for_unknown(&mut self.engine).await;
        }
    }

    /// Waits until no route is settling any more, for little more than the settling time.
    pub async fn wait_for_settling(&mut self) {
        let settle = Duration::from_millis(self.engine.machine.settings().orphans.settle_ms);
        let until = Instant::now() + settle + SETTLE_GRACE;
        let is_settling = |c: &OrphanCandidate| c.kept == Some(KeepReason::Settling);
        while self.candidates().iter().any(is_settling)
            && timeout_at(until, self.next_event()).await.is_ok()
        {}
    }

    /// Follows the watches while it waits for `other`.
    pub async fn follow_while<T>(&mut self, other: impl Future<Output = T>) -> T {
        let mut other = std::pin::pin!(other);
        loop {
            tokio::select! {
                done = &mut other => return done,
                () = self.next_event() => {}
            }
        }
    }

    /// The routes that are orphans or may be.
    pub fn candidates(&self) -> Vec<OrphanCandidate> {
        self.engine.machine.candidates()
    }

    /// The settings that decide which routes are orphans.
    pub fn settings(&self) -> &OrphanSettings {
        &self.engine.machine.settings().orphans
    }

    /// The current time, by the clock of the candidates' times.
    pub fn now(&self) -> UnixMillis {
        self.engine.clock.now()
    }

    fn orphans(&self) -> BTreeSet<(ClusterName, ObjectKey)> {
        let orphans = self.candidates().into_iter().filter(OrphanCandidate::is_orphan);
        orphans.map(|orphan| (orphan.cluster, orphan.route)).collect()
    }

    /// Deletes the routes that are orphans now, each once, at the pace that the budget allows; calls
    /// `on_result` for each. Ends when each route was tried or is no longer an orphan.
    pub async fn delete(&mut self, mut on_result: impl FnMut(&DeleteResult)) -> Vec<DeleteResult> {
        let mut remaining = self.orphans();
        self.engine.handle_event(EventKind::LeadershipAcquired { shard: Shard::FIRST });
        let mut reported = 0;
        loop {
            for result in &self.results[reported..] {
                on_result(result);
                remaining.remove(&(result.cluster.clone(), result.route.clone()));
            }
            reported = self.results.len();
            let executor = &self.engine.executor;
            if executor.queued() + executor.in_flight() == 0 {
                let now = self.orphans();
                remaining.retain(|route| now.contains(route));
            }
            if remaining.is_empty() {
                break;
            }
            self.next_event().await;
        }
        self.engine.handle_event(EventKind::LeadershipLost { shard: Shard::FIRST });
        std::mem::take(&mut self.results)
    }

    /// Closes the event log.
    pub async fn finish(self) {
        self.engine.finish_log(Duration::from_secs(10)).await;
    }

    async fn next_event(&mut self) {
        let deadline = self.engine.deadline();
        tokio::select! {
            Some(message) = self.events.recv() => {
                if self.engine.fleet.is_current(&message) {
                    self.pending_lists.observe(&message.kind);
                    self.engine.handle_event(message.kind);
                }
            }
            kind = joiner::next(&mut self.joiner) => {
                self.pending_lists.observe(&kind);
                self.engine.handle_event(kind);
            }
            finished = self.engine.executor.next_finished() => {
                let action = &finished.decision.action;
                let error = finished.outcome.error().map(ToString::to_string);
                self.results.push(DeleteResult {
                    cluster: action.cluster.clone(),
                    route: action.object.clone(),
                    outcome: finished.outcome.name(),
                    error,
                });
                self.engine.handle_finished(finished);
            }
            () = deadline => self.engine.handle_event(EventKind::TimedOut),
        }
        if let Some(joiner) = &self.joiner {
            joiner.carry_out(&mut self.engine, &mut self.pending_lists);
        }
    }
}
