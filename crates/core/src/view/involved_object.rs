//! The object that a note is about, as a Kubernetes Event names it in `involvedObject`.

use crate::contract::hold_reason::HoldReason;
use crate::contract::note::{Anomaly, AnomalyKind, Hop, NoteKind, Stall};
use crate::controller::Controller;
use crate::data::ids::{ClusterName, Kind, ObjectKey, ResourceVersion, Uid};
use crate::data::object_ref::ObjectRef;
use crate::data::time::UnixMillis;
use crate::machine::Machine;
use crate::subject::{Subject, Target};
use crate::world::World;
use crate::world::table::Row;
use crate::write_state::Contention;

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
    /// The object that a note is about, if it still exists. Of several the first, and of deletes that
    /// are held the route that has been an orphan for longest. Ask while the note is polled. Costs
    /// O(1), for what is held O(objects of that upstream cluster).
    pub fn involved_object(&self, kind: &NoteKind) -> Option<InvolvedObject> {
        let c = &self.controller;
        let subject = match kind {
            NoteKind::Stalled(stall) | NoteKind::StallEnded(stall) => of_stall(&c.world, stall),
            NoteKind::Anomaly(anomaly) => of_anomaly(c, anomaly),
            NoteKind::Orphan { cluster, route, .. } => {
                at(&c.world, cluster, Kind::HttpRoute, route).map(Subject::Route)
            }
            NoteKind::Held { cluster, reason, .. } => first_held(c, cluster, *reason),
            NoteKind::ClusterGone { cluster, .. } => first_naming(&c.world, cluster),
            NoteKind::DeletesHeld { cluster, .. } => oldest_orphan(c, cluster),
            NoteKind::Began(_)
            | NoteKind::Ended(_)
            | NoteKind::HopPassed { .. }
            | NoteKind::Deferred { .. }
            | NoteKind::OrphanGone { .. }
            | NoteKind::Discovery { .. }
            | NoteKind::Naming { .. }
            | NoteKind::TouchesWaiting { .. } => None,
        };
        object(&c.world, &subject?)
    }
}

fn of_stall(world: &World, stall: &Stall) -> Option<Subject> {
    match stall.hop {
        Hop::Touched => {
            let edge_connector = at(world, &stall.cluster, Kind::Connector, &stall.connector);
            edge_connector.map(Subject::EdgeConnector)
        }
        // A value that has not reached an edge is the hub's to carry.
        Hop::Upstream | Hop::Mirrored | Hop::Arrived => {
            world.hub_connector_of(&(&stall.connector).into()).map(Subject::HubConnector)
        }
    }
}

fn of_anomaly(c: &Controller, anomaly: &Anomaly) -> Option<Subject> {
    let of_kind = |kind| at(&c.world, &anomaly.cluster, kind, anomaly.object.as_ref()?);
    let connector = of_kind(Kind::Connector)?;
    match anomaly.anomaly {
        AnomalyKind::OversizedStatus => Some(Subject::HubConnector(connector)),
        // In a cluster that is hub and edge, the name alone does not say which.
        AnomalyKind::Contention if is_just_overwritten(c, &connector) => {
            Some(Subject::HubConnector(connector))
        }
        AnomalyKind::Contention => {
            of_kind(Kind::Gateway).map(|gateway| Subject::Target(Target::Gateway(gateway)))
        }
        _ => None,
    }
}

fn is_just_overwritten(c: &Controller, hub_connector: &ObjectRef) -> bool {
    let memory = c.memory.hub.get(hub_connector);
    let contention = memory.and_then(|memory| memory.mirror.write.contention());
    contention.map(Contention::last_at) == Some(c.now)
}

/// The first hub Connector that is held for a reason.
fn first_held(c: &Controller, upstream: &ClusterName, reason: HoldReason) -> Option<Subject> {
    c.world.id_of(upstream)?;
    let held =
        c.world.links.linked_to(upstream).filter(|at| {
            c.memory.hub.get(at).is_some_and(|memory| memory.mirror.held == Some(reason))
        });
    held.min_by_key(|at| &at.name).cloned().map(Subject::HubConnector)
}

/// The first hub Connector that names an upstream cluster, or else the first route.
fn first_naming(world: &World, upstream: &ClusterName) -> Option<Subject> {
    let connector = world.links.linked_to(upstream).min_by_key(|at| &at.name).cloned();
    let route = || world.links.routes_naming(upstream).min_by_key(|at| &at.name).cloned();
    connector.map(Subject::HubConnector).or_else(|| route().map(Subject::Route))
}

/// The route of an upstream that has been an orphan for longest; where none is one, the first.
fn oldest_orphan(c: &Controller, upstream: &ClusterName) -> Option<Subject> {
    c.world.id_of(upstream)?;
    let since = |at: &ObjectRef| {
        let absence = c.memory.routes.get(at).and_then(|memory| memory.absence);
        absence.map_or(UnixMillis::NEVER, |absence| absence.since)
    };
    let oldest = c.world.links.routes_naming(upstream).min_by_key(|at| (since(at), &at.name));
    oldest.cloned().map(Subject::Route)
}

fn at(world: &World, cluster: &ClusterName, kind: Kind, object: &ObjectKey) -> Option<ObjectRef> {
    Some(ObjectRef { cluster: world.id_of(cluster)?, kind, name: object.into() })
}

fn object(world: &World, subject: &Subject) -> Option<InvolvedObject> {
    let cluster = world.clusters.get(&subject.cluster())?;
    let (name, (uid, version)) = match subject {
        Subject::HubConnector(at) => (&at.name, ids(cluster.hub_connectors.get(&at.name)?)),
        Subject::EdgeConnector(at) => (&at.name, ids(cluster.edge.connectors.get(&at.name)?)),
        Subject::Route(at) => (&at.name, ids(cluster.routes.get(&at.name)?)),
        Subject::Target(Target::Gateway(at)) => {
            (&at.name, ids(cluster.edge.gateways.get(&at.name)?))
        }
        Subject::Target(Target::Class(..)) => return None,
    };

    Some(InvolvedObject {
        cluster: cluster.name.clone(),
        kind: subject.kind(),
        object: name.key(),
        uid: uid.text(),
        resource_version: version.text(),
    })
}

fn ids<T>(row: &Row<T>) -> (&Uid, &ResourceVersion) {
    (&row.uid, &row.version)
}
