//! Where what a gateway's Envoy was programmed with differs from what upstream reports: outages begin and
//! end here.

use super::answers::Answers;
use super::edge::RouteState;
use super::found::OutageKind;
use super::{GatewayOutage, OutageTracker};
use crate::core::data::ids::ClusterName;
use crate::core::data::interner::Key;
use crate::core::data::map::sorted_keys;
use crate::core::data::time::UnixMillis;

impl OutageTracker {
    pub(super) fn compare_downstream(&mut self, at: UnixMillis, cluster: &ClusterName, key: Key) {
        let downstream = self.downstream_of.get(cluster).and_then(|d| d.get(&key)).copied();
        let Some(downstream) = downstream else { return };
        let edges: Vec<_> = self.edges.keys().cloned().collect();
        for edge in edges {
            self.compare_connector(at, &edge, downstream);
        }
    }

    pub(super) fn compare_connector(
        &mut self,
        at: UnixMillis,
        cluster: &ClusterName,
        connector: Key,
    ) {
        let gateways = self.edges.get(cluster).and_then(|e| e.referrers.get(&connector));
        for name in gateways.cloned().unwrap_or_default() {
            self.compare(at, cluster, Key { ns: connector.ns, name }, false);
        }
    }

    /// Compares every gateway of every edge.
    pub(super) fn compare_all(&mut self, at: UnixMillis) {
        let all = self.edges.iter().map(|(name, edge)| (name.clone(), sorted_keys(&edge.gateways)));
        for (cluster, keys) in all.collect::<Vec<_>>() {
            for key in keys {
                self.compare(at, &cluster, key, false);
            }
        }
    }

    /// Opens and closes the outages of one gateway.
    pub(super) fn compare(
        &mut self,
        at: UnixMillis,
        cluster: &ClusterName,
        key: Key,
        by_platform_key: bool,
    ) {
        let is_edge_alone = self.is_edge_alone();
        let Some(edge) = self.edges.get_mut(cluster).filter(|e| e.is_ready()) else { return };
        let Some(gateway) = edge.gateways.get_mut(&key) else { return };
        let mut open = Vec::new();
        let mut answers = Answers::default();
        for &(name, programmed) in &gateway.programmed {
            let connector = Key { ns: key.ns, name };
            let is_seen;
            let reported = match self.upstream_of.get(&connector) {
                Some((upstream, key)) if self.upstreams.contains_key(upstream) => {
                    if !self.listed_upstreams.contains(upstream) {
                        answers.unknown += 1;
                        continue;
                    }
                    is_seen = !self.lost_upstreams.contains(upstream);
                    self.upstreams.get(upstream).and_then(|u| u.get(key))
                }
                upstream_of => {
                    let found = edge.connectors.get(&connector);
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
                let since = gateway.open.iter().find(|(n, k, _)| *n == name && *k == kind);
                open.push((name, kind, since.map_or(at, |(.., from)| *from)));
            }
        }
        for (name, kind, from) in std::mem::replace(&mut gateway.open, open) {
            if !gateway.open.iter().any(|(n, k, _)| *n == name && *k == kind) {
                let connector = Key { ns: key.ns, name };
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
