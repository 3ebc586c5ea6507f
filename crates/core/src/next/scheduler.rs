//! When things happen: timers and write queues. It knows subjects, but no rule.
//!
//! A subject has at most one timer and waits in at most one queue. Only queues that something
//! happened to are looked at: a queue whose next write is later has a wakeup of its own.

use std::collections::{BTreeMap, BTreeSet};

use crate::circuit_breaker::BreakerKey;
use crate::data::ids::{ActionId, ClusterName};
use crate::data::map::Map;
use crate::data::object_ref::ClusterId;
use crate::data::time::UnixMillis;
use crate::next::subject::Subject;
use crate::next::write_queue::{Due, QueueKey, QueueLimit, WriteQueue};

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Timer {
    /// Plan the subject again.
    Subject(Subject),
    /// The count of a breaker falls.
    Breaker(BreakerKey),
    /// An action has had no outcome for too long.
    Outcome(ActionId),
    /// An edge needs one more confirmation after an outage.
    Outage(ClusterId),
    /// Report how many annotations of an upstream are held.
    Holds(ClusterName),
    /// Look at the names of upstreams, and at those in hub labels.
    Naming,
    Roster,
}

/// A subject that may be written now. It is planned again, because much may have happened since it
/// was queued.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Admitted {
    pub(crate) subject: Subject,
    pub(crate) queue: QueueKey,
}

#[derive(Debug, Default)]
pub(crate) struct Scheduler {
    wakeups: Wakeups,
    queues: BTreeMap<QueueKey, WriteQueue>,
    queue_of: Map<Subject, QueueKey>,
    /// Queues that may admit something, or whose next wakeup is not known.
    unchecked: BTreeSet<QueueKey>,
}

impl Scheduler {
    pub(crate) fn set_timer(&mut self, timer: Timer, at: Option<UnixMillis>) {
        self.wakeups.set(Wakeup::Timer(timer), at);
    }

    pub(crate) fn timer(&self, timer: &Timer) -> Option<UnixMillis> {
        self.wakeups.at.get(&Wakeup::Timer(timer.clone())).copied()
    }

    /// When the next thing happens by itself, and what it is in one word.
    pub(crate) fn next_deadline(&self) -> Option<(UnixMillis, &'static str)> {
        let (at, wakeup) = self.wakeups.in_order.first()?;
        Some((*at, wakeup.name()))
    }

