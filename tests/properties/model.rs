//! The simulated clusters: three topologies, their objects, and changes by people and other programs.

use std::fmt::LowerHex;
use std::sync::Arc;

use serde_json::value::RawValue;
use serde_json::{Value, json};

use throughline::core::contract::event::{ClusterSpec, EventKind};
use throughline::core::data::ids::{ClusterName, Kind, NamespacedName, Role};
use throughline::core::data::objects::{Body, Object, PLATFORM_KEY, UPSTREAM_STATUS, WireObject};
use throughline::core::data::time::UnixMillis;
use throughline_sim::WatchNotice;

use crate::sim::{SECOND, START, Sim};

pub const CONNECTORS: u8 = 3;
pub const GATEWAYS: u8 = 3;
pub const PROJECTS: u8 = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topology {
    /// One cluster with every role.
    One,
    /// Upstream, and a cluster that is hub and edge.
    Two,
    /// Two projects, the hub, two edges.
    Three,
}

impl Topology {
    pub fn clusters(self) -> Vec<ClusterSpec> {
        use Role::{Edge, Hub, Upstream};
        let specs: &[(&str, &[Role])] = match self {
            Topology::One => &[("all", &[Upstream, Hub, Edge])],
            Topology::Two => &[("up", &[Upstream]), ("down", &[Hub, Edge])],
            Topology::Three => &[
                ("org/a", &[Upstream]),
                ("b", &[Upstream]),
                ("hub", &[Hub]),
                ("edge-1", &[Edge]),
                ("edge-2", &[Edge]),
            ],
        };
        let spec = |(name, roles): &(&str, &[Role])| ClusterSpec {
            name: ClusterName::from(*name),
            roles: roles.to_vec(),
        };
        specs.iter().map(spec).collect()
    }

    /// A project's cluster, namespace and the namespace's uid.
    pub fn project(self, project: u8) -> (ClusterName, &'static str, String) {
        let (cluster, namespace) = match self {
            Topology::One => [("all", "home"), ("all", "work")],
            Topology::Two => [("up", "home"), ("up", "work")],
            Topology::Three => [("org/a", "home"), ("b", "home")],
        }[usize::from(project)];
        (cluster.into(), namespace, uid(project))
    }

    pub fn hub(self) -> ClusterName {
        ["all", "down", "hub"][self as usize].into()
    }

    pub fn edges(self) -> Vec<ClusterName> {
        let edges: &[&str] = [&["all"][..], &["down"], &["edge-1", "edge-2"]][self as usize];
        edges.iter().map(|e| ClusterName::from(*e)).collect()
    }

    fn edge(self, number: u8) -> ClusterName {
        of_number(&self.edges(), number)
    }

    fn cluster(self, number: u8) -> ClusterName {
        of_number(&self.clusters(), number).name
    }

    /// Edges and hub, each once.
    fn below_upstream(self) -> Vec<ClusterName> {
        let mut places = self.edges();
        places.push(self.hub());
        places.dedup();
        places
    }

    pub fn hub_namespace(self, project: u8) -> String {
        format!("ns-{}", self.project(project).2)
    }

    pub fn upstream_key(self, ConnectorRef(p, c): ConnectorRef) -> (ClusterName, NamespacedName) {
        let (cluster, namespace, _) = self.project(p);
        (cluster, NamespacedName::new(namespace, format!("c{c}")))
    }

    pub fn hub_key(self, ConnectorRef(p, c): ConnectorRef) -> NamespacedName {
        NamespacedName::new(self.hub_namespace(p), format!("c{c}"))
    }

    fn gateway(self, GatewayRef(e, p, g): GatewayRef) -> (ClusterName, NamespacedName) {
        (self.edge(e), NamespacedName::new(self.hub_namespace(p), format!("g{g}")))
    }

    /// A hub route, 1,000 s old, and its parent.
    pub fn route(self, project: u8, route: u8, parent: u8) -> Value {
        let name = format!("r{route}");
        let (cluster, namespace, _) = self.project(project);
        let labels = labels(cluster.as_str(), namespace, "HTTPRoute", &name);
        let created = UnixMillis(START - 1_000 * SECOND).to_string();
        json!({"kind": "HTTPRoute", "spec": {"parentRefs": [{"name": format!("g{parent}")}]},
            "metadata": {"namespace": self.hub_namespace(project), "name": name, "labels": labels,
                "creationTimestamp": created}})
    }
}

