//! Clusters that their source shows no longer: they leave, unless they are too many.
//!
//! A Project that was seen deleted, and about whose very name the root answers 404, is gone: it leaves,
//! however many others are missing, and is not counted with them. The breaker is for what is inferred.

use std::collections::BTreeSet;

use super::looks::Look;
use super::source::Source;
use super::{MISSING_SHARE, REPORT_MS, Roster, WINDOW_MS};
use crate::circuit_breaker::{BreakerLimit, CircuitBreaker};
use crate::contract::membership::SourceName;
use crate::data::ids::ClusterName;
use crate::data::time::UnixMillis;
use crate::machine::Machine;

/// While so many are missing, the source is more likely wrong than right.
const LIMIT: BreakerLimit = BreakerLimit {
    share: MISSING_SHARE,
    population_min: 0,
    count_min: 2,
    window_ms: WINDOW_MS,
    guards_all: false,
};

/// Clusters of a source that are missing, or left within the window. Few of many that are offered may
/// be followed, so both are guarded.
#[derive(Default)]
pub(super) struct MissingBreakers {
    of_offers: CircuitBreaker<ClusterName>,
    of_members: CircuitBreaker<ClusterName>,
}

impl MissingBreakers {
    pub(super) fn is_tripped(&self) -> bool {
        self.of_offers.state().is_tripped || self.of_members.state().is_tripped
    }

    /// The source shows the cluster again.
    pub(super) fn unwant(&mut self, cluster: &ClusterName) {
        self.of_offers.unwant(cluster);
        self.of_members.unwant(cluster);
    }

    /// The cluster leaves because it is missing.
    fn expire(&mut self, cluster: &ClusterName, now: UnixMillis) {
        self.of_offers.expire(cluster, now);
        self.of_members.expire(cluster, now);
    }

    /// The cluster is proved to be gone.
    fn forget(&mut self, cluster: &ClusterName) {
        self.of_offers.forget(cluster);
        self.of_members.forget(cluster);
    }

    fn next_expiry(&self) -> Option<UnixMillis> {
        let breakers = [&self.of_offers, &self.of_members];
        breakers.into_iter().filter_map(|breaker| breaker.next_expiry(LIMIT)).min()
    }
}

impl Source {
    /// Counts the missing clusters. What is tripped resets only while the source shows every cluster.
    fn update_breakers(&mut self, members: &BTreeSet<ClusterName>, now: UnixMillis) {
        let may_reset = self.is_live();
        let Self { offers, missing, breakers, .. } = self;
        let MissingBreakers { of_offers, of_members } = breakers;

        for cluster in missing.iter() {
            of_offers.want(cluster.clone(), false);
            if members.contains(cluster) {
                of_members.want(cluster.clone(), false);
            } else {
                of_members.unwant(cluster);
            }
        }

        // Those that left within the window are part of the population.
        let left = of_offers.entries().filter(|cluster| !offers.contains_key(*cluster)).count();
        of_offers.update((offers.len() + left) as u64, LIMIT, may_reset, now);
        let left = of_members.entries().filter(|cluster| !members.contains(*cluster)).count();
        of_members.update((members.len() + left) as u64, LIMIT, may_reset, now);
    }
}

impl Roster {
    fn member_names(&self, source: SourceName) -> BTreeSet<ClusterName> {
        self.members_of(source).map(|(name, _)| name.clone()).collect()
    }
}

impl Machine {
    /// Has a source's missing clusters leave, unless they are too many: then those that are not proved
    /// to be gone stay, until the source shows them again or knows so many others that they are few.
    pub(super) fn settle_missing(&mut self, name: SourceName) {
        self.release_proven(name);

        let now = self.ctx.now;
        let members = self.roster.member_names(name);
        let Some(source) = self.roster.sources.get_mut(&name) else { return };
        if source.missing.is_empty() && !source.is_held() {
            return;
        }
        source.update_breakers(&members, now);
        let is_held = source.is_held();
        if let Some(at) = source.breakers.next_expiry().filter(|_| is_held) {
            self.roster.looks.no_later(Look::Missing(name), at);
        }
        let missing =
            if is_held { Default::default() } else { std::mem::take(&mut source.missing) };
        self.roster.looks.no_later(Look::Report(name), now.plus(REPORT_MS));
        for cluster in missing {
            if let Some(source) = self.roster.sources.get_mut(&name) {
                source.breakers.expire(&cluster, now);
            }
            self.leave_source(name, &cluster);
        }
    }

    /// The missing clusters of a source may be few by now, or proved to be gone.
    pub(super) fn settle_held(&mut self, name: SourceName) {
        if self.roster.sources.get(&name).is_some_and(Source::is_held) {
            self.settle_missing(name);
        }
    }

    /// Has those leave that are proved to be gone.
    fn release_proven(&mut self, name: SourceName) {
        let Some(source) = self.roster.sources.get_mut(&name) else { return };
        let proven: Vec<_> = source.proven_gone().cloned().collect();
        for cluster in &proven {
            source.breakers.forget(cluster);
        }
        for cluster in &proven {
            self.roster.looks.no_later(Look::Report(name), self.ctx.now.plus(REPORT_MS));
            self.leave_source(name, cluster);
        }
    }

    /// A cluster leaves because its source shows it no longer.
    fn leave_source(&mut self, name: SourceName, cluster: &ClusterName) {
        let is_member = self.roster.is_member_of(name, cluster);
        let source = self.roster.sources.get_mut(&name);
        let Some(offer) = source.and_then(|source| source.drop_offer(cluster)) else { return };
        if let Some(reason) = offer.missing.filter(|_| is_member) {
            self.roster.leave(cluster, reason);
        }
        self.departed(name, cluster, &offer);
        // Another source may offer one of that name.
        self.join_if_wanted(cluster);
    }
}