    /// Takes out the next timer that has expired.
    pub(crate) fn pop_expired(&mut self, now: UnixMillis) -> Option<Timer> {
        loop {
            match self.wakeups.pop(now)? {
                Wakeup::Timer(timer) => return Some(timer),
                Wakeup::Queue(key) => self.unchecked.insert(key),
            };
        }
    }

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
        self.unchecked.insert(key);
    }

    pub(crate) fn withdraw(&mut self, subject: &Subject) {
        if let Some(key) = self.queue_of.remove(subject) {
            self.remove_from(key, subject);
        }
    }

    fn remove_from(&mut self, key: QueueKey, subject: &Subject) {
        if let Some(queue) = self.queues.get_mut(&key) {
            queue.remove(subject);
        }
        self.unchecked.insert(key);
    }

    /// Takes out the next subject that may be written now, of whichever queue.
    pub(crate) fn admit(&mut self, now: UnixMillis) -> Option<Admitted> {
        while let Some(key) = self.unchecked.first().copied() {
            let queue = self.queues.get_mut(&key);
            if let Some(subject) = queue.and_then(|queue| queue.admit(now)) {
                self.queue_of.remove(&subject);
                return Some(Admitted { subject, queue: key });
            }

            let next_at = self.queues.get(&key).and_then(WriteQueue::next_at);
            self.unchecked.remove(&key);
            self.wakeups.set(Wakeup::Queue(key), next_at);
        }
        None
    }

    pub(crate) fn on_started(&mut self, key: QueueKey, limit: QueueLimit, now: UnixMillis) {
        self.queue_mut(key, limit).on_started(now);
        self.unchecked.insert(key);
    }

    /// Who was admitted had a turn, and waits in another queue from now on.
    pub(crate) fn on_turn(&mut self, key: QueueKey, now: UnixMillis) {
        if let Some(queue) = self.queues.get_mut(&key) {
            queue.on_turn(now);
            self.unchecked.insert(key);
        }
    }

    /// The write ended that started at that time. `is_unspent`: it changed nothing, so another one
    /// may go in its place.
    pub(crate) fn on_finished(
        &mut self,
        key: QueueKey,
        started_at: UnixMillis,
        is_unspent: bool,
        now: UnixMillis,
    ) {
        let Some(queue) = self.queues.get_mut(&key) else { return };

        queue.on_finished();
        if is_unspent {
            queue.give_back(started_at, now);
        }
        self.unchecked.insert(key);
    }

    /// What the queue admitted before does not count. With a burst of 1 its next write may go then.
    pub(crate) fn restart_queue(&mut self, key: QueueKey, limit: QueueLimit, at: UnixMillis) {
        self.queue_mut(key, limit).restart_at(at);
        self.unchecked.insert(key);
    }

    /// The cluster left, with its subjects, queues and timers.
    pub(crate) fn forget(&mut self, cluster: ClusterId) {
        let of_cluster = |subject: &&Subject| subject.cluster() == cluster;
        let subjects: Vec<_> = self.queue_of.keys().filter(of_cluster).cloned().collect();
        subjects.iter().for_each(|subject| self.withdraw(subject));

        self.queues.retain(|key, _| key.cluster() != Some(cluster));
        self.unchecked.retain(|key| key.cluster() != Some(cluster));
        self.wakeups.forget(cluster);
    }

    /// How many timers there are, and subjects that wait in queues.
    pub(crate) fn len(&self) -> usize {
        self.wakeups.at.len() + self.queue_of.len()
    }

    /// The limit of a queue follows the world, so each use brings the latest one.
    fn queue_mut(&mut self, key: QueueKey, limit: QueueLimit) -> &mut WriteQueue {
        let queue = self.queues.entry(key).or_insert_with(|| WriteQueue::new(limit));
        queue.limit = limit;
        queue
    }
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Wakeup {
    Timer(Timer),
    Queue(QueueKey),
}

impl Wakeup {
    fn cluster(&self) -> Option<ClusterId> {
        match self {
            Self::Timer(Timer::Subject(subject)) => Some(subject.cluster()),
            Self::Timer(Timer::Outage(cluster)) => Some(*cluster),
            Self::Timer(_) => None,
            Self::Queue(key) => key.cluster(),
        }
    }

    /// What is due, as the log names it.
    fn name(&self) -> &'static str {
        match self {
            Self::Timer(Timer::Subject(Subject::HubConnector(_))) => "hub connector",
            Self::Timer(Timer::Subject(Subject::EdgeConnector(_))) => "edge connector",
            Self::Timer(Timer::Subject(Subject::Target(_))) => "touch",
            Self::Timer(Timer::Subject(Subject::Route(_))) => "route",
            Self::Timer(Timer::Breaker(_)) => "breaker",
            Self::Timer(Timer::Outcome(_)) => "outcome",
            Self::Timer(Timer::Outage(_)) => "outage",
            Self::Timer(Timer::Holds(_)) => "holds",
            Self::Timer(Timer::Naming) => "naming",
            Self::Timer(Timer::Roster) => "roster",
            Self::Queue(_) => "queue",
        }
    }
}

/// At most one time for each wakeup, earliest first.
#[derive(Debug, Default)]
struct Wakeups {
    at: Map<Wakeup, UnixMillis>,
    in_order: BTreeSet<(UnixMillis, Wakeup)>,
}

impl Wakeups {
    fn set(&mut self, wakeup: Wakeup, at: Option<UnixMillis>) {
        // A time that saturated never comes.
        let at = at.filter(|at| *at < UnixMillis::NEVER);
        let old = match at {
            Some(at) => self.at.insert(wakeup.clone(), at),
            None => self.at.remove(&wakeup),
        };
        if at == old {
            return;
        }

        if let Some(old) = old {
            self.in_order.remove(&(old, wakeup.clone()));
        }
        self.in_order.extend(at.map(|at| (at, wakeup)));
    }

