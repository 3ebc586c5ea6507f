//! The simulated clusters: three topologies, their objects, and changes by people and other programs.

use serde_json::{Value, json};

use throughline::core::contract::event::ClusterSpec;
use throughline::core::data::ids::{ClusterName, Kind, ObjectKey, Role};
use throughline::core::data::objects::{Object, PLATFORM_KEY, UPSTREAM_STATUS, WireObject};
use throughline_sim::WatchNotice;

use crate::oracle;
use crate::sim::Sim;

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
        let (cluster, namespace) = match (self, project) {
            (Topology::One, 0) => ("all", "home"),
            (Topology::One, _) => ("all", "work"),
            (Topology::Two, 0) => ("up", "home"),
            (Topology::Two, _) => ("up", "work"),
            (Topology::Three, 0) => ("org/a", "home"),
            (Topology::Three, _) => ("b", "home"),
        };
        (cluster.into(), namespace, format!("{project:08x}-0000-4000-8000-00000000aaaa"))
    }

    pub fn hub(self) -> ClusterName {
        ["all", "down", "hub"][self as usize].into()
    }

    pub fn edges(self) -> Vec<ClusterName> {
        let edges: &[&str] = [&["all"][..], &["down"], &["edge-1", "edge-2"]][self as usize];
        edges.iter().map(|e| ClusterName::from(*e)).collect()
    }

    pub fn hub_namespace(self, project: u8) -> String {
        format!("ns-{}", self.project(project).2)
    }
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
}

pub fn put(sim: &mut Sim, cluster: &ClusterName, object: &Value) {
    put_by(sim, cluster, object, "somebody");
}

