//! Clusters join and leave. Nothing is kept of a cluster that left, and its absence proves nothing.

use super::observation::Observation;
use super::{edge, hub};
use crate::contract::settings::{Settings, TouchScope};
use crate::data::ids::{ClusterName, Role};
use crate::data::object_ref::ClusterId;
use crate::data::time::UnixMillis;
use crate::subject::Subject;
use crate::world::World;
use crate::world::change::Change;
use crate::world::cluster::Cluster;

pub(super) fn add(
    world: &mut World,
    name: &ClusterName,
    roles: &[Role],
    now: UnixMillis,
) -> Vec<Change> {
    let mut changes = remove(world, name, now);
    world.last_id += 1;
    let id = ClusterId(world.last_id);
    let mut cluster = Cluster::new(id, name.clone(), roles);
    let Settings { touch, shard, .. } = &world.settings;
    cluster.edge.is_by_class = touch.scope_of(name) == TouchScope::GatewayClass;
    cluster.edge.is_touched_elsewhere = cluster.edge.is_by_class && !shard.owns(name.as_str());

    if cluster.has(Role::Hub) {
        world.hubs.insert(id);
    }
    if cluster.has(Role::Edge) {
        world.edges.insert(id);
    }
    if cluster.has(Role::Upstream) {
        changes.push(Change::NamingChanged { upstream: name.clone() });
    }
    world.ids.insert(name.clone(), id);
    world.clusters.insert(id, cluster);
    changes
}

pub(super) fn remove(world: &mut World, name: &ClusterName, now: UnixMillis) -> Vec<Change> {
    let Some(id) = world.id_of(name) else { return Vec::new() };
    let mut o = Observation { world, id, now, changes: Vec::new() };
    for connector in o.cluster().hub_connectors.names() {
        hub::on_connector_gone(&mut o, &connector);
    }
    for route in o.cluster().routes.names() {
        hub::on_route_gone(&mut o, &route);
    }
    edge::on_edge_left(&mut o);
    let Observation { world, mut changes, .. } = o;

    world.ids.remove(name);
    world.hubs.remove(&id);
    world.edges.remove(&id);
    let cluster = world.clusters.remove(&id);
    if cluster.is_some_and(|cluster| cluster.has(Role::Upstream)) {
        forget_upstream(world, name, now, &mut changes);
    }
    changes.push(Change::ClusterLeft { id, name: name.clone() });
    changes
}

/// The hub objects that name the upstream stay, but it is not configured any longer.
fn forget_upstream(
    world: &mut World,
    name: &ClusterName,
    now: UnixMillis,
    changes: &mut Vec<Change>,
) {
    changes.push(Change::NamingChanged { upstream: name.clone() });
    let routes = world.links.routes_in(name, None).cloned();
    changes.extend(routes.map(Subject::Route).map(Change::Changed));

    for at in world.links.on_upstream_left(name, now) {
        if let Some(hub) = world.clusters.get_mut(&at.cluster)
            && let Some(connector) = hub.hub_connectors.seen_mut(&at.name)
        {
            connector.namespace_deleted_at = None;
        }
        changes.push(Change::UpstreamLeft { at: at.clone() });
        changes.push(Change::Changed(Subject::HubConnector(at)));
    }
}
