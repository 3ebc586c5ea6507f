//! Edge Connectors, HTTPProxies and Gateways: what is announced, and what the watch cannot have
//! shown while it was lost.

use super::observation::{Observation, ShownObject};
use crate::contract::settings::PlatformKeyMode;
use crate::data::ids::{Kind, Role};
use crate::data::name::NamespacedName;
use crate::data::object_ref::ObjectRef;
use crate::data::objects::{Body, UPSTREAM_STATUS};
use crate::next::subject::{Subject, Target};
use crate::next::world::change::{Change, EdgeChange};
use crate::next::world::cluster::Cluster;
use crate::next::world::edge::{EdgeConnector, Gateway};
use crate::next::world::edge_tables::ConnectorChange;
use crate::next::world::table::{Put, Shown};
use crate::status::digest::Digest;
use crate::status::liveness;

pub(super) fn on_connector(observed: &mut Observation<'_>, shown: &ShownObject<'_>) {
    let now = observed.now;
    let seen = read_connector(observed, shown);
    let is_online = seen.is_online;
    let edge = &mut observed.cluster_mut().edge;
    let is_ready = edge.ready_since.is_some();
    let change = edge.on_connector(&shown.name, shown.sighting(), seen, now);

    match change {
        None => return,
        Some(ConnectorChange::Other) => {}
        Some(ConnectorChange::Unseen) => liveness_changed(observed, &shown.name, true, false),
        Some(ConnectorChange::Liveness) => {
            let is_ordered = shown.shown == Shown::Watched && is_ready;
            liveness_changed(observed, &shown.name, false, is_ordered);
            if is_ready {
                report_arrival(observed, &shown.name, is_online);
            }
        }
    }
    observed.changed([Subject::EdgeConnector(observed.object(Kind::Connector, &shown.name))]);
    hub_connector_elsewhere_changed(observed, &shown.name);
}

fn read_connector(observed: &Observation<'_>, shown: &ShownObject<'_>) -> EdgeConnector {
    let reading = &observed.world.reading;
    let text = shown.object.meta.annotations.get(UPSTREAM_STATUS);
    let liveness = liveness::read(text, shown.object.status());
    let name = shown.name.name();
    let part = reading.node_ids.connector_part(name, liveness.online, &liveness.node_id);
    let keeps_node_id = reading.touch.platform_key == PlatformKeyMode::Write;

    EdgeConnector {
        annotation: text.and_then(|text| annotation_digest(observed, &shown.name, text)),
        others_wrote_at: shown.object.meta.others_wrote_at(),
        ..EdgeConnector::new(liveness, part, keeps_node_id)
    }
}

/// `None` where no hub is watched, so that nobody compares it.
fn annotation_digest(
    observed: &Observation<'_>,
    name: &NamespacedName,
    text: &str,
) -> Option<Digest> {
    observed.world.hubs.first()?;
    let known = observed.cluster().edge.connectors.seen(name);
    let at_hub = observed.world.hubs().find_map(|hub| hub.hub_connectors.seen(name));
    let likely = [
        known.and_then(|connector| connector.annotation),
        at_hub.and_then(|connector| connector.annotation).map(|annotation| annotation.all),
    ];
    Some(Digest::of(text, likely.map(Option::unwrap_or_default)))
}

pub(super) fn on_connector_gone(observed: &mut Observation<'_>, name: &NamespacedName) {
    let edge = &mut observed.cluster_mut().edge;
    let is_ready = edge.ready_since.is_some();
    let Some(connector) = edge.on_connector_gone(name) else { return };

    let subject = Subject::EdgeConnector(observed.object(Kind::Connector, name));
    observed.changes.push(Change::Gone { subject, named: None });
    if connector.is_online {
        liveness_changed(observed, name, false, is_ready);
    }
    hub_connector_elsewhere_changed(observed, name);
}

fn liveness_changed(
    observed: &mut Observation<'_>,
    name: &NamespacedName,
    is_unseen: bool,
    is_ordered: bool,
) {
    let connector = observed.object(Kind::Connector, name);
    let change = EdgeChange::Liveness { connector, is_unseen, is_ordered };
    observed.changes.push(Change::Edge(change));
    for gateway in observed.cluster().edge.gateways_of(name).to_vec() {
        target_changed(observed, &gateway);
    }
}

