//! Checks the end of a what-if or a demo without the machine's help: does every annotation and
//! every trigger have the right value?

use std::collections::{BTreeMap, BTreeSet};

use crate::core::contract::settings::{PlatformKeyMode, Settings, TouchScope};
use crate::core::data::ids::{ClusterName, Kind, ObjectKey, Role};
use crate::core::data::objects::{Body, Object, PLATFORM_KEY, UPSTREAM_STATUS};
use crate::core::status::go_json;
use crate::core::status::liveness;
use crate::core::status::trigger::{NodeIds, Trigger, digest, gateway_part};
use throughline_sim::SimClusters;

/// Objects that the machine decided to write.
pub(crate) type WrittenObjects = BTreeSet<(ClusterName, ObjectKey)>;

/// One sentence for each wrong object.
pub(crate) fn problems(
    clusters: &SimClusters,
    settings: &Settings,
    written: &WrittenObjects,
    node_ids: NodeIds,
) -> Vec<String> {
    let mut problems = Vec::new();
    if settings.mirror.enabled {
        for hub in clusters.with_role(Role::Hub) {
            for connector in clusters.objects(hub, Kind::Connector) {
                problems.extend(annotation_problem(clusters, hub, connector));
            }
        }
    }
    if settings.touch.enabled {
        for edge in clusters.with_role(Role::Edge) {
            match settings.touch.scope_of(edge) {
                TouchScope::Gateway => {
                    for gateway in clusters.objects(edge, Kind::Gateway) {
                        let problem =
                            gateway_problem(clusters, settings, edge, gateway, written, node_ids);
                        problems.extend(problem);
                    }
                }
                TouchScope::GatewayClass => {
                    problems.extend(class_problems(clusters, settings, edge, node_ids))
                }
            }
        }
    }
    problems
}

fn annotation_problem(
    clusters: &SimClusters,
    hub: &ClusterName,
    connector: &Object,
) -> Option<String> {
    if connector.meta.is_paused() {
        return None;
    }
    let (cluster, namespace, name) = connector.meta.upstream()?;
    let upstream = ClusterName::from(cluster.as_str());
    let key = ObjectKey::new(namespace, name);
    clusters.with_role(Role::Upstream).find(|c| **c == upstream)?;
    let upstream_connector = clusters.get(&upstream, Kind::Connector, &key);
    let namespace = clusters.get(&upstream, Kind::Namespace, &ObjectKey::new("", &*key.namespace));
    if namespace.is_some_and(|n| *connector.meta.namespace != *format!("ns-{}", n.meta.uid)) {
        return None;
    }
    let status = upstream_connector.and_then(|c| c.status());
    let actual = connector.meta.annotations.get(UPSTREAM_STATUS);
    let expected = status.map(go_json::canonical);
    if expected == Some(None) {
        // What it says is not known.
        return None;
    }
    let expected = expected.flatten();
    // Compare bytes first: most are equal, and Go's own -0.0 reads back as 0.
    if actual == expected.as_deref() {
        return None;
    }
    let is_equivalent = match (actual.map(go_json::canonical), &expected) {
        (Some(Some(actual)), Some(expected)) => {
            actual == *expected
                || status.and_then(go_json::reduce).is_some_and(|reduced| actual == reduced)
        }
        _ => false,
    };
    (!is_equivalent).then(|| {
        let name = connector.meta.key();
        format!(
            "{hub}: the status annotation of Connector {name} does not match the status of {key} in \
             {upstream}"
        )
    })
}

/// The digest that a gateway should announce and the platform stamp that goes with it; `None` if
/// throughline does not write the gateway.
fn gateway_digest(
    clusters: &SimClusters,
    edge: &ClusterName,
    key: &ObjectKey,
    node_ids: NodeIds,
) -> Option<(u64, String)> {
    let is_upstream_too = clusters.with_role(Role::Upstream).any(|c| c == edge);
    let namespace = clusters.get(edge, Kind::Namespace, &ObjectKey::new("", &*key.namespace));
    if is_upstream_too && !namespace.is_some_and(|n| n.meta.is_hub_namespace()) {
        return None;
    }
    let proxy = clusters.get(edge, Kind::HttpProxy, key)?;
    let Body::HttpProxy { connectors } = &proxy.body else { return None };
    let mut stamp = String::new();
    let mut parts = Vec::new();
    for name in connectors {
        let connector =
            clusters.get(edge, Kind::Connector, &ObjectKey::new(&*key.namespace, &**name));
        let liveness =
            connector.map(|c| liveness::read(c.meta.annotations.get(UPSTREAM_STATUS), c.status()));
        let liveness = liveness.unwrap_or_default();
        stamp =
            if liveness.online { format!("true/{}", liveness.node_id) } else { "false/".into() };
        parts.push(node_ids.connector_part(name, liveness.online, &liveness.node_id));
    }
    (!parts.is_empty()).then(|| (digest(parts), stamp))
}

fn gateway_problem(
    clusters: &SimClusters,
    settings: &Settings,
    edge: &ClusterName,
    gateway: &Object,
    written: &WrittenObjects,
    node_ids: NodeIds,
) -> Option<String> {
    if gateway.meta.is_paused() {
        return None;
    }
    let key = gateway.meta.key();
    let (expected, stamp) = gateway_digest(clusters, edge, &key, node_ids)?;
    let value = gateway.meta.annotations.get(&settings.touch.key).and_then(Trigger::parse);
    let confirmations = settings.touch.confirm_after_ms.len();
    match value {
        Some(value) if value.digest != expected => {
            Some(format!("{edge}: Gateway {key} announces an outdated state of its connectors"))
        }
        Some(value) if (value.c as usize) < confirmations => Some(format!(
            "{edge}: Gateway {key} is not fully confirmed ({} of {confirmations} confirmations)",
            value.c
        )),
        Some(_) => None,
        // The gateway was right before throughline started, and the platform's stamp says so.
        None if !written.contains(&(edge.clone(), key.clone()))
            && settings.touch.platform_key == PlatformKeyMode::Observe
            && gateway.meta.annotations.get(PLATFORM_KEY) == Some(&stamp) =>
        {
            None
        }
        None => Some(format!("{edge}: Gateway {key} has no trigger annotation")),
    }
}

fn class_problems(
    clusters: &SimClusters,
    settings: &Settings,
    edge: &ClusterName,
    node_ids: NodeIds,
) -> Vec<String> {
    let mut sums: BTreeMap<Box<str>, (u64, BTreeSet<u64>)> = BTreeMap::new();
    let mut unpaused = BTreeSet::new();
    for gateway in clusters.objects(edge, Kind::Gateway) {
        let Body::Gateway { class, .. } = &gateway.body else { continue };
        let key = gateway.meta.key();
        let Some((expected, _)) = gateway_digest(clusters, edge, &key, node_ids) else { continue };
        if !gateway.meta.is_paused() {
            unpaused.insert(class.clone());
        }
        let (sum, values) = sums.entry(class.clone()).or_default();
        *sum = sum.wrapping_add(gateway_part(&key.namespace, &key.name, expected));
        let value = gateway.meta.annotations.get(&settings.touch.key).and_then(Trigger::parse);
        values.extend(value.map(|v| v.digest));
    }
    // A class waits while all its Gateways are paused.
    sums.retain(|class, _| unpaused.contains(class));
    let wrong = sums.into_iter().filter(|(_, (sum, values))| !values.contains(&digest([*sum])));
    wrong
        .map(|(class, _)| {
            format!(
                "{edge}: no Gateway of class {class} announces the current state of its connectors"
            )
        })
        .collect()
}
