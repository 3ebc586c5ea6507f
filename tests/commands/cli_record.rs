//! `throughline record` on simulated API servers: its requests, its summary and its exit codes.
//! `tests/e2e/recording.rs` has its permissions.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use throughline_sim::apiserver::{ApiVerb, ServerMode, SimApiServerSettings};

use crate::program::Place;
use crate::sim_apiserver::{TestServer, serve};

/// One simulated cluster, upstream and edge, with an offline Connector.
struct Recorded {
    served: TestServer,
    place: Place,
}

impl Recorded {
    async fn new() -> Self {
        let served = serve(SimApiServerSettings::default()).await;
        let config = json!({ "eventLog": { "file": "live.jsonl" },
            "watch": { "backoffMaxMs": 300, "timeoutMs": 1000 } });
        let place = Place::new(&[(&served, &["upstream", "edge"])], config);
        place.write("live.jsonl", "the live run's");
        served.put(connector("a", "False"));
        Self { served, place }
    }

    fn lines(&self, file: &str) -> Vec<Value> {
        let text = std::fs::read_to_string(self.place.path(file)).unwrap_or_default();
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    /// Waits until the file has `count` such events.
    async fn until(&self, file: &str, event: &str, count: usize) {
        let until = Instant::now() + Duration::from_secs(60);
        loop {
            let lines = self.lines(file);
            if lines.iter().filter(|line| line["event"] == event).count() >= count {
                return;
            }
            assert!(Instant::now() < until, "no {count} {event} in {lines:#?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

fn connector(name: &str, ready: &str) -> Value {
    json!({"apiVersion": "networking.datumapis.com/v1alpha1", "kind": "Connector",
        "metadata": {"namespace": "shop", "name": name},
        "status": {"conditions": [{"type": "Ready", "status": ready}],
            "connectionDetails": {"type": "PublicKey", "publicKey": {"id": "node-1"}}}})
}

/// The Connector of shop/a as an edge has it, offline; its HTTPProxy and its Gateway.
fn edge_objects() -> [Value; 3] {
    let labels = json!({ "meta.datumapis.com/upstream-cluster-name": "cluster-one",
        "meta.datumapis.com/upstream-namespace": "shop", "meta.datumapis.com/upstream-name": "a" });
    let mut copy = connector("a", "False");
    copy["metadata"] = json!({ "namespace": "ns-1", "name": "a", "labels": labels });
    let proxy = json!({ "apiVersion": "networking.datumapis.com/v1alpha", "kind": "HTTPProxy",
        "metadata": { "namespace": "ns-1", "name": "app" },
        "spec": { "rules": [{ "backends": [{ "connector": { "name": "a" } }] }] } });
    let gateway = json!({ "apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway",
        "metadata": { "namespace": "ns-1", "name": "app" }, "spec": { "gatewayClassName": "eg" } });
    [copy, proxy, gateway]
}

/// An outage that is not over lasted until the end of the recording, not until its last change. And a
/// connector that two tiers have is one connector.
#[tokio::test(flavor = "multi_thread")]
async fn a_recording_only_reads_and_counts_an_outage_to_its_end() {
    const BROKEN: Duration = Duration::from_millis(1_500);
    let recorded = Recorded::new().await;
    let Recorded { served, place } = &recorded;
    for object in edge_objects() {
        served.put(object);
    }
    let roles = "clusters[0].roles=[upstream, hub, edge]";
    let running = place.start(&["record", "night.jsonl", "--set", roles]);
    recorded.until("night.jsonl", "list_finished", 5).await;
    served.put(connector("a", "True"));
    recorded.until("night.jsonl", "applied", 1).await;
    tokio::time::sleep(BROKEN).await;
    let (code, out, err) = running.stop().await;
    assert_eq!((code, &*out), (0, ""), "{err}");
    let lines = recorded.lines("night.jsonl");
    let ends: Vec<_> = lines.iter().filter(|line| line["event"] == "recording_ended").collect();
    assert!(ends.len() == 1 && lines.last() == Some(ends[0]), "{lines:#?}");
    let printed: Vec<_> = err.lines().collect();
    assert_eq!(printed.len(), 3, "no counter line in a pipe: {err}");
    assert!(printed[0].starts_with("recording 1 cluster to night.jsonl; addresses"), "{err}");
    let start = format!("recorded {} events, 1 connector, ", lines.len() - 1);
    assert!(printed[1].starts_with(&start) && printed[1].contains(", 5 watches live, "), "{err}");
    assert_eq!(printed[2], "replay it: throughline replay night.jsonl");
    let requests = served.handle.requests();
    assert!(requests.keys().all(|(verb, _)| matches!(verb, ApiVerb::List | ApiVerb::Watch)));
    assert_eq!(served.handle.writes(), 0);

    // It replays as a what-if with the configuration's settings.
    assert_eq!(lines[0]["settings"]["orphans"]["mode"], "report");
    let (code, out, err) = place.run(&["replay", "--output", "json", "night.jsonl"]).await;
    assert_eq!((code, &*err), (0, ""));
    let replay: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(replay["mode"], "what-if");
    let [outage] = &replay["outages"]["recorded"].as_array().unwrap()[..] else {
        panic!("{:#}", replay["outages"])
    };
    assert_eq!((&outage["kind"], &outage["until_ms"]), (&json!("offline"), &Value::Null));
    let ms = |value: &Value| Duration::from_millis(value.as_u64().unwrap());
    let lasted = ms(&replay["to_ms"]).saturating_sub(ms(&outage["from_ms"]));
    assert!(lasted >= BROKEN, "{lasted:?}");
    assert_eq!(replay["to_ms"], ends[0]["at_ms"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_recording_overwrites_nothing_not_even_the_live_log() {
    let place = Recorded::new().await.place;
    place.write("old.jsonl", "evidence");
    place.write("new.jsonl.1", "evidence");
    for (file, taken) in [("old.jsonl", "old.jsonl"), ("new.jsonl", "new.jsonl.1")] {
        let (code, _, err) = place.run(&["record", file]).await;
        assert!(code == 2 && err.contains(&format!("{taken} exists")), "{err}");
        assert_eq!(place.read(taken), "evidence");
    }
    let (code, _, err) = place.run(&["record", "nowhere/new.jsonl"]).await;
    assert!(code == 2 && err.contains("nowhere/new.jsonl: cannot create the event log"), "{err}");

    // Without a file name it creates one of its own; `--for` ends it.
    let (code, _, err) = place.run(&["record", "--for", "1500ms"]).await;
    assert!(code < 2 && err.contains("; for 1.50 s, or until SIGINT"), "{err}");
    assert!(err.contains("\nrecorded "), "{err}");
    let files = std::fs::read_dir(place.path("")).unwrap().map(|e| e.unwrap().file_name());
    let files: Vec<_> = files.map(|name| name.into_string().unwrap()).collect();
    let own = |name: &&String| name.starts_with("throughline-record-") && name.ends_with(".jsonl");
    assert_eq!(files.iter().filter(own).count(), 1, "{files:?}");
    assert_eq!(place.read("live.jsonl"), "the live run's");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_incomplete_recording_says_so() {
    let recorded = Recorded::new().await;
    recorded.served.handle.set_mode(ServerMode::Down);
    let running = recorded.place.start(&["record", "night.jsonl"]);
    recorded.until("night.jsonl", "watch_lost", 4).await;
    let (code, _, err) = running.stop().await;
    assert_eq!(code, 1, "{err}");
    assert!(err.contains("0 of 4 watches live (lost 4 times)"), "{err}");
    assert!(err.contains("incomplete: Gateway in one was not being watched at the end"), "{err}");
    assert!(err.contains("watch lost; retrying"), "{err}");

    // The API server returns before the end: nothing is missing.
    let running = recorded.place.start(&["record", "day.jsonl"]);
    recorded.until("day.jsonl", "watch_lost", 4).await;
    recorded.served.handle.set_mode(ServerMode::Serving);
    recorded.until("day.jsonl", "list_finished", 4).await;
    let (code, _, err) = running.stop().await;
    assert_eq!(code, 0, "{err}");
}
