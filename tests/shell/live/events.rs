//! Kubernetes Events: which are posted and counted, what happens when they are refused, and which
//! instance posts them.

mod reports;

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use throughline::config::Config;
use throughline::core::contract::error_cause::ErrorCause;
use throughline::core::contract::event::{Event, EventKind};
use throughline::core::contract::keep_reason::KeepReason;
use throughline::core::contract::note::{
    Anomaly, AnomalyKind, Hop, Note, NoteKind, Stall, StallCause,
};
use throughline::core::contract::settings::Settings;
use throughline::core::data::ids::{ClusterName, Kind, ObjectKey, Role};
use throughline::core::data::time::UnixMillis;
use throughline::core::view::involved_object::InvolvedObject;
use throughline::events::{EventReport, ObjectReference, Recorder, Reporter, Scope, Severity};
use throughline::metrics::{Format, Metrics};
use throughline::run::Run;
use throughline::run_log::Observer;
use throughline_sim::apiserver::{ApiVerb, Fault, Resource, ServerMode, SimApiServerSettings};
use tokio::sync::watch;

use crate::live::{Kubeconfig, cluster};
use crate::sim_apiserver::{START, TestServer, serve};

const EVENTS: &str = "/api/v1/namespaces/n/events";
pub(crate) const UID: &str = "6bcb0b35-0000-4000-8000-000000000001";

fn report(message: &str, at: u64) -> EventReport {
    let object = ObjectReference {
        api_version: "gateway.networking.k8s.io/v1".into(),
        kind: "Gateway".into(),
        namespace: "n".into(),
        name: "g".into(),
        uid: "u-1".into(),
        resource_version: "7".into(),
    };
    let at = UnixMillis(1_795_252_772_000 + at * 1000);
    let (severity, message) = (Severity::Warning, message.into());
    EventReport { at, object, severity, reason: "Stalled", message }
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
    bench_with(u32::MAX).await
}

