//! The only writer: a bounded queue, at most one write at a time to one object, writes to many
//! objects in parallel, and an outcome for every action.
//!
//! A plain struct that the loop owns: [`Executor::submit`] takes a decision, and
//! [`Executor::next_finished`] returns finished actions. It decides nothing. The machine hears of a
//! failed write and decides again on what it sees by then.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use backon::{ExponentialBuilder, Retryable};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::apply::{self, Applier};
use crate::client::{CallError, ErrorClass};
use crate::config::ExecutorConfig;
use crate::core::contract::action::Decision;
use crate::core::contract::event::Outcome;
use crate::core::data::ids::{ClusterName, Kind, ObjectKey};
use crate::leader::gate::Gate;
use crate::metrics::Metrics;

/// The object that an action writes to. Actions for the same object keep their order.
type WriteTarget = (ClusterName, Kind, ObjectKey);

/// An action that ended, and how.
#[derive(Debug)]
pub struct FinishedAction {
    pub decision: Decision,
    pub outcome: Outcome,
    /// How long it waited in the queue.
    pub waited: Duration,
    /// How long its attempts took, pauses included; zero when there was none.
    pub took: Duration,
    pub attempts: u32,
}

#[derive(Debug)]
struct QueuedAction {
    decision: Decision,
    since: Instant,
}

/// The only writer.
#[derive(Debug)]
pub struct Executor {
    applier: Applier,
    gate: Gate,
    config: ExecutorConfig,
    dry_run: bool,
    metrics: Arc<Metrics>,
    /// Targets with a queued action and none in flight, oldest first.
    queue: VecDeque<WriteTarget>,
    slots: HashMap<WriteTarget, Slot>,
    in_flight: JoinSet<FinishedAction>,
    /// The targets of the actions in flight.
    tasks: HashMap<tokio::task::Id, WriteTarget>,
    /// Actions that ended without being sent, to be returned next.
    unsent: VecDeque<FinishedAction>,
    queued: usize,
}

/// The actions of one target: at most one in flight, and the latest that waits behind it.
#[derive(Debug, Default)]
struct Slot {
    is_in_flight: bool,
    queued: Option<QueuedAction>,
}

impl Executor {
    /// With `dry_run` it sends nothing.
    pub fn new(
        applier: Applier,
        gate: Gate,
        config: ExecutorConfig,
        dry_run: bool,
        metrics: Arc<Metrics>,
    ) -> Self {
        Self {
            applier,
            gate,
            config,
            dry_run,
            metrics,
            queue: VecDeque::new(),
            slots: HashMap::new(),
            in_flight: JoinSet::new(),
            tasks: HashMap::new(),
            unsent: VecDeque::new(),
            queued: 0,
        }
    }

    /// Whether the queue has room. While it has none, take no more events.
    pub fn has_room(&self) -> bool {
        self.queued < self.config.queue
    }

    pub fn queued(&self) -> usize {
        self.queued
    }

    pub fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// Queues an action. It supersedes an older one for the same target that has not been sent.
    pub fn submit(&mut self, decision: Decision) {
        self.metrics.action_queued(decision.action.verb);
        if decision.action.is_leader_only() && !self.gate.is_open() {
            return self.finish_unsent(decision, Outcome::Dropped);
        }
        if self.dry_run {
            return self.finish_unsent(decision, Outcome::DryRun);
        }
        let action = &decision.action;
        let target = (action.cluster.clone(), action.kind, action.object.clone());
        let slot = self.slots.entry(target.clone()).or_default();
        let superseded = slot.queued.replace(QueuedAction { decision, since: Instant::now() });
        match superseded {
            Some(old) => self.finish_unsent(old.decision, Outcome::Superseded),
            None => {
                self.queued += 1;
                if !slot.is_in_flight {
                    self.queue.push_back(target);
                }
            }
        }
        self.start_queued();
    }

    fn finish_unsent(&mut self, decision: Decision, outcome: Outcome) {
        let (waited, took) = (Duration::ZERO, Duration::ZERO);
        self.unsent.push_back(FinishedAction { decision, outcome, waited, took, attempts: 0 });
    }

