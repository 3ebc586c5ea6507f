//! Finds the connectors, or the gateway, of a name.

use std::collections::BTreeSet;

use anyhow::{Error, anyhow};

use crate::core::contract::cause::Hop;
use crate::core::data::ids::{ClusterName, Kind, NamespacedName, Role};
use crate::core::data::shard::Shard;
use crate::core::view::WatchState;
use crate::core::view::fleet::{Connector, Fleet, HopView, UpstreamName};
use crate::nearest::nearest;

const SUGGESTIONS_MAX: usize = 5;

fn names(connector: &Connector) -> impl Iterator<Item = &NamespacedName> {
    connector.upstream.iter().map(|up| &up.object).chain(&connector.name)
}

fn is_in(connector: &Connector, cluster: &ClusterName) -> bool {
    connector.upstream.as_ref().is_some_and(|up| up.cluster == *cluster)
        || connector.hops.iter().any(|hop| hop.cluster == *cluster && hop.object.is_some())
}

/// The connector of this name, either its upstream name or its name at the hub and the edges. `cluster`
/// selects among connectors of the same name.
///
/// # Errors
/// No connector has the name, or several do.
pub fn connector(
    fleet: &Fleet,
    name: &NamespacedName,
    cluster: Option<&ClusterName>,
) -> anyhow::Result<Vec<Connector>> {
    let matches = |c: &&Connector| {
        names(c).any(|n| n == name) && cluster.is_none_or(|cluster| is_in(c, cluster))
    };
    let found: Vec<_> = fleet.connectors.iter().filter(matches).collect();
    match found[..] {
        [one] => Ok(vec![one.clone()]),
        [] => Err(not_found(fleet, Kind::Connector, name, fleet.connectors.iter().flat_map(names))),
        _ => Err(ambiguous(Kind::Connector, name, found.into_iter().map(Connector::title))),
    }
}

/// Each connector behind the gateway of this name, at an edge or upstream, with only the hops to that
/// gateway; and each missing Connector that its HTTPProxy references. `cluster` selects among edges, or
/// upstreams, with a gateway of the same name.
///
/// # Errors
/// No edge has the gateway, or several do.
pub fn gateway(
    fleet: &Fleet,
    name: &NamespacedName,
    cluster: Option<&ClusterName>,
) -> anyhow::Result<Vec<Connector>> {
    let found = at_edge(fleet, name, cluster);
    if found.is_ok() {
        return found;
    }
    let is_upstream = |c: &ClusterName| {
        let mut clusters = fleet.clusters.iter();
        clusters.any(|of| of.name == *c && of.roles.contains(&Role::Upstream))
    };
    let edge = cluster.filter(|cluster| !is_upstream(cluster));
    let upstream = cluster.filter(|cluster| is_upstream(cluster));
    let is_named = |up: &&UpstreamName| {
        up.object.namespace() == name.namespace() && upstream.is_none_or(|c| *c == up.cluster)
    };
    let of_namespace = |connector: &&Connector| connector.upstream.iter().any(|up| is_named(&up));
    let namespaces = fleet.connectors.iter().filter(of_namespace);
    let namespaces = namespaces.filter_map(|connector| Some(connector.name.as_ref()?.namespace()));
    let namespaces: BTreeSet<_> = namespaces.collect();

    // An object has the same name in all tiers.
    let names = namespaces.into_iter().map(|namespace| NamespacedName::new(namespace, name.name()));
    let mut all: Vec<_> = names.filter_map(|name| at_edge(fleet, &name, edge).ok()).collect();
    match (all.pop(), all.is_empty()) {
        (Some(one), true) => Ok(one),
        (Some(_), false) => {
            let named = fleet.connectors.iter().filter_map(|c| c.upstream.as_ref());
            let clusters: BTreeSet<_> = named.filter(is_named).map(|up| &up.cluster).collect();
            let places = clusters.into_iter().map(|cluster| format!("{name} in {cluster}"));
            Err(ambiguous(Kind::Gateway, name, places))
        }
        (None, _) => found,
    }
}

