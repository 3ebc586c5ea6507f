//! A fleet that a test changes while the admin port serves it: the loop's answers without a loop.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use throughline::admin::{PassedHop, Query};
use throughline::core::contract::note::Hop;
use throughline::core::data::ids::ObjectKey;
use throughline::core::data::time::UnixMillis;
use throughline::core::view::View;
use tokio::sync::mpsc;

pub(crate) fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    u64::try_from(since.as_millis()).unwrap()
}

/// Connectors of project `up`, mirrored at `hub`, each with two gateways at `edge-1`.
#[derive(Clone)]
pub(crate) struct LiveFleet {
    view: Arc<Mutex<Value>>,
    hops: Arc<Mutex<Vec<PassedHop>>>,
    /// How often the loop was asked for the state.
    pub(crate) asked: Arc<AtomicUsize>,
}

fn live(kinds: &[&str]) -> Value {
    let states = kinds.iter().map(|kind| ((*kind).to_owned(), json!("live")));
    Value::Object(states.collect())
}

fn cluster(name: &str, role: &str) -> Value {
    let kinds = ["Connector", "Gateway", "HTTPProxy", "HTTPRoute", "Namespace"];
    json!({ "name": name, "roles": [role], "watches": live(&kinds), "liveSinceMs": {} })
}

fn connector(i: usize, since: u64) -> Value {
    let gateway = |n: usize| json!({ "name": format!("app-{i}-{n}"), "announcement": "announced", "trigger": "abc-1-0" });
    let liveness = json!({ "online": true, "node": "c0ffee00" });
    json!({
        "upstream": { "cluster": "up", "namespace": "shop", "name": format!("conn-{i}"), "exists": true,
                      "online": true, "node": "c0ffee00", "changedAtMs": since },
        "replica": { "namespace": "ns-shop", "name": format!("conn-{i}") },
        "phase": "settled", "stalls": [],
        "hubs": [{ "cluster": "hub", "annotation": "right", "annotated": true, "says": liveness,
                   "rightSinceMs": since + 40, "spoiled": 0, "nudged": 0 }],
        "edges": [{ "cluster": "edge-1", "online": true, "node": "c0ffee00", "changedAtMs": since + 90,
                    "behindSinceMs": null, "asHub": true, "gateways": [gateway(1), gateway(2)] }],
    })
}

impl LiveFleet {
    pub(crate) fn of(connectors: usize) -> Self {
        let since = now_ms() - 60_000;
        let roles = [("up", "upstream"), ("hub", "hub"), ("edge-1", "edge")];
        let view = json!({
            "atMs": 0, "leads": true, "inFlight": 0, "phases": {}, "orphans": [],
            "clusters": roles.map(|(name, role)| cluster(name, role)),
            "connectors": (1..=connectors).map(|i| connector(i, since)).collect::<Vec<_>>(),
        });
        let view = Arc::new(Mutex::new(view));
        let fleet = Self { view, hops: Arc::default(), asked: Arc::default() };
        for i in 1..=connectors.min(100) {
            fleet.pass_all(since, i, true, 3);
        }
        fleet
    }

    /// Changes what the loop would answer.
    pub(crate) fn change(&self, change: impl FnOnce(&mut Value)) {
        change(&mut self.view.lock().unwrap());
    }

    /// The connector goes offline or online upstream, and gets so far: 1 mirrored, 2 carried, 3 announced.
    pub(crate) fn flip(&self, i: usize, online: bool, hops: usize) {
        self.flip_at(now_ms(), i, online, hops);
    }

