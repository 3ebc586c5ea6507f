//! Edge Connectors, HTTPProxies and Gateways: what is announced, and what the watch cannot have
//! shown while it was lost.

use super::Observation;
use crate::contract::settings::PlatformKeyMode;
use crate::data::ids::{Kind, Role};
use crate::data::name::NamespacedName;
use crate::data::objects::{Body, Object, UPSTREAM_STATUS};
use crate::data::time::UnixMillis;
use crate::next::subject::{Subject, Target};
use crate::next::world::change::{Change, EdgeChange};
use crate::next::world::cluster::Cluster;
use crate::next::world::edge::{ConnectorChange, ConnectorFacts, EdgeTables, Gateway};
use crate::next::world::table::{Put, Shown};
use crate::status::digest::Digest;
use crate::status::liveness::{self, Liveness};

pub(super) fn on_connector(
    observed: &mut Observation<'_>,
    name: &NamespacedName,
    object: &Object,
    shown: Shown,
) -> Option<()> {
    observed.tier(Role::Edge)?;
    let now = observed.now;
    let keeps_node_id = observed.world.reading.touch.platform_key == PlatformKeyMode::Write;
    let facts = read_connector(observed, name, object);
    let is_online = facts.is_online;
    let sighting = observed.sighting(object, shown)?;
    let edge = &mut observed.cluster_mut()?.edge;
    let change = edge.on_connector(name, sighting, facts, keeps_node_id, now);
    let is_ready = edge.ready_since.is_some();

    let is_unseen = change == ConnectorChange::Unseen;
    match change {
        ConnectorChange::Older => return None,
        ConnectorChange::Other => {}
        ConnectorChange::Liveness | ConnectorChange::Unseen => {
            let is_ordered = shown == Shown::Watched && is_ready;
            liveness_changed(observed, name, is_unseen, is_ordered);
        }
    }
    if change == ConnectorChange::Liveness && is_ready {
        report_arrival(observed, name, is_online);
    }
    observed.changed([Subject::EdgeConnector(observed.object(Kind::Connector, name))]);
    hub_connector_elsewhere_changed(observed, name);
    Some(())
}

fn read_connector(
    observed: &Observation<'_>,
    name: &NamespacedName,
    object: &Object,
) -> ConnectorFacts {
    let text = object.meta.annotations.get(UPSTREAM_STATUS);
    let Liveness { online, node_id } = liveness::read(text, object.status());
    let part = observed.world.reading.node_ids.connector_part(name.name(), online, &node_id);
    ConnectorFacts {
        annotation: text.and_then(|text| annotation_digest(observed, name, text)),
        is_online: online,
        node_id,
        part,
        others_wrote_at: object.meta.others_wrote_at(),
    }
}

/// `None` where no hub is watched, so that nobody compares it.
fn annotation_digest(
    observed: &Observation<'_>,
    name: &NamespacedName,
    text: &str,
) -> Option<Digest> {
    observed.world.hubs.first()?;
    let known = observed.cluster()?.edge.connectors.get(name);
    let at_hub = observed.world.hubs().find_map(|hub| hub.hub_connectors.get(name));
    let likely = [
        known.and_then(|row| row.seen.annotation),
        at_hub.and_then(|row| row.seen.annotation.map(|annotation| annotation.all)),
    ];
    Some(Digest::of(text, likely.map(Option::unwrap_or_default)))
}

pub(super) fn on_connector_gone(
    observed: &mut Observation<'_>,
    name: &NamespacedName,
) -> Option<()> {
    let edge = &mut observed.cluster_mut()?.edge;
    let is_ready = edge.ready_since.is_some();
    let row = edge.on_connector_gone(name)?;

    let subject = Subject::EdgeConnector(observed.object(Kind::Connector, name));
    observed.changes.push(Change::Gone { subject, named: None });
    if row.seen.is_online {
        liveness_changed(observed, name, false, is_ready);
    }
    hub_connector_elsewhere_changed(observed, name)
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
    let gateways = edge(observed).map(|edge| edge.gateways_of(name).to_vec());
    for gateway in gateways.unwrap_or_default() {
        target_changed(observed, &gateway);
    }
}

/// A Connector that some hub has arrives when its edges say what that hub says.
fn report_arrival(
    observed: &mut Observation<'_>,
    name: &NamespacedName,
    is_online: bool,
) -> Option<()> {
    let is_placed = observed.cluster()?.is_hub_namespace(name.namespace());
    if is_placed && observed.world.hub_connector_of(name).is_none() {
        let connector = observed.object(Kind::Connector, name);
        observed.changes.push(Change::Edge(EdgeChange::Arrived { connector, is_online }));
    }
    Some(())
}

