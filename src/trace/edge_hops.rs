//! The hops at the edges: the edge Connector, and the Gateways that announce it.

use super::diagnose::{Case, Diagnosis, liveness_text};
use super::edge_remedy::Carriage;
use super::{HopTrace, SnapshotSource, edge_remedy, remedy};
use crate::core::contract::note::Hop;
use crate::core::data::ids::{ClusterName, Kind, ObjectKey, Role};
use crate::core::data::time::UnixMillis;
use crate::core::view::{
    AnnouncementState, ClusterView, EdgeView, GatewayView, HubView, LivenessView,
};

/// A cluster from which something was received more recently than that answers.
const SILENT_FOR_MS: u64 = 5_000;

impl Case<'_> {
    pub(super) fn carried_hops(&self) -> Vec<HopTrace> {
        let mut hops: Vec<_> =
            self.connector.edges.iter().map(|edge| self.carried_hop(edge)).collect();
        if let Some(hub) = self.connector.hubs.first() {
            let has_connector =
                |c: &&ClusterView| self.connector.edges.iter().any(|edge| edge.cluster == c.name);
            let without = self.clusters_with(Role::Edge).filter(|c| !has_connector(c));
            hops.extend(without.filter_map(|cluster| self.missing_edge_hop(cluster, hub)));
        }
        hops.sort_by(|a, b| a.cluster.cmp(&b.cluster));
        hops
    }

    fn carried_hop(&self, edge: &EdgeView) -> HopTrace {
        let mut hop = HopTrace::new(Hop::Arrived, &edge.cluster, self.hub_key());
        let writer = self.writer(&edge.cluster, Kind::Connector, self.hub_key());
        hop.says = Some(LivenessView { online: edge.online, node: edge.node.clone() });
        (hop.since_ms, hop.at_least) =
            self.since(&edge.cluster, Kind::Connector, edge.changed_at_ms, writer);
        hop.writer = writer.cloned();
        let hub = self.connector.hubs.first();
        hop.expected = hub.map_or(String::new(), |hub| liveness_text(self.hub_says(hub).as_ref()));
        let not_live = self.watch_not_live(&edge.cluster, &[Kind::Connector]);
        hop.set_diagnosis(
            &self.snapshot.access,
            not_live.or_else(|| {
                let hub = hub.filter(|_| edge.as_hub == Some(false))?;
                let state = self.lateness(Hop::Arrived, &edge.cluster, self.mirrored_since(hub));
                Some(self.carriage(hub, &edge.cluster).not_carried(state, &hop.expected))
            }),
        );
        hop
    }

    fn carriage<'c>(&'c self, hub: &'c HubView, edge: &'c ClusterName) -> Carriage<'c> {
        let received =
            self.cluster(edge).and_then(|edge| edge.received_at_ms.get(&Kind::Connector));
        let now = self.snapshot.view.at_ms;
        let is_silent = |at: &&UnixMillis| {
            let is_older = hub.right_since_ms.is_some_and(|right| **at < right);
            is_older && now.since(**at) >= SILENT_FOR_MS
        };
        Carriage {
            hub: &hub.cluster,
            edge,
            key: self.hub_key(),
            is_karmada: self.snapshot.access.has_karmada(&hub.cluster),
            nudges: hub.nudges,
            silent_since: received.filter(is_silent).copied(),
        }
    }

    pub(super) fn mirrored_since(&self, hub: &HubView) -> Option<UnixMillis> {
        let writer = self.writer(&hub.cluster, Kind::Connector, self.hub_key());
        let hub_key = self.hub_key()?;
        if writer.is_some() && self.snapshot.managed_fields.is_nudged(&hub.cluster, hub_key) {
            // The last write of a nudged Connector is the nudge, which is later than the value's.
            return self.upstream_since();
        }
        self.since(&hub.cluster, Kind::Connector, hub.right_since_ms, writer).0
    }

    /// An edge without the Connector counts as a hop where its watch is not live, or where no other
    /// edge has the Connector either. Which edges should have it is the carrier's policy.
    fn missing_edge_hop(&self, cluster: &ClusterView, hub: &HubView) -> Option<HopTrace> {
        let mut hop = HopTrace::new(Hop::Arrived, &cluster.name, self.hub_key());
        hop.expected = liveness_text(self.hub_says(hub).as_ref());
        let at_no_edge = self.connector.edges.is_empty();
        // Seen before, it had no such Connector.
        let was_seen = cluster.unknown_since_ms.contains_key(&Kind::Connector);
        let not_live = self.watch_not_live(&cluster.name, &[Kind::Connector]);
        let diagnosis = not_live.filter(|_| at_no_edge || !was_seen).or_else(|| {
            at_no_edge.then(|| self.carriage(hub, &cluster.name).no_edge_connector())
        })?;
        hop.set_diagnosis(&self.snapshot.access, Some(diagnosis));
        Some(hop)
    }

    pub(super) fn announced_hops(&self) -> Vec<HopTrace> {
        let at_edge = |edge: &EdgeView| -> Vec<HopTrace> {
            if edge.gateways.is_empty() {
                return vec![self.unreferenced_hop(edge)];
            }
            edge.gateways.iter().map(|gateway| self.announced_hop(edge, gateway)).collect()
        };
        self.connector.edges.iter().flat_map(at_edge).collect()
    }

    fn edge_watch_not_live(&self, edge: &EdgeView) -> Option<Diagnosis> {
        self.watch_not_live(&edge.cluster, Role::Edge.liveness_kinds())
    }

    fn unreferenced_hop(&self, edge: &EdgeView) -> HopTrace {
        let mut hop = HopTrace::new(Hop::Touched, &edge.cluster, None);
        let not_live = self.edge_watch_not_live(edge);
        hop.set_diagnosis(
            &self.snapshot.access,
            Some(
                not_live
                    .unwrap_or_else(|| edge_remedy::not_referenced(&edge.cluster, self.hub_key())),
            ),
        );
        hop
    }

    fn announced_hop(&self, edge: &EdgeView, gateway: &GatewayView) -> HopTrace {
        let namespace = self.hub_key().map_or("", |hub_key| &hub_key.namespace);
        let key = ObjectKey::new(namespace, &*gateway.name);
        // With touch.scope gatewayClass another Gateway carries the trigger.
        let carrying_trigger = gateway.announced_on.as_ref().unwrap_or(&key);
        let mut hop = HopTrace::new(Hop::Touched, &edge.cluster, Some(&key));
        hop.trigger = gateway.trigger.clone();
        let says = LivenessView { online: edge.online, node: edge.node.clone() };
        hop.expected = format!("announces {}", liveness_text(Some(&says)));
        hop.writer = self.writer(&edge.cluster, Kind::Gateway, Some(carrying_trigger)).cloned();
        hop.since_ms = hop.writer.as_ref().map(|writer| writer.at_ms);
        let diagnosis = match gateway.announcement {
            AnnouncementState::Announced if !gateway.paused || gateway.announced_on.is_some() => {
                None
            }
            AnnouncementState::Announced | AnnouncementState::Paused => {
                Some(remedy::paused(&edge.cluster, Kind::Gateway, Some(carrying_trigger)))
            }
            AnnouncementState::Off => Some(remedy::rule_disabled("touch.enabled")),
            AnnouncementState::NoGateway => {
                let not_live = self.edge_watch_not_live(edge);
                Some(not_live.unwrap_or_else(|| edge_remedy::no_gateway(&edge.cluster, &key)))
            }
            AnnouncementState::Unknown => {
                let not_live = self.edge_watch_not_live(edge);
                Some(
                    not_live.unwrap_or_else(|| edge_remedy::no_namespace(&edge.cluster, namespace)),
                )
            }
            AnnouncementState::Pending => Some(self.touch_pending(edge, gateway, &key)),
        };
        hop.set_diagnosis(&self.snapshot.access, diagnosis);
        hop.set_next_attempt(&gateway.writes);
        hop
    }

    fn touch_pending(&self, edge: &EdgeView, gateway: &GatewayView, key: &ObjectKey) -> Diagnosis {
        let source = self.snapshot.source;
        let writer = self.writer(&edge.cluster, Kind::Connector, self.hub_key());
        let (since, _) = self.since(&edge.cluster, Kind::Connector, edge.changed_at_ms, writer);
        let state = self.lateness(Hop::Touched, &edge.cluster, since);
        if let Some(error) = &gateway.writes.error {
            return remedy::write_fails(state, &edge.cluster, Kind::Gateway, error);
        }
        let writes = matches!(source, SnapshotSource::State | SnapshotSource::Log);
        let is_due = gateway.writes.in_flight.is_some() || gateway.due_at_ms.is_some();
        let waiting = self.cluster(&edge.cluster).and_then(|cluster| cluster.touches_waiting);
        let is_overdue = gateway.due_at_ms.is_some_and(|at| at < self.snapshot.view.at_ms);
        if let Some(waiting) = waiting.filter(|_| gateway.writes.in_flight.is_none() && is_overdue)
        {
            return edge_remedy::touch_waits(state, waiting);
        }
        if writes && is_due {
            return edge_remedy::touch_in_flight(state, &edge.cluster);
        }
        edge_remedy::not_touched(state, source, &edge.cluster, key)
    }
}