fn put_by(sim: &mut Sim, cluster: &ClusterName, object: &Value, manager: &str) {
    let wire: WireObject = serde_json::from_str(&object.to_string()).unwrap();
    let object = Object::try_from(wire).unwrap();
    sim.clusters.advance(sim.now);
    sim.clusters.put(cluster, object, manager, WatchNotice::Applied);
    sim.collect();
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

fn upstream_key(t: Topology, ConnectorRef(p, c): ConnectorRef) -> (ClusterName, ObjectKey) {
    let (cluster, namespace, _) = t.project(p);
    (cluster, ObjectKey::new(namespace, format!("c{c}")))
}

fn hub_key(t: Topology, ConnectorRef(p, c): ConnectorRef) -> ObjectKey {
    ObjectKey::new(t.hub_namespace(p), format!("c{c}"))
}

fn gateway(t: Topology, GatewayRef(e, p, g): GatewayRef) -> (ClusterName, ObjectKey) {
    let edges = t.edges();
    let edge = edges[usize::from(e) % edges.len()].clone();
    (edge, ObjectKey::new(t.hub_namespace(p), format!("g{g}")))
}

fn connector(key: &ObjectKey, labels: &Value, status: Option<&str>) -> Value {
    let mut object = json!({"apiVersion": "networking.datumapis.com/v1alpha1", "kind": "Connector",
        "metadata": {"namespace": key.namespace, "name": key.name, "labels": labels}});
    if let Some(status) = status {
        object["status"] = serde_json::from_str(status).unwrap();
    }
    object
}

/// Sets one annotation as another writer, if the object exists.
pub fn annotate(
    sim: &mut Sim,
    cluster: &ClusterName,
    kind: Kind,
    key: &ObjectKey,
    k: &str,
    v: Option<&str>,
) {
    sim.clusters.advance(sim.now);
    let patch = [(k.to_owned(), v.map(str::to_owned))];
    let _ = sim.clusters.patch(cluster, kind, key, &patch, &Default::default(), "somebody");
    sim.collect();
}

/// Applies one change or fault.
pub fn apply(sim: &mut Sim, t: Topology, op: &Op) {
    sim.clusters.advance(sim.now);
    sim.collect();
    let edges = t.edges();
    let member = |e: u8| edges[usize::from(e) % edges.len()].clone();
    let cluster = |c: u8| {
        let clusters = t.clusters();
        clusters[usize::from(c) % clusters.len()].name.clone()
    };
    match *op {
        Op::Status(who, s) => {
            let (up, key) = upstream_key(t, who);
            if let Some(old) = sim.clusters.get(&up, Kind::Connector, &key) {
                let mut object = Object::clone(old);
                let new = status(s).map(|s| serde_json::value::RawValue::from_string(s).unwrap());
                object.body = throughline::core::data::objects::Body::Connector { status: new };
                sim.clusters.put(&up, object, "platform", WatchNotice::Applied);
            }
        }
        Op::CreateUpstream(who, s) => {
            let (up, key) = upstream_key(t, who);
            if sim.clusters.get(&up, Kind::Connector, &key).is_none() {
                put(sim, &up, &connector(&key, &json!({}), status(s).as_deref()));
            }
            let copy = hub_key(t, who);
            let old = if who.1 == 0 { "cluster-_" } else { "cluster-" };
            let labels = json!({
                "meta.datumapis.com/upstream-cluster-name": format!("{old}{up}").replace('/', "_"),
                "meta.datumapis.com/upstream-group": "networking.datumapis.com",
                "meta.datumapis.com/upstream-kind": "Connector",
                "meta.datumapis.com/upstream-name": key.name,
                "meta.datumapis.com/upstream-namespace": key.namespace});
            for place in edges.iter().chain([&t.hub()]) {
                if sim.clusters.get(place, Kind::Connector, &copy).is_none() {
                    let mut object = connector(&copy, &labels, None);
                    let hub = sim.clusters.get(&t.hub(), Kind::Connector, &copy);
                    if let Some(v) = hub.and_then(|h| h.meta.annotations.get(UPSTREAM_STATUS)) {
                        object["metadata"]["annotations"] = json!({UPSTREAM_STATUS: v});
                    }
                    put_by(sim, place, &object, "replicator");
                }
            }
        }
        Op::DeleteUpstream(who, with_replica) => {
            let (up, key) = upstream_key(t, who);
            sim.clusters.remove(&up, Kind::Connector, &key);
            if with_replica {
                let copy = hub_key(t, who);
                sim.clusters.remove(&t.hub(), Kind::Connector, &copy);
                for edge in &edges {
                    sim.clusters.remove(edge, Kind::Connector, &copy);
                }
            }
        }
        Op::OverwriteHub(who, v) => {
            let value = wrong_value(v);
            annotate(
                sim,
                &t.hub(),
                Kind::Connector,
                &hub_key(t, who),
                UPSTREAM_STATUS,
                value.as_deref(),
            );
        }
        Op::OverwriteEdge(who, e, v) => {
            // The carrier leaves a key alone that was only ever written at the edge. This test overwrites
            // carried keys only.
            let (hub, key) = (t.hub(), hub_key(t, who));
            let template = sim.clusters.get(&hub, Kind::Connector, &key);
            if template.is_some_and(|h| h.meta.annotations.get(UPSTREAM_STATUS).is_some()) {
                annotate(
                    sim,
                    &member(e),
                    Kind::Connector,
                    &key,
                    UPSTREAM_STATUS,
                    wrong_value(v).as_deref(),
                );
            }
        }
        Op::OverwriteTrigger(at, v) => {
            let (edge, key) = gateway(t, at);
            let value = match v {
                0 => None,
                1 => Some("true/abc".to_owned()),
                2 => Some("0123456789abcdef-7-2".to_owned()),
                3 => Some("0123456789abcdef-4294967295-0".to_owned()),
                4 => oracle::digest_of(sim, &edge, &key).map(|d| format!("{d:016x}-1-0")),
                _ => oracle::digest_of(sim, &edge, &key).map(|d| format!("{d:016x}-9-4294967295")),
            };
            let trigger = sim.settings.touch.key.clone();
            annotate(sim, &edge, Kind::Gateway, &key, &trigger, value.as_deref());
        }
        Op::Stamp(at) => {
            let (edge, key) = gateway(t, at);
            let stamp = oracle::stamp_of(sim, &edge, &key);
            annotate(sim, &edge, Kind::Gateway, &key, PLATFORM_KEY, stamp.as_deref());
        }
        Op::Proxy(at, mask) => {
            let (edge, key) = gateway(t, at);
            if mask == 0 {
                sim.clusters.remove(&edge, Kind::HttpProxy, &key);
            } else {
                let backends = (0..CONNECTORS).filter(|c| mask >> c & 1 == 1);
                let rules: Vec<_> = backends
                    .map(|c| json!({"backends": [{"endpoint": "x", "connector": {"name": format!("c{c}")}}]}))
                    .collect();
                put(
                    sim,
                    &edge,
                    &json!({"kind": "HTTPProxy",
                    "metadata": {"namespace": key.namespace, "name": key.name}, "spec": {"rules": rules}}),
                );
            }
        }
        Op::DeleteGateway(at) => {
            let (edge, key) = gateway(t, at);
            sim.clusters.remove(&edge, Kind::Gateway, &key);
        }
        Op::CreateGateway(at, class) => {
            let (edge, key) = gateway(t, at);
            if sim.clusters.get(&edge, Kind::Gateway, &key).is_none() {
                put(
                    sim,
                    &edge,
                    &json!({"kind": "Gateway",
                    "metadata": {"namespace": key.namespace, "name": key.name},
                    "spec": {"gatewayClassName": format!("class-{class}")}}),
                );
            }
        }
        Op::Lead(leads) => sim.lead(leads),
        Op::Lose(c, k) => {
            let cluster = cluster(c);
            let kinds = sim.kinds(&cluster);
            sim.lose(&cluster, kinds[usize::from(k) % kinds.len()]);
        }
        Op::List(c, k) => {
            let cluster = cluster(c);
            let kinds = sim.kinds(&cluster);
            sim.list(&cluster, kinds[usize::from(k) % kinds.len()]);
        }
        Op::CutOff(c) => {
            let cluster = cluster(c);
            for kind in sim.kinds(&cluster) {
                sim.lose(&cluster, kind);
            }
            sim.clusters.set_reachable(&cluster, false);
            sim.unreachable.insert(cluster);
        }
        Op::Reach(c) => {
            let cluster = cluster(c);
            sim.clusters.set_reachable(&cluster, true);
            sim.unreachable.remove(&cluster);
            sim.list_cluster(&cluster);
        }
        Op::StickCarrier(who, e) => sim.clusters.set_carry_stuck(&member(e), &hub_key(t, who)),
        Op::Rejoin(c) => sim.rejoin(&cluster(c)),
        Op::Restart => sim.restart(),
    }
    sim.collect();
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

pub fn play(sim: &mut Sim, t: Topology, schedule: &[(u64, Op)]) {
    for (pause_ms, op) in schedule {
        sim.advance_by(*pause_ms);
        apply(sim, t, op);
    }
}