/// A Connector that some hub has arrives when its edges say what that hub says.
fn report_arrival(observed: &mut Observation<'_>, name: &NamespacedName, is_online: bool) {
    let is_at_hub = observed.world.hub_connector_of(name).is_some();
    if !is_at_hub && observed.cluster().is_hub_namespace(name.namespace()) {
        let connector = observed.object(Kind::Connector, name);
        observed.changes.push(Change::Edge(EdgeChange::Arrived { connector, is_online }));
    }
}

/// The hub Connector that an edge Connector comes from. Where the hub is the edge itself, both
/// are one object.
fn hub_connector_elsewhere_changed(observed: &mut Observation<'_>, name: &NamespacedName) {
    let has_it = |hub: &&Cluster| hub.id != observed.id && hub.hub_connectors.get(name).is_some();
    let hub_connector = observed.world.hubs().find(has_it).map(|hub| hub.hub_connector(name));
    observed.changed(hub_connector);
}

pub(super) fn on_proxy(observed: &mut Observation<'_>, shown: &ShownObject<'_>) {
    let Body::HttpProxy { connectors } = &shown.object.body else { return };
    let named = |name| NamespacedName::new(shown.name.namespace(), name);
    let connectors = connectors.iter().map(|name| observed.shared_name(named(name))).collect();
    if observed.cluster_mut().edge.on_proxy(&shown.name, shown.sighting(), connectors) {
        references_changed(observed, &shown.name);
    }
}

pub(super) fn on_proxy_gone(observed: &mut Observation<'_>, name: &NamespacedName) {
    if observed.cluster_mut().edge.on_proxy_gone(name) {
        references_changed(observed, name);
    }
}

fn references_changed(observed: &mut Observation<'_>, name: &NamespacedName) {
    let gateway = observed.object(Kind::Gateway, name);
    if let Some(target) = observed.cluster().edge.target_of(&gateway) {
        observed.changes.push(Change::Edge(EdgeChange::Unreferenced { target: target.clone() }));
        observed.changes.push(Change::Edge(EdgeChange::References { gateway }));
        observed.changed([Subject::Target(target)]);
    }
}

pub(super) fn on_gateway(observed: &mut Observation<'_>, shown: &ShownObject<'_>) {
    let ShownObject { name, object, .. } = shown;
    let Body::Gateway { class, is_programmed } = &object.body else { return };
    let seen = Gateway::new(&object.meta, class, *is_programmed, &observed.world.reading.touch);
    let cluster = observed.cluster_mut();
    let Some((put, is_carrier_lost)) = cluster.edge.on_gateway(name, shown.sighting(), seen) else {
        return;
    };

    let gateway = observed.object(Kind::Gateway, name);
    let before = match put {
        Put::New => None,
        Put::Replaced(before) => {
            gateway_went(observed, &gateway, &before.class);
            None
        }
        Put::Changed(before) => Some(before),
    };
    match &before {
        None => gateway_appeared(observed, gateway.clone()),
        Some(before) => gateway_changed(observed, gateway.clone(), before),
    }
    if is_carrier_lost {
        let class = Target::Class(observed.id, class.clone());
        observed.changes.push(Change::Edge(EdgeChange::CarrierLost { class }));
    }
    target_changed(observed, name);
    if let Some(before) = before {
        gateway_stamped(observed, gateway, &before);
    }
}

pub(super) fn on_gateway_gone(observed: &mut Observation<'_>, name: &NamespacedName) {
    if let Some(before) = observed.cluster_mut().edge.on_gateway_gone(name) {
        gateway_went(observed, &observed.object(Kind::Gateway, name), &before.class);
    }
}

fn gateway_appeared(observed: &mut Observation<'_>, gateway: ObjectRef) {
    let is_later = observed.cluster().watch(Kind::Gateway).listed_since().is_some();
    observed.changes.push(Change::Edge(EdgeChange::GatewayAppeared { gateway, is_later }));
}

fn gateway_changed(observed: &mut Observation<'_>, gateway: ObjectRef, before: &Gateway) {
    let Some(seen) = observed.cluster().edge.gateways.seen(&gateway.name) else { return };
    let has_left = seen.class != before.class;
    if seen.has_other_trigger(before) {
        observed.changes.push(Change::Edge(EdgeChange::TriggerChanged { gateway }));
    }
    if has_left {
        class_left(observed, &before.class);
    }
}

