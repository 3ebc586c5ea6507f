//! The handling of one event of a cluster, with what every tier needs for it.

use std::sync::Arc;

use crate::contract::cause::Hop;
use crate::data::ids::{Kind, NamespacedName};
use crate::data::object_ref::{ClusterId, ObjectRef};
use crate::data::objects::Object;
use crate::data::time::UnixMillis;
use crate::subject::Subject;
use crate::world::World;
use crate::world::change::Change;
use crate::world::cluster::Cluster;
use crate::world::hub::UpstreamRef;
use crate::world::table::{Shown, Sighting};

pub(super) struct Observation<'w> {
    pub(super) world: &'w mut World,
    /// A cluster that is in the run.
    pub(super) id: ClusterId,
    pub(super) now: UnixMillis,
    pub(super) changes: Vec<Change>,
}

/// An object in a list or in a watch event.
pub(super) struct ShownObject<'e> {
    pub(super) name: NamespacedName,
    pub(super) object: &'e Arc<Object>,
    pub(super) shown: Shown,
}

impl ShownObject<'_> {
    pub(super) fn sighting(&self) -> Sighting {
        Sighting::new(&self.object.meta, self.shown)
    }
}

impl Observation<'_> {
    pub(super) fn cluster(&self) -> &Cluster {
        &self.world.clusters[&self.id]
    }

    pub(super) fn cluster_mut(&mut self) -> &mut Cluster {
        match self.world.clusters.get_mut(&self.id) {
            Some(cluster) => cluster,
            None => unreachable!("an event of a cluster that is not in the run"),
        }
    }

    pub(super) fn object(&self, kind: Kind, name: &NamespacedName) -> ObjectRef {
        self.cluster().object(kind, name)
    }

    /// The reference of hub objects to an object of this upstream.
    pub(super) fn upstream_ref(&self, name: &NamespacedName) -> UpstreamRef {
        UpstreamRef { cluster: self.cluster().name.clone(), name: name.clone() }
    }

    /// The same name, with the text that a table already holds: this cluster's, or a hub's.
    pub(super) fn shared_name(&self, name: NamespacedName) -> NamespacedName {
        let cluster = self.cluster();
        let edge = &cluster.edge;
        let at_hub = || self.world.hubs().find_map(|hub| hub.hub_connectors.key(&name));
        let known = cluster
            .hub_connectors
            .key(&name)
            .or_else(|| edge.connectors.key(&name))
            .or_else(|| cluster.upstream_connectors.key(&name))
            .or_else(|| edge.proxies.key(&name))
            .or_else(|| edge.gateways.key(&name))
            .or_else(at_hub);
        known.cloned().unwrap_or(name)
    }

    pub(super) fn changed(&mut self, subjects: impl IntoIterator<Item = Subject>) {
        self.changes.extend(subjects.into_iter().map(Change::Changed));
    }

    /// A connector completed a hop that ends in this cluster.
    pub(super) fn hop_passed(&mut self, connector: &NamespacedName, hop: Hop, is_online: bool) {
        let cluster = self.cluster().name.clone();
        let connector = connector.clone();
        self.changes.push(Change::HopPassed { cluster, connector, hop, is_online });
    }

    /// The evidence about every route that names this upstream changed.
    pub(super) fn routes_to_this_changed(&mut self) {
        let routes = self.world.links.routes_in(&self.world.clusters[&self.id].name, None);
        self.changes.extend(routes.cloned().map(Subject::Route).map(Change::Changed));
    }
}
