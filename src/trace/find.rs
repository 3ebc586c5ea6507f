//! Which connectors, or which gateway, a name stands for.

use super::diagnose::{Problem, diagnose};
use super::{HopTrace, Snapshot, State, Trace, remedy};
use crate::config::nearest;
use crate::core::action::Hop;
use crate::core::ids::{ClusterName, Kind, ObjectKey, Role};
use crate::core::phase::Phase;
use crate::core::view::{ConnectorView, LooseView, Watch};

/// The traces of what was asked for: one of a connector; of a gateway one of each connector that
/// stands behind it, showing that gateway alone.
#[derive(Clone, Debug)]
pub struct Found(pub Vec<Trace>);

/// A name that stands for nothing, or for too much. Printed with what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NotFound(String);

impl NotFound {
    fn several(what: &str, name: &ObjectKey, places: impl Iterator<Item = String>) -> Self {
        let places = places.collect::<Vec<_>>().join("; ");
        Self(format!("several {what}s are called {name}: {places}; choose one by --in CLUSTER"))
    }

    fn nowhere(what: &str, name: &ObjectKey, near: &[String], unseen: &[String]) -> Self {
        let mut text = format!("no {what} is called {name}, upstream, at the hub or at an edge");
        if !near.is_empty() {
            text += &format!("; did you mean {}?", near.join(", "));
        }
        if !unseen.is_empty() {
            let unseen = unseen.join("; ");
            text += &format!(" (not seen in full, so it may be there: {unseen})");
        }
        Self(text)
    }
}

/// How many near names are told.
const NEAR_MAX: usize = 5;

fn names(connector: &ConnectorView) -> impl Iterator<Item = &ObjectKey> {
    connector.upstream.iter().map(|up| &up.object).chain(&connector.place)
}

fn is_in(connector: &ConnectorView, cluster: &ClusterName) -> bool {
    connector.upstream.as_ref().is_some_and(|up| up.cluster == *cluster)
        || connector.hubs.iter().any(|hub| hub.cluster == *cluster)
        || connector.edges.iter().any(|edge| edge.cluster == *cluster)
}

fn told(connector: &ConnectorView) -> String {
    match (&connector.upstream, &connector.place) {
        (Some(up), _) => format!("{} in {}", up.object, up.cluster),
        (None, Some(place)) => place.to_string(),
        (None, None) => String::new(),
    }
}

/// Traces the connector of this name, upstream or at hub and edges; `cluster` tells equal names
/// apart.
///
/// # Errors
/// There is none, or there are several.
pub fn connector(
    snapshot: &Snapshot,
    name: &ObjectKey,
    cluster: Option<&ClusterName>,
) -> Result<Found, NotFound> {
    let view = &snapshot.view;
    let fits = |c: &&ConnectorView| {
        names(c).any(|n| n == name) && cluster.is_none_or(|cluster| is_in(c, cluster))
    };
    let found: Vec<_> = view.connectors.iter().filter(fits).collect();
    match found[..] {
        [one] => Ok(Found(vec![diagnose(snapshot, one)])),
        [] => Err(not_found(snapshot, "connector", name, view.connectors.iter().flat_map(names))),
        _ => Err(NotFound::several("connector", name, found.into_iter().map(told))),
    }
}

/// Traces each connector behind the gateway of this name at an edge, or only referenced from its
/// HTTPProxy; `cluster` tells equal names apart.
///
/// # Errors
/// There is none, or it is at several edges.
pub fn gateway(
    snapshot: &Snapshot,
    name: &ObjectKey,
    cluster: Option<&ClusterName>,
) -> Result<Found, NotFound> {
    let view = &snapshot.view;
    let wanted = |edge: &ClusterName| cluster.is_none_or(|cluster| cluster == edge);
    let is_namespace = |c: &&ConnectorView| {
        c.place.as_ref().is_some_and(|place| place.namespace == name.namespace)
    };
    let mut behind = Vec::new();
    let mut edges = Vec::new();
    for connector in view.connectors.iter().filter(is_namespace) {
        for edge in connector.edges.iter().filter(|edge| wanted(&edge.cluster)) {
            if edge.gateways.iter().any(|gateway| gateway.name == name.name) {
                behind.push((connector, edge.cluster.clone()));
                edges.push(edge.cluster.clone());
            }
        }
    }
    let is_loose = |l: &&LooseView| l.object == *name && wanted(&l.cluster);
    let loose: Vec<_> = view.loose.iter().filter(is_loose).collect();
    edges.extend(loose.iter().map(|loose| loose.cluster.clone()));
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
                .map(|(connector, edge)| of_gateway(diagnose(snapshot, connector), name, &edge))
                .collect();
            traces.extend(loose.into_iter().flat_map(|loose| loose_traces(snapshot, loose)));
            Ok(Found(traces))
        }
        _ => {
            let places = edges.iter().map(|edge| format!("{name} at {edge}"));
            Err(NotFound::several("gateway", name, places))
        }
    }
}

