//! The end of a what-if, looked at without the machine: is everything as it should be?

use std::collections::{BTreeMap, BTreeSet};

use crate::core::ids::{ClusterName, Kind, ObjectKey, Role};
use crate::core::liveness;
use crate::core::objects::{Body, Object, PLATFORM_KEY, UPSTREAM_NAMESPACE, UPSTREAM_STATUS};
use crate::core::settings::{PlatformKeyMode, Settings, TouchScope};
use crate::core::spelling;
use crate::core::trigger::{Trigger, connector_part, digest, gateway_part};
use crate::world::World;

/// Objects that some action was about.
pub(crate) type Touched = BTreeSet<(ClusterName, ObjectKey)>;

/// What is not as it should be, in words.
pub(crate) fn problems(world: &World, settings: &Settings, touched: &Touched) -> Vec<String> {
    let mut problems = Vec::new();
    if settings.mirror.enabled {
        for hub in world.with_role(Role::Downstream) {
            for replica in world.objects(hub, Kind::Connector) {
                problems.extend(replica_problem(world, hub, replica));
            }
        }
    }
    if settings.touch.enabled {
        for edge in world.with_role(Role::Edge) {
            match settings.touch.scope_of(edge) {
                TouchScope::Gateway => {
                    for gateway in world.objects(edge, Kind::Gateway) {
                        problems.extend(gateway_problem(world, settings, edge, gateway, touched));
                    }
                }
                TouchScope::GatewayClass => problems.extend(class_problems(world, settings, edge)),
            }
        }
    }
    problems
}

fn replica_problem(world: &World, hub: &ClusterName, replica: &Object) -> Option<String> {
    let (cluster, namespace, name) = replica.meta.upstream()?;
    let upstream = ClusterName::from(cluster.as_str());
    let key = ObjectKey::new(namespace, name);
    world.with_role(Role::Upstream).find(|c| **c == upstream)?;
    let source = world.get(&upstream, Kind::Connector, &key);
    let namespace = world.get(&upstream, Kind::Namespace, &ObjectKey::new("", &*key.namespace));
    if namespace.is_some_and(|n| *replica.meta.namespace != *format!("ns-{}", n.meta.uid)) {
        return None;
    }
    let status = source.and_then(|s| s.status());
    let is = replica.meta.annotations.get(UPSTREAM_STATUS);
    let should = status.and_then(spelling::spell);
    // The same bytes first: most are, and Go's own spelling of -0.0 reads back as 0.
    if is == should.as_deref() {
        return None;
    }
    let means_the_same = match (is.map(spelling::spell), &should) {
        (Some(Some(is)), Some(should)) => {
            is == *should || status.and_then(spelling::reduce).is_some_and(|reduced| is == reduced)
        }
        _ => false,
    };
    (!means_the_same).then(|| {
        let name = replica.meta.key();
        format!(
            "{hub}: the annotation of Connector {name} does not mean what {key} in {upstream} says"
        )
    })
}

/// The digest that a gateway should announce; `None` when it is not to be written.
fn gateway_digest(world: &World, edge: &ClusterName, key: &ObjectKey) -> Option<(u64, String)> {
    let combined = world.with_role(Role::Upstream).any(|c| c == edge);
    let namespace = world.get(edge, Kind::Namespace, &ObjectKey::new("", &*key.namespace));
    if combined && namespace.is_none_or(|n| n.meta.labels.get(UPSTREAM_NAMESPACE).is_none()) {
        return None;
    }
    let proxy = world.get(edge, Kind::HttpProxy, key)?;
    let Body::HttpProxy { connectors } = &proxy.body else { return None };
    let mut stamp = String::new();
    let mut parts = Vec::new();
    for name in connectors {
        let connector = world.get(edge, Kind::Connector, &ObjectKey::new(&*key.namespace, &**name));
        let liveness =
            connector.map(|c| liveness::read(c.meta.annotations.get(UPSTREAM_STATUS), c.status()));
        let liveness = liveness.unwrap_or_default();
        stamp =
            if liveness.online { format!("true/{}", liveness.node_id) } else { "false/".into() };
        parts.push(connector_part(name, liveness.online, &liveness.node_id));
    }
    (!parts.is_empty()).then(|| (digest(parts), stamp))
}

fn gateway_problem(
    world: &World,
    settings: &Settings,
    edge: &ClusterName,
    gateway: &Object,
    touched: &Touched,
) -> Option<String> {
    let key = gateway.meta.key();
    let (should, stamp) = gateway_digest(world, edge, &key)?;
    let value = gateway.meta.annotations.get(&settings.touch.key).and_then(Trigger::parse);
    let confirmations = settings.touch.confirm_after_ms.len();
    match value {
        Some(value) if value.digest != should => {
            Some(format!("{edge}: Gateway {key} announces something else than its edge says"))
        }
        Some(value) if (value.c as usize) < confirmations => Some(format!(
            "{edge}: Gateway {key} was confirmed {} times of {confirmations}",
            value.c
        )),
        Some(_) => None,
        // Settled before throughline came, and stamped so by the platform.
        None if !touched.contains(&(edge.clone(), key.clone()))
            && settings.touch.platform_key == PlatformKeyMode::Observe
            && gateway.meta.annotations.get(PLATFORM_KEY) == Some(&stamp) =>
        {
            None
        }
        None => Some(format!("{edge}: Gateway {key} announces nothing")),
    }
}

fn class_problems(world: &World, settings: &Settings, edge: &ClusterName) -> Vec<String> {
    let mut sums: BTreeMap<Box<str>, (u64, BTreeSet<u64>)> = BTreeMap::new();
    for gateway in world.objects(edge, Kind::Gateway) {
        let Body::Gateway { class } = &gateway.body else { continue };
        let key = gateway.meta.key();
        let Some((should, _)) = gateway_digest(world, edge, &key) else { continue };
        let (sum, values) = sums.entry(class.clone()).or_default();
        *sum = sum.wrapping_add(gateway_part(&key.namespace, &key.name, should));
        let value = gateway.meta.annotations.get(&settings.touch.key).and_then(Trigger::parse);
        values.extend(value.map(|v| v.digest));
    }
    let wrong = sums.into_iter().filter(|(_, (sum, values))| !values.contains(&digest([*sum])));
    wrong
        .map(|(class, _)| {
            format!("{edge}: no Gateway of class {class} announces what the edge says")
        })
        .collect()
}
