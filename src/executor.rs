//! The only writer: a bounded queue, one write at a time to one object, many objects in parallel,
//! and a fate for every action.
//!
//! It is a plain struct that the loop owns: [`Executor::submit`] takes a decision,
//! [`Executor::finished`] gives fates. Nothing is decided here; a write that can't be made is told
//! to the machine, which decides anew on what it sees by then.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use backon::{ExponentialBuilder, Retryable};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::apply::{self, Apply};
use crate::client::{CallError, Class};
use crate::config::ExecutorConfig;
use crate::core::action::Decision;
use crate::core::event::Outcome;
use crate::core::ids::{ClusterName, Kind, ObjectKey};
use crate::gate::Gate;
use crate::metrics::Metrics;
use std::sync::Arc;

/// What is written to: actions for the same target keep their order.
type Target = (ClusterName, Kind, ObjectKey);

/// An action's fate.
#[derive(Debug)]
pub struct Finished {
    /// What was decided, and why.
    pub decision: Decision,
    /// What became of it.
    pub outcome: Outcome,
    /// How long it waited for its turn.
    pub waited: Duration,
    /// How long its tries took, pauses included; zero when there was none.
    pub took: Duration,
    /// How often it was tried.
    pub tries: u32,
}

#[derive(Debug)]
struct Waiting {
    decision: Decision,
    since: Instant,
}

/// The only writer.
#[derive(Debug)]
pub struct Executor {
    apply: Apply,
    gate: Gate,
    config: ExecutorConfig,
    dry_run: bool,
    metrics: Arc<Metrics>,
    /// Targets whose turn has not come, oldest first.
    queue: VecDeque<Target>,
    /// The latest action that waits for each target, and whether one is under way.
    slots: HashMap<Target, Slot>,
    under_way: JoinSet<Finished>,
    /// The targets of what is under way.
    tasks: HashMap<tokio::task::Id, Target>,
    /// Fates of actions that never reached the wire.
    unsent: VecDeque<Finished>,
    waiting: usize,
}

#[derive(Debug, Default)]
struct Slot {
    busy: bool,
    waiting: Option<Waiting>,
}

impl Executor {
    /// Nothing to do yet. With `dry_run` nothing ever reaches the wire.
    pub fn new(
        apply: Apply,
        gate: Gate,
        config: ExecutorConfig,
        dry_run: bool,
        metrics: Arc<Metrics>,
    ) -> Self {
        Self {
            apply,
            gate,
            config,
            dry_run,
            metrics,
            queue: VecDeque::new(),
            slots: HashMap::new(),
            under_way: JoinSet::new(),
            tasks: HashMap::new(),
            unsent: VecDeque::new(),
            waiting: 0,
        }
    }

    /// Whether more actions may be led to; when not, no more events should be taken.
    pub fn has_room(&self) -> bool {
        self.waiting < self.config.queue
    }

    /// How many actions wait, and how many are under way.
    pub fn load(&self) -> (usize, usize) {
        (self.waiting, self.under_way.len())
    }

    /// Takes a decision. An older one for the same target that still waits is superseded.
    pub fn submit(&mut self, decision: Decision) {
        self.metrics.action_queued(decision.action.verb);
        if decision.action.is_leader_only() && !self.gate.is_open() {
            return self.put_aside(decision, Outcome::Dropped);
        }
        if self.dry_run {
            return self.put_aside(decision, Outcome::DryRun);
        }
        let action = &decision.action;
        let target = (action.cluster.clone(), action.kind, action.object.clone());
        let slot = self.slots.entry(target.clone()).or_default();
        let old = slot.waiting.replace(Waiting { decision, since: Instant::now() });
        match old {
            Some(old) => self.put_aside(old.decision, Outcome::Superseded),
            None => {
                self.waiting += 1;
                if !slot.busy {
                    self.queue.push_back(target);
                }
            }
        }
        self.launch();
    }

    fn put_aside(&mut self, decision: Decision, outcome: Outcome) {
        let (waited, took) = (Duration::ZERO, Duration::ZERO);
        self.unsent.push_back(Finished { decision, outcome, waited, took, tries: 0 });
    }