fn of_number<T: Clone>(all: &[T], number: u8) -> T {
    all[usize::from(number) % all.len()].clone()
}

/// The labels of a hub object, which name the upstream object.
pub fn labels(cluster: &str, namespace: &str, kind: &str, name: &str) -> Value {
    let group = match kind {
        "Connector" => "networking.datumapis.com",
        _ => "gateway.networking.k8s.io",
    };
    json!({
        "meta.datumapis.com/upstream-cluster-name": format!("cluster-{cluster}").replace('/', "_"),
        "meta.datumapis.com/upstream-group": group,
        "meta.datumapis.com/upstream-kind": kind,
        "meta.datumapis.com/upstream-name": name,
        "meta.datumapis.com/upstream-namespace": namespace})
}

/// The uid of an upstream namespace; each project has its own.
pub fn uid(number: impl LowerHex) -> String {
    format!("{number:08x}-0000-4000-8000-00000000aaaa")
}

/// A connector: its project and its number.
#[derive(Clone, Copy, Debug)]
pub struct ConnectorRef(pub u8, pub u8);

/// A gateway and the proxy of the same name: its edge, project and number.
#[derive(Clone, Copy, Debug)]
pub struct GatewayRef(pub u8, pub u8, pub u8);

/// A change or a fault that throughline has to cope with.
#[derive(Clone, Debug)]
pub enum Op {
    Status(ConnectorRef, u8),
    DeleteUpstream(ConnectorRef, bool),
    CreateUpstream(ConnectorRef, u8),
    OverwriteHub(ConnectorRef, u8),
    OverwriteEdge(ConnectorRef, u8, u8),
    OverwriteTrigger(GatewayRef, u8),
    Stamp(GatewayRef),
    Proxy(GatewayRef, u8),
    DeleteGateway(GatewayRef),
    CreateGateway(GatewayRef, u8),
    Lead(bool),
    Lose(u8, u8),
    List(u8, u8),
    CutOff(u8),
    Reach(u8),
    StickCarrier(ConnectorRef, u8),
    Rejoin(u8),
    Restart,
    /// The upstream cluster of a project leaves, or joins again.
    Leave(u8),
    Join(u8),
    /// A watch repeats an object that it has shown, or shows an earlier version.
    ShowAgain(u16, bool),
    /// Creates or deletes the Gateways of project 0 that a mask names: parents of routes.
    Parents(u16, bool),
    /// Gives a route of project 0 another parent.
    Route(u8, u8),
    /// The hub's routes are being deleted.
    EndRoutes,
    /// Deletes the namespace of project 0 and creates it with this uid.
    Namespace(u8),
}

