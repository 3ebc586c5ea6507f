//! All write queues, and the place of each target in them. They know targets, but no rule.
//!
//! A target waits in one queue at most. Its rule says in which one each time it decides about the
//! target. A queue holds no decision: whom it admits is decided about again.

use std::collections::BTreeMap;

use super::context::{Context, WriteTarget};
use super::data::ids::ClusterId;
use super::data::map::Map;
use super::data::time::UnixMillis;
use super::data::used_names::{HoldsNames, UsedNames};
use super::machine::Machine;
use super::subject::Subject;
use super::timers;
use super::write_queue::{Due, QueueKey, QueueLimit, WriteQueue};

#[derive(Default)]
pub(crate) struct WriteQueues {
    queues: BTreeMap<QueueKey, WriteQueue>,
    places: Map<WriteTarget, Place>,
}

/// The queue that a target waits in.
struct Place {
    queue: QueueKey,
    subject: Subject,
}

impl HoldsNames for WriteQueues {
    fn mark(&self, used: &mut UsedNames) {
        // What waits in a queue has a place.
        let Self { queues: _, places } = self;
        places.values().for_each(|place| place.subject.mark(used));
    }
}

impl WriteQueues {
    /// When a target is to be written; `None` if it waits in no queue.
    pub(crate) fn due_of(&self, target: WriteTarget) -> Option<Due> {
        let place = self.places.get(&target)?;
        self.queues.get(&place.queue)?.due_of(&place.subject)
    }

    /// The queue that a target waits in.
    pub(crate) fn queue_of(&self, target: WriteTarget) -> Option<QueueKey> {
        self.places.get(&target).map(|place| place.queue)
    }

    /// How many writes of a queue are due.
    pub(crate) fn waiting(&self, key: QueueKey, now: UnixMillis) -> usize {
        self.queues.get(&key).map_or(0, |queue| queue.waiting(now))
    }

    pub(crate) fn is_waiting(&self, key: QueueKey, now: UnixMillis) -> bool {
        self.queues.get(&key).is_some_and(|queue| queue.is_waiting(now))
    }

    /// The limit of a queue follows the world, so each use brings the latest one.
    fn queue_mut(&mut self, key: QueueKey, limit: QueueLimit) -> &mut WriteQueue {
        let queue = self.queues.entry(key).or_insert_with(|| WriteQueue::new(limit));
        queue.limit = limit;
        queue
    }

    /// Takes a target out of its queue, and returns which one that was.
    fn leave(&mut self, target: WriteTarget) -> Option<QueueKey> {
        let Place { queue, subject } = self.places.remove(&target)?;
        if let Some(queue) = self.queues.get_mut(&queue) {
            queue.remove(&subject);
        }
        Some(queue)
    }

    /// Takes out the next target of a queue that may be written now.
    fn admit(&mut self, key: QueueKey, now: UnixMillis) -> Option<WriteTarget> {
        let subject = self.queues.get_mut(&key)?.admit(now)?;
        self.places.remove(&subject.target);
        Some(subject.target)
    }

    fn next_at(&self, key: QueueKey) -> Option<UnixMillis> {
        self.queues.get(&key)?.next_at()
    }

    fn targets(&self, key: QueueKey) -> Vec<WriteTarget> {
        let subjects = self.queues.get(&key).into_iter().flat_map(WriteQueue::subjects);
        subjects.map(|subject| subject.target).collect()
    }

    pub(crate) fn on_started(&mut self, key: QueueKey, now: UnixMillis) {
        if let Some(queue) = self.queues.get_mut(&key) {
            queue.on_started(now);
        }
    }

    fn on_finished(&mut self, key: QueueKey) {
        if let Some(queue) = self.queues.get_mut(&key) {
            queue.on_finished();
        }
    }

    /// A write that started then changed nothing.
    pub(crate) fn give_back(&mut self, key: QueueKey, started_at: UnixMillis, now: UnixMillis) {
        if let Some(queue) = self.queues.get_mut(&key) {
            queue.give_back(started_at, now);
        }
    }
}

/// When a queue may admit something. An edge's touches go before what is late is reported.
fn timer(key: QueueKey) -> timers::Due {
    match key {
        QueueKey::Touches(edge) => timers::Due::Bundle(edge),
        QueueKey::Deletes => timers::Due::Deletes,
        key => timers::Due::Queue(key),
    }
}

