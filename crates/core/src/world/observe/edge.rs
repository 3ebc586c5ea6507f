//! Edge Connectors, HTTPProxies and Gateways: what must be announced, and which changes may not
//! have been seen while a watch was lost.

use super::observation::{Observation, ShownObject};
use crate::contract::cause::Hop;
use crate::contract::settings::PlatformKeyMode;
use crate::data::ids::{Kind, NamespacedName, Role};
use crate::data::object_ref::ObjectRef;
use crate::data::objects::UPSTREAM_STATUS;
use crate::status::digest::Digest;
use crate::status::liveness;
use crate::subject::{Subject, Target};
use crate::world::World;
use crate::world::change::{Change, EdgeChange};
use crate::world::cluster::Cluster;
use crate::world::edge::{EdgeConnector, Gateway, Stamp};
use crate::world::edge_tables::ConnectorChange;
use crate::world::table::{Put, Shown};

pub(super) fn on_connector(o: &mut Observation<'_>, shown: &ShownObject<'_>) {
    let now = o.now;
    let seen = read_connector(o, shown);
    let is_online = seen.stamp.is_online();
    let edge = &mut o.cluster_mut().edge;
    let is_ready = edge.ready_since.is_some();
    let change = edge.on_connector(&shown.name, shown.sighting(), seen, now);

    match change {
        None => return,
        Some(ConnectorChange::Other) => {}
        Some(ConnectorChange::Unseen) => liveness_changed(o, &shown.name, true, false),
        Some(ConnectorChange::Liveness) => {
            let is_ordered = shown.shown == Shown::Watched && is_ready;
            liveness_changed(o, &shown.name, false, is_ordered);
            if is_ready {
                report_carried(o, &shown.name, is_online);
            }
        }
    }
    hub_connector_elsewhere_changed(o, &shown.name);
}

fn read_connector(o: &Observation<'_>, shown: &ShownObject<'_>) -> EdgeConnector {
    let World { settings, node_ids, .. } = &*o.world;
    let text = shown.object.meta.annotations.get(UPSTREAM_STATUS);
    let liveness = liveness::read(text, shown.object.status());
    let name = shown.name.name();
    let part = node_ids.connector_part(name, liveness.online, &liveness.node_id);
    let keeps_node_id = settings.touch.platform_key == PlatformKeyMode::Write;

    EdgeConnector {
        annotation: text.map(|text| annotation_digest(o, &shown.name, text)),
        others_wrote_at: shown.object.meta.others_wrote_at(),
        ..EdgeConnector::new(liveness, part, keeps_node_id)
    }
}

fn annotation_digest(o: &Observation<'_>, name: &NamespacedName, text: &str) -> Digest {
    let known = o.cluster().edge.connectors.seen(name);
    let at_hub = o.world.hubs().find_map(|hub| hub.hub_connectors.seen(name));
    let likely = [
        known.and_then(|connector| connector.annotation),
        at_hub.and_then(|connector| connector.annotation).map(|annotation| annotation.all),
    ];
    Digest::of(text, likely)
}

pub(super) fn on_connector_gone(o: &mut Observation<'_>, name: &NamespacedName, is_deleted: bool) {
    let edge = &mut o.cluster_mut().edge;
    let is_ready = edge.ready_since.is_some();
    let Some(connector) = edge.on_connector_gone(name) else { return };

    if connector.stamp.is_online() {
        liveness_changed(o, name, false, is_deleted && is_ready);
    }
    hub_connector_elsewhere_changed(o, name);
}

fn liveness_changed(
    o: &mut Observation<'_>,
    name: &NamespacedName,
    is_unseen: bool,
    is_ordered: bool,
) {
    let connector = o.object(Kind::Connector, name);
    let change = EdgeChange::Liveness { connector, is_unseen, is_ordered };
    o.changes.push(Change::Edge(change));
    for gateway in o.cluster().edge.gateways_of(name).to_vec() {
        target_changed(o, &gateway);
    }
}

/// A Connector of a watched hub is reported by the hop rule instead.
fn report_carried(o: &mut Observation<'_>, name: &NamespacedName, is_online: bool) {
    let is_at_hub = o.world.hubs().any(|hub| hub.hub_connectors.get(name).is_some());
    let is_owned = o.world.settings.shard.owns(name.namespace());
    if is_owned && !is_at_hub && o.cluster().is_hub_namespace(name.namespace()) {
        o.hop_passed(name, Hop::Carried, is_online);
    }
}

