//! The desired state, derived from the simulated clusters by rules that are independent of the machine's.

use std::collections::BTreeMap;

use serde_json::Value;

use throughline::core::contract::settings::TouchScope;
use throughline::core::data::ids::{ClusterName, Kind, ObjectKey};
use throughline::core::data::objects::{Body, Object, UPSTREAM_STATUS};
use throughline::core::status::trigger::{Trigger, connector_part, digest, gateway_part};

use crate::model::{PROJECTS, Topology};
use crate::sim::Sim;

/// `(online, node)` of one document; `None` if it does not decode. Simplified: it handles the documents
/// that these tests write.
fn decode(document: &str) -> Option<(bool, String)> {
    let value: Value = serde_json::from_str(document).ok()?;
    if value.is_null() {
        return Some(Default::default());
    }
    let status = value.as_object()?;
    let conditions = match status.get("conditions") {
        None | Some(Value::Null) => Vec::new(),
        Some(list) => list.as_array()?.clone(),
    };
    let ready = conditions.iter().find(|c| c["type"] == "Ready");
    let online = ready.is_some_and(|c| c["status"] == "True");
    let details = &value["connectionDetails"];
    let node = if online && details["type"] == "PublicKey" {
        details["publicKey"]["id"].as_str().unwrap_or_default()
    } else {
        ""
    };
    Some((online, node.to_owned()))
}

pub fn liveness(connector: &Object) -> (bool, String) {
    let annotation = connector.meta.annotations.get(UPSTREAM_STATUS).and_then(decode);
    annotation.or_else(|| connector.status().and_then(decode)).unwrap_or_default()
}

/// The connectors of a gateway's proxy, in order, with their liveness at the edge.
fn connectors(sim: &Sim, edge: &ClusterName, gateway: &ObjectKey) -> Vec<(String, bool, String)> {
    let Some(proxy) = sim.clusters.get(edge, Kind::HttpProxy, gateway) else { return Vec::new() };
    let Body::HttpProxy { connectors } = &proxy.body else { unreachable!() };
    let read = |name: &str| {
        let key = ObjectKey::new(&gateway.namespace, name);
        let found = sim.clusters.get(edge, Kind::Connector, &key);
        let (online, node) = found.map(|c| liveness(c)).unwrap_or_default();
        (name.to_owned(), online, node)
    };
    connectors.iter().map(|name| read(name)).collect()
}

/// The digest that a gateway should announce.
pub fn digest_of(sim: &Sim, edge: &ClusterName, gateway: &ObjectKey) -> Option<u64> {
    let connectors = connectors(sim, edge, gateway);
    let parts = connectors.iter().map(|(name, online, node)| connector_part(name, *online, node));
    (!connectors.is_empty()).then(|| digest(parts))
}

/// The stamp that the platform's extension server writes on a gateway.
pub fn stamp_of(sim: &Sim, edge: &ClusterName, gateway: &ObjectKey) -> Option<String> {
    let connectors = connectors(sim, edge, gateway);
    let (_, online, node) = connectors.last()?;
    Some(if *online { format!("true/{node}") } else { "false/".into() })
}

pub fn trigger_of(sim: &Sim, gateway: &Object) -> Option<Trigger> {
    Trigger::parse(gateway.meta.annotations.get(&sim.settings.touch.key)?)
}

/// All deviations from the desired state, as text.
pub fn deviations(sim: &Sim, t: Topology) -> Vec<String> {
    let mut deviations = sim.stuck();
    deviations.extend(mirror_deviations(sim, t));
    deviations.extend(touch_deviations(sim, t));
    let left = sim.machine.poll_deadline();
    deviations.extend(left.map(|at| format!("a timer is set for {at}")));
    if sim.machine.in_flight() > 0 {
        deviations.push("actions are in flight".into());
    }
    deviations
}