impl Context {
    /// Puts a target into a queue, and takes it out of any other.
    pub(crate) fn enqueue(
        &mut self,
        target: WriteTarget,
        key: QueueKey,
        due: Due,
        limit: QueueLimit,
    ) {
        let subject = match self.queues.places.get(&target) {
            Some(place) if place.queue == key => place.subject.clone(),
            _ => {
                self.withdraw(target);
                Subject::new(target, &self.names)
            }
        };

        self.queues.queue_mut(key, limit).insert(&subject, due, self.now);
        self.queues.places.insert(target, Place { queue: key, subject });
        self.schedule_queue(key);
    }

    /// Whether a queue has room for one more write now, if all others wait.
    pub(crate) fn has_room(&mut self, key: QueueKey, limit: QueueLimit) -> bool {
        let now = self.now;
        self.queues.queue_mut(key, limit).has_room(now)
    }

    /// There is nothing to write to a target.
    pub(crate) fn withdraw(&mut self, target: WriteTarget) {
        if let Some(key) = self.queues.leave(target) {
            self.schedule_queue(key);
        }
    }

    /// Takes out the next target of a queue that may be written now.
    pub(crate) fn admit(&mut self, key: QueueKey) -> Option<WriteTarget> {
        self.queues.admit(key, self.now)
    }

    /// The queue goes on with this limit, and what it admitted before does not count.
    pub(crate) fn restart_queue(&mut self, key: QueueKey, limit: QueueLimit, at: UnixMillis) {
        self.queues.queue_mut(key, limit).restart_at(at);
        self.schedule_queue(key);
    }

    /// A write that the queue admitted has its outcome, or nobody waits for it any longer.
    pub(crate) fn write_ended(&mut self, key: QueueKey) {
        self.queues.on_finished(key);
        self.schedule_queue(key);
    }

    pub(crate) fn schedule_queue(&mut self, key: QueueKey) {
        self.timers.clear(timer(key));
        if let Some(at) = self.queues.next_at(key) {
            // All that one moment brings is in the queue before the first is admitted.
            self.timers.no_later(timer(key), at.max(self.now));
        }
    }

    /// The cluster left, and its queues with it.
    pub(crate) fn forget_queues(&mut self, cluster: ClusterId) {
        let is_left = |key: QueueKey| key.cluster() == Some(cluster);
        let left: Vec<_> = self.queues.queues.keys().copied().filter(|key| is_left(*key)).collect();
        for key in left {
            self.queues.queues.remove(&key);
            self.timers.clear(timer(key));
        }
        self.queues.places.retain(|_, place| !is_left(place.queue));
    }
}

impl Machine {
    /// A queue of a hub may have room: each that it admits is decided about again.
    pub(crate) fn write_queued(&mut self, key: QueueKey) {
        if self.ctx.timers.first().is_some_and(|first| first < (self.ctx.now, timer(key))) {
            // Woken late: what was due meanwhile is decided first, and counts.
            return self.ctx.timers.no_later(timer(key), self.ctx.now);
        }
        while let Some(target) = self.ctx.admit(key) {
            match target {
                WriteTarget::HubConnector(at) => self.evaluate_admitted(at, key),
                WriteTarget::Route(hub, route) => self.evaluate_admitted_route(hub, route),
                WriteTarget::Touch(..) => {
                    debug_assert!(false, "{target:?} waits in a queue of a hub");
                }
            }
        }
        if matches!(key, QueueKey::Removals | QueueKey::Deletes) {
            // Those that are left say that the limit holds them.
            self.evaluate_queued(key);
        }
        self.ctx.schedule_queue(key);
    }

    /// Decides again about everything that waits in a queue of a hub.
    pub(crate) fn evaluate_queued(&mut self, key: QueueKey) {
        for target in self.ctx.queues.targets(key) {
            match target {
                WriteTarget::HubConnector(at) => self.evaluate_hub_connector(at),
                WriteTarget::Route(hub, route) => self.evaluate_route(hub, route),
                WriteTarget::Touch(..) => {}
            }
        }
    }
}
