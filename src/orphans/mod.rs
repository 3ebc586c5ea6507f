//! Orphaned routes, looked for once, and deleted once if a person says so: the machine, the watches
//! and the rails of a live run, without the rest of it.

mod restore;

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use crate::client::Cluster;
use crate::config::{Config, EventLogConfig};
use crate::core::event::{Happened, Outcome};
use crate::core::ids::{ClusterName, Kind, ObjectKey, Role};
use crate::core::keep::{Candidate, Keep};
use crate::core::settings::OrphanMode;
use crate::core::time::UnixMillis;
use crate::engine::{Engine, Unlisted};
use crate::gate::Gate;

pub use restore::{Deleted, restore};

/// Beyond the settling time so much is waited for what settles anew.
const SETTLING_MORE: Duration = Duration::from_secs(5);

/// A look at the clusters, kept up to date by their watches.
pub struct Survey {
    engine: Engine,
    events: mpsc::Receiver<Happened>,
    unlisted: Unlisted,
    /// What came of deletes, latest last.
    fates: Vec<Fate>,
    _watches: JoinSet<()>,
}

impl std::fmt::Debug for Survey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Survey").finish_non_exhaustive()
    }
}

/// What came of a delete.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Fate {
    /// The hub.
    pub cluster: ClusterName,
    /// The route.
    #[serde(flatten)]
    pub route: ObjectKey,
    /// The outcome's name: `applied` is deleted.
    pub outcome: &'static str,
    /// What came back, where it is none that was hoped for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// The kinds that the evidence stands on.
fn kinds(roles: &[Role]) -> Vec<Kind> {
    let (upstream, hub) = (roles.contains(&Role::Upstream), roles.contains(&Role::Downstream));
    let mut kinds = Vec::new();
    if upstream {
        kinds.extend([Kind::Namespace, Kind::Gateway]);
    }
    if hub {
        kinds.push(Kind::HttpRoute);
    }
    kinds
}

impl Survey {
    /// Begins to list. Nothing is deleted before [`Survey::delete`]; what is decided then is written
    /// to `log`.
    ///
    /// # Errors
    /// The event log can't be had.
    pub fn start(config: &Config, log: Option<EventLogConfig>) -> anyhow::Result<Self> {
        let mut settings = config.settings();
        (settings.mirror.enabled, settings.touch.enabled) = (false, false);
        settings.orphans.mode = OrphanMode::Delete;
        let (gate, log) = (Gate::always_open(), log.unwrap_or_default());
        let engine = Engine::new(config, settings, gate, &log, Vec::new())?;
        let (bus, events) = mpsc::channel(config.watch.queue);
        let kinds = |cluster: &Cluster| kinds(cluster.roles());
        let watches = engine.watch(config, kinds, &bus);
        let unlisted = Unlisted::all(&engine.clusters, kinds);
        Ok(Self { engine, events, unlisted, fates: Vec::new(), _watches: watches })
    }

    /// Waits until every list has come or has failed once.
    pub async fn listed(&mut self) {
        while !self.unlisted.is_empty() {
            self.turn().await;
        }
    }

    /// Waits until nothing is kept for its settling any longer, for about as long as that takes.
    pub async fn settled(&mut self) {
        let settle = Duration::from_millis(self.engine.machine.settings().orphans.settle_ms);
        let until = Instant::now() + settle + SETTLING_MORE;
        let settles = |c: &Candidate| c.kept == Some(Keep::Settling);
        while self.candidates().iter().any(settles) && timeout_at(until, self.turn()).await.is_ok()
        {
        }
    }

    /// Waits for `other`, and hears meanwhile what happens.
    pub async fn meanwhile<T>(&mut self, other: impl Future<Output = T>) -> T {
        let mut other = std::pin::pin!(other);
        loop {
            tokio::select! {
                done = &mut other => return done,
                () = self.turn() => {}
            }
        }
    }

    /// What there is at this moment.
    pub fn candidates(&self) -> Vec<Candidate> {
        self.engine.machine.candidates()
    }

    /// The time by which the candidates' times are to be read.
    pub fn now(&self) -> UnixMillis {
        self.engine.clock.now()
    }

    /// Deletes what is an orphan now, each once, at the pace that the budget allows; `told` hears of
    /// each. Ends when each had its turn, or is kept for another reason by then.
    pub async fn delete(&mut self, mut told: impl FnMut(&Fate)) -> Vec<Fate> {
        let may_go = |c: &Candidate| matches!(c.kept, None | Some(Keep::Budget));
        let key = |c: Candidate| (c.cluster, c.route);
        let mut open: BTreeSet<_> = self.candidates().into_iter().filter(may_go).map(key).collect();
        self.engine.take(Happened::LeadershipAcquired);
        let mut seen = 0;
        loop {
            for fate in &self.fates[seen..] {
                told(fate);
                open.remove(&(fate.cluster.clone(), fate.route.clone()));
            }
            seen = self.fates.len();
            let (waiting, under_way) = self.engine.executor.load();
            if waiting + under_way == 0 {
                let now: BTreeSet<_> =
                    self.candidates().into_iter().filter(may_go).map(key).collect();
                open.retain(|route| now.contains(route));
            }
            if open.is_empty() {
                break;
            }
            self.turn().await;
        }
        self.engine.take(Happened::LeadershipLost);
        std::mem::take(&mut self.fates)
    }

    /// Ends the event log.
    pub async fn finish(self) {
        self.engine.end(Duration::from_secs(10)).await;
    }

    /// Takes the next thing that happens.
    async fn turn(&mut self) {
        let due = self.engine.due();
        tokio::select! {
            Some(what) = self.events.recv() => {
                self.unlisted.hear(&what);
                self.engine.take(what);
            }
            finished = self.engine.executor.finished() => {
                let action = &finished.decision.action;
                let error = match &finished.outcome {
                    Outcome::Refused { error }
                    | Outcome::Conflict { error }
                    | Outcome::Unanswered { error, .. }
                    | Outcome::Failed { error, .. } => Some(error.clone()),
                    _ => None,
                };
                self.fates.push(Fate {
                    cluster: action.cluster.clone(),
                    route: action.object.clone(),
                    outcome: finished.outcome.name(),
                    error,
                });
                self.engine.finished(finished);
            }
            () = due => self.engine.take(Happened::TimedOut),
        }
    }
}