/// Another writer changed the stamp. It is about the last connector, and the first one that
/// says what that connector says shows that the extension server's cache has it.
fn gateway_stamped(observed: &mut Observation<'_>, gateway: ObjectRef, before: &Gateway) {
    let is_observed = observed.world.reading.touch.platform_key == PlatformKeyMode::Observe;
    let edge = &mut observed.cluster_mut().edge;
    let stamp = edge.gateways.seen(&gateway.name).and_then(|gateway| gateway.stamp);
    if !is_observed || stamp.is_none() || stamp == before.stamp {
        return;
    }

    let Some(connector) = edge.connectors_of(&gateway.name).last().cloned() else { return };
    let is_present = edge.stamp_of(&gateway.name) == stamp;
    let row = edge.connectors.seen_mut(&connector);
    let was_cached = row.map(|row| std::mem::replace(&mut row.is_cached, is_present));
    let is_first = is_present && was_cached == Some(false);
    let change = EdgeChange::Stamped { gateway, connector, is_present, is_first };
    observed.changes.push(Change::Edge(change));
}

fn gateway_went(observed: &mut Observation<'_>, gateway: &ObjectRef, class: &str) {
    if observed.cluster().edge.is_by_class {
        class_left(observed, class);
    } else {
        let subject = Subject::Target(Target::Gateway(gateway.clone()));
        observed.changes.push(Change::Gone { subject, named: None });
    }
}

/// A Gateway left a class, which has nothing to announce for connectors of that one alone.
fn class_left(observed: &mut Observation<'_>, class: &str) {
    if observed.cluster().edge.is_by_class {
        let target = Target::Class(observed.id, class.into());
        observed.changes.push(Change::Edge(EdgeChange::Unreferenced { target: target.clone() }));
        observed.changed([Subject::Target(target)]);
    }
}

fn target_changed(observed: &mut Observation<'_>, gateway: &NamespacedName) {
    let target = observed.cluster().edge.target_of(&observed.object(Kind::Gateway, gateway));
    observed.changed(target.map(Subject::Target));
}

pub(super) fn on_watch_lost(observed: &mut Observation<'_>, kind: Kind) {
    let now = observed.now;
    let cluster = observed.cluster_mut();
    let is_evidence = match kind {
        Kind::Connector | Kind::HttpProxy | Kind::Gateway => true,
        // Elsewhere namespaces only say what a person agreed to.
        Kind::Namespace => cluster.is_combined(),
        Kind::HttpRoute => false,
    };
    if !is_evidence || !cluster.has(Role::Edge) {
        return;
    }

    cluster.edge.ready_since = None;
    // Where nothing was ever listed, nothing can have changed unseen.
    if cluster.listed_since(kind).is_some() {
        cluster.edge.blind_since.get_or_insert(now);
    }
}

/// A list of the edge is complete.
pub(super) fn on_current(observed: &mut Observation<'_>, kind: Kind) {
    let cluster = observed.cluster_mut();
    if !cluster.has(Role::Edge) {
        return;
    }

    cluster.edge.ready_since = cluster.all_live_since(Role::Edge.liveness_kinds());
    if cluster.edge.ready_since.is_some() {
        let outage = cluster.edge.blind_since.take();
        let targets = cluster.edge.targets(cluster.id);
        if let Some(since) = outage {
            let change = EdgeChange::OutageOver { edge: observed.id, since };
            observed.changes.push(Change::Edge(change));
        }
        observed.changed(targets.into_iter().map(Subject::Target));
    }
    if kind == Kind::Connector {
        for name in connectors(observed) {
            hub_connector_elsewhere_changed(observed, &name);
        }
    }
}

/// The cluster leaves the run.
pub(super) fn on_edge_left(observed: &mut Observation<'_>) {
    let targets = observed.cluster().edge.targets(observed.id);
    let gone = |subject| Change::Gone { subject, named: None };
    observed.changes.extend(targets.into_iter().map(Subject::Target).map(gone));
    for name in connectors(observed) {
        let subject = Subject::EdgeConnector(observed.object(Kind::Connector, &name));
        observed.changes.push(gone(subject));
        hub_connector_elsewhere_changed(observed, &name);
    }
}

fn connectors(observed: &Observation<'_>) -> Vec<NamespacedName> {
    let connectors = observed.cluster().edge.connectors.iter();
    connectors.map(|(name, _)| name.clone()).collect()
}
