//! Lists that finish, and watches that are lost and come back.

use std::collections::BTreeSet;

use super::OutageTracker;
use crate::core::data::ids::{ClusterName, Kind};
use crate::core::data::interner::Key;
use crate::core::data::map::sorted_keys;
use crate::core::data::time::UnixMillis;

impl OutageTracker {
    /// What a finished list does not contain is gone.
    pub(super) fn remove_unlisted(&mut self, at: UnixMillis, cluster: &ClusterName, kind: Kind) {
        let Some(listed) = self.listing.remove(&(cluster.clone(), kind)) else { return };
        let mut gone = BTreeSet::new();
        let mut add = |key: &Key| {
            if !listed.contains(key) {
                gone.insert(*key);
            }
        };
        let (upstream, edge) = (self.upstreams.get(cluster), self.edges.get(cluster));
        match kind {
            Kind::Connector => {
                upstream.iter().flat_map(|u| u.keys()).for_each(&mut add);
                edge.iter().flat_map(|e| e.connectors.keys()).for_each(add);
            }
            Kind::HttpProxy => edge.iter().flat_map(|e| e.proxies.keys()).for_each(add),
            Kind::Gateway => edge.iter().flat_map(|e| e.gateways.keys()).for_each(add),
            Kind::HttpRoute | Kind::Namespace => {}
        }
        for key in gone {
            self.object_gone(at, cluster, kind, key);
        }
    }

    pub(super) fn watch_lost(&mut self, at: UnixMillis, cluster: &ClusterName, kind: Kind) {
        self.listing.remove(&(cluster.clone(), kind));
        if let Some(edge) = self.edges.get_mut(cluster)
            && matches!(kind, Kind::Connector | Kind::HttpProxy | Kind::Gateway)
            && edge.lost.insert(kind)
        {
            self.changed.insert(cluster.clone());
        }
        if kind == Kind::Connector
            && self.upstreams.contains_key(cluster)
            && self.lost_upstreams.insert(cluster.clone())
        {
            self.compare_all_of(at, cluster);
        }
    }

    pub(super) fn watch_is_back(&mut self, at: UnixMillis, cluster: &ClusterName, kind: Kind) {
        if let Some(edge) = self.edges.get_mut(cluster)
            && edge.lost.remove(&kind)
        {
            self.changed.insert(cluster.clone());
        }
        if kind == Kind::Connector && self.lost_upstreams.remove(cluster) {
            self.compare_all_of(at, cluster);
        }
    }

    /// An edge whose gateways share one trigger was listed again. The lists of two kinds have no common
    /// order, and such a trigger does not say what one gateway announces: they count as found again.
    pub(super) fn merged_edge_is_back(&mut self, at: UnixMillis, cluster: &ClusterName) {
        let Some(edge) = self.edges.get_mut(cluster) else { return };
        if !edge.merged || !edge.lost.is_empty() {
            return;
        }
        let keys = sorted_keys(&edge.gateways);
        for key in keys {
            if let Some(edge) = self.edges.get_mut(cluster) {
                edge.translate(key);
            }
            self.compare(at, cluster, key, false);
        }
    }

    /// Compares what depends on the connectors of an upstream.
    pub(super) fn compare_all_of(&mut self, at: UnixMillis, upstream: &ClusterName) {
        let downstream = self.downstream_of.get(upstream);
        let keys: Vec<_> = downstream.into_iter().flat_map(|d| d.keys()).copied().collect();
        for key in keys {
            self.compare_downstream(at, upstream, key);
        }
    }
}
