//! Kubernetes Events: how they are posted and counted, what happens when they are refused, and which
//! runs post them.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Event, ObjectReference};
use serde_json::{Value, json};
use throughline::config::Config;
use throughline::core::data::ids::Role;
use throughline::core::data::time::UnixMillis;
use throughline::events::{Recorder, again};
use throughline::metrics::{Format, Metrics};
use throughline::run::Run;
use throughline_sim::apiserver::{ApiVerb, Fault, Resource, ServerMode, SimApiServerSettings};
use tokio::sync::watch;

use crate::live::{Kubeconfig, cluster};
use crate::sim_apiserver::{TestServer, serve};

const EVENTS: &str = "/api/v1/namespaces/n/events";
pub(crate) const UID: &str = "6bcb0b35-0000-4000-8000-000000000001";

/// So many seconds after the first Event.
fn second(s: u64) -> UnixMillis {
    UnixMillis(1_795_252_772_000 + s * 1_000)
}

/// A cluster with the namespace `n`, and a recorder for it.
struct Bench {
    served: TestServer,
    recorder: Recorder,
    metrics: Arc<Metrics>,
    _workers: tokio::task::JoinSet<()>,
    _kubeconfig: Kubeconfig,
}

async fn bench() -> Bench {
    let served = serve(SimApiServerSettings::default()).await;
    served.put(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"}}));
    let kubeconfig = Kubeconfig::of(&served);
    let metrics = Arc::new(Metrics::new());
    let clusters = vec![cluster(&served, &kubeconfig)];
    let (recorder, workers) = Recorder::start(clusters, 30, metrics.clone());
    Bench { served, recorder, metrics, _workers: workers, _kubeconfig: kubeconfig }
}

pub(crate) async fn events(served: &TestServer) -> Vec<Value> {
    let (code, list) = served.get("/api/v1/events").await;
    assert_eq!(code, 200);
    list["items"].as_array().unwrap().clone()
}

/// Polls until `is` holds.
pub(crate) async fn until(kind: &str, is: impl AsyncFn() -> bool) {
    for _ in 0..3_000 {
        if is().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("never: {kind}");
}

impl Bench {
    fn event(&self, namespace: &str) -> Event {
        let object = ObjectReference {
            api_version: Some("gateway.networking.k8s.io/v1".into()),
            kind: Some("Gateway".into()),
            namespace: Some(namespace.into()),
            name: Some("g".into()),
            uid: Some("u-1".into()),
            ..ObjectReference::default()
        };
        let about = ("Warning", "NotAnnounced".to_owned());
        self.recorder.event(second(0), object, about, "m")
    }

    fn post(&self, event: &Event) -> bool {
        self.recorder.post(&self.served.cluster, event)
    }

    fn counted(&self, delivery: &str) -> u64 {
        let name = format!("throughline_events_total{{result=\"{delivery}\"}} ");
        let text = self.metrics.text(None, Format::Plain);
        text.lines().find_map(|line| line.strip_prefix(&name)).unwrap().parse().unwrap()
    }

    async fn counts(&self, delivery: &str, wanted: u64) {
        until(delivery, async || self.counted(delivery) == wanted).await;
    }

    fn requests(&self, verb: ApiVerb) -> u64 {
        self.served.handle.requests().get(&(verb, Resource::Events)).copied().unwrap_or(0)
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
    let found = events(&bench.served).await;
    assert_eq!(found.len(), 1, "{found:?}");
    let event = &found[0];
    assert_eq!((&event["count"], &event["reason"]), (&json!(2), &json!("NotAnnounced")));
    assert_eq!((&event["type"], &event["message"]), (&json!("Warning"), &json!("more")));
    assert_eq!(event["firstTimestamp"], "2026-11-21T09:19:32Z");
    assert_eq!(event["lastTimestamp"], "2026-11-21T09:19:34Z");
    assert_eq!(event["source"], json!({"component": "throughline"}));
    assert_eq!(event["reportingComponent"], "throughline");
    let involved = json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway",
        "namespace": "n", "name": "g", "uid": "u-1"});
    assert_eq!(event["involvedObject"], involved);

    let name = event["metadata"]["name"].as_str().unwrap();
    assert_eq!(bench.served.send("DELETE", &format!("{EVENTS}/{name}"), &Value::Null).await.0, 200);
    bench.post(&again(&second_time, second(4), "more"));
    bench.post(&bench.event("n"));
    bench.counts("posted", 4).await;
    let found = events(&bench.served).await;
    let counts = found.iter().map(|event| event["count"].as_u64().unwrap());
    assert_eq!(counts.collect::<std::collections::BTreeSet<_>>(), [1, 3].into(), "{found:?}");
}

#[tokio::test]
async fn forbidden_events_are_not_retried_for_a_while() {
    let bench = bench().await;
    let forbidden = Fault { resource: Some(Resource::Events), ..Fault::on_writes(403) };
    bench.served.handle.inject(&forbidden, 1_000);
    bench.post(&bench.event("n"));
    bench.counts("failed", 1).await;
    for _ in 0..9 {
        bench.post(&bench.event("n"));
    }
    bench.counts("dropped", 9).await;
    assert_eq!(bench.requests(ApiVerb::Create), 1);
}

#[tokio::test]
async fn temporary_errors_are_retried_and_permanent_ones_are_not() {
    let bench = bench().await;
    let broken = Fault { resource: Some(Resource::Events), ..Fault::on_writes(500) };
    bench.served.handle.inject(&broken, 2);
    bench.post(&bench.event("n"));
    bench.counts("posted", 1).await;
    assert_eq!(bench.requests(ApiVerb::Create), 3);
    bench.post(&bench.event("nowhere"));
    bench.counts("failed", 1).await;
    assert_eq!(bench.requests(ApiVerb::Create), 4);
}

#[tokio::test]
async fn posting_never_waits_and_what_is_too_much_is_dropped() {
    let bench = bench().await;
    bench.served.handle.set_mode(ServerMode::Frozen);
    let posted = (0..100).filter(|_| bench.post(&bench.event("n"))).count();
    assert_eq!((posted, bench.counted("dropped"), bench.counted("posted")), (30, 70, 0));
}

/// One cluster with every role, where writing the hub Connector fails for a while.
async fn run_with(events_on: bool, dry_run: bool) -> Vec<Value> {
    let served = serve_all().await;
    let kubeconfig = Kubeconfig::of(&served);
    let mut config = Config::default();
    config.clusters.push(throughline::config::ClusterConfig {
        name: served.cluster.clone(),
        roles: vec![Role::Upstream, Role::Hub, Role::Edge],
        kubeconfig: Some(kubeconfig.0.clone()),
        context: None,
        in_cluster: false,
    });
    config.leader_election.enabled = false;
    config.admin.address = "127.0.0.1:0".parse().unwrap();
    config.constants.settings.late.mirrored_ms = 1_000;
    config.constants.settings.retry.first_ms = 100;
    config.constants.settings.retry.max_ms = 200;
    (config.events.enabled, config.dry_run) = (events_on, dry_run);
    let connectors = Some(Resource::Connectors);
    let broken = Fault { resource: connectors, ..Fault::on_writes(500) };
    served.handle.inject(&broken, 1_000_000);

    let (stop, stopping) = watch::channel(false);
    let running = tokio::spawn(Run::new(config, Vec::new()).until(stopping));
    if events_on && !dry_run {
        until("it is stuck", async || !events(&served).await.is_empty()).await;
        served.handle.clear_faults();
        until("it recovers", async || events(&served).await.len() == 2).await;
    } else {
        // Long enough for a problem.
        tokio::time::sleep(Duration::from_millis(2_000)).await;
    }
    stop.send_replace(true);
    running.await.unwrap().unwrap();
    events(&served).await
}

/// One cluster with every role: a connector that is online, and its hub Connector.
pub(crate) async fn serve_all() -> TestServer {
    let served = serve(SimApiServerSettings::default()).await;
    let labels = |kind: &str| {
        json!({
            "meta.datumapis.com/upstream-cluster-name": "cluster-one",
            "meta.datumapis.com/upstream-group": "networking.datumapis.com",
            "meta.datumapis.com/upstream-kind": kind,
            "meta.datumapis.com/upstream-name": "lab",
            "meta.datumapis.com/upstream-namespace": "shop",
        })
    };
    let ns = format!("ns-{UID}");
    served.put(json!({"apiVersion": "v1", "kind": "Namespace",
        "metadata": {"name": "shop", "uid": UID}}));
    served.put(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": ns,
        "labels": {"meta.datumapis.com/upstream-namespace": "shop"}}}));
    let kind = "networking.datumapis.com/v1alpha1";
    let status = json!({"conditions": [{"type": "Ready", "status": "True"}]});
    let connector = |ns: &str, meta: Value, status: Value| {
        let mut object = json!({"apiVersion": kind, "kind": "Connector",
            "metadata": {"namespace": ns, "name": "lab"}, "status": status});
        object["metadata"].as_object_mut().unwrap().extend(meta.as_object().unwrap().clone());
        object
    };
    served.put(connector("shop", json!({}), status));
    served.put(connector(&ns, json!({"labels": labels("Connector")}), Value::Null));
    served
}

