//! What users saw: spans of time in which a gateway's Envoy was programmed with something else
//! than what upstream said of a connector.

use std::collections::{BTreeMap, BTreeSet};

use crate::core::event::{Event, Happened};
use crate::core::ids::{ClusterName, Key, Kind, Map, Names, ObjectKey, Role};
use crate::core::objects::{Body, Object, PLATFORM_KEY, UPSTREAM_CLUSTER_NAME, UPSTREAM_STATUS};
use crate::core::settings::{Settings, TouchScope};
use crate::core::time::UnixMillis;
use crate::event_log::ClusterSpec;

mod shown;

use shown::{EdgeView, Said, Shown, hash};

/// One span, of one connector at one edge, over all its gateways.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outage {
    /// The edge.
    pub edge: ClusterName,
    /// The connector as it is called there.
    pub connector: ObjectKey,
    /// What was wrong.
    pub kind: OutageKind,
    /// When upstream came to say something else than Envoy was programmed with.
    pub from: UnixMillis,
    /// When the first of its gateways was right again; `None` if none ever was.
    pub first_right: Option<UnixMillis>,
    /// When the last of its gateways was right again; `None` if one never was.
    pub until: Option<UnixMillis>,
    /// How many of its gateways were wrong.
    pub gateways: usize,
    /// It only ended because of the platform's own key, which Envoy Gateway is known not to heed.
    pub by_platform_key: bool,
}

/// What was wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum OutageKind {
    /// Up upstream, programmed offline: users got 503.
    Offline,
    /// Up upstream on one node, programmed to another: users got 503 or a timeout.
    OtherNode,
    /// Down upstream, programmed online: users got a dead tunnel.
    StaleOnline,
}

/// Follows one timeline and finds its outages.
///
/// Envoy is taken to be programmed with what the edge's Connector says at the moment when its
/// gateway is translated: when the gateway or its proxy appears or changes, and when its trigger
/// is written. The extension server's own delay is not modelled.
pub struct Outages {
    names: Names,
    edges: BTreeMap<ClusterName, EdgeView>,
    /// What upstream says of each of its connectors, by cluster.
    upstreams: BTreeMap<ClusterName, Map<Key, Said>>,
    /// Upstreams whose connectors were listed: of others it is not known what they say.
    heard: BTreeSet<ClusterName>,
    /// Which upstream connector a replica is, and the other way round.
    sources: Map<Key, (ClusterName, Key)>,
    replicas: BTreeMap<ClusterName, Map<Key, Key>>,
    trigger_key: String,
    platform_key_heals: bool,
    ended: Vec<Span>,
}

struct Span {
    edge: ClusterName,
    connector: Key,
    kind: OutageKind,
    from: UnixMillis,
    until: Option<UnixMillis>,
    by_platform_key: bool,
}

impl Outages {
    /// A tracker for these clusters. `platform_key_heals`: a write of the platform's own key
    /// counts as a translation, as whoever wrote it by hand will have hoped.
    pub fn new(clusters: &[ClusterSpec], settings: &Settings, platform_key_heals: bool) -> Self {
        let with = |role: Role| clusters.iter().filter(move |c| c.roles.contains(&role));
        let view = |c: &ClusterSpec| {
            let merged = settings.touch.scope_of(&c.name) == TouchScope::GatewayClass;
            (c.name.clone(), EdgeView { merged, ..EdgeView::default() })
        };
        Self {
            names: Names::default(),
            edges: with(Role::Edge).map(view).collect(),
            upstreams: with(Role::Upstream).map(|c| (c.name.clone(), Map::default())).collect(),
            heard: BTreeSet::new(),
            sources: Map::default(),
            replicas: BTreeMap::new(),
            trigger_key: settings.touch.key.clone(),
            platform_key_heals,
            ended: Vec::new(),
        }
    }

    /// The next event of the timeline.
    pub fn observe(&mut self, event: &Event) {
        let at = event.at;
        match &event.what {
            Happened::Listed { cluster, object } | Happened::Applied { cluster, object } => {
                self.seen(at, cluster, object);
            }
            Happened::Deleted { cluster, object } => self.gone(at, cluster, object),
            Happened::ListFinished { cluster, kind } => {
                if *kind == Kind::Connector
                    && self.upstreams.contains_key(cluster)
                    && self.heard.insert(cluster.clone())
                {
                    self.compare_all(at);
                }
                let Some(edge) = self.edges.get_mut(cluster) else { return };
                if matches!(kind, Kind::Connector | Kind::HttpProxy | Kind::Gateway)
                    && edge.listed.insert(*kind)
                    && edge.is_ready()
                {
                    let keys: Vec<_> = edge.gateways.keys().copied().collect();
                    keys.into_iter().for_each(|key| edge.is_translated(key));
                    self.compare_all(at);
                }
            }
            _ => {}
        }
    }

