//! Writes that wait for one rate limiter.
//!
//! The queue decides which write is admitted next. Urgent writes come first, but one in sixteen is
//! of a lower rank. Within a rank, namespaces take turns, so that no tenant waits for a thousand
//! writes of another one. Within a namespace, the oldest write comes first.
//!
//! A write may be admitted early, from [`Due::early_from`] on. [`Early`] determines when. At an
//! edge, early writes join another one, because simultaneous touches cost one translation. After
//! refusals, retries are spread over the backoff. Otherwise a thousand writes that were refused
//! together would be retried together, and a permission that is granted right afterwards would go
//! unnoticed for a whole backoff.
//!
//! The queue holds subjects, not writes. An admitted subject is planned again.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use crate::data::map::Map;
use crate::data::object_ref::ClusterId;
use crate::data::time::UnixMillis;
use crate::rate_limit::{Rate, RateLimiter};
use crate::subject::Subject;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum QueueKey {
    /// No queue: a mirror that affects routing is written immediately.
    Immediate,
    /// Connectors of one upstream that were mirrored recently.
    Repeats(ClusterId),
    /// Writes to one hub whose last attempt failed.
    Retries(ClusterId),
    /// Values at one hub that another writer keeps changing.
    Rewrites(ClusterId),
    /// Mirrors to one hub that do not affect routing.
    Deferrable(ClusterId),
    Nudges(ClusterId),
    /// Touches of one edge.
    Touches(ClusterId),
    /// Annotations to remove because upstream has no status.
    Removals,
    /// The same, allowed by an operator.
    AllowedRemovals,
    /// Routes to delete because their Gateways do not exist.
    Deletes,
}

impl QueueKey {
    /// Whether a write that changed nothing is given back to the rate limit.
    pub(crate) fn is_scarce(self) -> bool {
        matches!(self, Self::Removals | Self::Deletes)
    }

