//! Clusters join and leave. Nothing is kept of one that left, and its absence proves nothing.

use super::Observation;
use crate::contract::settings::TouchScope;
use crate::data::ids::{ClusterName, Kind, Role};
use crate::data::object_ref::ClusterId;
use crate::data::time::UnixMillis;
use crate::next::subject::Subject;
use crate::next::world::World;
use crate::next::world::change::{Change, HubChange};
use crate::next::world::cluster::Cluster;

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
    cluster.edge.is_by_class = world.reading.touch.scope_of(name) == TouchScope::GatewayClass;

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
    let mut observed = Observation { world, id, now, changes: Vec::new() };
    forget_hub(&mut observed);
    forget_edge(&mut observed);
    let mut changes = std::mem::take(&mut observed.changes);

    world.left = Some((id, name.clone()));
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

/// The hub objects that name it stay: their upstream is not configured any longer.
fn forget_upstream(
    world: &mut World,
    name: &ClusterName,
    now: UnixMillis,
    changes: &mut Vec<Change>,
) {
    let upstream = name.clone();
    changes.push(Change::NamingChanged { upstream });
    let routes: Vec<_> = world.routes_naming(name).cloned().collect();
    changes.extend(routes.into_iter().map(Subject::Route).map(Change::Changed));

    for at in world.forget_links_to(name, now) {
        if let Some(hub) = world.clusters.get_mut(&at.cluster)
            && let Some(connector) = hub.hub_connectors.seen_mut(&at.name)
        {
            connector.namespace_deleted_at = None;
        }
        changes.push(Change::Hub(HubChange::UpstreamLeft { at: at.clone() }));
        changes.push(Change::Changed(Subject::HubConnector(at)));
    }
}

fn forget_hub(observed: &mut Observation<'_>) -> Option<()> {
    let cluster = observed.cluster()?;
    let connectors: Vec<_> = cluster.hub_connectors.keys().cloned().collect();
    let routes: Vec<_> = cluster.routes.keys().cloned().collect();
    for name in connectors {
        super::hub::on_connector_gone(observed, &name);
    }
    for name in routes {
        super::hub::on_route_gone(observed, &name);
    }
    Some(())
}

fn forget_edge(observed: &mut Observation<'_>) -> Option<()> {
    let cluster = observed.cluster()?;
    let connectors: Vec<_> = cluster.edge.connectors.keys().cloned().collect();
    for target in cluster.edge.targets(observed.id) {
        let subject = Subject::Target(target);
        observed.changes.push(Change::Gone { subject, named: None });
    }
    for name in connectors {
        let subject = Subject::EdgeConnector(observed.object(Kind::Connector, &name));
        observed.changes.push(Change::Gone { subject, named: None });
        super::edge::hub_connector_elsewhere_changed(observed, &name);
    }
    Some(())
}
