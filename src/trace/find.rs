//! Finds the connectors, or the gateway, that a name stands for.

use std::collections::BTreeSet;

use super::diagnose::{Diagnosis, diagnose};
use super::{HopState, HopTrace, Snapshot, Trace, edge_remedy};
use crate::core::contract::note::Hop;
use crate::core::data::ids::{ClusterName, Kind, ObjectKey, Role};
use crate::core::view::phase::Phase;
use crate::core::view::{ConnectorView, UnpairedView, WatchState};
use crate::nearest::nearest;

/// A name that stands for nothing, or for more than one object. Says what to do about it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NotFound(String);

impl NotFound {
    fn ambiguous(what: &str, name: &ObjectKey, places: impl Iterator<Item = String>) -> Self {
        let places = places.collect::<Vec<_>>().join("; ");
        Self(format!("more than one {what} is called {name}: {places}; add --in CLUSTER"))
    }

    fn absent(what: &str, name: &ObjectKey, near: &[String], unseen: &[String]) -> Self {
        let mut text = format!("no {what} is called {name}, upstream, at the hub or at an edge");
        if !near.is_empty() {
            text += &format!("; did you mean {}?", near.join(", "));
        }
        if !unseen.is_empty() {
            let unseen = unseen.join("; ");
            text += &format!(" (it may be in a cluster that is not fully listed: {unseen})");
        }
        Self(text)
    }
}

const SUGGESTIONS_MAX: usize = 5;

fn names(connector: &ConnectorView) -> impl Iterator<Item = &ObjectKey> {
    connector.upstream.iter().map(|up| &up.object).chain(&connector.place)
}

fn is_in(connector: &ConnectorView, cluster: &ClusterName) -> bool {
    connector.upstream.as_ref().is_some_and(|up| up.cluster == *cluster)
        || connector.hubs.iter().any(|hub| hub.cluster == *cluster)
        || connector.edges.iter().any(|edge| edge.cluster == *cluster)
}

fn display_name(connector: &ConnectorView) -> String {
    match (&connector.upstream, &connector.place) {
        (Some(up), _) => format!("{} in {}", up.object, up.cluster),
        (None, Some(hub_key)) => hub_key.to_string(),
        (None, None) => String::new(),
    }
}

/// Traces the connector of this name, which is its upstream name or its name at the hub and the
/// edges. `cluster` chooses among connectors of the same name.
///
/// # Errors
/// No connector has the name, or several do.
pub fn trace_connector(
    snapshot: &Snapshot,
    name: &ObjectKey,
    cluster: Option<&ClusterName>,
) -> Result<Vec<Trace>, NotFound> {
    let view = &snapshot.view;
    let matches = |c: &&ConnectorView| {
        names(c).any(|n| n == name) && cluster.is_none_or(|cluster| is_in(c, cluster))
    };
    let found: Vec<_> = view.connectors.iter().filter(matches).collect();
    match found[..] {
        [one] => Ok(vec![diagnose(snapshot, one)]),
        [] => Err(not_found(snapshot, "connector", name, view.connectors.iter().flat_map(names))),
        _ => Err(NotFound::ambiguous("connector", name, found.into_iter().map(display_name))),
    }
}

