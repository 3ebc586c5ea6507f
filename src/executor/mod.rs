//! The only writer: at most one write at a time to one object of a membership, writes to many objects
//! in parallel, and an outcome for every action.
//!
//! A plain struct that the loop owns: [`Executor::submit`] takes a decision, and
//! [`Executor::next_finished`] returns finished actions. It decides nothing, and attempts each action
//! once: a failed write is an event, and the machine decides again from the state it observes by then.

mod attempt;
mod log;
mod queue;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tokio::task::{Id as TaskId, JoinError, JoinSet};
use tracing::{info, warn};

use crate::apply::Applier;
use crate::client::ProjectRoot;
use crate::config::ExecutorConstants;
use crate::core::contract::action::{Action, Decision};
use crate::core::contract::event::Outcome;
use crate::core::data::ids::{ClusterName, Kind};
use crate::environment::here;
use crate::leader::gate::Gate;
use crate::metrics::Metrics;
use attempt::{Answer, PendingAction};
use queue::Queue;

/// A cluster and the kind written.
type QueueKey = (ClusterName, Kind);

/// The queue of an action: that of the cluster it writes to. A delete or a removal also asks an
/// upstream for proof, so those have a queue for each upstream: one upstream that hangs must not delay
/// those of others. Actions for one object in two queues need no order: each has a precondition, and a
/// delete or a removal also checks its proof again.
fn queue_of(action: &Action) -> QueueKey {
    let asked = action.precondition.absent.as_ref().map(|absent| &absent.cluster);
    (asked.unwrap_or(&action.cluster).clone(), action.kind)
}

/// An action that ended, and its outcome.
#[derive(Debug)]
pub struct FinishedAction {
    pub decision: Decision,
    pub outcome: Outcome,
    /// How long it waited for its attempt.
    pub waited: Duration,
    /// How long the attempt took; zero when there was none.
    pub took: Duration,
}

/// An attempt in flight.
#[derive(Debug)]
struct Attempt {
    action: Arc<PendingAction>,
    /// `None`: its cluster has left, and its queue went with it.
    queue: Option<QueueKey>,
}

/// The only writer.
#[derive(Debug)]
pub struct Executor {
    applier: Applier,
    gate: Gate,
    config: ExecutorConstants,
    dry_run: bool,
    metrics: Arc<Metrics>,
    queues: BTreeMap<QueueKey, Queue>,
    attempts: JoinSet<(FinishedAction, Answer)>,
    tasks: HashMap<TaskId, Attempt>,
    /// Actions to return next.
    ended: VecDeque<FinishedAction>,
    is_stopping: bool,
}

impl Executor {
    /// With `dry_run` it sends no request.
    pub fn new(
        applier: Applier,
        gate: Gate,
        config: ExecutorConstants,
        dry_run: bool,
        metrics: Arc<Metrics>,
    ) -> Self {
        Self {
            applier,
            gate,
            config,
            dry_run,
            metrics,
            queues: BTreeMap::new(),
            attempts: JoinSet::new(),
            tasks: HashMap::new(),
            ended: VecDeque::new(),
            is_stopping: false,
        }
    }

    /// Allows deletes of routes whose project no longer exists according to `projects`.
    pub(crate) fn set_projects(&mut self, projects: Arc<ProjectRoot>) {
        self.applier.set_projects(projects);
    }

    /// Actions with an attempt in flight.
    pub fn in_flight(&self) -> usize {
        self.tasks.len()
    }

    /// Queues an action. It supersedes an older action for the same object that is not in flight.
    pub fn submit(&mut self, decision: Decision) {
        let clusters = self.applier.clusters(&decision.action);
        let action = PendingAction::new(decision, clusters);
        let written = &action.decision.action;
        if self.is_stopping || (written.is_leader_only() && !self.gate.is_open()) {
            return self.ended.push_back(action.unattempted(Outcome::Dropped));
        }
        if self.dry_run {
            return self.ended.push_back(action.unattempted(Outcome::DryRun));
        }
        let key = queue_of(written);
        let object = written.object.clone();
        let older = self.queues.entry(key.clone()).or_default().push(object, action);
        self.ended.extend(older.map(|older| older.unattempted(Outcome::Superseded)));
        self.start_ready(&key);
    }

