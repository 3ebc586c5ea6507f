//! The circuit breakers and what they count.
//!
//! An upstream from which many Connectors vanish together has more likely lost its data than its
//! tenants. So a removal counts as pending as soon as the upstream status disappears, and all of
//! them are counted before the first grace period ends. Two breakers must let a removal pass: that
//! of its upstream, and that of the fleet, because a mistake that removes every connector of sixty
//! small projects stays within the limits of each. They count hub Connectors that have an
//! annotation, or lost it within the window. Removals that an operator allowed do not count.

use std::collections::{BTreeMap, BTreeSet};

use crate::circuit_breaker::{BreakerKey, BreakerLimit, BreakerState, CircuitBreaker};
use crate::contract::settings::Settings;
use crate::data::ids::{ClusterName, Kind};
use crate::data::object_ref::ObjectRef;
use crate::data::time::UnixMillis;
use crate::roster::Roster;
use crate::rules::mirror::{Ground, Verdict};
use crate::world::World;

/// Removals within this time count together with pending ones.
const REMOVAL_WINDOW_MS: u64 = 600_000;

#[derive(Default)]
pub(crate) struct Breakers {
    breakers: BTreeMap<BreakerKey, CircuitBreaker<ObjectRef>>,
    /// Removals that an operator allowed, by upstream.
    allowed: BTreeMap<ClusterName, BTreeSet<ObjectRef>>,
    /// Breakers whose count or population changed in this step.
    changed: BTreeSet<BreakerKey>,
}

#[derive(Debug)]
pub(crate) struct Updated {
    pub(crate) key: BreakerKey,
    pub(crate) is_tripped: bool,
    /// The first pending object, and the number of further ones.
    pub(crate) wanted: Option<(ObjectRef, usize)>,
    /// Objects to plan again, because the breaker tripped or was reset.
    pub(crate) affected: Vec<ObjectRef>,
    pub(crate) count: u64,
    pub(crate) population: u64,
    pub(crate) next_expiry: Option<UnixMillis>,
}

impl Breakers {
    pub(crate) fn state(&self, key: &BreakerKey) -> BreakerState {
        self.breakers.get(key).map(CircuitBreaker::state).unwrap_or_default()
    }

    /// A removal must pass the breaker of its upstream and that of the fleet. `None`: its labels
    /// name no upstream, so nothing is removed.
    pub(crate) fn removals_of(&self, upstream: Option<&ClusterName>) -> BreakerState {
        upstream.map_or_else(BreakerState::default, |upstream| {
            let of_upstream = self.state(&BreakerKey::Removals(upstream.clone()));
            of_upstream.and(self.state(&BreakerKey::FleetRemovals))
        })
    }

    /// The removals that the fleet's breaker counts.
    pub(crate) fn removals(&self) -> usize {
        self.breakers.get(&BreakerKey::FleetRemovals).map_or(0, CircuitBreaker::len)
    }

    /// Whether the breakers of upstreams already hold everything that the fleet's breaker holds.
    pub(crate) fn is_said_by_upstreams(&self, key: &BreakerKey) -> bool {
        if *key != BreakerKey::FleetRemovals {
            return false;
        }
        let of_upstreams = self.breakers.iter().filter(|(of, breaker)| {
            matches!(of, BreakerKey::Removals(_)) && breaker.state().is_tripped
        });
        let held: BTreeSet<_> = of_upstreams.flat_map(|(_, breaker)| breaker.wanted()).collect();
        self.breakers.get(key).is_some_and(|of_fleet| of_fleet.wanted().all(|at| held.contains(at)))
    }

    /// `None`: routes of deleted projects.
    pub(crate) fn orphans_of(&self, upstream: Option<&ClusterName>) -> BreakerState {
        self.state(&upstream.cloned().map_or(BreakerKey::DeletedProjects, BreakerKey::Orphans))
    }

    /// The pending removals of an upstream, including those that an operator allowed.
    pub(crate) fn pending_removals(&self, upstream: &ClusterName) -> Vec<ObjectRef> {
        let key = BreakerKey::Removals(upstream.clone());
        let wanted = self.breakers.get(&key).into_iter().flat_map(CircuitBreaker::wanted);
        let allowed = self.allowed.get(upstream).into_iter().flatten();
        wanted.chain(allowed).cloned().collect()
    }

