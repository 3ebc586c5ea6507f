//! Lists that finish, and watches that are lost and come back.

use std::collections::BTreeSet;

use super::OutageTracker;
use crate::core::data::ids::{ClusterName, Kind};
use crate::core::data::time::UnixMillis;

impl OutageTracker {
    /// What a finished list does not contain is gone.
    pub(super) fn remove_unlisted(&mut self, at: UnixMillis, cluster: &ClusterName, kind: Kind) {
        let Some(listed) = self.listing.remove(&(cluster.clone(), kind)) else { return };
        let upstream = self.upstreams.get(cluster).into_iter();
        let edge = self.edges.get(cluster).into_iter();
        let held: BTreeSet<_> = match kind {
            Kind::Connector => {
                let at_edge = edge.flat_map(|e| e.connectors.keys());
                upstream.flat_map(|u| u.keys()).chain(at_edge).cloned().collect()
            }
            Kind::HttpProxy => edge.flat_map(|e| e.proxies.keys()).cloned().collect(),
            Kind::Gateway => edge.flat_map(|e| e.gateways.keys()).cloned().collect(),
            Kind::HttpRoute | Kind::Namespace => return,
        };
        for key in held.difference(&listed) {
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
        for key in edge.gateway_names() {
            edge.translate(&key);
        }
        self.compare_edge(at, cluster);
    }

    /// Compares what depends on the connectors of an upstream.
    pub(super) fn compare_all_of(&mut self, at: UnixMillis, upstream: &ClusterName) {
        let downstream = self.downstream_of.get(upstream);
        let keys: Vec<_> = downstream.into_iter().flat_map(|d| d.keys()).cloned().collect();
        for key in &keys {
            self.compare_downstream(at, upstream, key);
        }
    }
}
