//! What users saw: spans of time in which a gateway's Envoy was programmed with something else
//! than what upstream said of a connector.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::core::event::{Event, Happened};
use crate::core::ids::{ClusterName, Kind, ObjectKey, Role};
use crate::core::liveness::{self, Liveness};
use crate::core::objects::{
    Body, Object, PLATFORM_KEY, UPSTREAM_CLUSTER_NAME, UPSTREAM_NAME, UPSTREAM_NAMESPACE,
    UPSTREAM_STATUS, upstream_cluster_name,
};
use crate::core::settings::{Settings, TouchScope};
use crate::core::time::UnixMillis;
use crate::event_log::ClusterSpec;

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
/// is written. That is the model of DOMAIN section 7, without the extension server's delay.
pub struct Outages {
    edges: BTreeMap<ClusterName, EdgeView>,
    upstreams: BTreeSet<ClusterName>,
    /// What upstream says, by the name at the edge.
    truth: HashMap<(ClusterName, ObjectKey), Liveness>,
    replicas: HashMap<(ClusterName, ObjectKey), ObjectKey>,
    sources: HashMap<ObjectKey, (ClusterName, ObjectKey)>,
    trigger_key: String,
    platform_key_heals: bool,
    ended: Vec<Span>,
}

#[derive(Default)]
struct EdgeView {
    merged: bool,
    listed: BTreeSet<Kind>,
    connectors: HashMap<ObjectKey, Liveness>,
    proxies: HashMap<ObjectKey, Vec<Box<str>>>,
    referrers: HashMap<ObjectKey, BTreeSet<ObjectKey>>,
    gateways: BTreeMap<ObjectKey, GatewayView>,
}

#[derive(Default)]
struct GatewayView {
    class: Box<str>,
    trigger: Option<Box<str>>,
    platform: Option<Box<str>>,
    programmed: BTreeMap<Box<str>, Liveness>,
    open: BTreeMap<Box<str>, (OutageKind, UnixMillis)>,
}

struct Span {
    edge: ClusterName,
    connector: ObjectKey,
    kind: OutageKind,
    from: UnixMillis,
    until: Option<UnixMillis>,
    by_platform_key: bool,
}

impl EdgeView {
    fn is_ready(&self) -> bool {
        self.listed.len() == 3
    }