/// Traces each connector behind the gateway of this name, at an edge or upstream, and each that its
/// HTTPProxy references without it existing; shows that gateway alone. `cluster` chooses among edges,
/// or upstreams, that have a gateway of the same name.
///
/// # Errors
/// No edge has the gateway, or several do.
pub fn trace_gateway(
    snapshot: &Snapshot,
    name: &ObjectKey,
    cluster: Option<&ClusterName>,
) -> Result<Vec<Trace>, NotFound> {
    let found = trace_edge_gateway(snapshot, name, cluster);
    if found.is_ok() {
        return found;
    }
    let is_upstream = |c: &ClusterName| {
        let mut clusters = snapshot.view.clusters.iter();
        clusters.any(|view| view.name == *c && view.roles.contains(&Role::Upstream))
    };
    let edge = cluster.filter(|cluster| !is_upstream(cluster));
    let upstream = cluster.filter(|cluster| is_upstream(cluster));
    let places = places_of(snapshot, &name.namespace, upstream);
    let names = places.into_iter().map(|namespace| ObjectKey::new(namespace, &*name.name));
    let mut traces: Vec<_> =
        names.filter_map(|name| trace_edge_gateway(snapshot, &name, edge).ok()).collect();
    match (traces.pop(), traces.is_empty()) {
        (Some(one), true) => Ok(one),
        (Some(_), false) => {
            let upstreams = snapshot.view.connectors.iter().filter_map(|c| c.upstream.as_ref());
            let named = upstreams.filter(|up| up.object.namespace == name.namespace);
            let clusters: BTreeSet<_> = named.map(|up| &up.cluster).collect();
            let places = clusters.into_iter().map(|cluster| format!("{name} in {cluster}"));
            Err(NotFound::ambiguous("gateway", name, places))
        }
        (None, _) => found,
    }
}

/// The namespaces at the hub and the edges that connectors of this upstream namespace are in. The name
/// of an object is the same in all tiers.
fn places_of<'a>(
    snapshot: &'a Snapshot,
    namespace: &str,
    upstream: Option<&ClusterName>,
) -> BTreeSet<&'a str> {
    let is_named = |connector: &&ConnectorView| {
        connector.upstream.as_ref().is_some_and(|up| {
            up.object.namespace == namespace
                && upstream.is_none_or(|cluster| *cluster == up.cluster)
        })
    };
    let connectors = snapshot.view.connectors.iter().filter(is_named);
    connectors.filter_map(|connector| Some(&*connector.place.as_ref()?.namespace)).collect()
}

fn trace_edge_gateway(
    snapshot: &Snapshot,
    name: &ObjectKey,
    cluster: Option<&ClusterName>,
) -> Result<Vec<Trace>, NotFound> {
    let view = &snapshot.view;
    let may_be_at = |edge: &ClusterName| cluster.is_none_or(|cluster| cluster == edge);
    let is_in_namespace = |c: &&ConnectorView| {
        c.place.as_ref().is_some_and(|hub_key| hub_key.namespace == name.namespace)
    };
    let mut behind = Vec::new();
    let mut edges = Vec::new();
    for connector in view.connectors.iter().filter(is_in_namespace) {
        for edge in connector.edges.iter().filter(|edge| may_be_at(&edge.cluster)) {
            if edge.gateways.iter().any(|gateway| gateway.name == name.name) {
                behind.push((connector, edge.cluster.clone()));
                edges.push(edge.cluster.clone());
            }
        }
    }
    let is_unpaired = |u: &&UnpairedView| u.object == *name && may_be_at(&u.cluster);
    let unpaired: Vec<_> = view.unpaired.iter().filter(is_unpaired).collect();
    edges.extend(unpaired.iter().map(|unpaired| unpaired.cluster.clone()));
    edges.sort_unstable();
    edges.dedup();
    match edges.len() {
        0 => {
            let known = known_gateways(snapshot);
            Err(not_found(snapshot, "gateway", name, known.iter()))
        }
        1 => {
            let mut traces: Vec<_> = behind
                .into_iter()
                .map(|(connector, edge)| {
                    only_through_gateway(diagnose(snapshot, connector), name, &edge)
                })
                .collect();
            traces.extend(unpaired.into_iter().flat_map(|u| traces_of_unpaired(snapshot, u)));
            Ok(traces)
        }
        _ => {
            let places = edges.iter().map(|edge| format!("{name} at {edge}"));
            Err(NotFound::ambiguous("gateway", name, places))
        }
    }
}