    /// The same, at another time.
    pub(crate) fn flip_at(&self, now: u64, i: usize, online: bool, hops: usize) {
        let phase = match (hops, online) {
            (0, _) => "mirroring",
            (1, _) => "carrying",
            (2, _) => "touching",
            (_, true) => "settled",
            (_, false) => "offline",
        };
        let node = if online { json!("c0ffee00") } else { Value::Null };
        self.change(|view| {
            let connector = &mut view["connectors"][i - 1];
            connector["phase"] = json!(phase);
            connector["stalls"] = json!([]);
            let upstream = &mut connector["upstream"];
            upstream["online"] = json!(online);
            upstream["node"] = node.clone();
            upstream["changedAtMs"] = json!(now);
            let hub = &mut connector["hubs"][0];
            hub["annotation"] = json!(if hops >= 1 { "right" } else { "wrong" });
            hub["rightSinceMs"] = if hops >= 1 { json!(now) } else { Value::Null };
            if hops >= 1 {
                hub["says"] = json!({ "online": online, "node": node });
            }
            let edge = &mut connector["edges"][0];
            edge["asHub"] = json!(hops == 0 || hops >= 2);
            edge["behindSinceMs"] = if hops == 1 { json!(now) } else { Value::Null };
            if hops >= 2 {
                edge["online"] = json!(online);
                edge["node"] = node;
                edge["changedAtMs"] = json!(now);
                let announcement = if hops >= 3 { "announced" } else { "pending" };
                for gateway in edge["gateways"].as_array_mut().unwrap() {
                    gateway["announcement"] = json!(announcement);
                }
            }
        });
        self.pass_all(now, i, online, hops);
    }

    fn pass_all(&self, at: u64, i: usize, online: bool, hops: usize) {
        let mut passed = self.hops.lock().unwrap();
        let all = [
            (Hop::Upstream, "up", "shop"),
            (Hop::Mirrored, "hub", "ns-shop"),
            (Hop::Arrived, "edge-1", "ns-shop"),
            (Hop::Touched, "edge-1", "ns-shop"),
        ];
        for (n, (hop, cluster, namespace)) in all.into_iter().take(hops + 1).enumerate() {
            let number = passed.len() as u64 + 1;
            let connector = ObjectKey::new(namespace, format!("conn-{i}"));
            let at = UnixMillis(at + 40 * n as u64);
            passed.push(PassedHop { number, at, hop, cluster: cluster.into(), connector, online });
        }
    }

    /// The carrier does not bring it to the edge.
    pub(crate) fn stall(&self, i: usize) {
        let since = now_ms() - 12_000;
        self.flip_at(since, i, false, 1);
        self.change(|view| {
            let connector = &mut view["connectors"][i - 1];
            connector["phase"] = json!("stalled");
            connector["stalls"] = json!([{ "hop": "arrived", "cluster": "edge-1", "sinceMs": since,
                                           "reason": "the carrier is behind at edge-1" }]);
            connector["edges"][0]["behindSinceMs"] = json!(since);
        });
    }

    fn now(&self) -> View {
        let mut view = self.view.lock().unwrap().clone();
        let mut phases = serde_json::Map::new();
        for connector in view["connectors"].as_array().unwrap() {
            let phase = connector["phase"].as_str().unwrap();
            let n = phases.get(phase).and_then(Value::as_u64).unwrap_or(0);
            phases.insert(phase.to_owned(), json!(n + 1));
        }
        view["phases"] = Value::Object(phases);
        view["atMs"] = json!(now_ms());
        serde_json::from_value(view).unwrap()
    }

    /// Answers as the loop does.
    pub(crate) async fn answer(self, mut asked: mpsc::Receiver<Query>) {
        while let Some(query) = asked.recv().await {
            match query {
                Query::Ping(answer) => drop(answer.send(())),
                Query::Counts(answer) => drop(answer.send(Default::default())),
                Query::State(answer) => {
                    self.asked.fetch_add(1, Relaxed);
                    drop(answer.send(Box::new(self.now())));
                }
                Query::PassedHops { after, reply } => {
                    let hops = self.hops.lock().unwrap();
                    let hops = hops.iter().filter(|hop| hop.number > after).cloned().collect();
                    drop(reply.send(hops));
                }
            }
        }
    }
}
