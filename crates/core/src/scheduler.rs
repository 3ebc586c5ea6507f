//! Timers and write queues. The scheduler knows subjects, but no rule.
//!
//! A subject has at most one timer and waits in at most one queue. Only queues that changed are
//! checked. Any other queue has a timer for its next write.

use std::collections::{BTreeMap, BTreeSet};

use crate::circuit_breaker::BreakerKey;
use crate::data::map::Map;
use crate::data::object_ref::ClusterId;
use crate::data::time::UnixMillis;
use crate::subject::Subject;
use crate::timers::Timers;
use crate::write_queue::{Due, QueueKey, QueueLimit, WriteQueue};

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Timer {
    Subject(Subject),
    /// An entry of a breaker expires.
    Breaker(BreakerKey),
    /// One more confirmation after an outage is due at an edge.
    Outage(ClusterId),
    /// The names of upstreams are to be compared with those in hub labels.
    Naming,
    Roster,
    /// The queue may admit a write.
    Queue(QueueKey),
}

#[derive(Debug, Default)]
pub(crate) struct Scheduler {
    pub(crate) timers: Timers<Timer>,
    queues: BTreeMap<QueueKey, WriteQueue>,
    queue_of: Map<Subject, QueueKey>,
    /// Queues that may admit a write, or whose timer must be set.
    unchecked: BTreeSet<QueueKey>,
}

impl Scheduler {
    pub(crate) fn queue_of(&self, subject: &Subject) -> Option<QueueKey> {
        self.queue_of.get(subject).copied()
    }

    pub(crate) fn queue(&self, key: QueueKey) -> Option<&WriteQueue> {
        self.queues.get(&key)
    }

    /// Queues a subject, and withdraws it from any other queue.
    pub(crate) fn enqueue(
        &mut self,
        subject: &Subject,
        key: QueueKey,
        due: Due,
        limit: QueueLimit,
        now: UnixMillis,
    ) {
        let before = self.queue_of.insert(subject.clone(), key);
        if let Some(before) = before.filter(|before| *before != key) {
            self.remove_from(before, subject);
        }
        self.queue_mut(key, limit).insert(subject, due, now);
    }

    pub(crate) fn withdraw(&mut self, subject: &Subject) {
        if let Some(key) = self.queue_of.remove(subject) {
            self.remove_from(key, subject);
        }
    }

    fn remove_from(&mut self, key: QueueKey, subject: &Subject) {
        if let Some(queue) = self.existing(key) {
            queue.remove(subject);
        }
    }

    /// Takes out the next subject that may be written now, from any queue. It must be planned again,
    /// because its state may have changed since it was queued.
    pub(crate) fn admit(&mut self, now: UnixMillis) -> Option<(Subject, QueueKey)> {
        while let Some(key) = self.unchecked.first().copied() {
            let queue = self.queues.get_mut(&key);
            if let Some(subject) = queue.and_then(|queue| queue.admit(now)) {
                self.queue_of.remove(&subject);
                return Some((subject, key));
            }

            let next_at = self.queues.get(&key).and_then(WriteQueue::next_at);
            self.unchecked.remove(&key);
            self.timers.set(Timer::Queue(key), next_at);
        }
        None
    }

    pub(crate) fn on_queue_due(&mut self, key: QueueKey) {
        self.unchecked.insert(key);
    }

    pub(crate) fn on_started(&mut self, key: QueueKey, limit: QueueLimit, now: UnixMillis) {
        if key != QueueKey::Immediate {
            self.queue_mut(key, limit).on_started(now);
        }
    }

    /// An admitted subject moves to another queue. This uses the rate limit of the first.
    pub(crate) fn on_turn(&mut self, key: QueueKey, now: UnixMillis) {
        if let Some(queue) = self.existing(key) {
            queue.on_turn(now);
        }
    }

