//! The object that a note is about, as a Kubernetes Event names it in `involvedObject`.

use crate::contract::hold_reason::HoldReason;
use crate::contract::note::{AnomalyKind, Hop, NoteKind, Stall};
use crate::data::ids::{ClusterId, ClusterName, Kind, ObjectKey, ResourceVersion, Uid};
use crate::data::interner::Key;
use crate::data::time::UnixMillis;
use crate::machine::Machine;

/// An object at the hub or at an edge. Events are never posted upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvolvedObject {
    pub cluster: ClusterName,
    pub kind: Kind,
    pub object: ObjectKey,
    pub uid: Option<String>,
    pub resource_version: Option<String>,
}

impl Machine {
    /// The object that a note is about, if it still exists: the hub Connector for mirroring and
    /// carrying, the edge Connector for touches, the HTTPRoute for an orphan, for held annotations the
    /// first hub Connector, for a deleted project the first hub object that names it, and for held
    /// deletes the route that has been an orphan for longest. Ask
    /// while the note is polled. Costs O(1), for what is held O(objects of that upstream cluster).
    pub fn involved_object(&self, kind: &NoteKind) -> Option<InvolvedObject> {
        match kind {
            NoteKind::HopPassed { .. } | NoteKind::Deferred { .. } => None,
            NoteKind::Stalled(stall) | NoteKind::StallEnded(stall) => self.object_of_stall(stall),
            NoteKind::Anomaly(anomaly) => {
                let id = self.clusters.id_of(&anomaly.cluster)?;
                let key = self.key_of(anomaly.object.as_ref()?)?;
                match anomaly.anomaly {
                    AnomalyKind::OversizedStatus => self.hub_connector_object(id, key),
                    // In a cluster that is hub and edge, the name alone does not say which.
                    AnomalyKind::Contention if self.was_just_overwritten(id, key) => {
                        self.hub_connector_object(id, key)
                    }
                    AnomalyKind::Contention => self.gateway_object(id, key),
                    _ => None,
                }
            }
            NoteKind::Orphan { cluster, route, .. } => {
                self.route_object(self.clusters.id_of(cluster)?, self.key_of(route)?)
            }
            NoteKind::Held { cluster, reason, .. } => self.held_object(cluster, *reason),
            NoteKind::OrphanGone { .. }
            | NoteKind::Discovery { .. }
            | NoteKind::Naming { .. }
            | NoteKind::TouchesWaiting { .. } => None,
            NoteKind::ClusterGone { cluster, .. } => self.first_naming(cluster),
            NoteKind::DeletesHeld { cluster, .. } => {
                let id = self.clusters.id_of(cluster)?;
                let upstream = self.upstreams.get(&self.cluster(id)?.sym)?;
                let since = |&(id, key): &(ClusterId, Key)| {
                    let route = self.hubs.get(&id).and_then(|hub| hub.routes.get(&key));
                    let since = route.and_then(|route| route.orphan_since);
                    (since.unwrap_or(UnixMillis(u64::MAX)), self.ctx.names.object_key(key))
                };
                let routes = upstream.routes_by_ns.values().flatten();
                let &(id, key) = routes.min_by_key(|place| since(place))?;
                self.route_object(id, key)
            }
        }
    }

    /// The first hub Connector that is held for a reason. Costs O(hub Connectors of that upstream).
    fn held_object(&self, upstream: &ClusterName, reason: HoldReason) -> Option<InvolvedObject> {
        let id = self.clusters.id_of(upstream)?;
        let upstream = self.upstreams.get(&self.cluster(id)?.sym)?;
        let places = upstream.hub_connectors().into_iter().filter(|at| {
            let hub = self.hubs.get(&at.cluster);
            hub.and_then(|hub| hub.connectors.get(&at.key)).is_some_and(|c| c.held == Some(reason))
        });
        let first = places.min_by_key(|at| self.ctx.names.object_key(at.key))?;
        self.hub_connector_object(first.cluster, first.key)
    }

    /// The first hub Connector that names an upstream cluster, or else the first route. Costs
    /// O(hub objects of that upstream).
    fn first_naming(&self, upstream: &ClusterName) -> Option<InvolvedObject> {
        let (_, upstream) = self.upstream_named(upstream)?;
        let text = |key: Key| self.ctx.names.object_key(key);
        let connectors = upstream.hub_connectors();
        if let Some(at) = connectors.into_iter().min_by_key(|at| text(at.key)) {
            return self.hub_connector_object(at.cluster, at.key);
        }
        let routes = upstream.routes_by_ns.values().flatten();
        let &(id, key) = routes.min_by_key(|(_, key)| text(*key))?;
        self.route_object(id, key)
    }

    fn object_of_stall(&self, stall: &Stall) -> Option<InvolvedObject> {
        let key = self.key_of(&stall.connector)?;
        if stall.hop == Hop::Touched {
            let id = self.clusters.id_of(&stall.cluster)?;
            let connector = self.edges.get(&id)?.connectors.get(&key)?;
            return self.object_at(id, Kind::Connector, key, (&connector.uid, &connector.rv));
        }
        // A value that has not reached an edge is the hub's to carry.
        self.hubs.keys().find_map(|&id| self.hub_connector_object(id, key))
    }

    fn key_of(&self, object: &ObjectKey) -> Option<Key> {
        self.ctx.names.find(&object.namespace, &object.name)
    }

    fn was_just_overwritten(&self, id: ClusterId, key: Key) -> bool {
        let hub_connector = self.hubs.get(&id).and_then(|hub| hub.connectors.get(&key));
        let repair = hub_connector.and_then(|hub_connector| hub_connector.repair.as_ref());
        repair.is_some_and(|repair| repair.contention.last_at() == Some(self.ctx.now))
    }

    fn hub_connector_object(&self, id: ClusterId, key: Key) -> Option<InvolvedObject> {
        let hub_connector = self.hubs.get(&id)?.connectors.get(&key)?;
        self.object_at(id, Kind::Connector, key, (&hub_connector.uid, &hub_connector.rv))
    }

    fn gateway_object(&self, id: ClusterId, key: Key) -> Option<InvolvedObject> {
        let gateway = self.edges.get(&id)?.gateways.get(&key)?;
        self.object_at(id, Kind::Gateway, key, (&gateway.observed.uid, &gateway.observed.rv))
    }

    fn route_object(&self, id: ClusterId, key: Key) -> Option<InvolvedObject> {
        let route = self.hubs.get(&id)?.routes.get(&key)?;
        self.object_at(id, Kind::HttpRoute, key, (&route.uid, &route.rv))
    }

    fn object_at(
        &self,
        id: ClusterId,
        kind: Kind,
        key: Key,
        (uid, rv): (&Uid, &ResourceVersion),
    ) -> Option<InvolvedObject> {
        Some(InvolvedObject {
            cluster: self.cluster(id)?.name.clone(),
            kind,
            object: self.ctx.names.object_key(key),
            uid: uid.text(),
            resource_version: rv.text(),
        })
    }
}