async fn bench_with(max_per_minute: u32) -> Bench {
    let served = serve(SimApiServerSettings::default()).await;
    served.put(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"}}));
    let kubeconfig = Kubeconfig::of(&served);
    let metrics = Arc::new(Metrics::new());
    let clusters = vec![cluster(&served, &kubeconfig)];
    let (recorder, workers) = Recorder::start(clusters, max_per_minute, metrics.clone());
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
    fn record(&self, report: EventReport) {
        self.recorder.record(&self.served.cluster, Scope::Object, report);
    }

    fn counted(&self, delivery: &str) -> u64 {
        let name = format!("throughline_events_{delivery}_total ");
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
async fn an_equal_event_is_counted_and_an_expired_one_is_created_again() {
    let bench = bench().await;
    for at in 0..3 {
        bench.record(report("m", at));
    }
    bench.counts("posted", 3).await;
    let found = events(&bench.served).await;
    assert_eq!(found.len(), 1, "{found:?}");
    let event = &found[0];
    assert_eq!((&event["count"], &event["reason"]), (&json!(3), &json!("Stalled")));
    assert_eq!(event["firstTimestamp"], "2026-11-21T09:19:32Z");
    assert_eq!(event["lastTimestamp"], "2026-11-21T09:19:34Z");
    assert_eq!(event["source"], json!({"component": "throughline"}));
    assert_eq!(event["reportingComponent"], "throughline");
    let involved = json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway",
        "namespace": "n", "name": "g", "uid": "u-1", "resourceVersion": "7"});
    assert_eq!(event["involvedObject"], involved);

    let name = event["metadata"]["name"].as_str().unwrap();
    assert_eq!(bench.served.send("DELETE", &format!("{EVENTS}/{name}"), &Value::Null).await.0, 200);
    bench.record(report("m", 4));
    bench.record(report("other", 5));
    bench.counts("posted", 5).await;
    let found = events(&bench.served).await;
    let counts: Vec<_> = found.iter().map(|event| event["count"].as_u64().unwrap()).collect();
    assert_eq!(counts, [4, 1], "{found:?}");
    assert_eq!(found[0]["firstTimestamp"], "2026-11-21T09:19:32Z");
}

#[tokio::test]
async fn forbidden_events_are_not_retried_for_a_while() {
    let bench = bench().await;
    let forbidden = Fault { resource: Some(Resource::Events), ..Fault::on_writes(403) };
    bench.served.handle.inject(&forbidden, 1_000);
    for at in 0..10 {
        bench.record(report(&format!("m{at}"), at));
    }
    bench.counts("dropped", 9).await;
    assert_eq!((bench.counted("failed"), bench.requests(ApiVerb::Create)), (1, 1));
}

#[tokio::test]
async fn temporary_errors_are_retried_and_permanent_ones_are_not() {
    let bench = bench().await;
    let broken = Fault { resource: Some(Resource::Events), ..Fault::on_writes(500) };
    bench.served.handle.inject(&broken, 2);
    bench.record(report("m", 0));
    bench.counts("posted", 1).await;
    assert_eq!(bench.requests(ApiVerb::Create), 3);
    let mut elsewhere = report("m", 1);
    elsewhere.object.namespace = "nowhere".into();
    bench.record(elsewhere);
    bench.counts("failed", 1).await;
    assert_eq!(bench.requests(ApiVerb::Create), 4);
}

#[tokio::test]
async fn recording_never_waits() {
    let bench = bench().await;
    bench.served.handle.set_mode(ServerMode::Frozen);
    for at in 0..1_500 {
        let mut report = report("m", 0);
        report.object.name = format!("g-{at}");
        bench.record(report);
    }
    // None has been delivered: these are the ones that the queue could not take.
    assert_eq!((bench.counted("dropped"), bench.counted("posted")), (500, 0));
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
    config.constants.settings.stall.mirrored_ms = 1_000;
    config.constants.settings.retry.first_ms = 100;
    config.constants.settings.retry.max_ms = 200;
    (config.events.enabled, config.dry_run) = (events_on, dry_run);
    let connectors = Some(Resource::Connectors);
    let broken = Fault { resource: connectors, ..Fault::on_writes(500) };
    served.handle.inject(&broken, 1_000_000);

    let (stop, stopping) = watch::channel(false);
    let running = tokio::spawn(Run::new(config, Vec::new()).until(stopping));
    if events_on && !dry_run {
        until("it stalls", async || !events(&served).await.is_empty()).await;
        served.handle.clear_faults();
        until("it recovers", async || events(&served).await.len() == 2).await;
    } else {
        // Long enough for a stall.
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
async fn a_stall_and_its_end_are_posted_on_the_hub_connector() {
    let events = run_with(true, false).await;
    let of = |event: &Value| {
        let text = |member: &str| event[member].as_str().unwrap().to_owned();
        (text("type"), text("reason"), text("message"))
    };
    let posted: Vec<_> = events.iter().map(of).collect();
    assert_eq!(
        (posted[0].0.as_str(), posted[0].1.as_str()),
        ("Warning", "StalledMirror"),
        "{posted:?}"
    );
    // "writes to the hub fail", or on a slow machine "a write to the hub is under way".
    let late = "upstream's status is not mirrored to the hub within 1 s: ";
    let reason = posted[0].2.strip_prefix(late).unwrap_or_else(|| panic!("{posted:?}"));
    assert!(reason.contains("write"), "{posted:?}");
    let recovered = ("Normal", "Recovered", "upstream's status is mirrored again");
    assert_eq!((posted[1].0.as_str(), posted[1].1.as_str(), posted[1].2.as_str()), recovered);
    let involved = &events[0]["involvedObject"];
    assert_eq!((&involved["kind"], &involved["name"]), (&json!("Connector"), &json!("lab")));
    assert!(involved["uid"].is_string() && involved["resourceVersion"].is_string(), "{involved}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_and_disabled_events_post_none() {
    let (dry, off) = tokio::join!(run_with(true, true), run_with(false, false));
    assert_eq!((dry.len(), off.len()), (0, 0));
}
