//! The one protection against too many at once.
//!
//! A breaker counts what would be removed or deleted, long before it may be. While that is a larger
//! share of a population than the limit, the breaker is tripped and nothing of it goes. It trips at
//! once, and resets only while the evidence is in sight: a lost watch is no all-clear.
//!
//! An entry is *wanted* while its object would go. When the object went, or is out of sight, the
//! entry *expires*: it still counts for the length of the window. So a mistake that proceeds slowly
//! trips the breaker, too, and a standby counts what its leader does.
//!
//! What one wrong input can do:
//!
//! | input | effect | bound |
//! |---|---|---|
//! | a list lacks most of a population, or events say that most of it went | none: all of it stays | the share |
//! | a list lacks all of a small population | none, where [`BreakerLimit::guards_all`] | no share: all, two or more, none seen |
//! | the same, one object each time | what goes within the window counts with what would | the share, over the window |
//! | the population looks larger than it is | more may go | it has only what can still go, or went within the window |
//! | the evidence is lost while it is tripped | none: it stays tripped | `may_reset` |

use std::collections::BTreeMap;

use crate::contract::settings::Fraction;
use crate::data::ids::ClusterName;
use crate::data::shard::Shard;
use crate::data::time::UnixMillis;

/// What a breaker counts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum BreakerKey {
    /// Annotations of hub Connectors that name one upstream.
    Removals(ClusterName),
    /// The same, of all upstreams.
    FleetRemovals,
    /// Routes that name one upstream.
    Orphans(ClusterName),
    /// Routes of all deleted projects.
    DeletedProjects,
}

/// A part of a whole.
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
    /// The share applies to populations of at least this many.
    pub(crate) population_min: u64,
    /// The fewest that are too many.
    pub(crate) count_min: u64,
    /// For how long an entry counts that expires; 0 counts only what is wanted now.
    pub(crate) window_ms: u64,
    /// Whether all of a population, two or more, are too many, however small it is, where none of
    /// them was seen to go: whoever serves an older state lacks the same.
    pub(crate) guards_all: bool,
}

impl BreakerLimit {
    /// The share of populations of at least `population_min`.
    pub(crate) fn of_share(share: Fraction, population_min: u64) -> Self {
        let share = Share::from(share);
        Self {
            share,
            population_min,
            // The fewest that exceed the share of the smallest population.
            count_min: population_min * share.part / share.of + 1,
            window_ms: 0,
            guards_all: false,
        }
    }

    /// An instance sees its part of a population: the smallest one shrinks with it, the share does not.
    pub(crate) fn within(self, shard: Shard) -> Self {
        Self { population_min: self.population_min.div_ceil(shard.of.max(1).into()), ..self }
    }

    fn is_share_exceeded(self, count: u64, population: u64) -> bool {
        self.share.is_exceeded(count, population)
            && count >= self.count_min
            && population >= self.population_min
    }
}

/// What a rule reads of a breaker. Grace periods start again at `reset_at`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct BreakerState {
    pub(crate) is_tripped: bool,
    pub(crate) reset_at: Option<UnixMillis>,
}

