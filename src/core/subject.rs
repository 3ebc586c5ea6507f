//! The object that a note is about, as an Event names it: looked up when the note is told.

use super::action::{AnomalyKind, Hop, Noted, Stall};
use super::ids::{ClusterId, ClusterName, Key, Kind, ObjectKey, ResourceVersion, Uid};
use super::machine::Machine;
use super::time::UnixMillis;

/// An object of the hub or of an edge; never one that is only upstream's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    /// The cluster it is in.
    pub cluster: ClusterName,
    /// Its kind.
    pub kind: Kind,
    /// Its namespace and name.
    pub object: ObjectKey,
    /// Its uid, where it is known.
    pub uid: Option<String>,
    /// Its resourceVersion as it was last seen.
    pub resource_version: Option<String>,
}

impl Machine {
    /// The object that a note is about, where it is about one that still exists: the hub's Connector
    /// for what is mirrored and carried, the edge's for what is touched, the HTTPRoute for an
    /// orphan, and for deletes that are held the route that has been an orphan for longest. To be asked
    /// as the note is polled. Costs O(1); for held deletes O(the routes of that upstream cluster).
    pub fn subject(&self, noted: &Noted) -> Option<Subject> {
        match noted {
            Noted::HopPassed { .. } => None,
            Noted::Stalled(stall) | Noted::StallEnded(stall) => self.subject_of_stall(stall),
            Noted::Anomaly(anomaly) => {
                let id = *self.cluster_ids.get(&anomaly.cluster)?;
                let key = self.key_of(anomaly.object.as_ref()?)?;
                match anomaly.anomaly {
                    AnomalyKind::OversizedStatus => self.replica_subject(id, key),
                    // Where hub and edge are one cluster, a name alone doesn't tell.
                    AnomalyKind::Contention if self.was_just_spoiled(id, key) => {
                        self.replica_subject(id, key)
                    }
                    AnomalyKind::Contention => self.gateway_subject(id, key),
                    _ => None,
                }
            }
            Noted::Orphan { cluster, route, .. } => {
                self.route_subject(*self.cluster_ids.get(cluster)?, self.key_of(route)?)
            }
            Noted::DeletesHeld { cluster, .. } => {
                let id = *self.cluster_ids.get(cluster)?;
                let upstream = self.upstreams.get(&self.cluster(id)?.sym)?;
                let since = |&(id, key): &(ClusterId, Key)| {
                    let route = self.hubs.get(&id).and_then(|hub| hub.routes.get(&key));
                    let since = route.and_then(|route| route.orphan_since);
                    (since.unwrap_or(UnixMillis(u64::MAX)), self.desk.names.object_key(key))
                };
                let routes = upstream.routes_by_ns.values().flatten();
                let &(id, key) = routes.min_by_key(|place| since(place))?;
                self.route_subject(id, key)
            }
        }
    }

    fn subject_of_stall(&self, stall: &Stall) -> Option<Subject> {
        let key = self.key_of(&stall.connector)?;
        if stall.hop == Hop::Touched {
            let id = *self.cluster_ids.get(&stall.cluster)?;
            let connector = self.edges.get(&id)?.connectors.get(&key)?;
            return self.subject_at(id, Kind::Connector, key, (&connector.uid, &connector.rv));
        }
        // What has not arrived at an edge is the hub's to carry.
        self.hubs.keys().find_map(|&id| self.replica_subject(id, key))
    }

    fn key_of(&self, object: &ObjectKey) -> Option<Key> {
        self.desk.names.find(&object.namespace, &object.name)
    }

    fn was_just_spoiled(&self, id: ClusterId, key: Key) -> bool {
        let replica = self.hubs.get(&id).and_then(|hub| hub.replicas.get(&key));
        let trouble = replica.and_then(|replica| replica.trouble.as_ref());
        trouble.is_some_and(|trouble| trouble.spoiled_at == self.desk.now)
    }

    fn replica_subject(&self, id: ClusterId, key: Key) -> Option<Subject> {
        let replica = self.hubs.get(&id)?.replicas.get(&key)?;
        self.subject_at(id, Kind::Connector, key, (&replica.uid, &replica.rv))
    }

    fn gateway_subject(&self, id: ClusterId, key: Key) -> Option<Subject> {
        let gateway = self.edges.get(&id)?.gateways.get(&key)?;
        self.subject_at(id, Kind::Gateway, key, (&gateway.uid, &gateway.rv))
    }

    fn route_subject(&self, id: ClusterId, key: Key) -> Option<Subject> {
        let route = self.hubs.get(&id)?.routes.get(&key)?;
        self.subject_at(id, Kind::HttpRoute, key, (&route.uid, &route.rv))
    }

    fn subject_at(
        &self,
        id: ClusterId,
        kind: Kind,
        key: Key,
        (uid, rv): (&Uid, &ResourceVersion),
    ) -> Option<Subject> {
        Some(Subject {
            cluster: self.cluster(id)?.name.clone(),
            kind,
            object: self.desk.names.object_key(key),
            uid: uid.text(),
            resource_version: rv.text(),
        })
    }
}
