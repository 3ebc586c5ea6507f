//! Namespaces: their uid says which upstream namespace a hub namespace was made for, and in a
//! combined cluster they say which tier an object belongs to.

use super::Observation;
use crate::data::ids::{Kind, Uid};
use crate::data::object_ref::ObjectRef;
use crate::data::objects::Object;
use crate::data::time::UnixMillis;
use crate::next::subject::Subject;
use crate::next::world::cluster::Namespace;
use crate::next::world::table::{Put, Shown};

pub(super) fn on_shown(
    observed: &mut Observation<'_>,
    object: &Object,
    shown: Shown,
) -> Option<()> {
    let name = &*object.meta.name;
    let seen = Namespace::new(&object.meta);
    let sighting = observed.sighting(object, shown)?.with(seen);
    let uid = sighting.uid.clone();

    let put = observed.cluster_mut()?.namespaces.put(&name.into(), sighting);
    let is_same_object = matches!(put, Put::Changed(_));
    let before = match put {
        Put::Older => return None,
        Put::New => None,
        Put::Replaced(before) | Put::Changed(before) => Some(before),
    };

    if !is_same_object || before.is_some_and(|before| before.is_hub != seen.is_hub) {
        // Milo gives a project that is made again the uids of the former.
        set_deleted_at(observed, name, &uid, None);
        on_changed(observed, name);
    }
    if before.is_some_and(|before| before.allows_removals) != seen.allows_removals {
        hub_connectors_in_changed(observed, name);
    }
    Some(())
}

pub(super) fn on_gone(observed: &mut Observation<'_>, name: &str, is_deleted: bool) -> Option<()> {
    let row = observed.cluster_mut()?.namespaces.remove(name);
    if let Some(row) = row.filter(|_| is_deleted) {
        set_deleted_at(observed, name, &row.uid, Some(observed.now));
    }
    on_changed(observed, name)
}

/// The namespace held what its hub Connectors name, if its uid is in the name of theirs.
fn set_deleted_at(
    observed: &mut Observation<'_>,
    name: &str,
    uid: &Uid,
    deleted_at: Option<UnixMillis>,
) -> Option<()> {
    let hub_namespace = format!("ns-{}", uid.text()?);
    let linked = observed.world.linked_in(&observed.upstream()?.name, name);
    let is_copy = |at: &&ObjectRef| at.name.namespace() == hub_namespace;
    for at in linked.filter(is_copy).cloned().collect::<Vec<_>>() {
        let hub = observed.world.clusters.get_mut(&at.cluster)?;
        hub.hub_connectors.seen_mut(&at.name)?.namespace_deleted_at = deleted_at;
    }
    Some(())
}

/// A namespace became known, changed its uid or its tier, or went.
fn on_changed(observed: &mut Observation<'_>, name: &str) -> Option<()> {
    let mut subjects = Vec::new();
    if let Some(upstream) = observed.upstream() {
        let connectors = observed.world.linked_in(&upstream.name, name).cloned();
        subjects.extend(connectors.map(Subject::HubConnector));
        let routes = observed.world.routes_in(&upstream.name, name).cloned();
        subjects.extend(routes.map(Subject::Route));
    }
    if observed.cluster()?.is_combined() {
        subjects.extend(subjects_in(observed, name));
    }
    observed.changed(subjects);
    Some(())
}

/// What lives in a namespace of a combined cluster.
fn subjects_in(observed: &Observation<'_>, namespace: &str) -> Vec<Subject> {
    let Some(cluster) = observed.cluster() else { return Vec::new() };
    let connectors = cluster.hub_connectors.in_namespace(namespace);
    let routes = cluster.routes.in_namespace(namespace);
    let gateways = cluster.edge.gateways.in_namespace(namespace);

    let gateways = gateways.map(|(name, _)| cluster.object(Kind::Gateway, name));
    let targets = gateways.filter_map(|gateway| cluster.edge.target_of(&gateway));
    connectors
        .map(|(name, _)| cluster.hub_connector(name))
        .chain(routes.map(|(name, _)| cluster.route(name)))
        .chain(targets.map(Subject::Target))
        .collect()
}

/// A person agreed to removals in a hub namespace, or no longer does.
fn hub_connectors_in_changed(observed: &mut Observation<'_>, namespace: &str) -> Option<()> {
    let cluster = observed.cluster()?;
    let connectors = cluster.hub_connectors.in_namespace(namespace);
    let subjects: Vec<_> = connectors.map(|(name, _)| cluster.hub_connector(name)).collect();
    observed.changed(subjects);
    Some(())
}