pub fn touch_deviations(sim: &Sim, t: Topology) -> Vec<String> {
    let deviations = |edge: &ClusterName| match sim.settings.touch.scope_of(edge) {
        TouchScope::Gateway => gateway_deviations(sim, edge),
        TouchScope::GatewayClass => class_deviations(sim, edge),
    };
    t.edges().iter().flat_map(deviations).collect()
}

pub fn mirror_deviations(sim: &Sim, t: Topology) -> Vec<String> {
    let mut deviations = Vec::new();
    for project in 0..PROJECTS {
        let (up, namespace, _) = t.project(project);
        let hub = t.hub();
        for hub_connector in sim.clusters.objects(&hub, Kind::Connector) {
            if *hub_connector.meta.namespace != *t.hub_namespace(project) {
                continue;
            }
            let key = ObjectKey::new(namespace, &*hub_connector.meta.name);
            let source = sim.clusters.get(&up, Kind::Connector, &key);
            let status = source.and_then(|s| s.status()).map(|s| s.parse::<Value>().unwrap());
            let annotation = hub_connector.meta.annotations.get(UPSTREAM_STATUS);
            let meaning = |a: &str| a.parse::<Value>().unwrap_or(Value::from("not JSON"));
            let says = annotation.map(meaning);
            if says != status {
                deviations.push(format!("hub: {key} is {status:?} upstream, mirrored is {says:?}"));
            }
            for edge in t.edges().iter().filter(|e| **e != hub) {
                let copy = sim.clusters.get(edge, Kind::Connector, &hub_connector.meta.key());
                let value = copy.map(|c| c.meta.annotations.get(UPSTREAM_STATUS).map(meaning));
                if value.as_ref().is_some_and(|v| *v != says) {
                    deviations
                        .push(format!("{edge}: {key} is {says:?} at the hub, {value:?} here"));
                }
            }
        }
    }
    deviations
}

fn gateway_deviations(sim: &Sim, edge: &ClusterName) -> Vec<String> {
    let mut deviations = Vec::new();
    for gateway in sim.clusters.objects(edge, Kind::Gateway) {
        let key = gateway.meta.key();
        let (is, should) = (trigger_of(sim, gateway), digest_of(sim, edge, &key));
        // The platform stamped it with the right value before throughline ever wrote it.
        let stamp = stamp_of(sim, edge, &key);
        let adopted = gateway.meta.annotations.get(throughline::core::data::objects::PLATFORM_KEY)
            == stamp.as_deref()
            && !sim.touched.contains(&(edge.clone(), Some(gateway.meta.uid.to_string())));
        match (is, should) {
            (Some(is), Some(should)) if is.digest == should && is.c >= 2 => {}
            (None, Some(_)) if adopted => {}
            (_, None) => {}
            _ => deviations.push(format!("{edge}: {key} announces {is:?}, expected {should:x?}")),
        }
    }
    deviations
}

fn class_deviations(sim: &Sim, edge: &ClusterName) -> Vec<String> {
    let mut classes: BTreeMap<String, (u64, Vec<Trigger>)> = BTreeMap::new();
    for gateway in sim.clusters.objects(edge, Kind::Gateway) {
        let Body::Gateway { class, .. } = &gateway.body else { unreachable!() };
        let key = gateway.meta.key();
        let Some(should) = digest_of(sim, edge, &key) else { continue };
        let entry = classes.entry(class.to_string()).or_default();
        entry.0 = entry.0.wrapping_add(gateway_part(&key.namespace, &key.name, should));
        entry.1.extend(trigger_of(sim, gateway));
    }
    let right = |sum: u64, is: &[Trigger]| {
        is.iter().any(|trigger| trigger.digest == digest([sum]) && trigger.c >= 2)
    };
    let wrong = classes.into_iter().filter(|(_, (sum, is))| !right(*sum, is));
    wrong.map(|(class, (_, is))| format!("{edge}: class {class} announces {is:?}")).collect()
}