fn known_gateways(snapshot: &Snapshot) -> Vec<ObjectKey> {
    let mut known: Vec<_> = snapshot.view.unpaired.iter().map(|u| u.object.clone()).collect();
    for connector in &snapshot.view.connectors {
        let Some(hub_key) = &connector.place else { continue };
        let gateways = connector.edges.iter().flat_map(|edge| &edge.gateways);
        known.extend(gateways.map(|g| ObjectKey::new(&*hub_key.namespace, &*g.name)));
    }
    known.sort_unstable();
    known.dedup();
    known
}

fn only_through_gateway(mut trace: Trace, gateway: &ObjectKey, edge: &ClusterName) -> Trace {
    trace.hops.retain(|hop| match hop.hop {
        Hop::Upstream | Hop::Mirrored => true,
        Hop::Arrived => hop.cluster == *edge,
        Hop::Touched => hop.cluster == *edge && hop.object.as_ref() == Some(gateway),
    });
    trace.set_first();
    trace
}

/// Of a gateway without connectors one trace; else one of each Connector that its HTTPProxy
/// references and that does not exist.
fn traces_of_unpaired(snapshot: &Snapshot, unpaired: &UnpairedView) -> Vec<Trace> {
    let UnpairedView { cluster, object, gateway, proxy, missing } = unpaired;
    let trace = |hop: Hop, object: &ObjectKey, diagnosis: Diagnosis| {
        let mut hop = HopTrace::new(hop, cluster, Some(object));
        hop.set_diagnosis(&snapshot.access, Some(diagnosis));
        let mut trace = Trace {
            source: snapshot.source,
            at_ms: snapshot.view.at_ms,
            upstream: None,
            hub_key: None,
            phase: Phase::Unknown,
            state: HopState::Ok,
            first: None,
            hops: vec![hop],
            notes: Vec::new(),
            events: Vec::new(),
        };
        trace.set_first();
        trace
    };
    if missing.is_empty() {
        let diagnosis = edge_remedy::gateway_without_connectors(cluster, object, *gateway, *proxy);
        return vec![trace(Hop::Touched, object, diagnosis)];
    }
    let absent = |name: &String| {
        let connector = ObjectKey::new(&*object.namespace, &**name);
        trace(Hop::Arrived, &connector, edge_remedy::no_connector(cluster, object, name))
    };
    missing.iter().map(absent).collect()
}

fn not_found<'a>(
    snapshot: &Snapshot,
    what: &str,
    name: &ObjectKey,
    known: impl Iterator<Item = &'a ObjectKey>,
) -> NotFound {
    let known: Vec<_> = known.collect();
    let same_name = known.iter().filter(|k| k.name == name.name).map(ToString::to_string);
    let mut near: Vec<String> = same_name.take(SUGGESTIONS_MAX).collect();
    let all: Vec<_> = known.iter().map(ToString::to_string).collect();
    let same_namespace = known.iter().filter(|k| k.namespace == name.namespace);
    let same_namespace: Vec<_> = same_namespace.map(|k| k.name.clone()).collect();
    if let Some(close) = nearest(&name.name, &same_namespace) {
        near.push(format!("{}/{close}", name.namespace));
    } else if near.is_empty() {
        near.extend(nearest(&name.to_string(), &all).map(str::to_owned));
    }
    near.sort_unstable();
    near.dedup();
    let kind = if what == "gateway" { Kind::Gateway } else { Kind::Connector };
    let unseen = snapshot.view.clusters.iter().filter(|cluster| {
        let matters = kind == Kind::Connector || cluster.roles.contains(&Role::Edge);
        matters && cluster.watches.get(&kind) != Some(&WatchState::Live)
    });
    let unseen = unseen.map(|cluster| {
        let error = cluster.errors.get(&kind).map_or(String::new(), |error| format!(": {error}"));
        format!("{}{error}", cluster.name)
    });
    let unseen: Vec<_> = unseen.collect();
    NotFound::absent(what, name, &near, &unseen)
}
