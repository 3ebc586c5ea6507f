//! Where what a gateway's Envoy was programmed with differs from what upstream reports: outages begin and
//! end here.

use super::answers::Answers;
use super::edge::{RouteState, TrackedEdge};
use super::found::OutageKind;
use super::{GatewayOutage, OutageTracker};
use crate::core::data::ids::ClusterName;
use crate::core::data::name::NamespacedName;
use crate::core::data::time::UnixMillis;

impl OutageTracker {
    pub(super) fn compare_downstream(
        &mut self,
        at: UnixMillis,
        cluster: &ClusterName,
        upstream: &NamespacedName,
    ) {
        let downstream = self.downstream_of.get(cluster).and_then(|d| d.get(upstream)).cloned();
        let Some(downstream) = downstream else { return };
        let edges: Vec<_> = self.edges.keys().cloned().collect();
        for edge in edges {
            self.compare_connector(at, &edge, &downstream);
        }
    }

    pub(super) fn compare_connector(
        &mut self,
        at: UnixMillis,
        cluster: &ClusterName,
        connector: &NamespacedName,
    ) {
        let gateways = self.edges.get(cluster).and_then(|e| e.referrers.get(connector));
        for key in gateways.cloned().unwrap_or_default() {
            self.compare(at, cluster, &key, false);
        }
    }

    /// Compares every gateway of every edge.
    pub(super) fn compare_all(&mut self, at: UnixMillis) {
        let edges: Vec<_> = self.edges.keys().cloned().collect();
        for edge in edges {
            self.compare_edge(at, &edge);
        }
    }

    /// Compares every gateway of an edge.
    pub(super) fn compare_edge(&mut self, at: UnixMillis, cluster: &ClusterName) {
        let gateways = self.edges.get(cluster).map(TrackedEdge::gateway_names);
        for key in gateways.unwrap_or_default() {
            self.compare(at, cluster, &key, false);
        }
    }

    /// Opens and closes the outages of one gateway.
    pub(super) fn compare(
        &mut self,
        at: UnixMillis,
        cluster: &ClusterName,
        key: &NamespacedName,
        by_platform_key: bool,
    ) {
        let is_edge_alone = self.is_edge_alone();
        let Some(edge) = self.edges.get_mut(cluster).filter(|e| e.is_ready()) else { return };
        let Some(gateway) = edge.gateways.get_mut(key) else { return };
        let mut open = Vec::new();
        let mut answers = Answers::default();
        for (connector, programmed) in &gateway.programmed {
            let is_seen;
            let reported = match self.upstream_of.get(connector) {
                Some((upstream, key)) if self.upstreams.contains_key(upstream) => {
                    if !self.listed_upstreams.contains(upstream) {
                        answers.unknown += 1;
                        continue;
                    }
                    is_seen = !self.lost_upstreams.contains(upstream);
                    self.upstreams.get(upstream).and_then(|u| u.get(key))
                }
                upstream_of => {
                    let found = edge.connectors.get(connector);
                    // It is the upstream Connector itself, or nothing at all.
                    let is_known = upstream_of.is_none()
                        && (found.is_none() || self.upstreams.contains_key(cluster));
                    is_seen = is_edge_alone || is_known;
                    found
                }
            };
            let reported = reported.map_or(RouteState::default(), |state| state.route);
            let Some(programmed) = programmed else {
                answers.unknown += 1;
                continue;
            };
            let kind = match (reported.online, programmed.online) {
                (true, false) => Some(OutageKind::Offline),
                (true, true) if reported.node_hash != programmed.node_hash => {
                    Some(OutageKind::OtherNode)
                }
                (false, true) => Some(OutageKind::StaleOnline),
                _ => None,
            };
            match kind {
                _ if !is_seen => answers.unknown += 1,
                Some(kind) => answers.add_outage(kind),
                None => answers.add_right(reported.online),
            }
            if let Some(kind) = kind {
                let since = gateway.open.iter().find(|(c, k, _)| c == connector && *k == kind);
                open.push((connector.clone(), kind, since.map_or(at, |(.., from)| *from)));
            }
        }
        for (connector, kind, from) in std::mem::replace(&mut gateway.open, open) {
            if !gateway.open.iter().any(|(c, k, _)| *c == connector && *k == kind) {
                let (edge, until) = (cluster.clone(), Some(at));
                self.ended.push(GatewayOutage {
                    edge,
                    connector,
                    kind,
                    from,
                    until,
                    by_platform_key,
                });
            }
        }
        if edge.set_answers(key, answers) {
            self.changed.insert(cluster.clone());
        }
    }
}