/// The hub Connector of an edge Connector. Where the hub is the edge itself, both are one object.
fn hub_connector_elsewhere_changed(o: &mut Observation<'_>, name: &NamespacedName) {
    let has_it = |hub: &&Cluster| hub.id != o.id && hub.hub_connectors.get(name).is_some();
    let hub_connector = o.world.hubs().find(has_it).map(|hub| hub.hub_connector(name));
    o.changed(hub_connector);
}

pub(super) fn on_proxy(o: &mut Observation<'_>, shown: &ShownObject<'_>, connectors: &[Box<str>]) {
    let named = |name| NamespacedName::new(shown.name.namespace(), name);
    let connectors = connectors.iter().map(|name| o.shared_name(named(name))).collect();
    if o.cluster_mut().edge.on_proxy(&shown.name, shown.sighting(), connectors) {
        references_changed(o, &shown.name);
    }
}

pub(super) fn on_proxy_gone(o: &mut Observation<'_>, name: &NamespacedName) {
    if o.cluster_mut().edge.on_proxy_gone(name) {
        references_changed(o, name);
    }
}

fn references_changed(o: &mut Observation<'_>, name: &NamespacedName) {
    let gateway = o.object(Kind::Gateway, name);
    o.changes.push(Change::Edge(EdgeChange::Served { gateway: gateway.clone() }));
    if let Some(target) = o.cluster().target_of(name) {
        o.changes.push(Change::Edge(EdgeChange::Unreferenced { target: target.clone() }));
        o.changes.push(Change::Edge(EdgeChange::References { gateway }));
        o.changed([Subject::Target(target)]);
    }
}

pub(super) fn on_gateway(
    o: &mut Observation<'_>,
    shown: &ShownObject<'_>,
    class: &str,
    is_programmed: bool,
) {
    let ShownObject { name, object, .. } = shown;
    let seen = Gateway::new(&object.meta, class, is_programmed, &o.world.settings.touch);
    let edge = &mut o.cluster_mut().edge;
    let updated = edge.on_gateway(name, shown.sighting(), seen.clone());
    let Some((put, is_carrier_lost)) = updated else { return };

    let gateway = o.object(Kind::Gateway, name);
    let Put { before, is_same_object } = put;
    if let Some(before) = before.as_ref().filter(|_| !is_same_object) {
        gateway_went(o, &gateway, &before.class);
    }
    let before = before.filter(|_| is_same_object);
    match &before {
        None => {
            let is_later = o.cluster().watch(Kind::Gateway).listed_since.is_some();
            let gateway = gateway.clone();
            o.changes.push(Change::Edge(EdgeChange::GatewayAppeared { gateway, is_later }));
        }
        Some(before) => gateway_changed(o, &gateway, before, &seen),
    }
    if is_carrier_lost {
        let class = Target::Class(o.id, class.into());
        o.changes.push(Change::Edge(EdgeChange::CarrierLost { class }));
    }
    target_changed(o, name);
    if let Some(before) = before {
        gateway_stamped(o, gateway, before.stamp, seen.stamp);
    }
}

pub(super) fn on_gateway_gone(o: &mut Observation<'_>, name: &NamespacedName) {
    if let Some(before) = o.cluster_mut().edge.on_gateway_gone(name) {
        gateway_went(o, &o.object(Kind::Gateway, name), &before.class);
    }
}

fn gateway_changed(o: &mut Observation<'_>, gateway: &ObjectRef, before: &Gateway, seen: &Gateway) {
    if seen.has_other_trigger(before) {
        let gateway = gateway.clone();
        o.changes.push(Change::Edge(EdgeChange::TriggerChanged { gateway }));
    }
    if seen.stamp != before.stamp {
        let gateway = gateway.clone();
        o.changes.push(Change::Edge(EdgeChange::StampChanged { gateway }));
    }
    if seen.class != before.class {
        class_left(o, &before.class);
    }
}

/// Another writer changed the stamp. The stamp depends on the last connector. The first stamp that
/// matches this connector proves that the extension server's cache has it.
fn gateway_stamped(
    o: &mut Observation<'_>,
    gateway: ObjectRef,
    before: Option<Stamp>,
    stamp: Option<Stamp>,
) {
    let is_observed = o.world.settings.touch.platform_key == PlatformKeyMode::Observe;
    if !is_observed || stamp.is_none() || stamp == before {
        return;
    }

    let edge = &mut o.cluster_mut().edge;
    let Some(connector) = edge.connectors_of(&gateway.name).last().cloned() else { return };
    let is_present = edge.stamp_of(&gateway.name) == stamp;
    let row = edge.connectors.seen_mut(&connector);
    let was_cached = row.map(|row| std::mem::replace(&mut row.is_cached, is_present));
    let is_first = is_present && was_cached == Some(false);
    let change = EdgeChange::Stamped { gateway, connector, is_present, is_first };
    o.changes.push(Change::Edge(change));
}