/// The hub Connector that an edge Connector comes from. Where the hub is the edge itself, both
/// are one object.
pub(super) fn hub_connector_elsewhere_changed(
    observed: &mut Observation<'_>,
    name: &NamespacedName,
) -> Option<()> {
    let has_it = |hub: &&Cluster| hub.id != observed.id && hub.hub_connectors.get(name).is_some();
    let subject = observed.world.hubs().find(has_it)?.hub_connector(name);
    observed.changed([subject]);
    Some(())
}

pub(super) fn on_proxy(
    observed: &mut Observation<'_>,
    name: &NamespacedName,
    object: &Object,
    shown: Shown,
) -> Option<()> {
    observed.tier(Role::Edge)?;
    let Body::HttpProxy { connectors } = &object.body else { return None };
    let sighting = observed.sighting(object, shown)?;
    let namespace = name.namespace();
    let tables = &observed.cluster()?.edge;
    let connectors = connectors.iter().map(|name| tables.connector_named(namespace, name));
    let connectors = connectors.collect();
    if observed.cluster_mut()?.edge.on_proxy(name, sighting, connectors) {
        references_changed(observed, name);
    }
    Some(())
}

pub(super) fn on_proxy_gone(observed: &mut Observation<'_>, name: &NamespacedName) -> Option<()> {
    if observed.cluster_mut()?.edge.on_proxy_gone(name) {
        references_changed(observed, name);
    }
    Some(())
}

fn references_changed(observed: &mut Observation<'_>, name: &NamespacedName) -> Option<()> {
    let gateway = observed.object(Kind::Gateway, name);
    let target = edge(observed)?.target_of(&gateway)?;
    observed.changes.push(Change::Edge(EdgeChange::Unreferenced { target: target.clone() }));
    observed.changes.push(Change::Edge(EdgeChange::References { gateway }));
    observed.changed([Subject::Target(target)]);
    Some(())
}

pub(super) fn on_gateway(
    observed: &mut Observation<'_>,
    name: &NamespacedName,
    object: &Object,
    shown: Shown,
) -> Option<()> {
    observed.tier(Role::Edge)?;
    let Body::Gateway { class, is_programmed } = &object.body else { return None };
    let seen = Gateway::new(&object.meta, class, *is_programmed, &observed.world.reading.touch);
    let sighting = observed.sighting(object, shown)?.with(seen);
    let change = observed.cluster_mut()?.edge.on_gateway(name, sighting);
    let before = match change.before {
        Put::Older => return None,
        Put::New => None,
        Put::Replaced(before) => {
            gateway_went(observed, name, &before.class);
            None
        }
        Put::Changed(before) => Some(before),
    };

    gateway_shown(observed, name, before.as_ref());
    if change.is_carrier_lost {
        let class = Target::Class(observed.id, class.clone());
        observed.changes.push(Change::Edge(EdgeChange::CarrierLost { class }));
    }
    target_changed(observed, name);
    gateway_stamped(observed, name, &before?)
}

pub(super) fn on_gateway_gone(observed: &mut Observation<'_>, name: &NamespacedName) -> Option<()> {
    let row = observed.cluster_mut()?.edge.on_gateway_gone(name)?;
    gateway_went(observed, name, &row.seen.class)
}

/// `before`: the same object before.
fn gateway_shown(
    observed: &mut Observation<'_>,
    name: &NamespacedName,
    before: Option<&Gateway>,
) -> Option<()> {
    let gateway = observed.object(Kind::Gateway, name);
    let Some(before) = before else {
        let is_later = observed.cluster()?.watch(Kind::Gateway).listed_since().is_some();
        observed.changes.push(Change::Edge(EdgeChange::GatewayAppeared { gateway, is_later }));
        return Some(());
    };

    let seen = &edge(observed)?.gateways.get(name)?.seen;
    let has_left = seen.class != before.class;
    if seen.has_other_trigger(before) {
        observed.changes.push(Change::Edge(EdgeChange::TriggerChanged { gateway }));
    }
    if has_left {
        class_left(observed, &before.class);
    }
    Some(())
}