    /// Counts a removal as pending as soon as the upstream status disappears, not after the grace
    /// period.
    pub(crate) fn on_verdict(
        &mut self,
        at: &ObjectRef,
        upstream: &ClusterName,
        verdict: Verdict,
        now: UnixMillis,
    ) {
        match verdict {
            // Nothing is known to have changed.
            Verdict::Disabled | Verdict::HubNotLive => return,
            // The fleet's breaker does not wait for an upstream that is not live.
            Verdict::UpstreamNotLive | Verdict::UpstreamNotConfigured => {
                let of_fleet = BreakerKey::FleetRemovals;
                return self.edit(of_fleet, |breaker| breaker.expire(at, now));
            }
            _ => {}
        }

        let ground = verdict.ground();
        self.set_allowed(at, upstream, ground == Some(Ground::Allowed));
        for key in removal_keys(upstream) {
            match ground {
                Some(Ground::Seen) => self.want(key, at, true),
                Some(Ground::Listed) => self.want(key, at, false),
                None if verdict == Verdict::BothAbsent => {
                    self.edit(key, |breaker| breaker.expire(at, now));
                }
                Some(Ground::Allowed) | None => self.edit(key, |breaker| breaker.unwant(at)),
            }
        }
    }

    /// Counts a route as an orphan, or no longer as one.
    pub(crate) fn on_orphan(&mut self, at: &ObjectRef, key: BreakerKey, is_orphan: bool) {
        if is_orphan {
            self.want(key, at, true);
        } else {
            self.edit(key, |breaker| breaker.unwant(at));
        }
    }

    /// The object is gone, or names another upstream. The platform may have cleaned up what the
    /// breaker holds.
    pub(crate) fn forget(&mut self, at: &ObjectRef, upstream: &ClusterName) {
        self.set_allowed(at, upstream, false);
        let orphans = [BreakerKey::Orphans(upstream.clone()), BreakerKey::DeletedProjects];
        for key in removal_keys(upstream).into_iter().chain(orphans) {
            self.edit(key, |breaker| breaker.forget(at));
        }
        self.on_population_changed(upstream);
    }

    /// The upstream left the run. Another one may take its name.
    pub(crate) fn forget_upstream(&mut self, upstream: &ClusterName) {
        self.breakers.remove(&BreakerKey::Removals(upstream.clone()));
        if self.allowed.remove(upstream).is_some() {
            self.changed.insert(BreakerKey::FleetRemovals);
        }
        self.changed.insert(BreakerKey::Orphans(upstream.clone()));
    }

    /// The upstream gained or lost annotations or routes.
    pub(crate) fn on_population_changed(&mut self, upstream: &ClusterName) {
        self.changed.extend(removal_keys(upstream));
        self.changed.insert(BreakerKey::Orphans(upstream.clone()));
        self.changed.insert(BreakerKey::DeletedProjects);
    }

    /// A breaker that waits for evidence may reset.
    pub(crate) fn on_cluster_answers(&mut self, name: &ClusterName) {
        self.changed.insert(BreakerKey::Removals(name.clone()));
        self.changed.insert(BreakerKey::Orphans(name.clone()));
    }

    pub(crate) fn on_expiry(&mut self, key: BreakerKey) {
        self.changed.insert(key);
    }

    /// Trips and resets the breakers whose count changed. Called once the whole step is counted.
    pub(crate) fn update(
        &mut self,
        world: &World,
        roster: &Roster,
        now: UnixMillis,
    ) -> Vec<Updated> {
        let changed = std::mem::take(&mut self.changed);
        let update = |key| self.update_one(key, world, roster, now);
        changed.into_iter().filter_map(update).collect()
    }

    fn update_one(
        &mut self,
        key: BreakerKey,
        world: &World,
        roster: &Roster,
        now: UnixMillis,
    ) -> Option<Updated> {
        let mut breaker = self.breakers.remove(&key)?;
        let limit = limit_of(&key, &world.settings);
        // Expired entries leave the population, too.
        breaker.drop_expired(limit, now);
        let population = self.population(&key, &breaker, world);

        let may_reset = is_evidence_in_sight(&key, world, roster, now);
        let is_changed = breaker.update(population, limit, may_reset, now);
        let affected = breaker.wanted().filter(|_| is_changed).cloned().collect();
        let is_tripped = breaker.state().is_tripped;
        let mut wanted = breaker.wanted();
        let wanted = wanted.next().cloned().map(|first| (first, wanted.count()));
        let count = breaker.len() as u64;
        let next_expiry = breaker.next_expiry(limit);
        if count > 0 || breaker.state() != BreakerState::default() {
            self.breakers.insert(key.clone(), breaker);
        }
        Some(Updated { key, is_tripped, wanted, affected, count, population, next_expiry })
    }