fn gateway_went(o: &mut Observation<'_>, gateway: &ObjectRef, class: &str) {
    o.changes.push(Change::Edge(EdgeChange::Served { gateway: gateway.clone() }));
    if o.cluster().edge.is_by_class {
        class_left(o, class);
    } else {
        let subject = Subject::Target(Target::Gateway(gateway.clone()));
        o.changes.push(Change::Gone(subject));
    }
}

/// A Gateway left a class: the class has nothing to announce for connectors of that Gateway alone.
fn class_left(o: &mut Observation<'_>, class: &str) {
    if o.cluster().edge.is_by_class {
        let target = Target::Class(o.id, class.into());
        o.changes.push(Change::Edge(EdgeChange::Unreferenced { target: target.clone() }));
        o.changed([Subject::Target(target)]);
    }
}

fn target_changed(o: &mut Observation<'_>, gateway: &NamespacedName) {
    let target = o.cluster().target_of(gateway);
    o.changed(target.map(Subject::Target));
    let gateway = o.object(Kind::Gateway, gateway);
    o.changes.push(Change::Edge(EdgeChange::Served { gateway }));
}

pub(super) fn on_watch_lost(o: &mut Observation<'_>, kind: Kind) {
    let now = o.now;
    let cluster = o.cluster_mut();
    let is_evidence = match kind {
        Kind::Connector | Kind::HttpProxy | Kind::Gateway => true,
        // In other clusters, a namespace only carries an operator's consent to removals.
        Kind::Namespace => cluster.is_combined(),
        Kind::HttpRoute => false,
    };
    if !is_evidence || !cluster.has(Role::Edge) {
        return;
    }

    cluster.edge.ready_since = None;
    // Before the first list, no change can have been missed.
    if cluster.listed_since(kind).is_some() {
        cluster.edge.blind_since.get_or_insert(now);
    }
}

/// A watch of the edge is live.
pub(super) fn on_current(o: &mut Observation<'_>, kind: Kind) {
    let cluster = o.cluster_mut();
    if !cluster.has(Role::Edge) {
        return;
    }

    cluster.edge.ready_since = cluster.all_live_since(Role::Edge.liveness_kinds());
    let is_ready = cluster.edge.ready_since.is_some();
    let outage = cluster.edge.blind_since.take_if(|_| is_ready);
    let targets = if is_ready { cluster.targets() } else { Vec::new() };
    let gateways = cluster.edge.gateways.keys();
    let gateways: Vec<_> = gateways.map(|name| cluster.object(Kind::Gateway, name)).collect();
    if let Some(since) = outage {
        let change = EdgeChange::OutageOver { edge: o.id, since };
        o.changes.push(Change::Edge(change));
    }
    o.changed(targets.into_iter().map(Subject::Target));
    let served = gateways.into_iter().map(|gateway| EdgeChange::Served { gateway });
    o.changes.extend(served.map(Change::Edge));
    if kind == Kind::Connector {
        for name in o.cluster().edge.connectors.names() {
            hub_connector_elsewhere_changed(o, &name);
        }
        if o.world.edges().all(|edge| edge.is_live(Kind::Connector)) {
            hub_connectors_nowhere_changed(o);
        }
    }
}

/// The hub Connectors that no edge has.
fn hub_connectors_nowhere_changed(o: &mut Observation<'_>) {
    let world = &o.world;
    let is_nowhere =
        |name: &&NamespacedName| world.edges().all(|edge| edge.edge.connectors.get(name).is_none());
    let of_hub = |hub: &Cluster| -> Vec<_> {
        let names = hub.hub_connectors.keys().filter(is_nowhere);
        names.map(|name| hub.hub_connector(name)).collect()
    };
    let nowhere: Vec<_> = world.hubs().flat_map(of_hub).collect();
    o.changed(nowhere);
}

pub(super) fn on_edge_left(o: &mut Observation<'_>) {
    if o.cluster().has(Role::Edge) {
        hub_connectors_nowhere_changed(o);
    }
    let targets = o.cluster().targets();
    o.changes.extend(targets.into_iter().map(Subject::Target).map(Change::Gone));
    for name in o.cluster().edge.connectors.names() {
        hub_connector_elsewhere_changed(o, &name);
    }
}