    /// Starts what may start.
    fn launch(&mut self) {
        while self.under_way.len() < self.config.parallel
            && let Some(target) = self.queue.pop_front()
        {
            let Some(slot) = self.slots.get_mut(&target) else { continue };
            let Some(Waiting { decision, since }) = slot.waiting.take() else { continue };
            slot.busy = true;
            self.waiting -= 1;
            let waited = since.elapsed();
            self.metrics.action_started(decision.action.verb, waited);
            let (apply, gate, config) = (self.apply.clone(), self.gate.clone(), &self.config);
            let tries = carry_out(apply, gate, config.clone(), self.metrics.clone(), decision);
            let task = self.under_way.spawn(async move { Finished { waited, ..tries.await } });
            self.tasks.insert(task.id(), target);
        }
        self.metrics.queue(self.waiting, self.under_way.len());
    }

    /// The next fate. Never resolves while nothing is under way. Cancel-safe.
    pub async fn finished(&mut self) -> Finished {
        if !self.unsent.is_empty() {
            // They are ready at once: others must get their turn nevertheless.
            tokio::task::coop::consume_budget().await;
        }
        if let Some(unsent) = self.unsent.pop_front() {
            return unsent;
        }
        loop {
            match self.under_way.join_next_with_id().await {
                None => std::future::pending().await,
                Some(Ok((id, finished))) => {
                    self.land(id);
                    return finished;
                }
                // A task that broke off tells nothing; the machine's own time-out takes it up.
                Some(Err(error)) => self.land(error.id()),
            }
        }
    }

    fn land(&mut self, task: tokio::task::Id) {
        let Some(target) = self.tasks.remove(&task) else { return };
        if let Some(slot) = self.slots.get_mut(&target) {
            slot.busy = false;
            if slot.waiting.is_some() {
                self.queue.push_back(target);
            } else {
                self.slots.remove(&target);
            }
        }
        self.launch();
    }

    /// Gives up what has not reached the wire yet. How many actions that were.
    pub fn clear(&mut self) -> usize {
        let cleared = std::mem::take(&mut self.waiting);
        self.queue.clear();
        self.slots.retain(|_, slot| {
            slot.waiting = None;
            slot.busy
        });
        cleared
    }
}

/// Why a try ended without success.
enum Ended {
    /// The gate is closed: not tried.
    Gate,
    Failed(CallError),
}

async fn carry_out(
    apply: Apply,
    gate: Gate,
    config: ExecutorConfig,
    metrics: Arc<Metrics>,
    decision: Decision,
) -> Finished {
    let began = Instant::now();
    let action = &decision.action;
    let tries = std::sync::atomic::AtomicU32::new(0);
    let longest = Duration::from_millis(config.backoff_max_ms);
    let one_try = || async {
        if action.is_leader_only() && !gate.is_open() {
            return Err(Ended::Gate);
        }
        if tries.fetch_add(1, std::sync::atomic::Ordering::Relaxed) > 0 {
            metrics.action_retried(action.verb);
        }
        apply.carry_out(action, || gate.is_open()).await.map_err(Ended::Failed)
    };
    let pauses = ExponentialBuilder::default()
        .with_min_delay(Duration::from_millis(config.backoff_first_ms))
        .with_max_delay(longest)
        .with_max_times(config.tries.saturating_sub(1))
        .with_jitter();
    let again = |ended: &Ended| match ended {
        Ended::Gate => false,
        // A server that wants to be left alone for longer is the machine's to come back to.
        Ended::Failed(error) => {
            error.class() == Class::Backoff && error.retry_after().is_none_or(|a| a <= longest)
        }
    };
    let pause = |ended: &Ended, pause: Option<Duration>| match ended {
        Ended::Failed(error) => pause.map(|p| error.retry_after().unwrap_or(p)),
        Ended::Gate => pause,
    };
    let outcome = match one_try.retry(pauses).when(again).adjust(pause).await {
        Ok(outcome) => outcome,
        Err(Ended::Gate) => Outcome::Dropped,
        Err(Ended::Failed(error)) => apply::outcome(&error),
    };
    let tries = tries.into_inner();
    let took = if tries == 0 { Duration::ZERO } else { began.elapsed() };
    Finished { decision, outcome, waited: Duration::ZERO, took, tries }
}
