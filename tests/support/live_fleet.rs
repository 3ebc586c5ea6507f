//! A fleet that a test changes while the admin port serves it: the loop's answers without a loop.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use throughline::admin::{PassedHop, Query};
use throughline::core::contract::cause::Hop;
use throughline::core::data::ids::NamespacedName;
use throughline::core::data::time::UnixMillis;
use throughline::core::view::fleet::{Fleet, count_states};
use tokio::sync::mpsc;

pub(crate) fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    u64::try_from(since.as_millis()).unwrap()
}

/// Connectors of project `up`, mirrored at `hub`, each with two gateways at `edge-1`.
#[derive(Clone)]
pub(crate) struct LiveFleet {
    fleet: Arc<Mutex<Value>>,
    hops: Arc<Mutex<Vec<Arc<PassedHop>>>>,
    /// How often the loop was asked for the state.
    pub(crate) asked: Arc<AtomicUsize>,
}

fn cluster(name: &str, role: &str) -> Value {
    let kinds = ["Connector", "Gateway", "HTTPProxy", "HTTPRoute", "Namespace"];
    let watches = kinds.into_iter().map(|kind| (kind.to_owned(), json!("live")));
    json!({ "name": name, "roles": [role], "watches": Value::Object(watches.collect()) })
}

/// The hops, and where each ends: the last two are of one edge's gateways.
const HOPS: [(Hop, &str, &str); 5] = [
    (Hop::Upstream, "up", "shop"),
    (Hop::Mirrored, "hub", "ns-shop"),
    (Hop::Carried, "edge-1", "ns-shop"),
    (Hop::Announced, "edge-1", "ns-shop"),
    (Hop::Announced, "edge-1", "ns-shop"),
];

fn liveness(online: bool) -> Value {
    json!({ "online": online, "node": if online { json!("c0ffee00") } else { Value::Null } })
}

/// The hop `n` of connector `i`, once it is done.
fn hop(i: usize, n: usize, since: u64, online: bool) -> Value {
    let (hop, cluster, namespace) = HOPS[n];
    let is_gateway = hop == Hop::Announced;
    let name = if is_gateway { format!("app-{i}-{}", n - 2) } else { format!("conn-{i}") };
    json!({
        "hop": hop, "cluster": cluster, "kind": if is_gateway { "Gateway" } else { "Connector" },
        "object": { "namespace": namespace, "name": name }, "state": "ok", "sinceMs": since + 40 * n as u64,
        "says": if is_gateway { Value::Null } else { liveness(online) },
        "expected": if n == 0 { Value::Null } else { liveness(online) }, "cause": null,
    })
}

fn connector(i: usize, since: u64) -> Value {
    let name = format!("conn-{i}");
    json!({
        "upstream": { "cluster": "up", "namespace": "shop", "name": name },
        "name": { "namespace": "ns-shop", "name": name },
        "online": true, "node": "c0ffee00", "state": "ok",
        "hops": (0..HOPS.len()).map(|n| hop(i, n, since, true)).collect::<Vec<_>>(),
    })
}

/// The problem of the connectors that are stuck.
fn not_carried(fleet: &Value) -> Option<Value> {
    let connectors = fleet["connectors"].as_array()?.iter();
    let stuck = connectors.filter(|connector| connector["state"] == "stuck");
    let hops: Vec<_> = stuck.map(|connector| &connector["hops"][2]).collect();
    let first = hops.first()?;
    Some(json!({
        "cause": first["cause"], "severity": "error", "cluster": first["cluster"],
        "sinceMs": hops.iter().filter_map(|hop| hop["sinceMs"].as_u64()).min(), "count": hops.len(),
        "objects": hops.iter().map(|hop| &hop["object"]).take(3).collect::<Vec<_>>(),
        "message": first["message"], "error": null, "remedy": first["remedy"],
    }))
}