    fn seen(&mut self, at: UnixMillis, cluster: &ClusterName, object: &Object) {
        let key = self.names.key(&object.meta.namespace, &object.meta.name);
        match &object.body {
            Body::Connector { .. } => {
                let is_replica = self.link(key, object);
                if !is_replica && let Some(upstream) = self.upstreams.get_mut(cluster) {
                    let before = upstream.get(&key).copied();
                    let said = Said::read(before, None, object.status());
                    upstream.insert(key, said);
                    if before.is_none_or(|b| b.shown != said.shown) {
                        self.truth_changed(at, cluster, key);
                    }
                }
                if let Some(edge) = self.edges.get_mut(cluster) {
                    let annotation = object.meta.annotations.get(UPSTREAM_STATUS);
                    let before = edge.connectors.get(&key).copied();
                    let said = Said::read(before, annotation, object.status());
                    edge.connectors.insert(key, said);
                    if before.is_none_or(|b| b.shown != said.shown) {
                        self.compare_connector(at, cluster, key);
                    }
                }
            }
            Body::HttpProxy { connectors } => {
                let connectors: Vec<_> = connectors.iter().map(|c| self.names.intern(c)).collect();
                let Some(edge) = self.edges.get_mut(cluster) else { return };
                if edge.proxies.get(&key) == Some(&connectors) {
                    return;
                }
                edge.set_proxy(key, connectors);
                edge.is_translated(key);
                self.compare(at, cluster, key, false);
            }
            Body::Gateway { class } => self.gateway_seen(at, cluster, key, class, object),
            Body::HttpRoute { .. } | Body::Namespace => {}
        }
    }

    fn gateway_seen(
        &mut self,
        at: UnixMillis,
        cluster: &ClusterName,
        key: Key,
        class: &str,
        object: &Object,
    ) {
        let Some(edge) = self.edges.get_mut(cluster) else { return };
        let is_new = !edge.gateways.contains_key(&key);
        let gateway = edge.gateways.entry(key).or_default();
        if *gateway.class != *class {
            gateway.class = class.into();
        }
        let trigger = hash(object.meta.annotations.get(&self.trigger_key));
        let platform = hash(object.meta.annotations.get(PLATFORM_KEY));
        let triggered = trigger != gateway.trigger;
        let stamped = platform != gateway.platform && self.platform_key_heals;
        (gateway.trigger, gateway.platform) = (trigger, platform);
        if !(is_new || triggered || stamped) {
            return;
        }
        let merged = edge.merged && triggered && !is_new;
        let healed: Vec<_> = if merged {
            let of_class = edge.gateways.iter().filter(|(_, g)| *g.class == *class);
            of_class.map(|(k, _)| *k).collect()
        } else {
            vec![key]
        };
        for key in healed {
            if let Some(edge) = self.edges.get_mut(cluster) {
                edge.is_translated(key);
            }
            self.compare(at, cluster, key, stamped && !triggered);
        }
    }

    /// Learns from a replica's labels, once, which upstream connector it is.
    fn link(&mut self, key: Key, object: &Object) -> bool {
        if self.sources.contains_key(&key) {
            return object.meta.labels.get(UPSTREAM_CLUSTER_NAME).is_some();
        }
        let Some((cluster, namespace, name)) = object.meta.upstream() else { return false };
        let cluster = ClusterName::from(cluster.as_str());
        let source = self.names.key(namespace, name);
        self.replicas.entry(cluster.clone()).or_default().insert(source, key);
        self.sources.insert(key, (cluster, source));
        true
    }

    /// Which upstream connectors are which replicas: cluster and name there, name here.
    pub fn ways(&self) -> Vec<(String, ObjectKey, ObjectKey)> {
        let name = |key: Key| self.names.object_key(key);
        let way = |(&replica, (cluster, source)): (&Key, &(ClusterName, Key))| {
            (cluster.to_string(), name(*source), name(replica))
        };
        let mut ways: Vec<_> = self.sources.iter().map(way).collect();
        ways.sort_unstable();
        ways
    }

    fn truth_changed(&mut self, at: UnixMillis, cluster: &ClusterName, key: Key) {
        let replica = self.replicas.get(cluster).and_then(|r| r.get(&key)).copied();
        let Some(replica) = replica else { return };
        let edges: Vec<_> = self.edges.keys().cloned().collect();
        for edge in edges {
            self.compare_connector(at, &edge, replica);
        }
    }