fn known_gateways(snapshot: &Snapshot) -> Vec<ObjectKey> {
    let mut known: Vec<_> = snapshot.view.loose.iter().map(|l| l.object.clone()).collect();
    for connector in &snapshot.view.connectors {
        let Some(place) = &connector.place else { continue };
        let gateways = connector.edges.iter().flat_map(|edge| &edge.gateways);
        known.extend(gateways.map(|g| ObjectKey::new(&*place.namespace, &*g.name)));
    }
    known.sort_unstable();
    known.dedup();
    known
}

/// Of a trace only the way to one gateway.
fn of_gateway(mut trace: Trace, gateway: &ObjectKey, edge: &ClusterName) -> Trace {
    trace.hops.retain(|hop| match hop.hop {
        Hop::Upstream | Hop::Mirrored => true,
        Hop::Arrived => hop.cluster == *edge,
        Hop::Touched => hop.cluster == *edge && hop.object.as_ref() == Some(gateway),
    });
    trace.judge();
    trace
}

/// A gateway without connectors, or connectors that are only referenced.
fn loose_traces(snapshot: &Snapshot, loose: &LooseView) -> Vec<Trace> {
    let LooseView { cluster, object, gateway, proxy, missing } = loose;
    let trace = |hop: Hop, place: &ObjectKey, problem: Problem| {
        let mut at = HopTrace::new(hop, cluster, Some(place));
        at.trouble(Some(problem));
        let mut trace = Trace {
            source: snapshot.source,
            at_ms: snapshot.view.at_ms,
            upstream: None,
            replica: None,
            phase: Phase::Unknown,
            state: State::Ok,
            first: None,
            hops: vec![at],
            notes: Vec::new(),
        };
        trace.judge();
        trace
    };
    if missing.is_empty() {
        let problem = remedy::bare_gateway(cluster, object, *gateway, *proxy);
        return vec![trace(Hop::Touched, object, problem)];
    }
    let absent = |name: &String| {
        let place = ObjectKey::new(&*object.namespace, &**name);
        trace(Hop::Arrived, &place, remedy::no_connector(cluster, object, name))
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
    let same = known.iter().filter(|k| k.name == name.name).map(ToString::to_string);
    let mut near: Vec<String> = same.take(NEAR_MAX).collect();
    let all: Vec<_> = known.iter().map(ToString::to_string).collect();
    let here = known.iter().filter(|k| k.namespace == name.namespace);
    let here: Vec<_> = here.map(|k| k.name.clone()).collect();
    if let Some(close) = nearest(&name.name, &here) {
        near.push(format!("{}/{close}", name.namespace));
    } else if near.is_empty() {
        near.extend(nearest(&name.to_string(), &all).map(str::to_owned));
    }
    near.sort_unstable();
    near.dedup();
    let kind = if what == "gateway" { Kind::Gateway } else { Kind::Connector };
    let unseen = snapshot.view.clusters.iter().filter(|cluster| {
        let matters = kind == Kind::Connector || cluster.roles.contains(&Role::Edge);
        matters && cluster.watches.get(&kind) != Some(&Watch::Live)
    });
    let unseen = unseen.map(|cluster| {
        let error = cluster.errors.get(&kind).map_or(String::new(), |error| format!(": {error}"));
        format!("{}{error}", cluster.name)
    });
    let unseen: Vec<_> = unseen.collect();
    NotFound::nowhere(what, name, &near, &unseen)
}
