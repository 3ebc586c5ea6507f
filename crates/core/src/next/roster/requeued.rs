//! Clusters that are decided about again although nothing happens.

use std::collections::{BTreeMap, BTreeSet};

use crate::data::ids::ClusterName;
use crate::data::time::UnixMillis;

/// At most one time for each cluster.
#[derive(Default)]
pub(super) struct Requeued {
    at: BTreeMap<ClusterName, UnixMillis>,
    in_order: BTreeSet<(UnixMillis, ClusterName)>,
}

impl Requeued {
    /// The cluster comes at that time, or earlier if it was to come earlier.
    pub(super) fn insert(&mut self, cluster: &ClusterName, at: UnixMillis) {
        if let Some(old) = self.at.get(cluster).copied() {
            if old <= at {
                return;
            }
            self.in_order.remove(&(old, cluster.clone()));
        }
        self.at.insert(cluster.clone(), at);
        self.in_order.insert((at, cluster.clone()));
    }

    pub(super) fn next_at(&self) -> Option<UnixMillis> {
        self.in_order.first().map(|(at, _)| *at)
    }

    pub(super) fn pop(&mut self, now: UnixMillis) -> Option<ClusterName> {
        if self.next_at()? > now {
            return None;
        }
        let (_, cluster) = self.in_order.pop_first()?;
        self.at.remove(&cluster);
        Some(cluster)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_comes_once_at_the_earliest_of_its_times() {
        let mut requeued = Requeued::default();
        for (cluster, at) in [("a", 30), ("b", 20), ("a", 10), ("a", 40)] {
            requeued.insert(&cluster.into(), UnixMillis(at));
        }

        assert_eq!(requeued.next_at(), Some(UnixMillis(10)));
        assert_eq!(requeued.pop(UnixMillis(9)), None);
        assert_eq!(requeued.pop(UnixMillis(10)), Some("a".into()));
        assert_eq!(requeued.pop(UnixMillis(99)), Some("b".into()));
        assert_eq!(requeued.pop(UnixMillis(99)), None);
    }
}
