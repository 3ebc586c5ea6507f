//! What users saw: the times during which a gateway's Envoy was programmed with a state other than
//! the one upstream reported for a connector.

use std::collections::{BTreeMap, BTreeSet};

use crate::core::contract::event::{ClusterSpec, Event, EventKind};
use crate::core::contract::settings::{Settings, TouchScope, TouchSettings};
use crate::core::data::ids::{ClusterName, Kind, Role};
use crate::core::data::name::NamespacedName;
use crate::core::data::objects::{
    Body, Object, PLATFORM_KEY, UPSTREAM_CLUSTER_NAME, UPSTREAM_STATUS,
};
use crate::core::data::time::UnixMillis;
use crate::core::status::trigger::NodeIds;
use crate::replay::ConnectorNames;

mod answers;
mod compare;
mod edge;
mod found;
mod lists;
mod meter;

pub use answers::Answers;
use edge::{ReportedState, TrackedEdge, announced, hash};
pub use found::{Outage, OutageKind};
pub use meter::UserImpactMeter;

/// Follows one timeline and finds its outages.
///
/// It assumes that Envoy is programmed with the state of the edge's Connector at the moment its
/// gateway is translated: when the gateway or its proxy appears or changes, and when its trigger is
/// written. It does not model the extension server's own delay.
pub struct OutageTracker {
    edges: BTreeMap<ClusterName, TrackedEdge>,
    /// The connectors of each upstream cluster.
    upstreams: BTreeMap<ClusterName, BTreeMap<NamespacedName, ReportedState>>,
    /// Upstreams that have listed their connectors. The state of the others is unknown.
    listed_upstreams: BTreeSet<ClusterName>,
    /// There is a hub, so each connector has an upstream that this instance may follow.
    has_hub: bool,
    /// The upstream Connector of each hub or edge Connector, and the other way round.
    upstream_of: BTreeMap<NamespacedName, (ClusterName, NamespacedName)>,
    downstream_of: BTreeMap<ClusterName, BTreeMap<NamespacedName, NamespacedName>>,
    touch: TouchSettings,
    platform_key_heals: bool,
    node_ids: NodeIds,
    /// The lists in progress, and what they have shown so far.
    listing: BTreeMap<(ClusterName, Kind), BTreeSet<NamespacedName>>,
    /// Upstreams whose Connector watch is lost. It makes answers unknown, and ends no outage.
    lost_upstreams: BTreeSet<ClusterName>,
    /// Edges whose answers have changed since they were last taken.
    changed: BTreeSet<ClusterName>,
    ended: Vec<GatewayOutage>,
}

struct GatewayOutage {
    edge: ClusterName,
    connector: NamespacedName,
    kind: OutageKind,
    from: UnixMillis,
    until: Option<UnixMillis>,
    by_platform_key: bool,
}

fn name_of(object: &Object) -> NamespacedName {
    NamespacedName::new(&object.meta.namespace, &object.meta.name)
}

fn tracked_edge(touch: &TouchSettings, edge: &ClusterName) -> TrackedEdge {
    let merged = touch.scope_of(edge) == TouchScope::GatewayClass;
    TrackedEdge { merged, ..TrackedEdge::default() }
}

impl OutageTracker {
    /// With `platform_key_heals`, a write of the platform's own key counts as a translation. Use it
    /// for recordings: someone who wrote the key by hand meant it to heal.
    pub fn new(clusters: &[ClusterSpec], settings: &Settings, platform_key_heals: bool) -> Self {
        let with = |role: Role| clusters.iter().filter(move |c| c.roles.contains(&role));
        let edge = |c: &ClusterSpec| (c.name.clone(), tracked_edge(&settings.touch, &c.name));
        Self {
            edges: with(Role::Edge).map(edge).collect(),
            upstreams: with(Role::Upstream).map(|c| (c.name.clone(), BTreeMap::new())).collect(),
            listed_upstreams: BTreeSet::new(),
            has_hub: with(Role::Hub).next().is_some(),
            upstream_of: BTreeMap::new(),
            downstream_of: BTreeMap::new(),
            touch: settings.touch.clone(),
            platform_key_heals,
            node_ids: NodeIds::default(),
            listing: BTreeMap::new(),
            lost_upstreams: BTreeSet::new(),
            changed: BTreeSet::new(),
            ended: Vec::new(),
        }
    }

    /// A tracker that reads such node ids; those of clusters if this is not called.
    pub fn with_node_ids(mut self, node_ids: NodeIds) -> Self {
        self.node_ids = node_ids;
        self
    }