    /// The cluster that the queue belongs to.
    pub(crate) fn cluster(self) -> Option<ClusterId> {
        match self {
            Self::Immediate | Self::Removals | Self::AllowedRemovals | Self::Deletes => None,
            Self::Repeats(cluster)
            | Self::Retries(cluster)
            | Self::Rewrites(cluster)
            | Self::Deferrable(cluster)
            | Self::Nudges(cluster)
            | Self::Touches(cluster) => Some(cluster),
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct QueueLimit {
    pub(crate) rate: Rate,
    /// The rate for lower ranks. Its burst is smaller, which leaves room for urgent writes.
    pub(crate) low_rank_rate: Rate,
    pub(crate) in_flight_max: usize,
    pub(crate) early: Early,
}

/// How writes are admitted early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Early {
    /// Together with another write.
    WithOthers,
    /// One by one: each of n waiting writes after an nth of this time.
    Spread { over_ms: u64 },
}

impl QueueLimit {
    pub(crate) const fn of(rate: Rate) -> Self {
        let in_flight_max = usize::MAX;
        Self { rate, low_rank_rate: rate, in_flight_max, early: Early::WithOthers }
    }

    /// See [`Rate::at_most_per_minute`]; 0 closes the queue.
    pub(crate) fn at_most_per_minute(n: u32) -> Self {
        let closed = Self { in_flight_max: 0, ..Self::of(Rate::UNLIMITED) };
        Rate::at_most_per_minute(n).map_or(closed, Self::of)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rank {
    /// Until the write, requests may be routed wrongly.
    Urgent,
    Normal,
    /// No change is known, or none since the API server refused the write.
    Low,
}

impl Rank {
    const ALL: [Self; 3] = [Self::Urgent, Self::Normal, Self::Low];
}

/// When a write is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Due {
    pub(crate) rank: Rank,
    pub(crate) at: UnixMillis,
    /// From then on it may be admitted early.
    pub(crate) early_from: UnixMillis,
}

impl Due {
    pub(crate) fn at(at: UnixMillis) -> Self {
        Self { rank: Rank::Urgent, at, early_from: at }
    }

    /// It may be admitted early.
    fn is_spread(self) -> bool {
        self.early_from != self.at
    }
}

/// While writes of a lower rank are due, one admitted write in this many is of a lower rank.
const LOW_RANK_SHARE: u32 = 16;

#[derive(Debug)]
pub(crate) struct WriteQueue {
    pub(crate) limit: QueueLimit,
    limiter: RateLimiter,
    waiting: Map<Subject, Due>,
    ranks: [RankQueue; Rank::ALL.len()],
    /// How many urgent writes were admitted since the last one of a lower rank.
    overtaken: u32,
    /// A write was just admitted, so early writes may join it in this step.
    is_admitting: bool,
    in_flight: usize,
    /// When a write was last admitted early.
    spread_from: UnixMillis,
}

impl WriteQueue {
    pub(crate) fn new(limit: QueueLimit) -> Self {
        Self {
            limit,
            limiter: RateLimiter::default(),
            waiting: Map::default(),
            ranks: Default::default(),
            overtaken: 0,
            is_admitting: false,
            in_flight: 0,
            spread_from: UnixMillis(0),
        }
    }

    /// Adds a subject, or updates when it is due. One that is due and stays due keeps its place.
    pub(crate) fn insert(&mut self, subject: &Subject, mut due: Due, now: UnixMillis) {
        let old = self.due_of(subject);
        if let Some(old) = old
            && old.rank == due.rank
            && due.at <= now
        {
            due.at = due.at.min(old.at);
        }
        if old == Some(due) {
            return;
        }

        self.remove(subject);
        self.waiting.insert(subject.clone(), due);
        self.ranks[due.rank as usize].insert(subject, due);
    }

    pub(crate) fn remove(&mut self, subject: &Subject) -> Option<Due> {
        let due = self.waiting.remove(subject)?;
        self.ranks[due.rank as usize].remove(subject, due);
        Some(due)
    }

    /// Takes out the next subject that may be written now. `None` also ends the step for writes
    /// that join others.
    pub(crate) fn admit(&mut self, now: UnixMillis) -> Option<Subject> {
        let admitted = self.admit_next(now);
        self.is_admitting = admitted.is_some();
        admitted
    }

    fn admit_next(&mut self, now: UnixMillis) -> Option<Subject> {
        if self.in_flight >= self.limit.in_flight_max {
            return None;
        }
        for rank in &mut self.ranks {
            rank.move_due(now);
        }

        let (rank, subject) = self.next(now)?;
        if self.limiter.ready_at(self.rate_of(rank)) > now {
            return None;
        }

        let subject = subject.clone();
        let is_overtaking = rank == Rank::Urgent && self.next_of_low_rank().is_some();
        self.overtaken = if is_overtaking { self.overtaken + 1 } else { 0 };
        self.ranks[rank as usize].last_namespace = Some(subject.namespace().into());
        if self.remove(&subject).is_some_and(Due::is_spread) {
            self.spread_from = now;
        }
        Some(subject)
    }

    pub(crate) fn on_started(&mut self, now: UnixMillis) {
        self.on_turn(now);
        self.in_flight += 1;
    }

    /// An admitted subject uses the rate limit, whether it is written or moves to another queue.
    pub(crate) fn on_turn(&mut self, now: UnixMillis) {
        self.limiter.take(self.limit.rate, now);
    }

    pub(crate) fn on_finished(&mut self) {
        self.in_flight = self.in_flight.saturating_sub(1);
    }

    /// A write that started at this time changed nothing, so the next one need not wait for it.
    /// Does nothing once the limit has recovered by itself.
    pub(crate) fn give_back(&mut self, started_at: UnixMillis, now: UnixMillis) {
        if now < started_at.plus(self.limit.rate.interval_ms()) {
            self.limiter.give_back(self.limit.rate);
        }
    }

    /// Forgets what was admitted. With a burst of 1, the next write is admitted at `at`.
    pub(crate) fn restart_at(&mut self, at: UnixMillis) {
        self.limiter.restart_at(at);
    }

    /// When [`Self::admit`] may return a subject.
    pub(crate) fn next_at(&self) -> Option<UnixMillis> {
        if self.in_flight >= self.limit.in_flight_max {
            return None;
        }
        let next_of = |rank: Rank| {
            let first_at = self.ranks[rank as usize].first_at()?;
            let first_at = self.next_spread_at().map_or(first_at, |at| at.min(first_at));
            Some(first_at.max(self.limiter.ready_at(self.rate_of(rank))))
        };
        Rank::ALL.into_iter().filter_map(next_of).min()
    }

    pub(crate) fn due_of(&self, subject: &Subject) -> Option<Due> {
        self.waiting.get(subject).copied()
    }

    pub(crate) fn waiting(&self, now: UnixMillis) -> usize {
        self.waiting.values().filter(|due| due.at <= now).count()
    }

    pub(crate) fn is_waiting(&self, now: UnixMillis) -> bool {
        self.ranks.iter().filter_map(RankQueue::first_at).any(|at| at <= now)
    }

    fn next(&self, now: UnixMillis) -> Option<(Rank, &Subject)> {
        if self.is_low_rank_next()
            && let Some(next) = self.next_of_low_rank()
        {
            return Some(next);
        }

        let may_be_early = self.may_be_early(now);
        Rank::ALL.into_iter().find_map(|rank| {
            let queue = &self.ranks[rank as usize];
            let early = || queue.early.first().filter(|(from, _)| may_be_early && *from <= now);
            Some((rank, &queue.next_due().or_else(early)?.1))
        })
    }

    fn may_be_early(&self, now: UnixMillis) -> bool {
        match self.limit.early {
            Early::WithOthers => {
                let is_any_due = self.ranks.iter().any(|rank| !rank.due.is_empty());
                is_any_due || self.is_admitting
            }
            Early::Spread { .. } => self.next_spread_at().is_some_and(|at| at <= now),
        }
    }

    /// One share of the time after the last early admission, or after the first possible one.
    fn next_spread_at(&self) -> Option<UnixMillis> {
        let Early::Spread { over_ms } = self.limit.early else { return None };
        let first_at = self.ranks.iter().filter_map(|rank| rank.early.first()).min()?.0;
        let early: usize = self.ranks.iter().map(|rank| rank.early.len()).sum();
        Some(self.spread_from.max(first_at).plus(over_ms / early as u64))
    }

    fn next_of_low_rank(&self) -> Option<(Rank, &Subject)> {
        let next_of = |rank: Rank| Some((rank, self.ranks[rank as usize].next_due()?));
        let (rank, (_, subject)) = [Rank::Normal, Rank::Low]
            .into_iter()
            .filter_map(next_of)
            .min_by_key(|(_, (at, _))| *at)?;
        Some((rank, subject))
    }

    fn is_low_rank_next(&self) -> bool {
        self.overtaken >= LOW_RANK_SHARE - 1
    }

    fn rate_of(&self, rank: Rank) -> Rate {
        if rank == Rank::Urgent || self.is_low_rank_next() {
            self.limit.rate
        } else {
            self.limit.low_rank_rate
        }
    }
}

type Entry = (UnixMillis, Subject);

#[derive(Debug, Default)]
struct RankQueue {
    /// Due writes, by namespace.
    due: BTreeMap<Box<str>, BTreeSet<Entry>>,
    /// Writes that are not due yet, by their due time. The value is when each may be admitted
    /// early.
    later: BTreeMap<Entry, UnixMillis>,
    /// Writes that are not due yet, by when each may be admitted early.
    early: BTreeSet<Entry>,
    /// The namespace that was admitted last.
    last_namespace: Option<Box<str>>,
}

impl RankQueue {
    fn insert(&mut self, subject: &Subject, due: Due) {
        self.later.insert((due.at, subject.clone()), due.early_from);
        if due.is_spread() {
            self.early.insert((due.early_from, subject.clone()));
        }
    }

    fn remove(&mut self, subject: &Subject, due: Due) {
        self.early.remove(&(due.early_from, subject.clone()));
        let entry = (due.at, subject.clone());
        if self.later.remove(&entry).is_some() {
            return;
        }

        let Some(of_namespace) = self.due.get_mut(subject.namespace()) else {
            return debug_assert!(false, "a subject that waits has no place in its queue");
        };
        of_namespace.remove(&entry);
        if of_namespace.is_empty() {
            self.due.remove(subject.namespace());
        }
    }

    fn move_due(&mut self, now: UnixMillis) {
        while let Some(first) = self.later.first_entry()
            && first.key().0 <= now
        {
            let ((at, subject), early_from) = first.remove_entry();
            let entry = (early_from, subject);
            self.early.remove(&entry);
            let (_, subject) = entry;
            self.due.entry(subject.namespace().into()).or_default().insert((at, subject));
        }
    }

    /// The oldest write of the namespace after the one admitted last.
    fn next_due(&self) -> Option<&Entry> {
        let after_last = match &self.last_namespace {
            Some(last) => (Bound::Excluded(&**last), Bound::Unbounded),
            None => (Bound::Unbounded, Bound::Unbounded),
        };
        let next = self.due.range::<str, _>(after_last).next();
        let (_, of_namespace) = next.or_else(|| self.due.first_key_value())?;
        of_namespace.first()
    }

    fn first_at(&self) -> Option<UnixMillis> {
        let first =
            self.due.values().next().and_then(BTreeSet::first).or_else(|| self.later.keys().next());
        first.map(|(at, _)| *at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::ids::{Kind, NamespacedName};
    use crate::data::object_ref::ObjectRef;

    const NOW: UnixMillis = UnixMillis(1_000);

    fn queue() -> WriteQueue {
        WriteQueue::new(QueueLimit::of(Rate::UNLIMITED))
    }

    fn subject(namespace: &str, n: u32) -> Subject {
        let name = NamespacedName::new(namespace, format!("{n:04}"));
        Subject::Route(ObjectRef { cluster: ClusterId(1), kind: Kind::HttpRoute, name })
    }

    fn due(rank: Rank, at: u64) -> Due {
        Due { rank, ..Due::at(UnixMillis(at)) }
    }

    fn admit_all(queue: &mut WriteQueue) -> Vec<Subject> {
        std::iter::from_fn(|| queue.admit(NOW)).collect()
    }

    #[test]
    fn namespaces_are_served_in_turn_and_the_oldest_of_each_goes_first() {
        let mut queue = queue();
        for n in 0..1_000 {
            queue.insert(&subject("a", n), due(Rank::Urgent, 900), NOW);
        }
        for (namespace, n, at) in [("b", 1, 990), ("b", 2, 980), ("c", 1, 999)] {
            queue.insert(&subject(namespace, n), due(Rank::Urgent, at), NOW);
        }

        let expected = [("a", 0), ("b", 2), ("c", 1), ("a", 1), ("b", 1), ("a", 2)];
        assert_eq!(admit_all(&mut queue)[..6], expected.map(|(ns, n)| subject(ns, n)));
    }

    #[test]
    fn a_subject_that_is_due_and_planned_again_keeps_its_place() {
        let mut queue = queue();
        for n in 0..3 {
            queue.insert(&subject("a", n), due(Rank::Urgent, 990 + u64::from(n)), NOW);
        }

        queue.insert(&subject("a", 0), due(Rank::Urgent, 1_000), NOW);

        assert_eq!(admit_all(&mut queue), [0, 1, 2].map(|n| subject("a", n)));
    }

    #[test]
    fn no_more_than_the_limit_are_without_an_outcome() {
        let limit = QueueLimit { in_flight_max: 2, ..QueueLimit::of(Rate::UNLIMITED) };
        let mut queue = WriteQueue::new(limit);
        for n in 0..4 {
            queue.insert(&subject("a", n), Due::at(NOW), NOW);
        }
        let start = |queue: &mut WriteQueue| {
            let subject = queue.admit(NOW)?;
            queue.on_started(NOW);
            Some(subject)
        };

        let started: Vec<_> = std::iter::from_fn(|| start(&mut queue)).collect();
        assert_eq!(started, [subject("a", 0), subject("a", 1)]);
        assert_eq!(queue.next_at(), None);

        queue.on_finished();

        assert_eq!(queue.next_at(), Some(NOW));
        assert_eq!(start(&mut queue), Some(subject("a", 2)));
    }

    #[test]
    fn lower_ranks_leave_half_of_the_burst_to_urgent_writes() {
        let limit = QueueLimit {
            low_rank_rate: Rate::per_second(10, 4),
            ..QueueLimit::of(Rate::per_second(10, 8))
        };
        let mut queue = WriteQueue::new(limit);
        for n in 0..10 {
            queue.insert(&subject("low", n), due(Rank::Low, 1_000), NOW);
        }
        let start_all = |queue: &mut WriteQueue| {
            std::iter::from_fn(|| queue.admit(NOW).inspect(|_| queue.on_started(NOW))).count()
        };
        assert_eq!(start_all(&mut queue), 4);

        for n in 0..10 {
            queue.insert(&subject("urgent", n), due(Rank::Urgent, 1_000), NOW);
        }

        assert_eq!(start_all(&mut queue), 4);
        assert_eq!(queue.waiting(NOW), 12);
        assert_eq!(queue.next_at(), Some(UnixMillis(1_100)));
    }
}