    /// Starts queued actions, as many as may run in parallel.
    fn start_queued(&mut self) {
        while self.in_flight.len() < self.config.parallel
            && let Some(target) = self.queue.pop_front()
        {
            let Some(slot) = self.slots.get_mut(&target) else { continue };
            let Some(QueuedAction { decision, since }) = slot.queued.take() else { continue };
            slot.is_in_flight = true;
            self.queued -= 1;
            let waited = since.elapsed();
            self.metrics.action_started(decision.action.verb, waited);
            let (applier, gate, config) = (self.applier.clone(), self.gate.clone(), &self.config);
            let run = carry_out(applier, gate, config.clone(), self.metrics.clone(), decision);
            let task = self.in_flight.spawn(async move { FinishedAction { waited, ..run.await } });
            self.tasks.insert(task.id(), target);
        }
        self.metrics.set_queue(self.queued, self.in_flight.len());
    }

    /// The next action that ends. Never resolves while there is none in flight. Cancel-safe.
    pub async fn next_finished(&mut self) -> FinishedAction {
        if !self.unsent.is_empty() {
            // These are ready at once: yield now and then, so that other tasks get their turn.
            tokio::task::coop::consume_budget().await;
        }
        if let Some(unsent) = self.unsent.pop_front() {
            return unsent;
        }
        loop {
            match self.in_flight.join_next_with_id().await {
                None => std::future::pending().await,
                Some(Ok((id, finished))) => {
                    self.release_target(id);
                    return finished;
                }
                // The task panicked, and its outcome is unknown. The machine's time-out for actions
                // in flight covers that.
                Some(Err(error)) => self.release_target(error.id()),
            }
        }
    }

    fn release_target(&mut self, task: tokio::task::Id) {
        let Some(target) = self.tasks.remove(&task) else { return };
        if let Some(slot) = self.slots.get_mut(&target) {
            slot.is_in_flight = false;
            if slot.queued.is_some() {
                self.queue.push_back(target);
            } else {
                self.slots.remove(&target);
            }
        }
        self.start_queued();
    }

    /// Drops every action that has not been sent. Returns their number.
    pub fn drop_queued(&mut self) -> usize {
        self.queue.clear();
        self.slots.retain(|_, slot| {
            slot.queued = None;
            slot.is_in_flight
        });
        std::mem::take(&mut self.queued)
    }
}

/// Why the attempts at an action ended without success.
enum AttemptError {
    /// This instance may not write: not attempted.
    GateClosed,
    Failed(CallError),
}

async fn carry_out(
    applier: Applier,
    gate: Gate,
    config: ExecutorConfig,
    metrics: Arc<Metrics>,
    decision: Decision,
) -> FinishedAction {
    let began = Instant::now();
    let action = &decision.action;
    let attempts = AtomicU32::new(0);
    let pause_max = Duration::from_millis(config.backoff_max_ms);
    let attempt = || async {
        if action.is_leader_only() && !gate.is_open() {
            return Err(AttemptError::GateClosed);
        }
        if attempts.fetch_add(1, Ordering::Relaxed) > 0 {
            metrics.action_retried(action.verb);
        }
        applier.apply(action, || gate.is_open()).await.map_err(AttemptError::Failed)
    };
    let pauses = ExponentialBuilder::default()
        .with_min_delay(Duration::from_millis(config.backoff_first_ms))
        .with_max_delay(pause_max)
        .with_max_times(config.tries.saturating_sub(1))
        .with_jitter();
    let is_retried = |error: &AttemptError| match error {
        AttemptError::GateClosed => false,
        // A Retry-After beyond the longest pause is left to the machine, which waits without
        // blocking the target.
        AttemptError::Failed(error) => {
            error.class() == ErrorClass::Backoff
                && error.retry_after().is_none_or(|after| after <= pause_max)
        }
    };
    let pause = |error: &AttemptError, pause: Option<Duration>| match error {
        AttemptError::Failed(error) => pause.map(|p| error.retry_after().unwrap_or(p)),
        AttemptError::GateClosed => pause,
    };
    let outcome = match attempt.retry(pauses).when(is_retried).adjust(pause).await {
        Ok(outcome) => outcome,
        Err(AttemptError::GateClosed) => Outcome::Dropped,
        Err(AttemptError::Failed(error)) => apply::outcome(&error),
    };
    let attempts = attempts.into_inner();
    let took = if attempts == 0 { Duration::ZERO } else { began.elapsed() };
    FinishedAction { decision, outcome, waited: Duration::ZERO, took, attempts }
}
