//! Gateways and HTTPProxies at the edges without a counterpart.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::data::ids::{ClusterName, ObjectKey};
use crate::data::name::NamespacedName;
use crate::next::world::World;
use crate::next::world::cluster::Cluster;

/// A Gateway at an edge that announces no connector, or an HTTPProxy that references a Connector
/// that does not exist.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct UnpairedView {
    pub cluster: ClusterName,
    /// Namespace and name, which a Gateway and its HTTPProxy share.
    #[serde(flatten)]
    pub object: ObjectKey,
    /// Whether a Gateway of this name exists.
    pub gateway: bool,
    /// Whether an HTTPProxy of this name exists.
    pub proxy: bool,
    /// The Connectors that the HTTPProxy references and that do not exist.
    pub missing: Vec<String>,
}

pub(super) fn unpaired(world: &World) -> Vec<UnpairedView> {
    let mut unpaired: Vec<_> = world.edges().flat_map(unpaired_at).collect();
    unpaired.sort_unstable();
    unpaired
}

fn unpaired_at(cluster: &Cluster) -> impl Iterator<Item = UnpairedView> {
    let edge = &cluster.edge;
    let names: BTreeSet<_> = edge.proxies.keys().chain(edge.gateways.keys()).collect();
    let names = names.into_iter().filter(|name| cluster.is_hub_namespace(name.namespace()));

    names.filter_map(move |name| {
        let connectors = edge.connectors_of(name);
        let missing = connectors.iter().filter(|name| edge.connectors.get(*name).is_none());
        let missing: Vec<_> = missing.map(|name| name.name().to_owned()).collect();
        let is_unpaired = connectors.is_empty() || !missing.is_empty();
        is_unpaired.then(|| view(cluster, name, missing))
    })
}

fn view(cluster: &Cluster, name: &NamespacedName, missing: Vec<String>) -> UnpairedView {
    UnpairedView {
        cluster: cluster.name.clone(),
        object: name.key(),
        gateway: cluster.edge.gateways.get(name).is_some(),
        proxy: cluster.edge.proxies.get(name).is_some(),
        missing,
    }
}
