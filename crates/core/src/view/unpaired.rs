//! Gateways and HTTPProxies at the edges that belong to no connector.

use std::collections::BTreeSet;

use super::fleet::HopView;
use super::judged::{HopAt, Judged, Names};
use crate::contract::cause::{Cause, Hop, Kubectl, State};
use crate::data::ids::{Kind, NamespacedName, Role};
use crate::machine::Machine;
use crate::world::cluster::Cluster;

pub(super) fn hops(m: &Machine, kubectl: Kubectl<'_>) -> Vec<HopView> {
    let edges = m.world.edges();
    let mut hops: Vec<_> = edges.flat_map(|edge| unpaired_at(m, edge, kubectl)).collect();
    hops.sort_by(|a, b| (&a.cluster, &a.object).cmp(&(&b.cluster, &b.object)));
    hops
}

fn unpaired_at(m: &Machine, cluster: &Cluster, kubectl: Kubectl<'_>) -> Vec<HopView> {
    let edge = &cluster.edge;
    let names: BTreeSet<_> = edge.proxies.keys().chain(edge.gateways.keys()).collect();
    let names = names.into_iter().filter(|name| cluster.is_hub_namespace(name.namespace()));
    names.flat_map(|name| hops_of(m, cluster, name, kubectl)).collect()
}

/// A hop for each missing Connector that its HTTPProxy references, or one hop for a Gateway without
/// connectors.
fn hops_of(
    m: &Machine,
    cluster: &Cluster,
    name: &NamespacedName,
    kubectl: Kubectl<'_>,
) -> Vec<HopView> {
    let edge = &cluster.edge;
    let connectors = edge.connectors_of(name);
    if !connectors.is_empty() {
        let missing = connectors.iter().filter(|name| edge.connectors.get(name).is_none());
        let hop = |connector: &NamespacedName| {
            let names = Names { connector: Some(connector.clone()), ..Names::default() };
            let missing = Judged::cause(State::Ok, Cause::ConnectorMissing);
            hop(m, cluster, name, Kind::HttpProxy, missing).view(&names, kubectl)
        };
        return missing.map(hop).collect();
    }

    let has_gateway = edge.gateways.get(name).is_some();
    let kind = if has_gateway { Kind::Gateway } else { Kind::HttpProxy };
    let hop = hop(m, cluster, name, kind, Judged::ok());
    let why = match edge.proxies.get(name) {
        None => "no HTTPProxy has its name, so it announces no connector",
        Some(_) => "the HTTPProxy of this name references no connector",
    };
    let is_known = hop.judged.state == State::Ok;
    let evidence = is_known.then(|| why.to_owned()).into_iter().collect();
    vec![HopAt { evidence, ..hop }.view(&Names::default(), kubectl)]
}

/// Once the lists of the edge are complete, an object that they lack does not exist.
fn hop<'m>(
    m: &'m Machine,
    cluster: &'m Cluster,
    name: &NamespacedName,
    kind: Kind,
    judged: Judged<'m>,
) -> HopAt<'m> {
    let unknown = Judged::not_live(m, cluster, Role::Edge.liveness_kinds());
    HopAt::new(Hop::Announced, cluster, kind, Some(name.clone()), unknown.unwrap_or(judged))
}
