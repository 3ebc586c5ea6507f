//! What must be true once everything has converged, read from the API servers themselves. It uses
//! liveness and digests from throughline's library, and nothing of the machine.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::Value;
use throughline::core::data::objects::upstream_cluster_name;
use throughline::core::status::liveness;
use throughline::core::status::trigger::{Trigger, connector_part, digest};

use super::objects::{META, TRIGGER, UPSTREAM_STATUS, annotation, key, written_annotation};
use super::rest::{CONNECTORS, GATEWAYS, PROXIES};
use super::testbed::{Cluster, Testbed, Topology};
use super::throughline::Throughline;
use super::{SOON, ensure, eventually, wait_until_idle};

type Objects = BTreeMap<(String, String), Value>;

async fn read(cluster: &Cluster, resource: super::rest::Resource) -> Result<Objects, String> {
    let items = cluster.rest().items(resource).await;
    let items = items.map_err(|refused| format!("{}: {refused}", cluster.name))?;
    Ok(items.into_iter().map(|object| (key(&object), object)).collect())
}

/// Waits until everything has converged.
pub(crate) async fn converges(testbed: &Testbed) {
    converges_within(testbed, SOON).await;
}

/// Waits until everything has converged and nothing is written any longer, and resets the counts.
pub(crate) async fn settles(testbed: &Testbed) {
    converges(testbed).await;
    wait_until_idle(testbed).await;
    testbed.reset_counts();
}

pub(crate) async fn converges_within(testbed: &Testbed, timeout: Duration) {
    eventually("everything has converged", timeout, async || converged(testbed).await).await;
}

/// Waits until throughline is idle, checks the clusters and its writes, and stops it.
pub(crate) async fn ends_well(testbed: &Testbed, throughline: Throughline) {
    wait_until_idle(testbed).await;
    converged(testbed).await.unwrap();
    no_needless_write(testbed).unwrap();
    throughline.stop().await;
}

/// Whether every hub annotation equals the upstream status, every edge has the hub's annotations, every
/// gateway announces its connectors' liveness at the edge, and nothing else was written.
pub(crate) async fn converged(testbed: &Testbed) -> Result<(), String> {
    mirrored(testbed).await?;
    if testbed.topology == Topology::Three {
        carried(testbed).await?;
    }
    touched(testbed.edge(), testbed.topology).await
}

async fn mirrored(testbed: &Testbed) -> Result<(), String> {
    let sources = read(testbed.upstream(), CONNECTORS).await?;
    for ((namespace, name), hub_connector) in read(testbed.hub(), CONNECTORS).await? {
        let label = |field: &str| {
            hub_connector["metadata"]["labels"][format!("{META}/{field}")]
                .as_str()
                .unwrap_or_default()
        };
        let said = annotation(&hub_connector, UPSTREAM_STATUS);
        let what = format!("annotation of {namespace}/{name} at {}", testbed.hub().name);
        if label("upstream-kind") != "Connector" {
            ensure(said.is_none(), || {
                format!("{what}: it was not made from an upstream Connector, and has one")
            })?;
            continue;
        }
        let cluster = upstream_cluster_name(label("upstream-cluster-name")).unwrap_or_default();
        let server = testbed.upstream().name;
        if cluster != server && !cluster.starts_with(&format!("{server}-")) {
            continue;
        }
        let source = (label("upstream-namespace").to_owned(), label("upstream-name").to_owned());
        let wanted = sources.get(&source).map(|source| &source["status"]).filter(|s| !s.is_null());
        let said: Option<Value> = match said {
            Some(text) => Some(serde_json::from_str(text).map_err(|e| format!("{what}: {e}"))?),
            None => None,
        };
        ensure(said.as_ref() == wanted, || format!("{what}: {said:?}, expected {wanted:?}"))?;
    }
    Ok(())
}

async fn carried(testbed: &Testbed) -> Result<(), String> {
    let templates = read(testbed.hub(), CONNECTORS).await?;
    let copies = read(testbed.edge(), CONNECTORS).await?;
    for (key, template) in &templates {
        let copy = copies.get(key).ok_or_else(|| format!("{key:?} is not at the edge"))?;
        let [wanted, found] = [template, copy].map(|o| annotation(o, UPSTREAM_STATUS));
        ensure(wanted == found, || format!("{key:?} at the edge: {found:?}, expected {wanted:?}"))?;
    }
    let extra = copies.keys().find(|key| !templates.contains_key(*key));
    extra.map_or(Ok(()), |key| Err(format!("{key:?} is at the edge only")))
}

async fn touched(edge: &Cluster, topology: Topology) -> Result<(), String> {
    let connectors = read(edge, CONNECTORS).await?;
    let proxies = read(edge, PROXIES).await?;
    for (key, gateway) in read(edge, GATEWAYS).await? {
        let value = annotation(&gateway, TRIGGER);
        let what = || format!("trigger of {}/{} at {}", key.0, key.1, edge.name);
        let named = proxies.get(&key).map(referenced).unwrap_or_default();
        let is_ours = topology != Topology::One || key.0.starts_with("ns-");
        if named.is_empty() || !is_ours {
            ensure(value.is_none(), || format!("{}: {value:?}, expected none", what()))?;
            continue;
        }
        let wanted = digest(named.iter().map(|name| {
            let connector = connectors.get(&(key.0.clone(), name.clone()));
            let live = connector.map(|c| c["status"].clone()).filter(|status| !status.is_null());
            let said = connector.and_then(|c| annotation(c, UPSTREAM_STATUS));
            let now = liveness::read(said, live.map(|status| status.to_string()).as_deref());
            connector_part(name, now.online, &now.node_id)
        }));
        let found = value.and_then(Trigger::parse).map(|trigger| trigger.digest);
        ensure(found == Some(wanted), || {
            format!("{}: {value:?}, expected {wanted:016x}-…", what())
        })?;
    }
    Ok(())
}

/// The connectors that a proxy refers to.
fn referenced(proxy: &Value) -> BTreeSet<String> {
    let lists = |value: &Value| value.as_array().cloned().unwrap_or_default();
    lists(&proxy["spec"]["rules"])
        .iter()
        .flat_map(|rule| lists(&rule["backends"]))
        .filter_map(|backend| backend["connector"]["name"].as_str().map(str::to_owned))
        .collect()
}

/// Checks that every write changed something and that no trigger value was written twice to one
/// gateway. Only for clusters that throughline reaches through the proxies.
pub(crate) fn no_needless_write(testbed: &Testbed) -> Result<(), String> {
    for cluster in &testbed.clusters {
        let mut versions = BTreeSet::new();
        let mut values = BTreeSet::new();
        for write in cluster.proxy.writes() {
            let target = &write.target;
            let object = format!("{} {}/{}", target.resource, target.namespace, target.name);
            if (200..300).contains(&write.code) && target.method == "PATCH" {
                let is_new = versions.insert((object.clone(), write.resource_version.clone()));
                ensure(is_new, || {
                    format!("{}: {object}: {} changed nothing", cluster.name, write.body)
                })?;
                if let Some(value) = written_annotation(&write.body, TRIGGER) {
                    let is_new = values.insert((object.clone(), value.to_owned()));
                    ensure(is_new, || {
                        format!("{}: {object}: {value} a second time", cluster.name)
                    })?;
                }
            }
        }
    }
    Ok(())
}