#[tokio::test(flavor = "multi_thread")]
async fn a_problem_and_its_end_are_posted_on_the_hub_connector() {
    let events = run_with(true, false).await;
    let of = |event: &Value| {
        let text = |member: &str| event[member].as_str().unwrap().to_owned();
        (text("type"), text("reason"), text("message"))
    };
    let posted: Vec<_> = events.iter().map(of).collect();
    assert_eq!((&*posted[0].0, &*posted[0].1), ("Warning", "WriteFailing"), "{posted:?}");
    let message = &posted[0].2;
    assert!(message.starts_with("Writes of Connector to one fail: 500"), "{posted:?}");
    assert!(message.contains(" Next: `at one: kubectl get --raw"), "{posted:?}");
    let resolved = ("Normal", "Resolved", "WriteFailing");
    assert_eq!((&*posted[1].0, &*posted[1].1, &*posted[1].2), resolved);
    let involved = &events[0]["involvedObject"];
    assert_eq!((&involved["kind"], &involved["name"]), (&json!("Connector"), &json!("lab")));
    assert!(involved["uid"].is_string(), "{involved}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_and_disabled_events_post_none() {
    let (dry, off) = tokio::join!(run_with(true, true), run_with(false, false));
    assert_eq!((dry.len(), off.len()), (0, 0));
}
