//! What must be true when all has come to rest, read from the API servers themselves. It knows
//! liveness and digests from throughline's library, and nothing of the machine.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::Value;
use throughline::core::liveness;
use throughline::core::objects::upstream_cluster_name;
use throughline::core::trigger::{Trigger, connector_part, digest};

use super::objects::{META, TRIGGER, UPSTREAM_STATUS, annotation, key};
use super::rest::{CONNECTORS, GATEWAYS, PROXIES, Refused};
use super::throughline::Throughline;
use super::world::{Cluster, Topology, World};
use super::{SOON, ensure, eventually, quiet};

type Objects = BTreeMap<(String, String), Value>;

async fn read(cluster: &Cluster, resource: super::rest::Resource) -> Result<Objects, String> {
    let items = cluster.rest().items(resource).await;
    let items = items.map_err(|refused: Refused| format!("{}: {refused}", cluster.name))?;
    Ok(items.into_iter().map(|object| (key(&object), object)).collect())
}

/// Waits until everything has converged.
pub(crate) async fn converges(world: &World) {
    converges_within(world, SOON).await;
}

pub(crate) async fn converges_within(world: &World, timeout: Duration) {
    eventually("everything has converged", timeout, async || converged(world).await).await;
}

/// All comes to rest, is right, took no write too many, and the process stops as it should.
pub(crate) async fn ends_well(world: &World, throughline: Throughline) {
    quiet(world).await;
    converged(world).await.unwrap();
    no_needless_write(world).unwrap();
    throughline.stop().await;
}

/// Every hub annotation means what upstream says, every edge has what the hub has, every gateway
/// announces what its connectors are at the edge; and what is none of our business is untouched.
pub(crate) async fn converged(world: &World) -> Result<(), String> {
    mirrored(world).await?;
    if world.topology == Topology::Three {
        carried(world).await?;
    }
    touched(world.edge(), world.topology).await
}

async fn mirrored(world: &World) -> Result<(), String> {
    let sources = read(world.upstream(), CONNECTORS).await?;
    for ((namespace, name), replica) in read(world.hub(), CONNECTORS).await? {
        let label = |field: &str| {
            replica["metadata"]["labels"][format!("{META}/{field}")].as_str().unwrap_or_default()
        };
        let said = annotation(&replica, UPSTREAM_STATUS);
        let what = format!("annotation of {namespace}/{name} at {}", world.hub().name);
        if label("upstream-kind") != "Connector" {
            ensure(said.is_none(), || format!("{what}: it is no replica, and has one"))?;
            continue;
        }
        let cluster = upstream_cluster_name(label("upstream-cluster-name")).unwrap_or_default();
        if cluster != world.upstream().name {
            continue;
        }
        let source = (label("upstream-namespace").to_owned(), label("upstream-name").to_owned());
        let wanted = sources.get(&source).map(|source| &source["status"]).filter(|s| !s.is_null());
        let said: Option<Value> = match said {
            Some(text) => Some(serde_json::from_str(text).map_err(|e| format!("{what}: {e}"))?),
            None => None,
        };
        ensure(said.as_ref() == wanted, || {
            let [said, wanted] = [said.as_ref(), wanted].map(|s| s.map_or("none".into(), brief));
            format!("{what}: {said} instead of {wanted}")
        })?;
    }
    Ok(())
}

/// What tells one status from another, in a line.
fn brief(status: &Value) -> String {
    let is_ready = |condition: &&Value| condition["type"] == "Ready";
    let ready = status["conditions"].as_array().and_then(|list| list.iter().find(is_ready));
    let node = &status["connectionDetails"]["publicKey"]["id"];
    format!("Ready {} on {node}", ready.map_or(&Value::Null, |ready| &ready["status"]))
}

async fn carried(world: &World) -> Result<(), String> {
    let templates = read(world.hub(), CONNECTORS).await?;
    let copies = read(world.edge(), CONNECTORS).await?;
    for (key, template) in &templates {
        let copy = copies.get(key).ok_or_else(|| format!("{key:?} is not at the edge"))?;
        let [wanted, found] = [template, copy].map(|o| annotation(o, UPSTREAM_STATUS));
        ensure(wanted == found, || format!("{key:?} at the edge: {found:?}, not {wanted:?}"))?;
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
            ensure(value.is_none(), || format!("{}: {value:?} instead of none", what()))?;
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
            format!("{}: {value:?} instead of {wanted:016x}-…", what())
        })?;
    }
    Ok(())
}

/// The connectors that a proxy names.
fn referenced(proxy: &Value) -> BTreeSet<String> {
    let lists = |value: &Value| value.as_array().cloned().unwrap_or_default();
    lists(&proxy["spec"]["rules"])
        .iter()
        .flat_map(|rule| lists(&rule["backends"]))
        .filter_map(|backend| backend["connector"]["name"].as_str().map(str::to_owned))
        .collect()
}

/// No write came to a cluster that changed nothing, and no trigger value was written twice to one
/// gateway. For worlds that throughline reaches through the proxies.
pub(crate) fn no_needless_write(world: &World) -> Result<(), String> {
    for cluster in &world.clusters {
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
                if let Some(value) = annotation(&write.body, TRIGGER) {
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