impl BreakerState {
    /// Two breakers over one object: both must let it go.
    pub(crate) fn and(self, other: Self) -> Self {
        Self {
            is_tripped: self.is_tripped || other.is_tripped,
            reset_at: self.reset_at.max(other.reset_at),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BreakerChange {
    Tripped,
    Reset,
}

#[derive(Debug)]
pub(crate) struct CircuitBreaker<K> {
    entries: BTreeMap<K, Entry>,
    state: BreakerState,
}

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    is_wanted: bool,
    /// A watch showed that its reason to go came about. It is not only missing from a list.
    is_seen: bool,
    /// Since when it counts although it is not wanted.
    expiring_since: Option<UnixMillis>,
}

impl<K> Default for CircuitBreaker<K> {
    fn default() -> Self {
        Self { entries: BTreeMap::new(), state: BreakerState::default() }
    }
}

/// What changes the count returns whether it did.
impl<K: Ord + Clone> CircuitBreaker<K> {
    pub(crate) fn state(&self) -> BreakerState {
        self.state
    }

    /// Whether it counts nothing and holds nothing, so that no population can trip or reset it.
    pub(crate) fn is_idle(&self) -> bool {
        self.entries.is_empty() && !self.state.is_tripped
    }

    /// Everything that counts.
    pub(crate) fn entries(&self) -> impl Iterator<Item = &K> {
        self.entries.keys()
    }

    pub(crate) fn wanted(&self) -> impl Iterator<Item = &K> {
        self.entries.iter().filter(|(_, entry)| entry.is_wanted).map(|(key, _)| key)
    }

    /// `is_seen`: a watch showed that its reason to go came about.
    pub(crate) fn want(&mut self, key: K, is_seen: bool) -> bool {
        let entry = self.entries.entry(key).or_default();
        let before = (entry.is_wanted, entry.is_seen);
        entry.is_wanted = true;
        entry.is_seen = is_seen;
        before != (true, is_seen)
    }

    /// The object stays after all. What it did within the window still counts.
    pub(crate) fn unwant(&mut self, key: &K) -> bool {
        let Some(entry) = self.entries.get_mut(key) else { return false };

        let was_wanted = std::mem::take(&mut entry.is_wanted);
        if entry.expiring_since.is_none() {
            self.entries.remove(key);
        }
        was_wanted
    }

    /// Counts an object that only stays or goes.
    pub(crate) fn set_wanted(&mut self, key: K, is_wanted: bool) -> bool {
        if is_wanted { self.want(key, true) } else { self.unwant(&key) }
    }

    /// The object went, or nothing is known of it any more.
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

    /// Trips or resets the breaker. Called once all of one moment is counted.
    pub(crate) fn update(
        &mut self,
        population: u64,
        limit: BreakerLimit,
        may_reset: bool,
        now: UnixMillis,
    ) -> Option<BreakerChange> {
        self.drop_expired(limit, now);
        let is_exceeded = self.is_exceeded(population, limit);

        match (self.state.is_tripped, is_exceeded) {
            (false, true) => {
                self.state.is_tripped = true;
                Some(BreakerChange::Tripped)
            }
            (true, false) if may_reset => {
                self.state = BreakerState { is_tripped: false, reset_at: Some(now) };
                Some(BreakerChange::Reset)
            }
            _ => None,
        }
    }

    /// When the count falls although nothing happens.
    pub(crate) fn next_expiry(&self, limit: BreakerLimit) -> Option<UnixMillis> {
        let oldest = self.entries.values().filter_map(|entry| entry.expiring_since).min()?;
        Some(oldest.plus(limit.window_ms))
    }

    fn is_exceeded(&self, population: u64, limit: BreakerLimit) -> bool {
        let count = self.entries.len() as u64;
        let is_all = limit.guards_all && count >= 2 && count >= population;
        let is_any_seen = || self.entries.values().any(|entry| entry.is_seen);
        limit.is_share_exceeded(count, population) || (is_all && !is_any_seen())
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
    fn a_removal_within_the_window_counts_with_those_that_are_wanted() {
        let mut breaker = wanting(3, true);
        assert_eq!(breaker.update(10, LIMIT, true, NOW), None, "three of ten are exactly 30 %");

        breaker.expire(&0, NOW);
        breaker.want(3, true);
        assert_eq!(breaker.update(10, LIMIT, true, NOW), Some(BreakerChange::Tripped));
        assert_eq!(breaker.next_expiry(LIMIT), Some(NOW.plus(600_000)));

        let later = NOW.plus(600_000);
        assert_eq!(breaker.update(10, LIMIT, true, later), Some(BreakerChange::Reset));
    }

    #[test]
    fn a_breaker_resets_only_while_the_evidence_is_in_sight() {
        let mut breaker = wanting(4, true);
        breaker.update(10, LIMIT, true, NOW);
        breaker.unwant(&3);

        assert_eq!(breaker.update(10, LIMIT, false, NOW), None);
        assert_eq!(breaker.update(10, LIMIT, true, NOW), Some(BreakerChange::Reset));
        assert_eq!(breaker.state(), BreakerState { is_tripped: false, reset_at: Some(NOW) });
    }

    #[test]
    fn all_of_a_small_population_trip_it_where_none_was_seen_to_go() {
        let trips = |mut breaker: CircuitBreaker<u64>, population| {
            breaker.update(population, LIMIT, true, NOW).is_some()
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

    /// One after the other, each missing from another list.
    #[test]
    fn those_that_went_within_the_window_are_among_all() {
        let mut breaker = wanting(2, false);
        assert_eq!(breaker.update(3, LIMIT, true, NOW), None);
        breaker.expire(&0, NOW);
        breaker.expire(&1, NOW);
        breaker.want(2, false);

        assert_eq!(breaker.update(3, LIMIT, true, NOW), Some(BreakerChange::Tripped));
    }

    #[test]
    fn an_object_that_left_the_population_no_longer_counts() {
        let mut breaker = wanting(12, true);
        assert_eq!(breaker.update(30, LIMIT, true, NOW), Some(BreakerChange::Tripped));

        for key in 0..12 {
            breaker.forget(&key);
        }

        assert_eq!(breaker.update(18, LIMIT, true, NOW), Some(BreakerChange::Reset));
    }

    #[test]
    fn without_a_window_only_what_is_wanted_counts() {
        let limit = BreakerLimit { window_ms: 0, ..LIMIT };
        let mut breaker = wanting(4, true);
        assert_eq!(breaker.update(12, limit, true, NOW), Some(BreakerChange::Tripped));

        breaker.expire(&0, NOW);

        assert_eq!(breaker.update(12, limit, true, NOW), Some(BreakerChange::Reset));
        assert_eq!(breaker.entries().count(), 3);
    }
}
