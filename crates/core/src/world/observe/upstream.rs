//! Upstream Connectors and Gateways: their status, and the hub objects that name them.

use super::observation::{Observation, ShownObject};
use crate::contract::cause::Hop;
use crate::contract::settings::OrphanMode;
use crate::data::ids::{Kind, NamespacedName, Role};
use crate::subject::Subject;
use crate::world::change::Change;
use crate::world::hub::UpstreamRef;
use crate::world::table::Shown;
use crate::world::upstream::StatusChange;

pub(super) fn on_connector(o: &mut Observation<'_>, shown: &ShownObject<'_>) {
    let at = o.upstream_ref(&shown.name);
    let now = o.now;
    let is_new = o.cluster().upstream_connectors.get(&at.name).is_none();
    let link = o.world.links.get(&at);
    let is_restored = is_new && link.is_some_and(|link| link.is_before_restore);

    let connectors = &mut o.cluster_mut().upstream_connectors;
    let Some(row) = connectors.refresh(&at.name, shown.sighting()) else { return };
    let was_unreadable = row.is_unreadable;
    let was_before_restore = row.is_before_restore || is_restored;
    row.is_before_restore = was_before_restore && shown.shown == Shown::Listed;
    let is_confirmed = was_before_restore && !row.is_before_restore;
    let change = row.on_seen(shown.object, shown.shown, now);
    let is_online = row.was_online();
    if was_unreadable && !row.is_unreadable {
        let at = o.cluster().object(Kind::Connector, &at.name);
        o.changes.push(Change::Readable { at });
    }

    if is_new && !is_named(o) {
        naming_changed(o);
    }
    if change != StatusChange::None || is_confirmed {
        report_status(o, &at, change, is_online);
        upstream_changed(o, &at);
    }
}

fn report_status(o: &mut Observation<'_>, at: &UpstreamRef, change: StatusChange, is_online: bool) {
    let cluster = o.cluster();
    if !cluster.is_upstream_namespace(at.name.namespace()) {
        return;
    }

    match change {
        StatusChange::Changed if cluster.is_live(Kind::Connector) => {
            o.hop_passed(&at.name, Hop::Upstream, is_online);
        }
        StatusChange::Unreadable => {
            let at = cluster.object(Kind::Connector, &at.name);
            o.changes.push(Change::Unreadable { at });
        }
        StatusChange::Changed | StatusChange::None => {}
    }
}

pub(super) fn on_connector_gone(o: &mut Observation<'_>, name: &NamespacedName, is_deleted: bool) {
    let at = o.upstream_ref(name);
    let row = o.cluster_mut().upstream_connectors.remove(name);
    o.world.links.on_absent(&at, is_deleted, o.now);

    if row.as_ref().is_some_and(|row| row.seen.is_unreadable) {
        let at = o.cluster().object(Kind::Connector, name);
        o.changes.push(Change::Readable { at });
    }
    if row.is_some_and(|row| row.seen.was_online()) {
        o.hop_passed(name, Hop::Upstream, false);
    }
    naming_changed(o);
    upstream_changed(o, &at);
}

pub(super) fn on_gateway(o: &mut Observation<'_>, name: &NamespacedName) {
    let is_kept = o.world.settings.orphans.mode != OrphanMode::Off;
    if is_kept && o.cluster_mut().upstream_gateways.insert(name.clone()) {
        routes_of_changed(o, name);
    }
}

pub(super) fn on_gateway_gone(o: &mut Observation<'_>, name: &NamespacedName) {
    if o.cluster_mut().upstream_gateways.remove(name) {
        routes_of_changed(o, name);
    }
}

/// An object that exists but cannot be read is not absent, and its status is unknown.
pub(super) fn on_unreadable(o: &mut Observation<'_>, kind: Kind, name: &NamespacedName) {
    if !o.cluster().has(Role::Upstream) {
        return;
    }
    match kind {
        Kind::Connector => {
            o.cluster_mut().upstream_connectors.row(name).seen.on_unreadable();
            upstream_changed(o, &o.upstream_ref(name));
        }
        Kind::Gateway => {
            on_gateway(o, name);
            o.routes_to_this_changed();
        }
        Kind::Namespace => o.routes_to_this_changed(),
        Kind::HttpProxy | Kind::HttpRoute => {}
    }
}

/// The watch of Connectors, Gateways or namespaces of the upstream is live.
pub(super) fn on_current(o: &mut Observation<'_>, kind: Kind) {
    let upstream = o.cluster();
    let is_evidence = matches!(kind, Kind::Connector | Kind::Gateway | Kind::Namespace);
    if !is_evidence || !upstream.has(Role::Upstream) {
        return;
    }

    if o.world.is_unnamed(upstream) {
        naming_changed(o);
    }
    if kind != Kind::Gateway {
        linked_to_this_changed(o);
    }
    o.routes_to_this_changed();
}

pub(super) fn on_watch_lost(o: &mut Observation<'_>, kind: Kind) {
    let cluster = o.cluster();
    if !cluster.has(Role::Upstream) {
        return;
    }

    let upstream = cluster.name.clone();
    if matches!(kind, Kind::Gateway | Kind::Namespace) {
        o.routes_to_this_changed();
    }
    if matches!(kind, Kind::Connector | Kind::Namespace) {
        o.changes.push(Change::EvidenceLost { upstream });
    }
}

/// Objects that the cluster shows may be old, and objects that it lacks may be lost rather than
/// deleted. Each watch detects this for itself, so another one does not put Connectors in doubt that
/// their own watch shows now.
pub(super) fn on_restored(o: &mut Observation<'_>, kind: Kind) {
    let now = o.now;
    let upstream = o.cluster_mut();
    if !upstream.has(Role::Upstream) {
        return;
    }

    let cluster = upstream.name.clone();
    let is_first = upstream.restored_at.is_none();
    upstream.restored_at.get_or_insert(now);
    if kind == Kind::Connector || !upstream.is_live(Kind::Connector) {
        upstream.restored_at = Some(now);
        upstream.upstream_connectors.all_seen_mut().for_each(|connector| connector.on_restored());
        o.world.links.on_restored(&cluster);
    }
    linked_to_this_changed(o);
    if is_first {
        o.changes.push(Change::Restored { cluster });
        o.routes_to_this_changed();
    }
}

fn is_named(o: &Observation<'_>) -> bool {
    o.world.links.counts_of(&o.cluster().name).connectors > 0
}

pub(super) fn naming_changed(o: &mut Observation<'_>) {
    let upstream = o.cluster().name.clone();
    o.changes.push(Change::NamingChanged { upstream });
}

fn upstream_changed(o: &mut Observation<'_>, at: &UpstreamRef) {
    for hub_connector in o.world.links.linked(at).to_vec() {
        o.changes.push(Change::UpstreamChanged { at: hub_connector.clone() });
        o.changed([Subject::HubConnector(hub_connector)]);
    }
}

fn linked_to_this_changed(o: &mut Observation<'_>) {
    let linked = o.world.links.linked_in(&o.cluster().name, None);
    let linked: Vec<_> = linked.cloned().map(Subject::HubConnector).collect();
    o.changed(linked);
}

/// A Gateway appeared or went.
fn routes_of_changed(o: &mut Observation<'_>, gateway: &NamespacedName) {
    let routes = o.world.links.routes_of(&o.upstream_ref(gateway)).to_vec();
    o.changed(routes.into_iter().map(Subject::Route));
}