    /// Sends the ready actions of a queue, up to the limit in flight.
    fn start_ready(&mut self, key: &QueueKey) {
        let Some(queue) = self.queues.get_mut(key) else { return };
        while let Some(action) = queue.start_next(self.config.parallel) {
            let action = Arc::new(action);
            let attempt = action.clone().attempt(self.applier.clone(), self.gate.clone());
            let task = self.attempts.spawn(here(attempt)).id();
            self.tasks.insert(task, Attempt { action, queue: Some(key.clone()) });
        }
        if queue.is_empty() && !queue.is_narrow() {
            self.queues.remove(key);
        }
        // A cluster that has left has no metrics.
        if self.applier.is_joined(&key.0) {
            self.metrics.set_queue(&key.0, self.waiting_for(&key.0));
        }
    }

    /// Waiting writes to a cluster, of all kinds.
    fn waiting_for(&self, cluster: &ClusterName) -> usize {
        let queues =
            Kind::ALL.into_iter().filter_map(|kind| self.queues.get(&(cluster.clone(), kind)));
        queues.map(Queue::ready).sum()
    }

    /// The next action that ends. Never resolves while none is in flight. Cancel-safe.
    pub async fn next_finished(&mut self) -> FinishedAction {
        if !self.ended.is_empty() {
            // These are ready at once: yield now and then, so that other tasks run.
            tokio::task::coop::consume_budget().await;
        }
        loop {
            if let Some(ended) = self.ended.pop_front() {
                log::finished(&ended);
                return ended;
            }
            match self.attempts.join_next_with_id().await {
                Some(joined) => self.join(joined),
                None => std::future::pending().await,
            }
        }
    }

    fn join(&mut self, joined: Result<(TaskId, (FinishedAction, Answer)), JoinError>) {
        let id = joined.as_ref().map_or_else(JoinError::id, |(id, _)| *id);
        let Some(Attempt { action, queue: key }) = self.tasks.remove(&id) else { return };
        let attempt = joined.map(|(_, attempt)| attempt);
        let (finished, answer) = attempt.unwrap_or_else(|error| action.panicked(&error));
        self.ended.push_back(finished);
        if let Some(key) = key
            && let Some(queue) = self.queues.get_mut(&key)
        {
            let was_hung = queue.is_hung();
            queue.observe(answer);
            queue.attempt_ended(&action.decision.action.object);
            if queue.is_hung() != was_hung {
                log_health(&key, queue);
            }
            self.start_ready(&key);
        }
    }

    /// A cluster left: drops waiting actions that would write there or ask it for proof. A request in
    /// flight continues, but delays nothing: another cluster may take the name.
    pub fn cluster_left(&mut self, cluster: &ClusterName) {
        let mut changed = Vec::new();
        for (key, queue) in &mut self.queues {
            let removed = queue.remove_waiting(|action| action.clusters.contains(cluster));
            if !removed.is_empty() && key.0 != *cluster {
                changed.push(key.clone());
            }
            let dropped = removed.into_iter().map(|action| action.unattempted(Outcome::Dropped));
            self.ended.extend(dropped);
        }
        self.queues.retain(|(of, _), _| of != cluster);
        for attempt in self.tasks.values_mut() {
            attempt.queue.take_if(|(of, _)| of == cluster);
        }
        for key in changed {
            self.start_ready(&key);
        }
    }

    /// Starts no more writes. Returns the number of actions that waited and are dropped.
    pub fn stop(&mut self) -> usize {
        self.is_stopping = true;
        let ended_before = self.ended.len();
        let waiting = self.queues.values_mut().flat_map(|queue| queue.remove_waiting(|_| true));
        self.ended.extend(waiting.map(|action| action.unattempted(Outcome::Dropped)));
        self.ended.len() - ended_before
    }

    /// Whether a request is in flight or an outcome is not yet returned.
    pub fn is_busy(&self) -> bool {
        !self.tasks.is_empty() || !self.ended.is_empty()
    }
}

fn log_health((cluster, kind): &QueueKey, queue: &Queue) {
    let waiting = queue.ready();
    if queue.is_hung() {
        warn!(
            %cluster,
            %kind,
            waiting,
            "requests time out: writing one object at a time until the API server answers; writes to \
             other clusters and kinds go on"
        );
    } else {
        info!(%cluster, %kind, waiting, "the API server answers writes again");
    }
}