fn at_edge(
    fleet: &Fleet,
    name: &NamespacedName,
    cluster: Option<&ClusterName>,
) -> anyhow::Result<Vec<Connector>> {
    let is_it = |hop: &&HopView| {
        hop.hop == Hop::Announced
            && hop.object.as_ref() == Some(name)
            && cluster.is_none_or(|cluster| *cluster == hop.cluster)
    };
    let paired = fleet.connectors.iter().flat_map(|connector| &connector.hops);
    let hops = paired.chain(&fleet.unpaired);
    let edges: BTreeSet<_> = hops.clone().filter(is_it).map(|hop| &hop.cluster).collect();
    let edge = match edges.iter().collect::<Vec<_>>()[..] {
        [] => {
            let gateways = hops.filter(|hop| hop.hop == Hop::Announced);
            let known: BTreeSet<_> = gateways.filter_map(|hop| hop.object.as_ref()).collect();
            return Err(not_found(fleet, Kind::Gateway, name, known.into_iter()));
        }
        [edge] => *edge,
        _ => {
            let places = edges.iter().map(|edge| format!("{name} at {edge}"));
            return Err(ambiguous(Kind::Gateway, name, places));
        }
    };

    let behind =
        fleet.connectors.iter().filter(|connector| connector.hops.iter().any(|h| is_it(&h)));
    let mut found: Vec<_> = behind.map(|connector| only_through(connector, name, edge)).collect();
    found.extend(fleet.unpaired.iter().filter(is_it).map(|hop| Connector {
        upstream: None,
        name: None,
        online: None,
        node: None,
        state: hop.state,
        hops: vec![hop.clone()],
    }));
    Ok(found)
}

/// The connector with only the hops to one gateway.
fn only_through(connector: &Connector, gateway: &NamespacedName, edge: &ClusterName) -> Connector {
    let mut connector = connector.clone();
    connector.hops.retain(|hop| match hop.hop {
        Hop::Upstream | Hop::Mirrored => true,
        Hop::Carried => hop.cluster == *edge,
        Hop::Announced => hop.cluster == *edge && hop.object.as_ref() == Some(gateway),
    });
    connector.update_state();
    connector
}

fn ambiguous(kind: Kind, name: &NamespacedName, places: impl Iterator<Item = String>) -> Error {
    let what = kind.as_str().to_lowercase();
    let places = places.collect::<Vec<_>>().join("; ");
    anyhow!("more than one {what} is called {name}: {places}; add --in CLUSTER")
}

fn not_found<'a>(
    fleet: &Fleet,
    kind: Kind,
    name: &NamespacedName,
    known: impl Iterator<Item = &'a NamespacedName>,
) -> Error {
    let known: Vec<_> = known.collect();
    let same_name = known.iter().filter(|k| k.name() == name.name()).map(ToString::to_string);
    let mut near: Vec<String> = same_name.take(SUGGESTIONS_MAX).collect();
    let all: Vec<_> = known.iter().map(ToString::to_string).collect();
    let same_namespace = known.iter().filter(|k| k.namespace() == name.namespace());
    let same_namespace: Vec<_> = same_namespace.map(|k| k.name().to_owned()).collect();
    if let Some(close) = nearest(name.name(), &same_namespace) {
        near.push(format!("{}/{close}", name.namespace()));
    } else if near.is_empty() {
        near.extend(nearest(&name.to_string(), &all).map(str::to_owned));
    }
    near.sort_unstable();
    near.dedup();
    let unseen = fleet.clusters.iter().filter(|cluster| {
        let matters = kind == Kind::Connector || cluster.roles.contains(&Role::Edge);
        matters && cluster.watches.get(&kind) != Some(&WatchState::Live)
    });
    let unseen = unseen.map(|cluster| {
        let mut problems = fleet.problems.iter().filter(|of| of.cluster == cluster.name);
        let error = problems.find_map(|of| of.error.as_ref());
        error.map_or(cluster.name.to_string(), |error| format!("{}: {error}", cluster.name))
    });
    let unseen: Vec<_> = unseen.collect();

    let what = kind.as_str().to_lowercase();
    let mut text = format!("no {what} is called {name}, upstream, at the hub or at an edge");
    if !near.is_empty() {
        text += &format!("; did you mean {}?", near.join(", "));
    }
    if !unseen.is_empty() {
        let unseen = unseen.join("; ");
        text += &format!(" (it may be in a cluster that is not fully listed: {unseen})");
    }
    if !fleet.shard.is_whole() {
        let Shard { index, of } = fleet.shard;
        text += &format!(" (this is only shard {index} of {of}, counted from 0; ask the others)");
    }
    Error::msg(text)
}
