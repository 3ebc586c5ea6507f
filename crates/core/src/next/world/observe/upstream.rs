//! Upstream Connectors and Gateways: what they say, and who names them.

use super::observation::{Observation, ShownObject};
use crate::contract::settings::OrphanMode;
use crate::data::ids::{Kind, Role};
use crate::data::name::NamespacedName;
use crate::next::subject::Subject;
use crate::next::world::change::{Change, HubChange, Report};
use crate::next::world::hub::UpstreamRef;
use crate::next::world::table::Shown;
use crate::next::world::upstream::StatusChange;

pub(super) fn on_connector(observed: &mut Observation<'_>, shown: &ShownObject<'_>) {
    let at = observed.upstream_ref(&shown.name);
    let now = observed.now;
    let is_new = observed.cluster().upstream_connectors.get(&at.name).is_none();
    let link = observed.world.links.get(&at);
    let is_restored = is_new && link.is_some_and(|link| link.is_before_restore);

    let connectors = &mut observed.cluster_mut().upstream_connectors;
    let Some(row) = connectors.refresh(&at.name, shown.sighting()) else { return };
    let was_before_restore = row.is_before_restore || is_restored;
    row.is_before_restore = was_before_restore && shown.shown == Shown::Listed;
    let is_confirmed = was_before_restore && !row.is_before_restore;
    let change = row.on_seen(shown.object, shown.shown, now);
    let is_online = row.was_online();

    if is_new && !is_named(observed) {
        naming_changed(observed);
    }
    if change != StatusChange::None || is_confirmed {
        report_status(observed, &at, change, is_online);
        upstream_changed(observed, &at);
    }
}

fn report_status(
    observed: &mut Observation<'_>,
    at: &UpstreamRef,
    change: StatusChange,
    is_online: bool,
) {
    let cluster = observed.cluster();
    if !cluster.is_upstream_namespace(at.name.namespace()) {
        return;
    }

    let is_live = cluster.is_live(Kind::Connector);
    let UpstreamRef { cluster, name: connector } = at.clone();
    let report = match change {
        StatusChange::Changed if is_live => Report::UpstreamSays { cluster, connector, is_online },
        StatusChange::Unreadable => Report::StatusUnreadable { cluster, connector },
        StatusChange::Changed | StatusChange::None => return,
    };
    observed.changes.push(Change::Report(report));
}

pub(super) fn on_connector_gone(
    observed: &mut Observation<'_>,
    name: &NamespacedName,
    is_deleted: bool,
) {
    let at = observed.upstream_ref(name);
    let row = observed.cluster_mut().upstream_connectors.remove(name);
    observed.world.links.on_absent(&at, is_deleted, observed.now);

    if row.is_some_and(|row| row.seen.was_online()) {
        let UpstreamRef { cluster, name: connector } = at.clone();
        let report = Report::UpstreamSays { cluster, connector, is_online: false };
        observed.changes.push(Change::Report(report));
    }
    naming_changed(observed);
    upstream_changed(observed, &at);
}

pub(super) fn on_gateway(observed: &mut Observation<'_>, name: &NamespacedName) {
    let is_kept = observed.world.reading.orphans.mode != OrphanMode::Off;
    if is_kept && observed.cluster_mut().upstream_gateways.insert(name.clone()) {
        routes_of_changed(observed, name);
    }
}

pub(super) fn on_gateway_gone(observed: &mut Observation<'_>, name: &NamespacedName) {
    if observed.cluster_mut().upstream_gateways.remove(name) {
        routes_of_changed(observed, name);
    }
}

/// What exists and cannot be read is not missing, and says nothing.
pub(super) fn on_unreadable(observed: &mut Observation<'_>, kind: Kind, name: &NamespacedName) {
    if !observed.cluster().has(Role::Upstream) {
        return;
    }
    match kind {
        Kind::Connector => {
            observed.cluster_mut().upstream_connectors.row(name).seen.on_unreadable();
            upstream_changed(observed, &observed.upstream_ref(name));
        }
        Kind::Gateway => {
            on_gateway(observed, name);
            observed.routes_to_this_changed();
        }
        Kind::Namespace => observed.routes_to_this_changed(),
        Kind::HttpProxy | Kind::HttpRoute => {}
    }
}

/// Connectors, Gateways or namespaces of the upstream are all in the tables.
pub(super) fn on_current(observed: &mut Observation<'_>, kind: Kind) {
    let upstream = observed.cluster();
    let is_evidence = matches!(kind, Kind::Connector | Kind::Gateway | Kind::Namespace);
    if !is_evidence || !upstream.has(Role::Upstream) {
        return;
    }

    if !upstream.upstream_connectors.is_empty() && !is_named(observed) {
        naming_changed(observed);
    }
    if kind != Kind::Gateway {
        linked_to_this_changed(observed);
    }
    observed.routes_to_this_changed();
}

pub(super) fn on_watch_lost(observed: &mut Observation<'_>, kind: Kind) {
    let cluster = observed.cluster();
    if !cluster.has(Role::Upstream) {
        return;
    }

    let upstream = cluster.name.clone();
    if matches!(kind, Kind::Gateway | Kind::Namespace) {
        observed.routes_to_this_changed();
    }
    if matches!(kind, Kind::Connector | Kind::Namespace) {
        observed.changes.push(Change::EvidenceLost { upstream });
    }
}

/// What the cluster shows may be old, and what it does not show may be lost, not deleted.
pub(super) fn on_restored(observed: &mut Observation<'_>) {
    let now = observed.now;
    let upstream = observed.cluster_mut();
    if !upstream.has(Role::Upstream) {
        return;
    }

    let cluster = upstream.name.clone();
    let is_first = upstream.restored_at.replace(now).is_none();
    upstream.upstream_connectors.all_seen_mut().for_each(|connector| connector.on_restored());
    observed.world.links.on_restored(&cluster);
    linked_to_this_changed(observed);
    if is_first {
        observed.changes.push(Change::Report(Report::Restored { cluster }));
        observed.routes_to_this_changed();
    }
}

/// Whether a hub Connector names this upstream.
fn is_named(observed: &Observation<'_>) -> bool {
    observed.world.links.counts_of(&observed.cluster().name).connectors > 0
}

fn naming_changed(observed: &mut Observation<'_>) {
    let upstream = observed.cluster().name.clone();
    observed.changes.push(Change::NamingChanged { upstream });
}

fn upstream_changed(observed: &mut Observation<'_>, at: &UpstreamRef) {
    for hub_connector in observed.world.links.linked(at).to_vec() {
        let change = HubChange::UpstreamChanged { at: hub_connector.clone() };
        observed.changes.push(Change::Hub(change));
        observed.changed([Subject::HubConnector(hub_connector)]);
    }
}

fn linked_to_this_changed(observed: &mut Observation<'_>) {
    let linked = observed.world.links.linked_to(&observed.cluster().name);
    let linked: Vec<_> = linked.cloned().map(Subject::HubConnector).collect();
    observed.changed(linked);
}

/// A Gateway came or went.
fn routes_of_changed(observed: &mut Observation<'_>, gateway: &NamespacedName) {
    let routes = observed.world.links.routes_of(&observed.upstream_ref(gateway)).to_vec();
    observed.changed(routes.into_iter().map(Subject::Route));
}
