//! Judges the end of a what-if without the machine's help: does every annotation and every trigger have
//! the right value?

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use throughline::core::contract::event::EventKind;
use throughline::core::contract::settings::{PlatformKeyMode, Settings, TouchScope};
use throughline::core::data::ids::{ClusterName, Kind, ObjectKey, Role};
use throughline::core::data::objects::{Body, Object, PLATFORM_KEY, UPSTREAM_STATUS};
use throughline::core::status::go_json;
use throughline::core::status::liveness;
use throughline::core::status::trigger::{NodeIds, Trigger, digest, gateway_part};
use throughline::event_log::{LogEntry, LogReader};

/// The objects that a log shows at its end.
#[derive(Default)]
struct Objects {
    roles: BTreeMap<ClusterName, Vec<Role>>,
    objects: BTreeMap<(ClusterName, Kind, ObjectKey), Arc<Object>>,
    listing: BTreeMap<(ClusterName, Kind), BTreeSet<ObjectKey>>,
    /// Those that the machine decided to write.
    written: BTreeSet<(ClusterName, ObjectKey)>,
}

impl Objects {
    fn add(&mut self, entry: LogEntry) {
        let event = match entry {
            LogEntry::Event(event) => event.kind,
            LogEntry::Action(decision) => {
                let action = decision.action;
                self.written.insert((action.cluster, action.object));
                return;
            }
            LogEntry::Retired => return,
        };
        match event {
            EventKind::ClusterAdded { cluster, roles } => drop(self.roles.insert(cluster, roles)),
            EventKind::ClusterRemoved { cluster } => {
                self.roles.remove(&cluster);
                self.objects.retain(|(of, ..), _| *of != cluster);
            }
            EventKind::ListStarted { cluster, kind } => {
                self.listing.insert((cluster, kind), BTreeSet::new());
            }
            EventKind::Listed { cluster, object } => {
                let listing = self.listing.entry((cluster.clone(), object.kind())).or_default();
                listing.insert(object.meta.key());
                self.objects.insert((cluster, object.kind(), object.meta.key()), object);
            }
            EventKind::ListFinished { cluster, kind } => {
                let listed = self.listing.remove(&(cluster.clone(), kind)).unwrap_or_default();
                let is_gone = |of: &ClusterName, k: Kind, key: &ObjectKey| {
                    *of == cluster && k == kind && !listed.contains(key)
                };
                self.objects.retain(|(of, k, key), _| !is_gone(of, *k, key));
            }
            EventKind::Applied { cluster, object } => {
                self.objects.insert((cluster, object.kind(), object.meta.key()), object);
            }
            EventKind::Deleted { cluster, object } => {
                self.objects.remove(&(cluster, object.kind(), object.meta.key()));
            }
            _ => {}
        }
    }

    fn with_role(&self, role: Role) -> impl Iterator<Item = &ClusterName> {
        self.roles.iter().filter(move |(_, roles)| roles.contains(&role)).map(|(name, _)| name)
    }

    fn objects(&self, cluster: &ClusterName, kind: Kind) -> impl Iterator<Item = &Arc<Object>> {
        let of_kind =
            self.objects.iter().filter(move |((of, k, _), _)| of == cluster && *k == kind);
        of_kind.map(|(_, object)| object)
    }

    fn get(&self, cluster: &ClusterName, kind: Kind, key: &ObjectKey) -> Option<&Arc<Object>> {
        self.objects.get(&(cluster.clone(), kind, key.clone()))
    }
}

/// What is wrong at the end of a what-if's log: one sentence for each wrong object. Hub Connectors that are
/// held are left out.
pub(crate) fn wrong(log: &[u8], held: &BTreeSet<ObjectKey>) -> Vec<String> {
    let mut reader = LogReader::new("log", log).unwrap();
    let header = reader.header().clone();
    let mut objects = Objects::default();
    for spec in &header.clusters {
        objects.roles.insert(spec.name.clone(), spec.roles.clone());
    }
    while let Some(entry) = reader.next_line().unwrap() {
        objects.add(entry);
    }
    let settings = header.settings.clone().unwrap_or_default();
    problems(&objects, &settings, held, header.node_ids())
}

fn problems(
    clusters: &Objects,
    settings: &Settings,
    held: &BTreeSet<ObjectKey>,
    node_ids: NodeIds,
) -> Vec<String> {
    let mut problems = Vec::new();
    if settings.mirror.enabled {
        for hub in clusters.with_role(Role::Hub) {
            let all = clusters.objects(hub, Kind::Connector);
            for connector in all.filter(|connector| !held.contains(&connector.meta.key())) {
                problems.extend(annotation_problem(clusters, hub, connector));
            }
        }
    }
    if settings.touch.enabled {
        for edge in clusters.with_role(Role::Edge) {
            match settings.touch.scope_of(edge) {
                TouchScope::Gateway => {
                    for gateway in clusters.objects(edge, Kind::Gateway) {
                        let problem = gateway_problem(clusters, settings, edge, gateway, node_ids);
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

fn annotation_problem(clusters: &Objects, hub: &ClusterName, connector: &Object) -> Option<String> {
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
    clusters: &Objects,
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
    clusters: &Objects,
    settings: &Settings,
    edge: &ClusterName,
    gateway: &Object,
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
        None if !clusters.written.contains(&(edge.clone(), key.clone()))
            && settings.touch.platform_key == PlatformKeyMode::Observe
            && gateway.meta.annotations.get(PLATFORM_KEY) == Some(&stamp) =>
        {
            None
        }
        None => Some(format!("{edge}: Gateway {key} has no trigger annotation")),
    }
}

fn class_problems(
    clusters: &Objects,
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
