//! The hops at the edges: the copy that the carrier brings, and the gateways that announce it.

use super::diagnose::{Case, Problem, words};
use super::remedy;
use super::{HopTrace, Snapshot, Source};
use crate::core::action::Hop;
use crate::core::ids::{Kind, ObjectKey, Role};
use crate::core::time::UnixMillis;
use crate::core::view::{Announcement, ClusterView, EdgeView, GatewayView, HubView, SaysView};

impl Case<'_> {
    pub(super) fn arrived(&self) -> Vec<HopTrace> {
        let mut hops: Vec<_> =
            self.connector.edges.iter().map(|edge| self.arrived_at(edge)).collect();
        if let Some(hub) = self.connector.hubs.first() {
            let known =
                |c: &&ClusterView| self.connector.edges.iter().any(|edge| edge.cluster == c.name);
            let absent = self.clusters(Role::Edge).filter(|c| !known(c));
            hops.extend(absent.filter_map(|cluster| self.not_arrived_at(cluster, hub)));
        }
        hops.sort_by(|a, b| a.cluster.cmp(&b.cluster));
        hops
    }

    fn arrived_at(&self, edge: &EdgeView) -> HopTrace {
        let mut hop = HopTrace::new(Hop::Arrived, &edge.cluster, self.place());
        let writer = self.writer(&edge.cluster, Kind::Connector, self.place());
        hop.says = Some(SaysView { online: edge.online, node: edge.node.clone() });
        (hop.since_ms, hop.at_least) =
            self.since(&edge.cluster, Kind::Connector, edge.changed_at_ms, writer);
        hop.writer = writer.cloned();
        let hub = self.connector.hubs.first();
        hop.expected = hub.map_or(String::new(), |hub| words(self.hub_says(hub).as_ref()));
        let problem = self.unseen(&edge.cluster, &[Kind::Connector]);
        hop.trouble(problem.or_else(|| {
            let hub = hub.filter(|_| edge.as_hub == Some(false))?;
            let state = self.lateness(Hop::Arrived, &edge.cluster, self.carried_since(hub));
            let nudged = hub.nudged;
            Some(remedy::not_carried(state, &edge.cluster, self.place(), &hop.expected, nudged))
        }));
        hop
    }

    fn hub_says(&self, hub: &HubView) -> Option<SaysView> {
        let read = || self.snapshot.witness.says(&hub.cluster, self.place()?).cloned();
        read().or_else(|| hub.says.clone())
    }

    fn carried_since(&self, hub: &HubView) -> Option<UnixMillis> {
        let writer = self.writer(&hub.cluster, Kind::Connector, self.place());
        let place = self.place()?;
        if writer.is_some() && self.snapshot.witness.is_nudged(&hub.cluster, place) {
            // A nudge is a write of ours, too, and later than that of the value.
            return self.upstream_since();
        }
        self.since(&hub.cluster, Kind::Connector, hub.right_since_ms, writer).0
    }

    /// An edge without a copy: nobody sees it, or no edge has one. (Which edges should have one is the
    /// carrier's policy.)
    fn not_arrived_at(&self, cluster: &ClusterView, hub: &HubView) -> Option<HopTrace> {
        let mut hop = HopTrace::new(Hop::Arrived, &cluster.name, self.place());
        hop.expected = words(self.hub_says(hub).as_ref());
        let nowhere = self.connector.edges.is_empty();
        let problem = self
            .unseen(&cluster.name, &[Kind::Connector])
            .or_else(|| nowhere.then(|| remedy::no_copy(&cluster.name, self.place())))?;
        hop.trouble(Some(problem));
        Some(hop)
    }

    pub(super) fn touched(&self) -> Vec<HopTrace> {
        let at_edge = |edge: &EdgeView| -> Vec<HopTrace> {
            if edge.gateways.is_empty() {
                return vec![self.unreferenced(edge)];
            }
            edge.gateways.iter().map(|gateway| self.touched_on(edge, gateway)).collect()
        };
        self.connector.edges.iter().flat_map(at_edge).collect()
    }

    fn unseen_at(&self, edge: &EdgeView) -> Option<Problem> {
        self.unseen(&edge.cluster, &[Kind::Connector, Kind::HttpProxy, Kind::Gateway])
    }

    fn unreferenced(&self, edge: &EdgeView) -> HopTrace {
        let mut hop = HopTrace::new(Hop::Touched, &edge.cluster, None);
        let problem = self.unseen_at(edge);
        hop.trouble(Some(
            problem.unwrap_or_else(|| remedy::not_referenced(&edge.cluster, self.place())),
        ));
        hop
    }

    fn touched_on(&self, edge: &EdgeView, gateway: &GatewayView) -> HopTrace {
        let namespace = self.place().map_or("", |place| &place.namespace);
        let own = ObjectKey::new(namespace, &*gateway.name);
        let object = gateway.announced_on.as_ref().unwrap_or(&own);
        let mut hop = HopTrace::new(Hop::Touched, &edge.cluster, Some(&own));
        hop.trigger = gateway.trigger.clone();
        let says = SaysView { online: edge.online, node: edge.node.clone() };
        hop.expected = format!("announces {}", words(Some(&says)));
        hop.writer = self.writer(&edge.cluster, Kind::Gateway, Some(object)).cloned();
        hop.since_ms = hop.writer.as_ref().map(|writer| writer.at_ms);
        let problem = match gateway.announcement {
            Announcement::Announced => None,
            Announcement::Off => Some(remedy::off("touch.enabled")),
            Announcement::NoGateway => {
                let unseen = self.unseen_at(edge);
                Some(unseen.unwrap_or_else(|| remedy::no_gateway(&edge.cluster)))
            }
            Announcement::Unknown => {
                let unseen = self.unseen_at(edge);
                Some(unseen.unwrap_or_else(|| remedy::no_namespace(&edge.cluster, namespace)))
            }
            Announcement::Pending => Some(self.pending(edge, gateway)),
        };
        hop.trouble(problem);
        hop
    }

    fn pending(&self, edge: &EdgeView, gateway: &GatewayView) -> Problem {
        let Snapshot { source, .. } = self.snapshot;
        let writer = self.writer(&edge.cluster, Kind::Connector, self.place());
        let (since, _) = self.since(&edge.cluster, Kind::Connector, edge.changed_at_ms, writer);
        let state = self.lateness(Hop::Touched, &edge.cluster, since);
        if let Some(error) = &gateway.writes.error {
            return remedy::write_fails(state, &edge.cluster, Kind::Gateway, error);
        }
        let acts = matches!(source, Source::State | Source::Log);
        let comes = gateway.writes.in_flight.is_some() || gateway.due_at_ms.is_some();
        if acts && comes {
            // It is written when its time has come, with or without a stall.
            return remedy::touch_under_way(state, &edge.cluster);
        }
        remedy::not_touched(state, *source, &edge.cluster)
    }
}
