//! Kubernetes Events: how they are posted and counted, and what happens when they are refused.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Event;
use serde_json::{Value, json};
use throughline::core::data::time::UnixMillis;
use throughline::events::{Recorder, again};
use throughline::metrics::{Format, Metrics};
use throughline_sim::apiserver::{Fault, ServerMode, SimApiServerSettings};

use crate::admin::sample;
use crate::cluster::client_at;
use crate::sim_apiserver::{TestServer, serve};
use crate::waiting::until;

const EVENTS: &str = "/api/v1/namespaces/n/events";

/// So many seconds after the first Event.
fn second(s: u64) -> UnixMillis {
    UnixMillis(1_795_252_772_000 + s * 1_000)
}

/// A reference to a Gateway.
fn gateway(namespace: &str) -> Value {
    json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway",
        "namespace": namespace, "name": "g", "uid": "u-1"})
}

/// A cluster with the namespace `n`, and a recorder for it.
struct Bench {
    served: TestServer,
    recorder: Recorder,
    metrics: Arc<Metrics>,
}

async fn bench() -> Bench {
    let served = serve(SimApiServerSettings::default()).await;
    served.put(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"}}));
    let metrics = Arc::new(Metrics::new());
    let clusters = vec![client_at("one", &served.handle.url())];
    let (recorder, mut workers) = Recorder::start(clusters, 30, metrics.clone());
    workers.detach_all();
    Bench { served, recorder, metrics }
}

impl Bench {
    fn event(&self, namespace: &str) -> Event {
        let object = serde_json::from_value(gateway(namespace)).unwrap();
        self.recorder.event(second(0), object, ("Warning", "NotAnnounced".to_owned()), "m")
    }

    fn post(&self, event: &Event) -> bool {
        self.recorder.post(&self.served.cluster, event)
    }

    fn counted(&self, delivery: &str) -> u64 {
        let series = format!("throughline_events_total{{result=\"{delivery}\"}}");
        sample(&self.metrics.text(None, Format::Plain), &series).unwrap() as u64
    }

    async fn events(&self) -> Vec<Value> {
        let (code, list) = self.served.get("/api/v1/events").await;
        assert_eq!(code, 200);
        list["items"].as_array().unwrap().clone()
    }

    async fn counts(&self, delivery: &str, wanted: u64) {
        until(delivery, async || self.counted(delivery) == wanted).await;
    }
}

#[tokio::test]
async fn an_event_is_counted_and_an_expired_one_is_created_again() {
    let bench = bench().await;
    let first = bench.event("n");
    bench.post(&first);
    bench.counts("posted", 1).await;
    let second_time = again(&first, second(2), "more");
    bench.post(&second_time);
    bench.counts("posted", 2).await;
    let found = bench.events().await;
    let expected = json!({"metadata": found[0]["metadata"], "count": 2, "type": "Warning",
        "reason": "NotAnnounced", "message": "more",
        "firstTimestamp": "2026-11-21T09:19:32Z", "lastTimestamp": "2026-11-21T09:19:34Z",
        "source": {"component": "throughline"}, "reportingComponent": "throughline",
        "involvedObject": gateway("n")});
    assert_eq!(found, [expected]);

    let name = found[0]["metadata"]["name"].as_str().unwrap();
    assert_eq!(bench.served.send("DELETE", &format!("{EVENTS}/{name}"), &Value::Null).await.0, 200);
    bench.post(&again(&second_time, second(4), "more"));
    bench.post(&bench.event("n"));
    bench.counts("posted", 4).await;
    let found = bench.events().await;
    let counts = found.iter().map(|event| event["count"].as_u64().unwrap());
    assert_eq!(counts.collect::<std::collections::BTreeSet<_>>(), [1, 3].into(), "{found:?}");
}

#[tokio::test]
async fn forbidden_events_are_not_retried_for_a_while() {
    let bench = bench().await;
    bench.served.handle.inject(&Fault::on_writes(500), 2);
    bench.post(&bench.event("n"));
    bench.counts("posted", 1).await;
    assert_eq!(bench.served.handle.writes(), 3, "temporary errors are retried");
    bench.post(&bench.event("nowhere"));
    bench.counts("failed", 1).await;
    assert_eq!(bench.served.handle.writes(), 4, "and permanent ones are not");
    bench.served.handle.inject(&Fault::on_writes(403), 1_000);
    bench.post(&bench.event("n"));
    bench.counts("failed", 2).await;
    for _ in 0..9 {
        bench.post(&bench.event("n"));
    }
    bench.counts("dropped", 9).await;
    assert_eq!(bench.served.handle.writes(), 5);
}

#[tokio::test]
async fn posting_never_waits_and_what_is_too_much_is_dropped() {
    let bench = bench().await;
    bench.served.handle.set_mode(ServerMode::Frozen);
    let posted = (0..100).filter(|_| bench.post(&bench.event("n"))).count();
    assert_eq!((posted, bench.counted("dropped"), bench.counted("posted")), (30, 70, 0));
}