    /// A write that started at this time ended. `is_unspent`: it changed nothing, so the next one
    /// need not wait for it.
    pub(crate) fn on_finished(
        &mut self,
        key: QueueKey,
        started_at: UnixMillis,
        is_unspent: bool,
        now: UnixMillis,
    ) {
        // An immediate write has no queue, and that of a cluster goes with it.
        let Some(queue) = self.existing(key) else { return };

        queue.on_finished();
        if is_unspent {
            queue.give_back(started_at, now);
        }
    }

    /// Forgets what the queue admitted. With a burst of 1, its next write is admitted at `at`.
    pub(crate) fn restart_queue(&mut self, key: QueueKey, limit: QueueLimit, at: UnixMillis) {
        self.queue_mut(key, limit).restart_at(at);
    }

    /// The cluster left: drops its subjects, queues and timers.
    pub(crate) fn forget(&mut self, cluster: ClusterId) {
        let of_cluster = |subject: &&Subject| subject.cluster() == cluster;
        let subjects: Vec<_> = self.queue_of.keys().filter(of_cluster).cloned().collect();
        subjects.iter().for_each(|subject| self.withdraw(subject));

        self.queues.retain(|key, _| key.cluster() != Some(cluster));
        self.unchecked.retain(|key| key.cluster() != Some(cluster));
        self.timers.retain(|timer| timer.cluster() != Some(cluster));
    }

    /// The number of timers, and of subjects in queues.
    pub(crate) fn len(&self) -> usize {
        self.timers.len() + self.queue_of.len()
    }

    /// The limit of a queue depends on the world, so each use passes the current one.
    fn queue_mut(&mut self, key: QueueKey, limit: QueueLimit) -> &mut WriteQueue {
        self.unchecked.insert(key);
        let queue = self.queues.entry(key).or_insert_with(|| WriteQueue::new(limit));
        queue.limit = limit;
        queue
    }

    fn existing(&mut self, key: QueueKey) -> Option<&mut WriteQueue> {
        let queue = self.queues.get_mut(&key)?;
        self.unchecked.insert(key);
        Some(queue)
    }
}

impl Timer {
    /// The cluster that the timer belongs to.
    fn cluster(&self) -> Option<ClusterId> {
        match self {
            Self::Subject(subject) => Some(subject.cluster()),
            Self::Outage(cluster) => Some(*cluster),
            Self::Queue(key) => key.cluster(),
            Self::Breaker(_) | Self::Naming | Self::Roster => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::ids::{Kind, NamespacedName};
    use crate::data::object_ref::ObjectRef;
    use crate::rate_limit::Rate;

    const NOW: UnixMillis = UnixMillis(1_000_000);

    fn subject(name: &str) -> Subject {
        let name = NamespacedName::new("ns", name);
        Subject::Route(ObjectRef { cluster: ClusterId(1), kind: Kind::HttpRoute, name })
    }

    fn enqueue(scheduler: &mut Scheduler, name: &str, key: QueueKey) {
        let limit = QueueLimit::of(Rate::UNLIMITED);
        scheduler.enqueue(&subject(name), key, Due::at(NOW), limit, NOW);
    }

    #[test]
    fn a_subject_waits_in_one_queue_only() {
        let mut scheduler = Scheduler::default();
        enqueue(&mut scheduler, "a", QueueKey::Deletes);
        enqueue(&mut scheduler, "a", QueueKey::Removals);

        assert_eq!(scheduler.admit(NOW), Some((subject("a"), QueueKey::Removals)));
        assert_eq!(scheduler.admit(NOW), None);
    }

    #[test]
    fn a_cluster_leaves_nothing_behind() {
        let mut scheduler = Scheduler::default();
        enqueue(&mut scheduler, "a", QueueKey::Deletes);
        scheduler.timers.set(Timer::Subject(subject("a")), Some(NOW));
        scheduler.timers.set(Timer::Outage(ClusterId(1)), Some(NOW));

        scheduler.forget(ClusterId(1));

        assert_eq!(scheduler.admit(NOW), None);
        assert_eq!(scheduler.timers.next_at(), None);
    }
}