/// Another writer changed the stamp. It is about the last connector, and the first one that
/// says what that connector says shows that the extension server's cache has it.
fn gateway_stamped(
    observed: &mut Observation<'_>,
    name: &NamespacedName,
    before: &Gateway,
) -> Option<()> {
    let is_observed = observed.world.reading.touch.platform_key == PlatformKeyMode::Observe;
    let stamp = edge(observed)?.gateways.get(name)?.seen.stamp.filter(|_| is_observed)?;
    if before.stamp == Some(stamp) {
        return None;
    }

    let gateway = observed.object(Kind::Gateway, name);
    let edge = &mut observed.cluster_mut()?.edge;
    let connector = edge.connectors_of(name).last()?.clone();
    let is_present = edge.stamp_of(name) == Some(stamp);
    let row = edge.connectors.seen_mut(&connector);
    let was_cached = row.map(|row| std::mem::replace(&mut row.is_cached, is_present));
    let is_first = is_present && was_cached == Some(false);
    let change = EdgeChange::Stamped { gateway, connector, is_present, is_first };
    observed.changes.push(Change::Edge(change));
    Some(())
}

fn gateway_went(observed: &mut Observation<'_>, name: &NamespacedName, class: &str) -> Option<()> {
    if edge(observed)?.is_by_class {
        return class_left(observed, class);
    }
    let subject = Subject::Target(Target::Gateway(observed.object(Kind::Gateway, name)));
    observed.changes.push(Change::Gone { subject, named: None });
    Some(())
}

/// A Gateway left a class, which has nothing to announce for connectors of that one alone.
fn class_left(observed: &mut Observation<'_>, class: &str) -> Option<()> {
    if edge(observed)?.is_by_class {
        let target = Target::Class(observed.id, class.into());
        observed.changes.push(Change::Edge(EdgeChange::Unreferenced { target: target.clone() }));
        observed.changed([Subject::Target(target)]);
    }
    Some(())
}

fn target_changed(observed: &mut Observation<'_>, gateway: &NamespacedName) -> Option<()> {
    let target = edge(observed)?.target_of(&observed.object(Kind::Gateway, gateway))?;
    observed.changed([Subject::Target(target)]);
    Some(())
}

fn edge<'o>(observed: &'o Observation<'_>) -> Option<&'o EdgeTables> {
    observed.cluster().map(|cluster| &cluster.edge)
}

pub(super) fn on_watch_lost(observed: &mut Observation<'_>, kind: Kind) -> Option<()> {
    let now = observed.now;
    let cluster = observed.tier(Role::Edge)?;
    let is_evidence = match kind {
        Kind::Connector | Kind::HttpProxy | Kind::Gateway => true,
        // Elsewhere namespaces only say what a person agreed to.
        Kind::Namespace => cluster.is_combined(),
        Kind::HttpRoute => false,
    };
    if !is_evidence {
        return None;
    }

    cluster.edge.ready_since = None;
    // Where nothing was ever listed, nothing can have changed unseen.
    if cluster.listed_since(kind).is_some() {
        cluster.edge.blind_since.get_or_insert(now);
    }
    Some(())
}

/// A list of the edge is complete.
pub(super) fn on_current(observed: &mut Observation<'_>, kind: Kind) -> Option<()> {
    let cluster = observed.tier(Role::Edge)?;
    cluster.edge.ready_since = cluster.all_live_since(Role::Edge.liveness_kinds());
    if cluster.edge.ready_since.is_some() {
        let outage = cluster.edge.blind_since.take();
        let targets = cluster.edge.targets(cluster.id);
        edge_is_ready(observed, outage, targets);
    }
    if kind == Kind::Connector {
        edge_connectors_current(observed);
    }
    Some(())
}

fn edge_is_ready(
    observed: &mut Observation<'_>,
    outage_since: Option<UnixMillis>,
    targets: Vec<Target>,
) {
    if let Some(since) = outage_since {
        observed.changes.push(Change::Edge(EdgeChange::OutageOver { edge: observed.id, since }));
    }
    observed.changed(targets.into_iter().map(Subject::Target));
}

fn edge_connectors_current(observed: &mut Observation<'_>) -> Option<()> {
    let names: Vec<_> = edge(observed)?.connectors.keys().cloned().collect();
    for name in names {
        hub_connector_elsewhere_changed(observed, &name);
    }
    Some(())
}

impl EdgeTables {
    /// The name of a Connector with the text that its table holds.
    fn connector_named(&self, namespace: &str, name: &str) -> NamespacedName {
        let name = NamespacedName::new(namespace, name);
        self.connectors.key(&name).cloned().unwrap_or(name)
    }
}
