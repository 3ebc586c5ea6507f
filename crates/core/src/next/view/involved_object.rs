//! The object that a note is about, as a Kubernetes Event names it in `involvedObject`.

use super::orphans::oldest_orphan;
use crate::contract::hold_reason::HoldReason;
use crate::contract::note::{Anomaly, AnomalyKind, Hop, NoteKind, Stall};
use crate::data::ids::{ClusterName, Kind, ObjectKey};
use crate::data::name::NamespacedName;
use crate::data::object_ref::ObjectRef;
use crate::data::time::UnixMillis;
use crate::next::controller::Controller;
use crate::next::machine::Machine;
use crate::next::world::cluster::Cluster;
use crate::next::world::table::Row;
use crate::next::write_state::Contention;

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
        let c = &self.controller;
        match kind {
            NoteKind::Stalled(stall) | NoteKind::StallEnded(stall) => of_stall(c, stall),
            NoteKind::Anomaly(anomaly) => of_anomaly(c, anomaly, self.now),
            NoteKind::Orphan { cluster, route, .. } => {
                hub_route(named(c, cluster)?, &name_of(route))
            }
            NoteKind::Held { cluster, reason, .. } => first_held(c, cluster, *reason),
            NoteKind::ClusterGone { cluster, .. } => first_naming(c, cluster),
            NoteKind::DeletesHeld { cluster, .. } => {
                named(c, cluster)?;
                let route = oldest_orphan(c, c.world.routes_naming(cluster).cloned())?;
                hub_route(c.world.clusters.get(&route.cluster)?, &route.name)
            }
            NoteKind::HopPassed { .. }
            | NoteKind::Deferred { .. }
            | NoteKind::OrphanGone { .. }
            | NoteKind::Discovery { .. }
            | NoteKind::Naming { .. }
            | NoteKind::TouchesWaiting { .. } => None,
        }
    }
}

fn of_stall(c: &Controller, stall: &Stall) -> Option<InvolvedObject> {
    let name = name_of(&stall.connector);
    match stall.hop {
        Hop::Touched => edge_connector(named(c, &stall.cluster)?, &name),
        // A value that has not reached an edge is the hub's to carry.
        Hop::Upstream | Hop::Mirrored | Hop::Arrived => {
            c.world.hubs().find_map(|hub| hub_connector(hub, &name))
        }
    }
}

fn of_anomaly(c: &Controller, anomaly: &Anomaly, now: UnixMillis) -> Option<InvolvedObject> {
    let cluster = named(c, &anomaly.cluster)?;
    let name = name_of(anomaly.object.as_ref()?);
    match anomaly.anomaly {
        AnomalyKind::OversizedStatus => hub_connector(cluster, &name),
        // In a cluster that is hub and edge, the name alone does not say which.
        AnomalyKind::Contention if is_just_overwritten(c, cluster, &name, now) => {
            hub_connector(cluster, &name)
        }
        AnomalyKind::Contention => gateway(cluster, &name),
        _ => None,
    }
}

fn is_just_overwritten(
    c: &Controller,
    hub: &Cluster,
    name: &NamespacedName,
    now: UnixMillis,
) -> bool {
    let memory = c.memory.hub.get(&hub.object(Kind::Connector, name));
    let contention = memory.and_then(|memory| memory.mirror.write.contention());
    contention.map(Contention::last_at) == Some(now)
}

/// The first hub Connector that is held for a reason. Costs O(hub Connectors of that upstream).
fn first_held(
    c: &Controller,
    upstream: &ClusterName,
    reason: HoldReason,
) -> Option<InvolvedObject> {
    named(c, upstream)?;
    let is_held = |at: &&ObjectRef| {
        c.memory.hub.get(at).is_some_and(|memory| memory.mirror.held == Some(reason))
    };
    let held = c.world.linked_to(upstream).filter(is_held);
    let first = held.min_by_key(|at| &at.name)?;
    hub_connector(c.world.clusters.get(&first.cluster)?, &first.name)
}

/// The first hub Connector that names an upstream cluster, or else the first route. Costs O(hub
/// objects of that upstream).
fn first_naming(c: &Controller, upstream: &ClusterName) -> Option<InvolvedObject> {
    let clusters = &c.world.clusters;
    if let Some(at) = c.world.linked_to(upstream).min_by_key(|at| &at.name) {
        return hub_connector(clusters.get(&at.cluster)?, &at.name);
    }
    let at = c.world.routes_naming(upstream).min_by_key(|at| &at.name)?;
    hub_route(clusters.get(&at.cluster)?, &at.name)
}

fn named<'c>(c: &'c Controller, cluster: &ClusterName) -> Option<&'c Cluster> {
    c.world.clusters.get(&c.world.id_of(cluster)?)
}

fn name_of(object: &ObjectKey) -> NamespacedName {
    NamespacedName::new(&object.namespace, &object.name)
}

fn hub_connector(hub: &Cluster, name: &NamespacedName) -> Option<InvolvedObject> {
    Some(object(hub, Kind::Connector, name, hub.hub_connectors.get(name)?))
}

fn hub_route(hub: &Cluster, name: &NamespacedName) -> Option<InvolvedObject> {
    Some(object(hub, Kind::HttpRoute, name, hub.routes.get(name)?))
}

fn edge_connector(edge: &Cluster, name: &NamespacedName) -> Option<InvolvedObject> {
    Some(object(edge, Kind::Connector, name, edge.edge.connectors.get(name)?))
}

fn gateway(edge: &Cluster, name: &NamespacedName) -> Option<InvolvedObject> {
    Some(object(edge, Kind::Gateway, name, edge.edge.gateways.get(name)?))
}

fn object<T>(cluster: &Cluster, kind: Kind, name: &NamespacedName, row: &Row<T>) -> InvolvedObject {
    InvolvedObject {
        cluster: cluster.name.clone(),
        kind,
        object: name.key(),
        uid: row.uid.text(),
        resource_version: row.version.text(),
    }
}
