//! The circuit breaker: holds everything while too much would be removed or deleted together.
//!
//! A breaker counts pending removals or deletes, long before they are due. While their share of a
//! population is above the limit, the breaker is tripped and holds all of them. It trips
//! immediately, and resets only while the evidence is in sight: a lost watch does not reset it.
//!
//! An entry is *wanted* while its object is to be removed. When the object is removed, or its state
//! becomes unknown, the entry *expires*: it still counts for the length of the window. So a slow
//! mistake trips the breaker, too, and a standby counts what its leader removes. Breakers of deletes
//! have no window: each delete is proven by itself, and their rate limit bounds a slow series.
//!
//! What one wrong input can do:
//!
//! | input | effect | bound |
//! |---|---|---|
//! | a list lacks most of a population, or events show most of it deleted | none: all objects stay | the share |
//! | a list lacks all of a small population | none, if [`BreakerLimit::guards_all`] is set | all of them, two or more, none seen to be deleted |
//! | the same, one object each time | removals within the window count together with pending ones | the share, over the window |
//! | the population looks larger than it is | more can be removed | the population has only objects that exist, or did within the window |
//! | the evidence is lost while it is tripped | none: it stays tripped | `may_reset` |

use std::collections::BTreeMap;

use crate::contract::settings::Fraction;
use crate::data::ids::ClusterName;
use crate::data::shard::Shard;
use crate::data::time::UnixMillis;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum BreakerKey {
    /// Annotations of hub Connectors that name one upstream.
    Removals(ClusterName),
    /// Annotations of all hub Connectors.
    FleetRemovals,
    /// Routes that name one upstream.
    Orphans(ClusterName),
    /// Routes of all deleted projects.
    DeletedProjects,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Share {
    pub(crate) part: u64,
    pub(crate) of: u64,
}

impl Share {
    pub(crate) fn is_exceeded(self, count: u64, population: u64) -> bool {
        u128::from(count) * u128::from(self.of) > u128::from(population) * u128::from(self.part)
    }
}

impl From<Fraction> for Share {
    fn from(fraction: Fraction) -> Self {
        Self { part: fraction.thousandths().into(), of: 1_000 }
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct BreakerLimit {
    pub(crate) share: Share,
    /// The share applies only to populations of at least this size.
    pub(crate) population_min: u64,
    /// Fewer than this are never too many.
    pub(crate) count_min: u64,
    /// How long an expiring entry counts; 0 counts only wanted entries.
    pub(crate) window_ms: u64,
    /// Whether all of a population, two or more, are too many however small it is, if no deletion
    /// among them was seen: a server with older data would lack the same objects.
    pub(crate) guards_all: bool,
}

impl BreakerLimit {
    /// The limit for populations of at least `population_min`.
    pub(crate) fn of_share(share: Fraction, population_min: u64) -> Self {
        let share = Share::from(share);
        Self {
            share,
            population_min,
            // The smallest number above the share of the smallest population.
            count_min: population_min * share.part / share.of + 1,
            window_ms: 0,
            guards_all: false,
        }
    }

    /// An instance sees only its shard's part of a population, so the minimum is scaled. The share
    /// is not, nor is the least count: all objects of a small upstream may be in one shard, and few
    /// of them that go are no sign of a mistake.
    pub(crate) fn within(self, shard: Shard) -> Self {
        Self { population_min: self.population_min.div_ceil(shard.of.max(1).into()), ..self }
    }
}

/// The state that rules read. Grace periods start again at `reset_at`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct BreakerState {
    pub(crate) is_tripped: bool,
    pub(crate) reset_at: Option<UnixMillis>,
}

impl BreakerState {
    /// Combines two breakers of one object: it is held if either is tripped.
    pub(crate) fn and(self, other: Self) -> Self {
        Self {
            is_tripped: self.is_tripped || other.is_tripped,
            reset_at: self.reset_at.max(other.reset_at),
        }
    }
}

#[derive(Debug)]
pub(crate) struct CircuitBreaker<K> {
    entries: BTreeMap<K, Entry>,
    state: BreakerState,
}

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    is_wanted: bool,
    /// A watch showed the reason for the removal; a list that lacks an object is not enough.
    is_seen: bool,
    /// Since when the entry expires.
    expiring_since: Option<UnixMillis>,
}

impl<K> Default for CircuitBreaker<K> {
    fn default() -> Self {
        Self { entries: BTreeMap::new(), state: BreakerState::default() }
    }
}

/// Methods that may change the count return whether they did.
impl<K: Ord + Clone> CircuitBreaker<K> {
    pub(crate) fn state(&self) -> BreakerState {
        self.state
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// All entries that count.
    pub(crate) fn entries(&self) -> impl Iterator<Item = &K> {
        self.entries.keys()
    }

    pub(crate) fn wanted(&self) -> impl Iterator<Item = &K> {
        self.entries.iter().filter(|(_, entry)| entry.is_wanted).map(|(key, _)| key)
    }

    /// `is_seen`: a watch showed the reason for the removal.
    pub(crate) fn want(&mut self, key: K, is_seen: bool) -> bool {
        let entry = self.entries.entry(key).or_default();
        let before = (entry.is_wanted, entry.is_seen);
        entry.is_wanted = true;
        entry.is_seen = is_seen;
        before != (true, is_seen)
    }

    /// The object stays after all. A removal of it within the window still counts.
    pub(crate) fn unwant(&mut self, key: &K) -> bool {
        let Some(entry) = self.entries.get_mut(key) else { return false };

        let was_wanted = std::mem::take(&mut entry.is_wanted);
        if entry.expiring_since.is_none() {
            self.entries.remove(key);
        }
        was_wanted
    }

    /// The object was removed, or its state is now unknown.
    pub(crate) fn expire(&mut self, key: &K, now: UnixMillis) -> bool {
        let wanted = self.entries.get_mut(key).filter(|entry| entry.is_wanted);
        let Some(entry) = wanted else { return false };

        *entry = Entry { is_wanted: false, expiring_since: Some(now), ..*entry };
        true
    }

    /// The object is no longer part of the population.
    pub(crate) fn forget(&mut self, key: &K) -> bool {
        self.entries.remove(key).is_some()
    }

    /// Trips or resets the breaker, and returns whether it did. Called once the whole step is
    /// counted.
    pub(crate) fn update(
        &mut self,
        population: u64,
        limit: BreakerLimit,
        may_reset: bool,
        now: UnixMillis,
    ) -> bool {
        self.drop_expired(limit, now);
        let is_exceeded = self.is_exceeded(population, limit);

        match self.state.is_tripped {
            false if is_exceeded => self.state.is_tripped = true,
            true if !is_exceeded && may_reset => {
                self.state = BreakerState { is_tripped: false, reset_at: Some(now) };
            }
            _ => return false,
        }
        true
    }

    /// When the count falls without an event.
    pub(crate) fn next_expiry(&self, limit: BreakerLimit) -> Option<UnixMillis> {
        let oldest = self.entries.values().filter_map(|entry| entry.expiring_since).min()?;
        Some(oldest.plus(limit.window_ms))
    }

    fn is_exceeded(&self, population: u64, limit: BreakerLimit) -> bool {
        let count = self.entries.len() as u64;
        let is_share_exceeded = limit.share.is_exceeded(count, population)
            && count >= limit.count_min
            && population >= limit.population_min;
        let is_all = limit.guards_all && count >= 2 && count >= population;
        let is_any_seen = || self.entries.values().any(|entry| entry.is_seen);
        is_share_exceeded || (is_all && !is_any_seen())
    }

    pub(crate) fn drop_expired(&mut self, limit: BreakerLimit, now: UnixMillis) {
        self.entries.retain(|_, entry| {
            entry.expiring_since =
                entry.expiring_since.filter(|since| since.plus(limit.window_ms) > now);
            entry.is_wanted || entry.expiring_since.is_some()
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: BreakerLimit = BreakerLimit {
        share: Share { part: 300, of: 1_000 },
        population_min: 10,
        count_min: 4,
        window_ms: 600_000,
        guards_all: true,
    };
    const NOW: UnixMillis = UnixMillis(1_000_000);

    fn wanting(count: u64, is_seen: bool) -> CircuitBreaker<u64> {
        let mut breaker = CircuitBreaker::default();
        for key in 0..count {
            breaker.want(key, is_seen);
        }
        breaker
    }

    #[test]
    fn all_of_a_small_population_trip_it_where_none_was_seen_to_go() {
        let trips = |mut breaker: CircuitBreaker<u64>, population| {
            breaker.update(population, LIMIT, true, NOW)
        };

        for population in 2..10 {
            assert!(trips(wanting(population, false), population), "all {population}");
            assert!(!trips(wanting(population - 1, false), population), "all but one");
            assert!(!trips(wanting(population, true), population), "seen");
        }
        assert!(!trips(wanting(1, false), 1), "one alone");
        let mut one_seen = wanting(3, false);
        one_seen.want(0, true);
        assert!(!trips(one_seen, 3));
    }

    /// Objects that disappear one by one, each from another list.
    #[test]
    fn those_that_went_within_the_window_are_among_all() {
        let mut breaker = wanting(2, false);
        assert!(!breaker.update(3, LIMIT, true, NOW));
        breaker.expire(&0, NOW);
        breaker.expire(&1, NOW);
        breaker.want(2, false);

        assert!(breaker.update(3, LIMIT, true, NOW));
    }

    #[test]
    fn without_a_window_only_what_is_wanted_counts() {
        let limit = BreakerLimit { window_ms: 0, ..LIMIT };
        let mut breaker = wanting(4, true);
        assert!(breaker.update(12, limit, true, NOW));

        breaker.expire(&0, NOW);

        assert!(breaker.update(12, limit, true, NOW));
        assert_eq!(breaker.entries().count(), 3);
    }
}
