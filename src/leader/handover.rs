//! A leader that can no longer observe the objects it mirrors lets another instance lead.
//!
//! It stands down for two lease durations, or until another instance holds the Lease. Touches continue,
//! whichever instance leads. If no instance observes more, this costs one lease duration without
//! mirrors, at most once in five minutes. An upstream that stays lost causes it only once, because the
//! next leader has never observed it.

use std::collections::{BTreeMap, BTreeSet};

use super::Listeners;
use crate::core::data::ids::{ClusterName, Role};
use crate::core::view::WatchState;

/// How long a cluster must be lost before the leader stands down.
const LOST_MS: u64 = 30_000;
/// The least time between two hand-overs by one instance.
const PAUSE_MS: u64 = 300_000;

/// The clusters that a leader observes or has lost.
#[derive(Debug, Default)]
pub(super) struct Visibility {
    /// Observed in this tenure.
    seen: BTreeSet<ClusterName>,
    lost_since: BTreeMap<ClusterName, u64>,
    stood_down_at: Option<u64>,
}

impl Visibility {
    /// Updates the observed clusters and the lost ones, which include those never observed. A lost
    /// cluster stays lost while it is listed. Returns a cluster that is a reason to stand down.
    fn observe(
        &mut self,
        now: u64,
        seen: BTreeSet<ClusterName>,
        lost: BTreeSet<ClusterName>,
        listing: &BTreeSet<ClusterName>,
        is_hub: impl Fn(&ClusterName) -> bool,
    ) -> Option<ClusterName> {
        // A list that has begun may fail again.
        let is_unseen = |cluster: &ClusterName| lost.contains(cluster) || listing.contains(cluster);
        self.lost_since.retain(|cluster, _| is_unseen(cluster));
        self.seen.extend(seen);
        let missed = lost.into_iter().filter(|name| self.seen.contains(name) || is_hub(name));
        for cluster in missed {
            self.lost_since.entry(cluster).or_insert(now);
        }

        let may = self.stood_down_at.is_none_or(|at| now >= at + PAUSE_MS);
        let blind = self.lost_since.iter().find(|(_, since)| may && now >= **since + LOST_MS)?;
        self.stood_down_at = Some(now);
        Some(blind.0.clone())
    }

    /// Updates what this leader observes. Returns a lost cluster that is a reason to stand down.
    pub(super) fn find_lost(&mut self, now: u64, listeners: &Listeners) -> Option<ClusterName> {
        let has = |name: &ClusterName, role| {
            listeners.clusters.get(name).is_some_and(|cluster| cluster.roles().contains(&role))
        };
        let is_mirrored = |name: &ClusterName| has(name, Role::Upstream) || has(name, Role::Hub);
        let mut seen = listeners.metrics.clusters_in(WatchState::Live);
        let mut lost = listeners.metrics.clusters_in(WatchState::Lost);
        seen.retain(is_mirrored);
        lost.retain(is_mirrored);
        let listing = listeners.metrics.clusters_in(WatchState::Listing);
        self.observe(now, seen, lost, &listing, |name| has(name, Role::Hub))
    }

    /// Whether this instance has stood down for long enough.
    pub(super) fn has_stood_down(&self, now: u64, lease_ms: u64) -> bool {
        now >= self.stood_down_at.unwrap_or_default() + 2 * lease_ms
    }

    pub(super) fn end_tenure(&mut self) {
        self.seen.clear();
        self.lost_since.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> BTreeSet<ClusterName> {
        names.iter().map(|name| ClusterName::from(*name)).collect()
    }

    #[test]
    fn a_leader_stands_down_for_a_hub_or_for_what_it_saw_at_most_once_in_five_minutes() {
        let mut visibility = Visibility::default();
        let is_hub = |name: &ClusterName| name.as_str() == "hub";
        let mut observe = |now, seen: &[&str], lost: &[&str]| {
            visibility.observe(now, names(seen), names(lost), &names(&["listing"]), is_hub)
        };
        assert_eq!(observe(0, &["a"], &["hub", "never"]), None);
        assert_eq!(observe(29_999, &[], &["hub", "never"]), None);
        assert_eq!(observe(30_000, &[], &["hub", "never"]), Some("hub".into()));
        assert_eq!(observe(329_999, &[], &["a"]), None, "not seen for no time yet");
        assert_eq!(observe(400_000, &[], &["a", "never"]), Some("a".into()));
        assert_eq!(observe(500_000, &["a"], &["hub"]), None);
        assert_eq!(observe(699_999, &[], &["hub"]), None, "five minutes have not passed");
        assert_eq!(observe(700_000, &[], &["hub"]), Some("hub".into()));

        assert_eq!(observe(1_000_000, &["listing"], &["listing"]), None);
        let reason = Some("listing".into());
        assert_eq!(observe(1_030_000, &[], &[]), reason, "its list began and is not complete");

        visibility.end_tenure();
        for now in [2_000_000, 2_030_000] {
            let found = visibility.observe(now, names(&[]), names(&["a"]), &names(&[]), is_hub);
            assert_eq!(found, None, "another leader saw it");
        }
    }
}