    /// Takes the timeline's next event.
    pub fn observe(&mut self, event: &Event) {
        let at = event.at;
        match &event.kind {
            EventKind::ListStarted { cluster, kind } => {
                self.listing.insert((cluster.clone(), *kind), BTreeSet::new());
            }
            EventKind::Listed { cluster, object } => {
                if let Some(list) = self.listing.get_mut(&(cluster.clone(), object.kind())) {
                    list.insert(name_of(object));
                }
                self.object_changed(at, cluster, object);
            }
            EventKind::Applied { cluster, object } => self.object_changed(at, cluster, object),
            EventKind::Deleted { cluster, object } => {
                self.object_gone(at, cluster, object.kind(), &name_of(object));
            }
            EventKind::WatchLost { cluster, kind, .. } => self.watch_lost(at, cluster, *kind),
            EventKind::WatchResumed { cluster, kind } => self.watch_is_back(at, cluster, *kind),
            EventKind::ClusterAdded { cluster, roles } => {
                let was_edge_alone = self.is_edge_alone();
                self.cluster_left(at, cluster);
                self.has_hub |= roles.contains(&Role::Hub);
                if roles.contains(&Role::Upstream) {
                    self.upstreams.insert(cluster.clone(), BTreeMap::new());
                }
                if roles.contains(&Role::Edge) {
                    self.edges.insert(cluster.clone(), tracked_edge(&self.touch, cluster));
                }
                if was_edge_alone != self.is_edge_alone() {
                    self.compare_all(at);
                }
            }
            EventKind::ClusterRemoved { cluster } => {
                let was_edge_alone = self.is_edge_alone();
                self.cluster_left(at, cluster);
                if was_edge_alone != self.is_edge_alone() {
                    self.compare_all(at);
                }
            }
            EventKind::ListFinished { cluster, kind } => {
                self.remove_unlisted(at, cluster, *kind);
                let was_lost = self.edges.get(cluster).is_some_and(|e| e.lost.contains(kind));
                self.watch_is_back(at, cluster, *kind);
                if was_lost {
                    self.merged_edge_is_back(at, cluster);
                }
                if *kind == Kind::Connector
                    && self.upstreams.contains_key(cluster)
                    && self.listed_upstreams.insert(cluster.clone())
                {
                    self.compare_all_of(at, cluster);
                }
                let Some(edge) = self.edges.get_mut(cluster) else { return };
                if matches!(kind, Kind::Connector | Kind::HttpProxy | Kind::Gateway)
                    && edge.listed.insert(*kind)
                    && edge.is_ready()
                {
                    for key in edge.gateway_names() {
                        edge.translate_found(&key);
                    }
                    self.compare_edge(at, cluster);
                }
            }
            _ => {}
        }
    }

    /// Nothing here follows upstreams: the edge Connector is all that is known.
    fn is_edge_alone(&self) -> bool {
        self.upstreams.is_empty() && !self.has_hub
    }

    /// How the Gateways of an edge answer now; `None` for an edge that is gone.
    fn answers(&self, edge: &ClusterName) -> Option<Answers> {
        let edge = self.edges.get(edge)?;
        Some(if edge.lost.is_empty() { edge.answers } else { edge.answers.all_unknown() })
    }

    /// Nothing is known of the cluster any longer. What its edge's users saw ends here.
    fn cluster_left(&mut self, at: UnixMillis, cluster: &ClusterName) {
        let was_listed = self.listed_upstreams.remove(cluster);
        self.lost_upstreams.remove(cluster);
        self.listing.retain(|(listed, _), _| listed != cluster);
        self.changed.insert(cluster.clone());
        if self.upstreams.remove(cluster).is_some() && was_listed {
            self.compare_all_of(at, cluster);
        }
        if let Some(edge) = self.edges.remove(cluster) {
            self.end_all_of(cluster, edge, Some(at));
        }
    }

    /// Ends the open outages of an edge; without a time, nobody saw their end.
    fn end_all_of(&mut self, cluster: &ClusterName, edge: TrackedEdge, until: Option<UnixMillis>) {
        for (connector, kind, from) in edge.gateways.into_values().flat_map(|g| g.open) {
            self.ended.push(GatewayOutage {
                edge: cluster.clone(),
                connector,
                kind,
                from,
                until,
                by_platform_key: false,
            });
        }
    }

    fn object_changed(&mut self, at: UnixMillis, cluster: &ClusterName, object: &Object) {
        let key = name_of(object);
        match &object.body {
            Body::Connector { .. } => {
                let has_upstream = self.link_to_upstream(&key, object);
                if !has_upstream && let Some(upstream) = self.upstreams.get_mut(cluster) {
                    let before = upstream.get(&key).copied();
                    let name = &object.meta.name;
                    let status = object.status();
                    let state = ReportedState::read(self.node_ids, before, name, None, status);
                    upstream.insert(key.clone(), state);
                    if before.is_none_or(|b| b.route != state.route) {
                        self.compare_downstream(at, cluster, &key);
                    }
                }
                if let Some(edge) = self.edges.get_mut(cluster) {
                    let annotation = object.meta.annotations.get(UPSTREAM_STATUS);
                    let before = edge.connectors.get(&key).copied();
                    let name = &object.meta.name;
                    let status = object.status();
                    let state =
                        ReportedState::read(self.node_ids, before, name, annotation, status);
                    edge.connectors.insert(key.clone(), state);
                    if before.is_none_or(|b| b.route != state.route) {
                        for gateway in edge.referrers.get(&key).cloned().iter().flatten() {
                            edge.translate_announced(gateway);
                        }
                        self.compare_connector(at, cluster, &key);
                    }
                }
            }
            Body::HttpProxy { connectors } => {
                let connectors: Vec<_> = connectors
                    .iter()
                    .map(|name| NamespacedName::new(key.namespace(), name))
                    .collect();
                let Some(edge) = self.edges.get_mut(cluster) else { return };
                if edge.proxies.get(&key) == Some(&connectors) {
                    return;
                }
                edge.set_proxy(&key, connectors);
                edge.translate(&key);
                self.compare(at, cluster, &key, false);
            }
            Body::Gateway { class, .. } => self.gateway_changed(at, cluster, &key, class, object),
            Body::HttpRoute { .. } | Body::Namespace => {}
        }
    }

