//! Namespaces: a uid shows which upstream namespace a hub namespace was made for, and in a combined
//! cluster the namespace decides the tier of an object.

use super::observation::{Observation, ShownObject};
use super::upstream;
use crate::data::ids::{NamespacedName, Role, Uid};
use crate::data::time::UnixMillis;
use crate::subject::Subject;
use crate::world::cluster::{Cluster, Namespace};
use crate::world::table::Put;

pub(super) fn on_shown(o: &mut Observation<'_>, shown: &ShownObject<'_>) {
    let meta = &shown.object.meta;
    let seen = Namespace::new(meta);
    let namespaces = &mut o.cluster_mut().namespaces;
    let Some(put) = namespaces.put(&shown.name, shown.sighting(), seen) else { return };

    let Put { before, is_same_object } = put;
    if !is_same_object || before.is_some_and(|before| before.is_hub != seen.is_hub) {
        // Milo gives a project that is created again the uids of the former one.
        set_deleted_at(o, &meta.name, &Uid::new(&meta.uid), None);
        on_changed(o, &meta.name);
    }
    if before.is_some_and(|before| before.allows_removals) != seen.allows_removals {
        let hub_connectors = hub_connectors_in(o.cluster(), &meta.name);
        o.changed(hub_connectors);
    }
}

pub(super) fn on_gone(o: &mut Observation<'_>, name: &NamespacedName, is_deleted: bool) {
    let row = o.cluster_mut().namespaces.remove(name);
    if let Some(row) = row.filter(|_| is_deleted) {
        set_deleted_at(o, name.name(), &row.uid, Some(o.now));
    }
    on_changed(o, name.name());
}

/// Records when the namespace of the named Connectors was deleted. It is theirs if its uid is in
/// the name of the hub namespace.
fn set_deleted_at(o: &mut Observation<'_>, name: &str, uid: &Uid, deleted_at: Option<UnixMillis>) {
    let is_upstream = o.cluster().has(Role::Upstream);
    let Some(hub_namespace) = uid.hub_namespace().filter(|_| is_upstream) else { return };
    let upstream = o.cluster().name.clone();
    for at in o.world.links.linked_in(&upstream, Some(name)) {
        if at.name.namespace() == hub_namespace
            && let Some(hub) = o.world.clusters.get_mut(&at.cluster)
            && let Some(row) = hub.hub_connectors.seen_mut(&at.name)
        {
            row.namespace_deleted_at = deleted_at;
        }
    }
}

/// A namespace became known, changed its uid or its tier, or went.
fn on_changed(o: &mut Observation<'_>, name: &str) {
    if o.world.is_unnamed(o.cluster()) {
        upstream::naming_changed(o);
    }
    let cluster = o.cluster();
    let links = &o.world.links;
    let mut subjects = Vec::new();
    if cluster.has(Role::Upstream) {
        let connectors = links.linked_in(&cluster.name, Some(name));
        subjects.extend(connectors.cloned().map(Subject::HubConnector));
        let routes = links.routes_in(&cluster.name, Some(name));
        subjects.extend(routes.cloned().map(Subject::Route));
    }
    if cluster.is_combined() {
        subjects.extend(hub_connectors_in(cluster, name));
        subjects.extend(cluster.routes.in_namespace(name).map(|name| cluster.route(name)));
        let gateways = cluster.edge.gateways.in_namespace(name);
        let targets = gateways.filter_map(|gateway| cluster.target_of(gateway));
        subjects.extend(targets.map(Subject::Target));
    }
    o.changed(subjects);
}

fn hub_connectors_in(cluster: &Cluster, namespace: &str) -> Vec<Subject> {
    let names = cluster.hub_connectors.in_namespace(namespace);
    names.map(|name| cluster.hub_connector(name)).collect()
}