    fn pop(&mut self, now: UnixMillis) -> Option<Wakeup> {
        if self.in_order.first()?.0 > now {
            return None;
        }
        let (_, wakeup) = self.in_order.pop_first()?;
        self.at.remove(&wakeup);
        Some(wakeup)
    }

    fn forget(&mut self, cluster: ClusterId) {
        self.at.retain(|wakeup, _| wakeup.cluster() != Some(cluster));
        self.in_order.retain(|(_, wakeup)| wakeup.cluster() != Some(cluster));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::ids::Kind;
    use crate::data::name::NamespacedName;
    use crate::data::object_ref::ObjectRef;
    use crate::rate_limit::Rate;

    const NOW: UnixMillis = UnixMillis(1_000_000);
    const ONE_A_SECOND: QueueLimit = QueueLimit::of(Rate::every_ms(1_000, 1));

    fn subject(name: &str) -> Subject {
        let name = NamespacedName::new("ns", name);
        Subject::Route(ObjectRef { cluster: ClusterId(1), kind: Kind::HttpRoute, name })
    }

    fn enqueue(scheduler: &mut Scheduler, name: &str, key: QueueKey) {
        scheduler.enqueue(&subject(name), key, Due::at(NOW), ONE_A_SECOND, NOW);
    }

    #[test]
    fn a_timer_is_moved_and_expires_once() {
        let mut scheduler = Scheduler::default();
        scheduler.set_timer(Timer::Roster, Some(NOW));
        scheduler.set_timer(Timer::Roster, Some(NOW.plus(5)));

        assert_eq!(scheduler.pop_expired(NOW), None);
        assert_eq!(scheduler.next_deadline(), Some((NOW.plus(5), "roster")));
        assert_eq!(scheduler.pop_expired(NOW.plus(5)), Some(Timer::Roster));
        assert_eq!(scheduler.pop_expired(NOW.plus(5)), None);
    }

    #[test]
    fn a_subject_waits_in_one_queue_only() {
        let mut scheduler = Scheduler::default();
        enqueue(&mut scheduler, "a", QueueKey::Deletes);
        enqueue(&mut scheduler, "a", QueueKey::Removals);

        let admitted = Admitted { subject: subject("a"), queue: QueueKey::Removals };
        assert_eq!(scheduler.admit(NOW), Some(admitted));
        assert_eq!(scheduler.admit(NOW), None);
    }

    #[test]
    fn a_write_that_was_admitted_delays_the_next_one() {
        let mut scheduler = Scheduler::default();
        enqueue(&mut scheduler, "a", QueueKey::Deletes);
        enqueue(&mut scheduler, "b", QueueKey::Deletes);

        assert!(scheduler.admit(NOW).is_some());
        scheduler.on_started(QueueKey::Deletes, ONE_A_SECOND, NOW);

        assert_eq!(scheduler.admit(NOW), None);
        assert_eq!(scheduler.next_deadline(), Some((NOW.plus(1_000), "queue")));
        assert_eq!(scheduler.pop_expired(NOW.plus(1_000)), None, "a queue is no timer");
        assert!(scheduler.admit(NOW.plus(1_000)).is_some());
    }

    #[test]
    fn a_write_that_changed_nothing_lets_the_next_one_go() {
        let mut scheduler = Scheduler::default();
        enqueue(&mut scheduler, "a", QueueKey::Deletes);
        enqueue(&mut scheduler, "b", QueueKey::Deletes);
        scheduler.admit(NOW);
        scheduler.on_started(QueueKey::Deletes, ONE_A_SECOND, NOW);

        scheduler.on_finished(QueueKey::Deletes, NOW, true, NOW);

        assert!(scheduler.admit(NOW).is_some());
    }

    #[test]
    fn a_cluster_leaves_nothing_behind() {
        let mut scheduler = Scheduler::default();
        enqueue(&mut scheduler, "a", QueueKey::Deletes);
        scheduler.set_timer(Timer::Subject(subject("a")), Some(NOW));
        scheduler.set_timer(Timer::Outage(ClusterId(1)), Some(NOW));

        scheduler.forget(ClusterId(1));

        assert_eq!(scheduler.admit(NOW), None);
        assert_eq!(scheduler.next_deadline(), None);
    }
}
