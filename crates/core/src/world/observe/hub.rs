//! Hub Connectors and routes: the upstream objects that they name, and the fields that rules read.

use super::observation::{Observation, ShownObject};
use crate::contract::route_origin::RouteOrigin;
use crate::contract::settings::OrphanMode;
use crate::data::ids::{Kind, NamespacedName, Role};
use crate::data::object_ref::ObjectRef;
use crate::data::objects::Object;
use crate::subject::Subject;
use crate::world::World;
use crate::world::change::{Change, HubConnectorSeen};
use crate::world::cluster::Cluster;
use crate::world::hub::{HubConnector, Route, UpstreamRef};
use crate::world::table::Put;

pub(super) fn on_connector(o: &mut Observation<'_>, shown: &ShownObject<'_>) {
    let at = o.object(Kind::Connector, &shown.name);
    let seen = read_connector(o.world, &at, shown.object);
    let connectors = &mut o.cluster_mut().hub_connectors;
    let Some(put) = connectors.put(&shown.name, shown.sighting(), seen.clone()) else { return };

    let subject = Subject::HubConnector(at.clone());
    let Put { before, is_same_object } = put;
    if let Some(before) = &before {
        if !is_same_object {
            o.changes.push(Change::Gone(subject.clone()));
        } else if seen.cluster() == before.cluster()
            && let Some(row) = connectors.seen_mut(&shown.name)
        {
            // A deleted namespace of a former upstream means nothing for the new one.
            row.namespace_deleted_at = before.namespace_deleted_at;
        }
    }

    o.world.links.relink(&at, before.as_ref(), Some(&seen), o.now, &mut o.changes);
    let was_paused = before.as_ref().is_some_and(|before| before.is_paused);
    let sighting = HubConnectorSeen {
        at,
        is_same_object,
        before: before.and_then(|before| before.annotation),
        is_resumed: was_paused && !seen.is_paused,
        object: shown.object.clone(),
    };
    o.changes.push(Change::HubConnectorSeen(sighting));
    o.changed([subject]);
}

pub(super) fn on_connector_gone(o: &mut Observation<'_>, name: &NamespacedName) {
    let Some(row) = o.cluster_mut().hub_connectors.remove(name) else { return };
    let at = o.object(Kind::Connector, name);
    o.world.links.relink(&at, Some(&row.seen), None, o.now, &mut o.changes);
    o.changes.push(Change::Gone(Subject::HubConnector(at)));
}

fn read_connector(world: &World, at: &ObjectRef, object: &Object) -> HubConnector {
    let upstream = UpstreamRef::of(&object.meta).map(|named| shared_ref(world, named));
    let status = upstream.as_ref().ok().and_then(|named| {
        let cluster = world.upstream_named(&named.cluster)?;
        let status = cluster.upstream_connectors.seen(&named.name)?.status.as_ref()?;
        Some(status.digest)
    });
    let before = world.clusters[&at.cluster].hub_connectors.seen(&at.name);
    let likely = [status, before.and_then(|before| before.annotation)];
    HubConnector::new(&object.meta, &world.settings.mirror.nudge_key, upstream, likely)
}

/// The same upstream object, with the texts that tables already hold.
fn shared_ref(world: &World, named: UpstreamRef) -> UpstreamRef {
    if let Some(link) = world.links.key(&named) {
        return link.clone();
    }
    let upstream = world.upstream_named(&named.cluster);
    let name = upstream.and_then(|upstream| upstream.upstream_connectors.key(&named.name));
    let cluster = world.links.counts.get_key_value(&named.cluster).map(|(cluster, _)| cluster);
    UpstreamRef {
        name: name.unwrap_or(&named.name).clone(),
        cluster: cluster.unwrap_or(&named.cluster).clone(),
    }
}

pub(super) fn on_route(o: &mut Observation<'_>, shown: &ShownObject<'_>) {
    if o.world.settings.orphans.mode == OrphanMode::Off {
        return;
    }
    let route = Route::new(shown.object);
    let parents = route.parents.clone().ok();
    let routes = &mut o.cluster_mut().routes;
    let Some(put) = routes.put(&shown.name, shown.sighting(), route) else { return };

    let at = o.object(Kind::HttpRoute, &shown.name);
    let subject = Subject::Route(at.clone());
    let Put { before, is_same_object } = put;
    let named = before.as_ref().and_then(Route::upstream).cloned();
    let upstream = parents.as_ref().map(|parents| &parents.cluster);
    if let Some(from) = named.filter(|from| !is_same_object || Some(from) != upstream) {
        o.changes.push(Change::Unlinked { at: at.clone(), from });
    }
    let existed = before.is_some();
    let before = before.and_then(|before| before.parents.ok());
    if is_same_object {
        let has_other_parents = before != parents;
        o.changes.push(Change::RouteSeen { at: at.clone(), has_other_parents });
    } else if existed {
        o.changes.push(Change::Gone(subject.clone()));
    }
    let changes = &mut o.changes;
    o.world.links.relink_route(&at, before.as_ref(), parents.as_ref(), changes);
    o.changed([subject]);
}

pub(super) fn on_route_gone(o: &mut Observation<'_>, name: &NamespacedName) {
    let Some(row) = o.cluster_mut().routes.remove(name) else { return };
    let at = o.object(Kind::HttpRoute, name);
    let parents = row.seen.parents.ok();

    o.world.links.relink_route(&at, parents.as_ref(), None, &mut o.changes);
    if let Some(RouteOrigin { cluster: from, .. }) = parents {
        o.changes.push(Change::Unlinked { at: at.clone(), from });
    }
    o.changes.push(Change::Gone(Subject::Route(at)));
}

/// The watch of hub Connectors or routes is live, or the watch that decides their tier.
pub(super) fn on_current(o: &mut Observation<'_>, kind: Kind) {
    let cluster = o.cluster();
    let mut subjects = Vec::new();
    if is_about(cluster, Kind::Connector, kind) {
        subjects.extend(cluster.hub_connectors.keys().map(|name| cluster.hub_connector(name)));
    }
    if is_about(cluster, Kind::HttpRoute, kind) {
        subjects.extend(cluster.routes.keys().map(|name| cluster.route(name)));
    }
    o.changed(subjects);
    if kind == Kind::Connector && o.cluster().has(Role::Hub) {
        unnamed_changed(o);
    }
}

/// That no hub Connector names them is known only while every hub Connector can be decoded.
fn unnamed_changed(o: &mut Observation<'_>) {
    let world = &o.world;
    let unnamed = world.clusters.values().filter(|cluster| world.is_unnamed(cluster));
    let changed = unnamed.map(|cluster| Change::NamingChanged { upstream: cluster.name.clone() });
    o.changes.extend(changed);
}

pub(super) fn on_watch_lost(o: &mut Observation<'_>, kind: Kind) {
    let cluster = o.cluster();
    if is_about(cluster, Kind::HttpRoute, kind) {
        let routes: Vec<_> = cluster.routes.keys().map(|name| cluster.route(name)).collect();
        o.changed(routes);
    }
}

/// Whether a watch of `kind` gives evidence about objects of kind `of`.
fn is_about(cluster: &Cluster, of: Kind, kind: Kind) -> bool {
    kind == of || (kind == Kind::Namespace && cluster.is_combined())
}
