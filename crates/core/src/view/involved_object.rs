//! The object that a problem is about, for `involvedObject` of a Kubernetes Event.

use crate::contract::cause::About;
use crate::data::ids::{ClusterName, Kind, NamespacedName, Uid};
use crate::machine::Machine;
use crate::world::cluster::Cluster;
use crate::world::table::Row;

/// An object at the hub or at an edge. Events are never posted upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvolvedObject {
    pub cluster: ClusterName,
    pub kind: Kind,
    pub object: NamespacedName,
    pub uid: Option<String>,
}

impl Machine {
    /// The object, if it still exists. For a problem of an upstream, it is an object at a hub.
    pub fn involved_object(&self, about: &About) -> Option<InvolvedObject> {
        let world = &self.world;
        let name = about.object.as_ref()?;
        let kind = about.kind?;
        let named = world.id_of(&about.cluster).and_then(|id| world.clusters.get(&id));
        named.into_iter().chain(world.hubs()).find_map(|cluster| find(cluster, kind, name))
    }
}

fn find(cluster: &Cluster, kind: Kind, name: &NamespacedName) -> Option<InvolvedObject> {
    let Cluster { hub_connectors, routes, edge, .. } = cluster;
    let uid = match kind {
        Kind::Connector => {
            let at_hub = hub_connectors.get(name).map(uid_of);
            at_hub.or_else(|| edge.connectors.get(name).map(uid_of))?
        }
        Kind::HttpRoute => routes.get(name).map(uid_of)?,
        Kind::Gateway => edge.gateways.get(name).map(uid_of)?,
        Kind::HttpProxy | Kind::Namespace => return None,
    };

    Some(InvolvedObject {
        cluster: cluster.name.clone(),
        kind,
        object: name.clone(),
        uid: uid.text(),
    })
}

fn uid_of<T>(row: &Row<T>) -> &Uid {
    &row.uid
}