    /// How many objects could be removed or deleted. An object that lost its annotation within the
    /// window counts; one that never had an annotation does not.
    fn population(
        &self,
        key: &BreakerKey,
        breaker: &CircuitBreaker<ObjectRef>,
        world: &World,
    ) -> u64 {
        let lost = || breaker.entries().filter(|at| has_lost_annotation(world, at)).count() as u64;
        let allowed = |of: &BTreeSet<ObjectRef>| of.len() as u64;
        match key {
            BreakerKey::Removals(upstream) => {
                let allowed = self.allowed.get(upstream).map_or(0, allowed);
                (world.links.counts_of(upstream).annotated + lost()).saturating_sub(allowed)
            }
            BreakerKey::FleetRemovals => {
                let annotated: u64 = world.links.counts.values().map(|of| of.annotated).sum();
                let allowed: u64 = self.allowed.values().map(allowed).sum();
                (annotated + lost()).saturating_sub(allowed)
            }
            BreakerKey::Orphans(upstream) => world.links.counts_of(upstream).routes,
            BreakerKey::DeletedProjects => world.routes(),
        }
    }

    fn set_allowed(&mut self, at: &ObjectRef, upstream: &ClusterName, is_allowed: bool) {
        let is_changed = if is_allowed {
            self.allowed.entry(upstream.clone()).or_default().insert(at.clone())
        } else {
            self.allowed.get_mut(upstream).is_some_and(|of_upstream| of_upstream.remove(at))
        };
        if is_changed {
            self.allowed.retain(|_, of_upstream| !of_upstream.is_empty());
            self.changed.extend(removal_keys(upstream));
        }
    }

    fn want(&mut self, key: BreakerKey, at: &ObjectRef, is_seen: bool) {
        let breaker = self.breakers.entry(key.clone()).or_default();
        if breaker.want(at.clone(), is_seen) || breaker.state().is_tripped {
            self.changed.insert(key);
        }
    }

    fn edit(&mut self, key: BreakerKey, edit: impl FnOnce(&mut CircuitBreaker<ObjectRef>) -> bool) {
        if let Some(breaker) = self.breakers.get_mut(&key)
            && (edit(breaker) || breaker.state().is_tripped)
        {
            self.changed.insert(key);
        }
    }
}

fn limit_of(key: &BreakerKey, settings: &Settings) -> BreakerLimit {
    let Settings { mirror, orphans, shard, .. } = settings;
    let limit = match key {
        BreakerKey::Removals(_) | BreakerKey::FleetRemovals => {
            let share = BreakerLimit::of_share(mirror.max_share, mirror.share_from.into());
            BreakerLimit { window_ms: REMOVAL_WINDOW_MS, guards_all: true, ..share }
        }
        BreakerKey::Orphans(_) | BreakerKey::DeletedProjects => {
            BreakerLimit::of_share(orphans.max_share, orphans.share_from.into())
        }
    };
    limit.within(*shard)
}

fn removal_keys(upstream: &ClusterName) -> [BreakerKey; 2] {
    [BreakerKey::Removals(upstream.clone()), BreakerKey::FleetRemovals]
}

fn has_lost_annotation(world: &World, at: &ObjectRef) -> bool {
    let hub = world.clusters.get(&at.cluster);
    let row = hub.and_then(|hub| hub.hub_connectors.get(&at.name));
    row.is_some_and(|row| row.seen.annotation.is_none())
}

/// A breaker resets only while its evidence is in sight. The fleet's does not wait for an upstream
/// that is not live.
fn is_evidence_in_sight(key: &BreakerKey, world: &World, roster: &Roster, now: UnixMillis) -> bool {
    match key {
        BreakerKey::Removals(name) => world.upstream_named(name).is_none_or(|upstream| {
            upstream.is_live(Kind::Connector) && upstream.is_live(Kind::Namespace)
        }),
        BreakerKey::Orphans(name) => world.upstream_named(name).is_none_or(|upstream| {
            upstream.shows_absence(Kind::Gateway)
                && upstream.shows_absence(Kind::Namespace)
                && !upstream.is_silent(Kind::Gateway, world.settings.orphans.fresh_ms, now)
                && world.hubs().all(|hub| hub.is_live(Kind::HttpRoute))
        }),
        BreakerKey::DeletedProjects => roster.are_sources_live(),
        BreakerKey::FleetRemovals => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn removals_and_deletes_are_held_from_ten_objects_on() {
        for key in [BreakerKey::FleetRemovals, BreakerKey::DeletedProjects] {
            let limit = limit_of(&key, &Settings::default());
            assert_eq!((limit.population_min, limit.count_min), (10, 4), "{key:?}");
        }
    }
}
