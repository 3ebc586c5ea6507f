//! Upstream Connectors and Gateways: what they say, and who names them.

use super::Observation;
use crate::data::ids::{Kind, ResourceVersion, Role, Uid};
use crate::data::name::NamespacedName;
use crate::data::objects::Object;
use crate::next::subject::Subject;
use crate::next::world::change::{Change, HubChange, Report};
use crate::next::world::hub::UpstreamRef;
use crate::next::world::table::{Shown, Sighting};
use crate::next::world::upstream::StatusChange;

pub(super) fn on_connector(
    observed: &mut Observation<'_>,
    name: &NamespacedName,
    object: &Object,
    shown: Shown,
) -> Option<()> {
    let at = observed.upstream_ref(name)?;
    let sighting = observed.sighting(object, shown)?.with(()).without_uid();
    let now = observed.now;
    let is_new = observed.cluster()?.upstream_connectors.get(name).is_none();
    let is_before_restore =
        is_new && observed.world.links.get(&at).is_some_and(|link| link.is_before_restore);

    let row = observed.cluster_mut()?.upstream_connectors.refresh(name, sighting)?;
    row.is_before_restore |= is_before_restore;
    let was_before_restore = row.is_before_restore;
    row.is_before_restore &= shown == Shown::Listed;
    let change = row.on_seen(object, shown, now);
    let is_online = row.was_online();
    let is_settled = was_before_restore && !row.is_before_restore;

    if is_new && observed.world.counts_of(&at.cluster).connectors == 0 {
        observed.changes.push(Change::NamingChanged { upstream: at.cluster.clone() });
    }
    if change != StatusChange::None || is_settled {
        report_status(observed, &at, change, is_online);
        upstream_changed(observed, &at);
    }
    Some(())
}

fn report_status(
    observed: &mut Observation<'_>,
    at: &UpstreamRef,
    change: StatusChange,
    is_online: bool,
) -> Option<()> {
    let cluster = observed.cluster()?;
    if !cluster.is_upstream_namespace(at.name.namespace()) {
        return None;
    }

    let is_live = cluster.is_live(Kind::Connector);
    let UpstreamRef { cluster, name: connector } = at.clone();
    let report = match change {
        StatusChange::Changed if is_live => Report::UpstreamSays { cluster, connector, is_online },
        StatusChange::Unreadable => Report::StatusUnreadable { cluster, connector },
        StatusChange::Changed | StatusChange::None => return None,
    };
    observed.changes.push(Change::Report(report));
    Some(())
}

pub(super) fn on_connector_gone(
    observed: &mut Observation<'_>,
    name: &NamespacedName,
    is_deleted: bool,
) -> Option<()> {
    let at = observed.upstream_ref(name)?;
    let row = observed.cluster_mut()?.upstream_connectors.remove(name);
    observed.world.on_upstream_absent(&at, is_deleted, observed.now);

    if row.is_some_and(|row| row.seen.was_online()) {
        let UpstreamRef { cluster, name: connector } = at.clone();
        let report = Report::UpstreamSays { cluster, connector, is_online: false };
        observed.changes.push(Change::Report(report));
    }
    observed.changes.push(Change::NamingChanged { upstream: at.cluster.clone() });
    upstream_changed(observed, &at);
    Some(())
}

pub(super) fn on_gateway(observed: &mut Observation<'_>, name: &NamespacedName) -> Option<()> {
    let at = observed.upstream_ref(name).filter(|_| observed.has_orphans())?;
    let cluster = observed.cluster_mut()?;
    let is_new = cluster.upstream_gateways.get(name).is_none();
    let list = cluster.watch(Kind::Gateway).lists;
    cluster.upstream_gateways.refresh(name, Sighting::anonymous(list));
    if is_new {
        children_changed(observed, &at);
    }
    Some(())
}

pub(super) fn on_gateway_gone(observed: &mut Observation<'_>, name: &NamespacedName) -> Option<()> {
    let at = observed.upstream_ref(name)?;
    observed.cluster_mut()?.upstream_gateways.remove(name)?;
    children_changed(observed, &at);
    Some(())
}

/// What exists and cannot be read is not missing, and says nothing.
pub(super) fn on_unreadable(
    observed: &mut Observation<'_>,
    kind: Kind,
    name: &NamespacedName,
) -> Option<()> {
    let at = observed.upstream_ref(name)?;
    match kind {
        Kind::Connector => {
            let cluster = observed.cluster_mut()?;
            let list = cluster.watch(kind).lists;
            let rows = &mut cluster.upstream_connectors;
            if rows.get(name).is_none() {
                rows.refresh(name, Sighting::anonymous(list));
            }
            rows.seen_mut(name)?.on_unreadable();
            upstream_changed(observed, &at);
        }
        Kind::Gateway => {
            on_gateway(observed, name);
            observed.routes_to_this_changed();
        }
        Kind::Namespace => {
            observed.routes_to_this_changed();
        }
        Kind::HttpProxy | Kind::HttpRoute => {}
    }
    Some(())
}

/// Connectors, Gateways or namespaces of the upstream are all in the tables.
pub(super) fn on_current(observed: &mut Observation<'_>, kind: Kind) -> Option<()> {
    let upstream = observed.upstream()?;
    let name = upstream.name.clone();
    let has_connectors = !upstream.upstream_connectors.is_empty();
    if !matches!(kind, Kind::Connector | Kind::Gateway | Kind::Namespace) {
        return None;
    }

    if has_connectors && observed.world.counts_of(&name).connectors == 0 {
        observed.changes.push(Change::NamingChanged { upstream: name.clone() });
    }
    if kind != Kind::Gateway {
        let linked: Vec<_> = observed.world.linked_to(&name).cloned().collect();
        observed.changed(linked.into_iter().map(Subject::HubConnector));
    }
    observed.routes_to_this_changed()
}

/// What the cluster shows may be old, and what it does not show may be lost, not deleted.
pub(super) fn on_restored(observed: &mut Observation<'_>) -> Option<()> {
    let now = observed.now;
    let upstream = observed.tier(Role::Upstream)?;
    let cluster = upstream.name.clone();
    let is_first = upstream.restored_at.replace(now).is_none();
    upstream.upstream_connectors.all_seen_mut().for_each(|connector| connector.on_restored());
    observed.world.on_links_restored(&cluster);

    let linked: Vec<_> = observed.world.linked_to(&cluster).cloned().collect();
    observed.changed(linked.into_iter().map(Subject::HubConnector));
    if is_first {
        observed.changes.push(Change::Report(Report::Restored { cluster }));
        observed.routes_to_this_changed();
    }
    Some(())
}

fn upstream_changed(observed: &mut Observation<'_>, at: &UpstreamRef) {
    for hub_connector in observed.world.linked(at).to_vec() {
        let change = HubChange::UpstreamChanged { at: hub_connector.clone() };
        observed.changes.push(Change::Hub(change));
        observed.changed([Subject::HubConnector(hub_connector)]);
    }
}

/// A Gateway came or went.
fn children_changed(observed: &mut Observation<'_>, at: &UpstreamRef) {
    let routes = observed.world.routes_of(at).to_vec();
    observed.changed(routes.into_iter().map(Subject::Route));
}

impl Sighting<()> {
    /// Only that the object exists counts.
    fn anonymous(list: u32) -> Self {
        let version = ResourceVersion::Absent;
        Self { uid: Uid::Absent, version, shown: Shown::Listed, list, seen: () }
    }

    /// No rule reads the uid, and it takes 24 bytes.
    fn without_uid(self) -> Self {
        Self { uid: Uid::Absent, ..self }
    }
}