    fn gone(&mut self, at: UnixMillis, cluster: &ClusterName, object: &Object) {
        let key = self.names.key(&object.meta.namespace, &object.meta.name);
        match object.kind() {
            Kind::Connector => {
                let upstream = self.upstreams.get_mut(cluster);
                if upstream
                    .and_then(|u| u.insert(key, Said::default()))
                    .is_some_and(|s| s.shown.online)
                {
                    self.truth_changed(at, cluster, key);
                }
                if let Some(edge) = self.edges.get_mut(cluster) {
                    edge.connectors.remove(&key);
                    self.compare_connector(at, cluster, key);
                }
            }
            Kind::HttpProxy => {
                let Some(edge) = self.edges.get_mut(cluster) else { return };
                edge.set_proxy(key, Vec::new());
                edge.is_translated(key);
                self.compare(at, cluster, key, false);
            }
            Kind::Gateway => {
                let Some(edge) = self.edges.get_mut(cluster) else { return };
                let Some(gateway) = edge.gateways.get_mut(&key) else { return };
                gateway.programmed.clear();
                self.compare(at, cluster, key, false);
                if let Some(edge) = self.edges.get_mut(cluster) {
                    edge.gateways.remove(&key);
                }
            }
            Kind::HttpRoute | Kind::Namespace => {}
        }
    }

    fn compare_connector(&mut self, at: UnixMillis, cluster: &ClusterName, connector: Key) {
        let gateways = self.edges.get(cluster).and_then(|e| e.referrers.get(&connector));
        for name in gateways.cloned().unwrap_or_default() {
            self.compare(at, cluster, Key { ns: connector.ns, name }, false);
        }
    }

    fn compare_all(&mut self, at: UnixMillis) {
        let keys = |(name, edge): (&ClusterName, &EdgeView)| {
            edge.gateways.keys().map(|key| (name.clone(), *key)).collect::<Vec<_>>()
        };
        let gateways: Vec<_> = self.edges.iter().flat_map(keys).collect();
        for (edge, key) in gateways {
            self.compare(at, &edge, key, false);
        }
    }

    /// Opens and closes the spans of one gateway.
    fn compare(&mut self, at: UnixMillis, cluster: &ClusterName, key: Key, by_platform_key: bool) {
        let Some(edge) = self.edges.get_mut(cluster).filter(|e| e.is_ready()) else { return };
        let Some(gateway) = edge.gateways.get_mut(&key) else { return };
        let mut open = Vec::new();
        for &(name, programmed) in &gateway.programmed {
            let connector = Key { ns: key.ns, name };
            let truth = match self.sources.get(&connector) {
                Some((upstream, source)) if self.upstreams.contains_key(upstream) => {
                    if !self.heard.contains(upstream) {
                        continue;
                    }
                    self.upstreams.get(upstream).and_then(|u| u.get(source))
                }
                _ => edge.connectors.get(&connector),
            };
            let truth = truth.map_or(Shown::default(), |t| t.shown);
            let kind = match (truth.online, programmed.online) {
                (true, false) => OutageKind::Offline,
                (true, true) if truth.node != programmed.node => OutageKind::OtherNode,
                (false, true) => OutageKind::StaleOnline,
                _ => continue,
            };
            let since = gateway.open.iter().find(|(n, k, _)| *n == name && *k == kind);
            open.push((name, kind, since.map_or(at, |(.., from)| *from)));
        }
        for (name, kind, from) in std::mem::replace(&mut gateway.open, open) {
            if !gateway.open.iter().any(|(n, k, _)| *n == name && *k == kind) {
                let connector = Key { ns: key.ns, name };
                let (edge, until) = (cluster.clone(), Some(at));
                self.ended.push(Span { edge, connector, kind, from, until, by_platform_key });
            }
        }
    }

    /// The outages, by when they began; those that are still open have no end.
    pub fn finish(mut self) -> Vec<Outage> {
        for (cluster, edge) in &self.edges {
            for (key, gateway) in &edge.gateways {
                for &(name, kind, from) in &gateway.open {
                    let (edge, connector) = (cluster.clone(), Key { ns: key.ns, name });
                    let span =
                        Span { edge, connector, kind, from, until: None, by_platform_key: false };
                    self.ended.push(span);
                }
            }
        }
        let mut grouped: BTreeMap<_, Vec<Span>> = BTreeMap::new();
        for span in self.ended {
            let connector = self.names.object_key(span.connector);
            let key = (span.from, span.edge.clone(), connector, span.kind);
            grouped.entry(key).or_default().push(span);
        }
        let outage = |((from, edge, connector, kind), spans): (_, Vec<Span>)| Outage {
            edge,
            connector,
            kind,
            from,
            first_right: spans.iter().filter_map(|s| s.until).min(),
            // None is less than any moment: one that never was right makes it so.
            until: spans
                .iter()
                .map(|s| s.until)
                .min()
                .flatten()
                .and(spans.iter().filter_map(|s| s.until).max()),
            gateways: spans.len(),
            by_platform_key: spans.iter().any(|s| s.by_platform_key),
        };
        grouped.into_iter().map(outage).collect()
    }
}