impl LiveFleet {
    pub(crate) fn of(connectors: usize) -> Self {
        let since = now_ms() - 60_000;
        let roles = [("up", "upstream"), ("hub", "hub"), ("edge-1", "edge")];
        let fleet = json!({
            "atMs": 0, "source": "instance", "leader": { "leads": true }, "inFlight": 0,
            "clusters": roles.map(|(name, role)| cluster(name, role)),
            "problems": [], "counts": {}, "orphans": [],
            "connectors": (1..=connectors).map(|i| connector(i, since)).collect::<Vec<_>>(),
        });
        let fleet = Arc::new(Mutex::new(fleet));
        let fleet = Self { fleet, hops: Arc::default(), asked: Arc::default() };
        for i in 1..=connectors.min(100) {
            fleet.pass_all(since, i, true, 3);
        }
        fleet
    }

    /// Changes what the loop would answer.
    pub(crate) fn change(&self, change: impl FnOnce(&mut Value)) {
        change(&mut self.fleet.lock().unwrap());
    }

    /// The connector goes offline or online upstream, and gets so far: 1 mirrored, 2 carried, 3 announced.
    pub(crate) fn flip(&self, i: usize, online: bool, hops: usize) {
        self.flip_at(now_ms(), i, online, hops);
    }

    /// The same, at another time.
    pub(crate) fn flip_at(&self, now: u64, i: usize, online: bool, hops: usize) {
        self.change(|fleet| {
            let connector = &mut fleet["connectors"][i - 1];
            connector["online"] = json!(online);
            connector["node"] = liveness(online)["node"].clone();
            connector["state"] = json!(if hops < 3 { "pending" } else { "ok" });
            for n in 0..HOPS.len() {
                let mut next = hop(i, n, now, online);
                // Both gateways are the third hop.
                match n.min(3) {
                    reached if reached > hops + 1 => continue,
                    reached if reached == hops + 1 => {
                        next["says"] = connector["hops"][n]["says"].take();
                        next["state"] = json!("pending");
                    }
                    _ => {}
                }
                connector["hops"][n] = next;
            }
        });
        self.pass_all(now, i, online, hops);
    }

    fn pass_all(&self, at: u64, i: usize, online: bool, hops: usize) {
        let mut passed = self.hops.lock().unwrap();
        for (n, (hop, cluster, namespace)) in HOPS.into_iter().take(hops + 1).enumerate() {
            let number = passed.len() as u64 + 1;
            let connector = NamespacedName::new(namespace, format!("conn-{i}"));
            let (at, cluster) = (UnixMillis(at + 40 * n as u64), cluster.into());
            passed.push(Arc::new(PassedHop { number, at, hop, cluster, connector, online }));
        }
    }

    /// The carrier does not bring it to the edge.
    pub(crate) fn stall(&self, i: usize) {
        self.flip_at(now_ms() - 12_000, i, false, 1);
        self.change(|fleet| {
            fleet["connectors"][i - 1]["state"] = json!("stuck");
            let hop = &mut fleet["connectors"][i - 1]["hops"][2];
            hop["state"] = json!("stuck");
            hop["cause"] = json!("not_carried");
            hop["message"] =
                json!(format!("edge-1 does not have the hub annotation of ns-shop/conn-{i}."));
            hop["remedy"] = json!("`at hub: kubectl -n ns-shop describe resourcebinding conn`");
        });
    }

    fn now(&self) -> Fleet {
        let mut fleet = self.fleet.lock().unwrap().clone();
        fleet["atMs"] = json!(now_ms());
        let problem = not_carried(&fleet);
        fleet["problems"].as_array_mut().unwrap().extend(problem);
        let mut fleet: Fleet = serde_json::from_value(fleet).unwrap();
        fleet.counts = count_states(fleet.connectors.iter().map(|connector| connector.state));
        fleet
    }

    /// Answers as the loop does.
    pub(crate) async fn answer(self, mut asked: mpsc::Receiver<Query>) {
        while let Some(query) = asked.recv().await {
            match query {
                Query::Ping(answer) => drop(answer.send(())),
                Query::Counts(answer) => drop(answer.send(Default::default())),
                Query::State(answer) => {
                    self.asked.fetch_add(1, Relaxed);
                    drop(answer.send(self.now()));
                }
                Query::PassedHops(answer) => {
                    drop(answer.send(self.hops.lock().unwrap().clone()));
                }
            }
        }
    }
}