    fn is_translated(&mut self, key: &ObjectKey) {
        if !self.is_ready() {
            return;
        }
        let Some(gateway) = self.gateways.get_mut(key) else { return };
        let names = self.proxies.get(key).into_iter().flatten();
        gateway.programmed = names
            .map(|name| {
                let connector = ObjectKey::new(&*key.namespace, &**name);
                (name.clone(), self.connectors.get(&connector).cloned().unwrap_or_default())
            })
            .collect();
    }
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
            edges: with(Role::Edge).map(view).collect(),
            upstreams: with(Role::Upstream).map(|c| c.name.clone()).collect(),
            truth: HashMap::new(),
            replicas: HashMap::new(),
            sources: HashMap::new(),
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
                let Some(edge) = self.edges.get_mut(cluster) else { return };
                if matches!(kind, Kind::Connector | Kind::HttpProxy | Kind::Gateway)
                    && edge.listed.insert(*kind)
                    && edge.is_ready()
                {
                    let keys: Vec<_> = edge.gateways.keys().cloned().collect();
                    for key in &keys {
                        edge.is_translated(key);
                    }
                    for key in keys {
                        self.compare(at, cluster, &key, false);
                    }
                }
            }
            _ => {}
        }
    }

    fn seen(&mut self, at: UnixMillis, cluster: &ClusterName, object: &Object) {
        let key = object.meta.key();
        match &object.body {
            Body::Connector { .. } => {
                let is_replica = self.link(&key, object);
                if self.upstreams.contains(cluster) && !is_replica {
                    let liveness = liveness::read(None, object.status());
                    self.truth_is(at, cluster, &key, liveness);
                }
                if let Some(edge) = self.edges.get_mut(cluster) {
                    let annotation = object.meta.annotations.get(UPSTREAM_STATUS);
                    let liveness = liveness::read(annotation, object.status());
                    edge.connectors.insert(key.clone(), liveness);
                    self.compare_connector(at, cluster, &key);
                }
            }
            Body::HttpProxy { connectors } => {
                let Some(edge) = self.edges.get_mut(cluster) else { return };
                let old = edge.proxies.insert(key.clone(), connectors.clone()).unwrap_or_default();
                if old == *connectors {
                    return;
                }
                let name = |n: &Box<str>| ObjectKey::new(&*key.namespace, &**n);
                for connector in old.iter().map(name) {
                    if let Some(proxies) = edge.referrers.get_mut(&connector) {
                        proxies.remove(&key);
                    }
                }
                for connector in connectors.iter().map(name) {
                    edge.referrers.entry(connector).or_default().insert(key.clone());
                }
                edge.is_translated(&key);
                self.compare(at, cluster, &key, false);
            }
            Body::Gateway { class } => self.gateway_seen(at, cluster, key, class, object),
            Body::HttpRoute { .. } | Body::Namespace => {}
        }
    }

    fn gateway_seen(
        &mut self,
        at: UnixMillis,
        cluster: &ClusterName,
        key: ObjectKey,
        class: &str,
        object: &Object,
    ) {
        let Some(edge) = self.edges.get_mut(cluster) else { return };
        let is_new = !edge.gateways.contains_key(&key);
        let gateway = edge.gateways.entry(key.clone()).or_default();
        gateway.class = class.into();
        let annotation = |k: &str| object.meta.annotations.get(k).map(Box::from);
        let (trigger, platform) = (annotation(&self.trigger_key), annotation(PLATFORM_KEY));
        let triggered = trigger != gateway.trigger;
        let stamped = platform != gateway.platform && self.platform_key_heals;
        (gateway.trigger, gateway.platform) = (trigger, platform);
        if !(is_new || triggered || stamped) {
            return;
        }
        let merged = edge.merged && triggered && !is_new;
        let class = gateway.class.clone();
        let healed: Vec<_> = if merged {
            edge.gateways.iter().filter(|(_, g)| g.class == class).map(|(k, _)| k.clone()).collect()
        } else {
            vec![key]
        };
        for key in healed {
            if let Some(edge) = self.edges.get_mut(cluster) {
                edge.is_translated(&key);
            }
            self.compare(at, cluster, &key, stamped && !triggered);
        }
    }

    /// Learns from a replica's labels which upstream connector it is.
    fn link(&mut self, key: &ObjectKey, object: &Object) -> bool {
        let label = |k| object.meta.labels.get(k).filter(|v| !v.is_empty());
        let names = || {
            let cluster = upstream_cluster_name(label(UPSTREAM_CLUSTER_NAME)?)?;
            let source = ObjectKey::new(label(UPSTREAM_NAMESPACE)?, label(UPSTREAM_NAME)?);
            Some((ClusterName::from(cluster.as_str()), source))
        };
        let Some(source) = names() else { return false };
        if self.sources.get(key) != Some(&source) {
            self.replicas.insert(source.clone(), key.clone());
            self.sources.insert(key.clone(), source);
        }
        true
    }

    fn truth_is(
        &mut self,
        at: UnixMillis,
        cluster: &ClusterName,
        key: &ObjectKey,
        liveness: Liveness,
    ) {
        let source = (cluster.clone(), key.clone());
        if self.truth.get(&source) == Some(&liveness) {
            return;
        }
        let replica = self.replicas.get(&source).cloned();
        self.truth.insert(source, liveness);
        let Some(replica) = replica else { return };
        let edges: Vec<_> = self.edges.keys().cloned().collect();
        for edge in edges {
            self.compare_connector(at, &edge, &replica);
        }
    }

    fn gone(&mut self, at: UnixMillis, cluster: &ClusterName, object: &Object) {
        let key = object.meta.key();
        match object.kind() {
            Kind::Connector => {
                if self.upstreams.contains(cluster) {
                    self.truth_is(at, cluster, &key, Liveness::default());
                }
                if let Some(edge) = self.edges.get_mut(cluster) {
                    edge.connectors.remove(&key);
                    self.compare_connector(at, cluster, &key);
                }
            }
            Kind::HttpProxy => {
                let Some(edge) = self.edges.get_mut(cluster) else { return };
                for name in edge.proxies.remove(&key).unwrap_or_default() {
                    let connector = ObjectKey::new(&*key.namespace, name);
                    if let Some(proxies) = edge.referrers.get_mut(&connector) {
                        proxies.remove(&key);
                    }
                }
                edge.is_translated(&key);
                self.compare(at, cluster, &key, false);
            }
            Kind::Gateway => {
                if let Some(gateway) =
                    self.edges.get_mut(cluster).and_then(|e| e.gateways.get_mut(&key))
                {
                    gateway.programmed.clear();
                    self.compare(at, cluster, &key, false);
                    if let Some(edge) = self.edges.get_mut(cluster) {
                        edge.gateways.remove(&key);
                    }
                }
            }
            Kind::HttpRoute | Kind::Namespace => {}
        }
    }

    fn compare_connector(&mut self, at: UnixMillis, cluster: &ClusterName, connector: &ObjectKey) {
        let gateways = self.edges.get(cluster).and_then(|e| e.referrers.get(connector));
        for gateway in gateways.cloned().unwrap_or_default() {
            self.compare(at, cluster, &gateway, false);
        }
    }

    /// Opens and closes the spans of one gateway.
    fn compare(
        &mut self,
        at: UnixMillis,
        cluster: &ClusterName,
        key: &ObjectKey,
        by_platform_key: bool,
    ) {
        let Some(edge) = self.edges.get_mut(cluster).filter(|e| e.is_ready()) else { return };
        let Some(gateway) = edge.gateways.get_mut(key) else { return };
        let mut wrong = BTreeMap::new();
        for (name, programmed) in &gateway.programmed {
            let connector = ObjectKey::new(&*key.namespace, &**name);
            let truth = match self.sources.get(&connector) {
                Some(source) if self.upstreams.contains(&source.0) => self.truth.get(source),
                _ => edge.connectors.get(&connector),
            };
            let kind = match truth {
                Some(truth) if truth.online && !programmed.online => OutageKind::Offline,
                Some(truth) if truth.online && truth.node_id != programmed.node_id => {
                    OutageKind::OtherNode
                }
                Some(truth) if !truth.online && programmed.online => OutageKind::StaleOnline,
                None if programmed.online => OutageKind::StaleOnline,
                _ => continue,
            };
            wrong.insert(name.clone(), kind);
        }
        let open = std::mem::take(&mut gateway.open);
        for (name, (kind, from)) in open {
            if wrong.get(&name) == Some(&kind) {
                gateway.open.insert(name, (kind, from));
                continue;
            }
            let connector = ObjectKey::new(&*key.namespace, &*name);
            let until = Some(at);
            self.ended.push(Span {
                edge: cluster.clone(),
                connector,
                kind,
                from,
                until,
                by_platform_key,
            });
        }
        for (name, kind) in wrong {
            gateway.open.entry(name).or_insert((kind, at));
        }
    }

    /// The outages, by when they began; those that are still open have no end.
    pub fn finish(mut self) -> Vec<Outage> {
        for (cluster, edge) in &self.edges {
            for (key, gateway) in &edge.gateways {
                for (name, (kind, from)) in &gateway.open {
                    let connector = ObjectKey::new(&*key.namespace, &**name);
                    self.ended.push(Span {
                        edge: cluster.clone(),
                        connector,
                        kind: *kind,
                        from: *from,
                        until: None,
                        by_platform_key: false,
                    });
                }
            }
        }
        let mut grouped: BTreeMap<_, Vec<Span>> = BTreeMap::new();
        for span in self.ended {
            let key = (span.from, span.edge.clone(), span.connector.clone(), span.kind);
            grouped.entry(key).or_default().push(span);
        }
        let outage = |((from, edge, connector, kind), spans): (_, Vec<Span>)| Outage {
            edge,
            connector,
            kind,
            from,
            first_right: spans.iter().filter_map(|s| s.until).min(),
            until: spans
                .iter()
                .map(|s| s.until)
                .collect::<Option<Vec<_>>>()
                .and_then(|u| u.into_iter().max()),
            gateways: spans.len(),
            by_platform_key: spans.iter().any(|s| s.by_platform_key),
        };
        grouped.into_iter().map(outage).collect()
    }
}