/// A Connector's status, as upstream may write it.
pub fn status(which: u8) -> Option<String> {
    let online = |node: &str, message: &str| {
        let message = serde_json::to_string(message).unwrap();
        format!(
            r#"{{"connectionDetails":{{"type":"PublicKey","publicKey":{{"id":"{node}","homeRelay":"r","addresses":[]}}}}, "conditions":[{{"type":"Ready","status":"True","reason":"ConnectorReady","message":{message},"lastTransitionTime":"2026-05-01T10:00:00Z"}}]}}"#
        )
    };
    match which {
        0 => None,
        1 => Some(r#"{"conditions":[{"type":"Ready","status":"False","reason":"ConnectorNotReady","message":"m","lastTransitionTime":"2026-05-01T10:00:00Z"}]}"#.into()),
        2 => Some(online("node-a", "ready")),
        3 => Some(online("node-b", "ready")),
        4 => Some(online("node-a", "as <it> & \u{2028} was")),
        5 => Some("{}".into()),
        _ => Some(r#"{"conditions":[{"type":"Ready","status":"Unknown","reason":"r","message":"m","lastTransitionTime":"2026-05-01T10:00:00Z"}],"leaseRef":{"name":"l"}}"#.into()),
    }
}

fn raw_status(which: u8) -> Option<Box<RawValue>> {
    status(which).map(|text| RawValue::from_string(text).unwrap())
}

/// An earlier version of an object, with another value.
fn earlier(object: &Object) -> Option<Object> {
    let version: u64 = object.meta.resource_version.parse().unwrap();
    let mut old = object.clone();
    old.meta.resource_version = (version - 1).to_string().into();
    match &mut old.body {
        Body::Connector { status: text } => {
            *text = raw_status(3);
            old.meta.annotations.set(UPSTREAM_STATUS, status(3).as_deref());
        }
        Body::HttpProxy { connectors } => *connectors = vec!["c0".into(), "c2".into()],
        Body::Gateway { .. } => {
            let key = "gateway.envoyproxy.io/connector-liveness";
            old.meta.annotations.set(key, Some("0123456789abcdef-3-0"));
        }
        Body::HttpRoute { .. } | Body::Namespace => return None,
    }
    (version > 1).then_some(old)
}

fn wrong_value(which: u8) -> Option<String> {
    match which {
        0 => None,
        1 => Some("not JSON".into()),
        2 => Some("[]".into()),
        3 => Some("null".into()),
        4 => Some(r#"{"conditions":[{"type":"Ready","status":"False"}]}"#.into()),
        _ => status(3),
    }
}

fn connector(key: &NamespacedName, labels: &Value, status: Option<&str>) -> Value {
    let mut object = json!({"apiVersion": "networking.datumapis.com/v1alpha1", "kind": "Connector",
        "metadata": {"namespace": key.namespace(), "name": key.name(), "labels": labels}});
    if let Some(status) = status {
        object["status"] = serde_json::from_str(status).unwrap();
    }
    object
}

fn gateway_object(key: &NamespacedName, class: &str) -> Value {
    json!({"kind": "Gateway", "metadata": {"namespace": key.namespace(), "name": key.name()},
        "spec": {"gatewayClassName": class}})
}

impl Sim {
    /// Creates or replaces an object.
    pub fn put(&mut self, cluster: &ClusterName, object: &Value) {
        self.put_by(cluster, object, "somebody");
    }

    fn put_by(&mut self, cluster: &ClusterName, object: &Value, manager: &str) {
        let wire: WireObject = serde_json::from_str(&object.to_string()).unwrap();
        let object = Object::try_from(wire).unwrap();
        self.clusters.put(cluster, object, manager, WatchNotice::Applied);
    }

    /// Creates a project's namespace upstream, with a uid, and the hub's.
    pub fn put_namespaces(&mut self, project: u8, uid: &str) {
        let t = self.topology;
        let (cluster, namespace, _) = t.project(project);
        self.put(
            &cluster,
            &json!({"kind": "Namespace", "metadata": {"name": namespace, "uid": uid}}),
        );
        let labels = json!({"meta.datumapis.com/upstream-namespace": namespace});
        let meta = json!({"name": t.hub_namespace(project), "labels": labels});
        for place in t.below_upstream() {
            self.put(&place, &json!({"kind": "Namespace", "metadata": meta}));
        }
    }

    /// Creates a project's Gateway upstream: the parent of routes.
    pub fn put_parent(&mut self, project: u8, parent: u8) {
        let (cluster, namespace, _) = self.topology.project(project);
        self.put(
            &cluster,
            &gateway_object(&NamespacedName::new(namespace, format!("g{parent}")), ""),
        );
    }

    /// Sets one annotation as another writer, if the object exists.
    pub fn annotate(
        &mut self,
        cluster: &ClusterName,
        kind: Kind,
        key: &NamespacedName,
        name: &str,
        value: Option<String>,
    ) {
        let patch = [(name.to_owned(), value)];
        self.clusters.patch(cluster, kind, key, &patch, "somebody");
    }

    /// Applies one change or fault.
    pub fn apply(&mut self, op: &Op) {
        let t = self.topology;
        let hub = t.hub();
        match *op {
            Op::Status(who, s) => {
                let (up, key) = t.upstream_key(who);
                if let Some(old) = self.clusters.get(&up, Kind::Connector, &key) {
                    let mut object = Object::clone(old);
                    object.body = Body::Connector { status: raw_status(s) };
                    self.clusters.put(&up, object, "platform", WatchNotice::Applied);
                }
            }
            Op::CreateUpstream(who, s) => self.create_upstream(who, s),
            Op::DeleteUpstream(who, with_replica) => {
                let (up, key) = t.upstream_key(who);
                self.clusters.remove(&up, Kind::Connector, &key);
                if with_replica {
                    for place in t.below_upstream() {
                        self.clusters.remove(&place, Kind::Connector, &t.hub_key(who));
                    }
                }
            }
            Op::OverwriteHub(who, v) => {
                let key = t.hub_key(who);
                self.annotate(&hub, Kind::Connector, &key, UPSTREAM_STATUS, wrong_value(v));
            }
            Op::OverwriteEdge(who, e, v) => {
                // The carrier leaves a key alone that was only ever written at the edge. This test
                // overwrites carried keys only.
                let (edge, key) = (t.edge(e), t.hub_key(who));
                let template = self.clusters.get(&hub, Kind::Connector, &key);
                if template.is_some_and(|h| h.meta.annotations.get(UPSTREAM_STATUS).is_some()) {
                    self.annotate(&edge, Kind::Connector, &key, UPSTREAM_STATUS, wrong_value(v));
                }
            }
            Op::OverwriteTrigger(at, v) => {
                let (edge, key) = t.gateway(at);
                let digest = || self.digest_of(&edge, &key);
                let value = match v {
                    0 => None,
                    1 => Some("true/abc".to_owned()),
                    2 => Some("0123456789abcdef-7-2".to_owned()),
                    3 => Some("0123456789abcdef-4294967295-0".to_owned()),
                    4 => digest().map(|d| format!("{d:016x}-1-0")),
                    _ => digest().map(|d| format!("{d:016x}-9-4294967295")),
                };
                let trigger = self.settings.touch.key.clone();
                self.annotate(&edge, Kind::Gateway, &key, &trigger, value);
            }
            Op::Stamp(at) => {
                let (edge, key) = t.gateway(at);
                let stamp = self.stamp_of(&edge, &key);
                self.annotate(&edge, Kind::Gateway, &key, PLATFORM_KEY, stamp);
            }
            Op::Proxy(at, 0) => {
                let (edge, key) = t.gateway(at);
                self.clusters.remove(&edge, Kind::HttpProxy, &key);
            }
            Op::Proxy(at, mask) => {
                let (edge, key) = t.gateway(at);
                let backend = |c| json!({"endpoint": "x", "connector": {"name": format!("c{c}")}});
                let named = (0..CONNECTORS).filter(|c| mask >> c & 1 == 1);
                let rules: Vec<_> = named.map(|c| json!({"backends": [backend(c)]})).collect();
                let meta = json!({"namespace": key.namespace(), "name": key.name()});
                let spec = json!({"rules": rules});
                self.put(&edge, &json!({"kind": "HTTPProxy", "metadata": meta, "spec": spec}));
            }
            Op::DeleteGateway(at) => {
                let (edge, key) = t.gateway(at);
                self.clusters.remove(&edge, Kind::Gateway, &key);
            }
            Op::CreateGateway(at, class) => {
                let (edge, key) = t.gateway(at);
                if self.clusters.get(&edge, Kind::Gateway, &key).is_none() {
                    self.put(&edge, &gateway_object(&key, &format!("class-{class}")));
                }
            }
            Op::Lead(leads) => self.lead(leads),
            Op::Lose(c, k) => {
                let (cluster, kind) = self.watch(c, k);
                self.lose(&cluster, kind);
            }
            Op::List(c, k) => {
                let (cluster, kind) = self.watch(c, k);
                self.list(&cluster, kind);
            }
            Op::CutOff(c) => {
                let cluster = t.cluster(c);
                for kind in self.kinds(&cluster) {
                    self.lose(&cluster, kind);
                }
                self.clusters.set_reachable(&cluster, false);
                self.unreachable.insert(cluster);
            }
            Op::Reach(c) => {
                let cluster = t.cluster(c);
                self.clusters.set_reachable(&cluster, true);
                self.unreachable.remove(&cluster);
                self.list_cluster(&cluster);
            }
            Op::StickCarrier(who, e) => self.clusters.set_carry_stuck(&t.edge(e), &t.hub_key(who)),
            Op::Rejoin(c) => {
                self.leave(&t.cluster(c));
                self.join(&t.cluster(c));
            }
            Op::Restart => self.restart(),
            Op::ShowAgain(which, is_stale) => self.show_again(which, is_stale),
            Op::Leave(project) => self.leave(&t.project(project).0),
            Op::Join(project) => self.join(&t.project(project).0),
            Op::Parents(which, exist) => {
                let (up, namespace, _) = t.project(0);
                for g in (0..16_u8).filter(|g| which >> g & 1 == 1) {
                    if exist {
                        self.put_parent(0, g);
                    } else {
                        let key = NamespacedName::new(namespace, format!("g{g}"));
                        self.clusters.remove(&up, Kind::Gateway, &key);
                    }
                }
            }
            Op::Route(route, parent) => {
                let key = NamespacedName::new(t.hub_namespace(0), format!("r{route}"));
                if self.clusters.get(&hub, Kind::HttpRoute, &key).is_some() {
                    self.put(&hub, &t.route(0, route, parent));
                }
            }
            Op::EndRoutes => {
                let routes: Vec<_> =
                    self.clusters.objects(&hub, Kind::HttpRoute).cloned().collect();
                for route in routes {
                    let mut route = Object::clone(&route);
                    route.meta.deletion_timestamp = Some(self.now);
                    self.clusters.put(&hub, route, "somebody", WatchNotice::Applied);
                }
            }
            Op::Namespace(number) => {
                let (up, namespace, _) = t.project(0);
                self.clusters.remove(&up, Kind::Namespace, &NamespacedName::new("", namespace));
                self.put_namespaces(0, &uid(number));
            }
        }
    }

    /// A watch, by numbers.
    fn watch(&self, cluster: u8, kind: u8) -> (ClusterName, Kind) {
        let cluster = self.topology.cluster(cluster);
        let kind = of_number(&self.kinds(&cluster), kind);
        (cluster, kind)
    }

    fn show_again(&mut self, which: u16, is_stale: bool) {
        let nth = usize::from(which) % self.shown().count().max(1);
        let Some((_, cluster, object)) = self.shown().nth(nth) else { return };
        let object = if is_stale { earlier(object).map(Arc::new) } else { Some(object.clone()) };
        if let Some(object) = object {
            self.feed(EventKind::Applied { cluster: cluster.clone(), object });
        }
    }

    /// Creates an upstream Connector with a status, and its hub and edge Connectors.
    fn create_upstream(&mut self, who: ConnectorRef, s: u8) {
        let t = self.topology;
        let (up, key) = t.upstream_key(who);
        if self.clusters.get(&up, Kind::Connector, &key).is_none() {
            self.put(&up, &connector(&key, &json!({}), status(s).as_deref()));
        }
        let (hub, copy) = (t.hub(), t.hub_key(who));
        let mut labels = labels(up.as_str(), key.namespace(), "Connector", key.name());
        if who.1 == 0 {
            // An older spelling.
            let cluster = format!("cluster-_{up}").replace('/', "_");
            labels["meta.datumapis.com/upstream-cluster-name"] = cluster.into();
        }
        for place in t.below_upstream() {
            if self.clusters.get(&place, Kind::Connector, &copy).is_none() {
                let mut object = connector(&copy, &labels, None);
                let template = self.clusters.get(&hub, Kind::Connector, &copy);
                let value = template.and_then(|hub| hub.meta.annotations.get(UPSTREAM_STATUS));
                if let Some(value) = value {
                    object["metadata"]["annotations"] = json!({UPSTREAM_STATUS: value});
                }
                self.put_by(&place, &object, "replicator");
            }
        }
    }

    pub fn play(&mut self, schedule: &[(u64, Op)]) {
        for (pause_ms, op) in schedule {
            self.advance_by(*pause_ms);
            self.apply(op);
        }
    }
}