    fn gateway_changed(
        &mut self,
        at: UnixMillis,
        cluster: &ClusterName,
        key: &NamespacedName,
        class: &str,
        object: &Object,
    ) {
        let Some(edge) = self.edges.get_mut(cluster) else { return };
        let is_new = !edge.gateways.contains_key(key);
        let gateway = edge.gateways.entry(key.clone()).or_default();
        if *gateway.class != *class {
            gateway.class = class.into();
        }
        let trigger = object.meta.annotations.get(&self.touch.key);
        let trigger_hash = hash(trigger);
        gateway.announced = announced(trigger);
        let platform_key_hash = hash(object.meta.annotations.get(PLATFORM_KEY));
        let triggered = trigger_hash != gateway.trigger_hash;
        let stamped = platform_key_hash != gateway.platform_key_hash && self.platform_key_heals;
        (gateway.trigger_hash, gateway.platform_key_hash) = (trigger_hash, platform_key_hash);
        if !(is_new || triggered || stamped) {
            return;
        }
        let heals_class = edge.merged && triggered && !is_new;
        let healed: Vec<_> = if heals_class {
            let of_class = edge.gateways.iter().filter(|(_, g)| *g.class == *class);
            of_class.map(|(k, _)| k.clone()).collect()
        } else {
            vec![key.clone()]
        };
        for key in &healed {
            match self.edges.get_mut(cluster) {
                Some(edge) if is_new => edge.translate_found(key),
                Some(edge) => edge.translate(key),
                None => {}
            }
            self.compare(at, cluster, key, stamped && !triggered);
        }
    }

    /// Learns, once, from a hub or edge Connector's labels which upstream Connector it stands for;
    /// false for a Connector without such labels.
    fn link_to_upstream(&mut self, key: &NamespacedName, object: &Object) -> bool {
        if self.upstream_of.contains_key(key) {
            return object.meta.labels.get(UPSTREAM_CLUSTER_NAME).is_some();
        }
        let Some((cluster, namespace, name)) = object.meta.upstream() else { return false };
        let cluster = ClusterName::from(cluster.as_str());
        let upstream = NamespacedName::new(namespace, name);
        let downstream = self.downstream_of.entry(cluster.clone()).or_default();
        downstream.insert(upstream.clone(), key.clone());
        self.upstream_of.insert(key.clone(), (cluster, upstream));
        true
    }

    /// The connectors seen with upstream labels, in order.
    pub fn connectors(&self) -> Vec<ConnectorNames> {
        let mut connectors: Vec<_> = self
            .upstream_of
            .iter()
            .map(|(hub, (cluster, upstream))| ConnectorNames {
                upstream: Some((cluster.to_string(), upstream.key())),
                hub: hub.key(),
            })
            .collect();
        connectors.sort_unstable();
        connectors
    }

    fn object_gone(
        &mut self,
        at: UnixMillis,
        cluster: &ClusterName,
        kind: Kind,
        key: &NamespacedName,
    ) {
        match kind {
            Kind::Connector => {
                let upstream = self.upstreams.get_mut(cluster);
                if upstream.and_then(|u| u.remove(key)).is_some_and(|before| before.route.online) {
                    self.compare_downstream(at, cluster, key);
                }
                if let Some(edge) = self.edges.get_mut(cluster) {
                    edge.connectors.remove(key);
                    self.compare_connector(at, cluster, key);
                }
            }
            Kind::HttpProxy => {
                let Some(edge) = self.edges.get_mut(cluster) else { return };
                edge.remove_proxy(key);
                edge.translate(key);
                self.compare(at, cluster, key, false);
            }
            Kind::Gateway => {
                let Some(edge) = self.edges.get_mut(cluster) else { return };
                let Some(gateway) = edge.gateways.get_mut(key) else { return };
                gateway.programmed.clear();
                self.compare(at, cluster, key, false);
                if let Some(edge) = self.edges.get_mut(cluster) {
                    edge.gateways.remove(key);
                }
            }
            Kind::HttpRoute | Kind::Namespace => {}
        }
    }
}
