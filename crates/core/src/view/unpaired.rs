//! Gateways and HTTPProxies at the edges without a counterpart.

use std::collections::BTreeSet;

use super::UnpairedView;
use crate::world::World;
use crate::world::cluster::Cluster;

pub(super) fn views(world: &World) -> Vec<UnpairedView> {
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
        let missing = connectors.iter().filter(|name| edge.connectors.get(name).is_none());
        let missing: Vec<_> = missing.map(|name| name.name().to_owned()).collect();
        let is_unpaired = connectors.is_empty() || !missing.is_empty();
        is_unpaired.then(|| UnpairedView {
            cluster: cluster.name.clone(),
            object: name.key(),
            gateway: edge.gateways.get(name).is_some(),
            proxy: edge.proxies.get(name).is_some(),
            missing,
        })
    })
}
