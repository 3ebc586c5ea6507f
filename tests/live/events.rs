//! Kubernetes Events: which are posted and counted, what happens when they are refused, and which
//! instance posts them.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use throughline::config::Config;
use throughline::core::contract::error_cause::ErrorCause;
use throughline::core::contract::event::{Event, EventKind};
use throughline::core::contract::note::{Hop, Note, NoteKind, Stall, StallCause};
use throughline::core::contract::settings::Settings;
use throughline::core::data::ids::{Kind, ObjectKey, Role};
use throughline::core::data::time::UnixMillis;
use throughline::core::orphans::keep_reason::KeepReason;
use throughline::core::view::involved_object::InvolvedObject;
use throughline::events::{EventReport, ObjectReference, Recorder, Reporter, Scope, Severity};
use throughline::metrics::{Format, Metrics};
use throughline::run::Run;
use throughline::run_log::Observer;
use throughline::sim::apiserver::{ApiVerb, Fault, Resource, ServerMode, SimApiServerSettings};
use tokio::sync::watch;

use crate::sim_apiserver::{START, TestServer, serve};
use crate::{Kubeconfig, cluster};

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
    config.stall.mirrored_ms = 1_000;
    (config.retry.first_ms, config.retry.max_ms, config.executor.tries) = (100, 200, 1);
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

fn stall(name: &str, ended: bool) -> Note {
    let stall = Stall {
        cluster: "one".into(),
        connector: ObjectKey::new("n", name),
        hop: Hop::Mirrored,
        since: UnixMillis(0),
        cause: StallCause::WritesFail { cluster: "one".into(), error: ErrorCause::Forbidden },
        reason: format!(
            "writes to the hub fail: webhook at https://10.0.0.7:443/x said {}",
            "ab".repeat(32)
        ),
    };
    Note {
        at: START,
        kind: if ended { NoteKind::StallEnded(stall) } else { NoteKind::Stalled(stall) },
    }
}

/// Calls the reporter as a run does.
fn pass_note(reporter: &mut Reporter, note: &Note, kind: Kind, name: &str) {
    reporter.on_note(note);
    let object = ObjectKey::new("n", name);
    let subject =
        InvolvedObject { cluster: "one".into(), kind, object, uid: None, resource_version: None };
    reporter.on_object_note(note, &subject);
}

/// The same note, so many seconds after the start.
fn at_second(s: u64, note: Note) -> Note {
    Note { at: START.plus(s * 1_000), ..note }
}

/// A reporter that has led for longer than it waits at first.
fn leading(bench: &Bench) -> Reporter {
    let mut reporter = Reporter::new(bench.recorder.clone(), Settings::default());
    let at = UnixMillis(START.0 - 60_000);
    reporter.on_event(&Event { at, kind: EventKind::LeadershipAcquired });
    reporter.on_due(UnixMillis(START.0 - 50_000));
    reporter
}

/// Lets time pass up to so many seconds after the start, as the loop does.
fn pass_to(reporter: &mut Reporter, s: u64) {
    while let Some(due) = reporter.due().filter(|due| *due <= START.plus(s * 1_000)) {
        reporter.on_due(due);
        assert!(reporter.due().is_none_or(|next| next > due), "a timer, not a poll");
    }
}

/// Reason and object of the Events that were posted, in order.
async fn posted(bench: &Bench) -> Vec<String> {
    let of = |e: &Value| {
        let object = &e["involvedObject"];
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        format!("{} {} {}", text(&e["reason"]), text(&object["kind"]), text(&object["name"]))
    };
    let mut found = events(&bench.served).await;
    // Its name ends with a number that grows.
    let number = |e: &Value| {
        let name = e["metadata"]["name"].as_str().unwrap();
        name.rsplit('.').next().unwrap().to_owned()
    };
    found.sort_by_key(number);
    found.iter().map(of).collect()
}

/// Problems that began before it led, and are not over ten seconds later. What is over is reported
/// only where the problem was.
#[tokio::test]
async fn a_new_leader_reports_problems_that_still_exist() {
    let bench = bench().await;
    let mut reporter = Reporter::new(bench.recorder.clone(), Settings::default());
    let happens = |at_s: u64, kind| Event { at: START.plus(at_s * 1000), kind };
    for name in ["a", "b"] {
        pass_note(&mut reporter, &stall(name, false), Kind::Connector, name);
    }
    assert_eq!(reporter.due(), None, "it does not lead");
    reporter.on_event(&happens(0, EventKind::LeadershipAcquired));
    pass_note(&mut reporter, &stall("a", true), Kind::Connector, "a");
    assert_eq!(reporter.due(), Some(START.plus(10_000)));
    pass_to(&mut reporter, 60);
    bench.counts("posted", 1).await;
    assert_eq!(posted(&bench).await, ["StalledMirror Connector b"]);
    // The message leaves out the webhook's address and the node id.
    let found = events(&bench.served).await;
    let message = found[0]["message"].as_str().unwrap();
    assert!(message.starts_with("upstream's status is not mirrored to the hub within 5 s: writes"));
    assert!(!message.contains("10.0.0.7") && !message.contains("abab"), "{message}");

    reporter.on_event(&happens(61, EventKind::LeadershipLost));
    pass_note(&mut reporter, &stall("b", true), Kind::Connector, "b");
    pass_to(&mut reporter, 999);
    assert_eq!((bench.counted("posted"), bench.requests(ApiVerb::Create)), (1, 1));
}

/// On each of them, as soon as they are gathered, and when each is over.
#[tokio::test]
async fn few_objects_have_an_event_each() {
    let bench = bench().await;
    let mut reporter = leading(&bench);
    for (s, name) in [(0, "a"), (0, "b"), (20, "c")] {
        pass_note(&mut reporter, &at_second(s, stall(name, false)), Kind::Connector, name);
        pass_to(&mut reporter, s + 1);
    }
    pass_note(&mut reporter, &at_second(30, stall("b", true)), Kind::Connector, "b");
    pass_to(&mut reporter, 999);
    bench.counts("posted", 4).await;
    let stalled = |name| format!("StalledMirror Connector {name}");
    let recovered = "Recovered Connector b".to_owned();
    assert_eq!(posted(&bench).await, [stalled("a"), stalled("b"), stalled("c"), recovered]);
}

/// On the namespace that they share, or on the Lease, with their number; and once when it is over.
#[tokio::test]
async fn many_objects_have_one_event_together() {
    let bench = bench().await;
    let mut reporter = leading(&bench);
    let name = |n: usize| format!("c-{n}");
    for n in 0..1_000 {
        let note = at_second(n as u64 / 100, stall(&name(n), false));
        pass_note(&mut reporter, &note, Kind::Connector, &name(n));
        pass_to(&mut reporter, n as u64 / 100);
    }
    pass_to(&mut reporter, 300);
    for n in 0..1_000 {
        let note = at_second(300, stall(&name(n), true));
        pass_note(&mut reporter, &note, Kind::Connector, &name(n));
    }
    pass_to(&mut reporter, 999);
    bench.counts("posted", 3).await;
    let found = events(&bench.served).await;
    let messages: Vec<_> = found.iter().map(|e| e["message"].as_str().unwrap()).collect();
    assert!(messages[0].starts_with("101 Connectors: upstream's status is not mirrored to the"));
    assert!(messages[1].starts_with("1,000 Connectors: upstream's"), "{messages:?}");
    assert_eq!(messages[2], "over for 1,000 objects: it is mirrored again");
    let objects =
        ["StalledMirror Namespace n", "StalledMirror Namespace n", "Recovered Namespace n"];
    assert_eq!(posted(&bench).await, objects);
}

/// However many causes and objects there are, and a third is kept for Events about many.
#[tokio::test]
async fn no_minute_has_more_events_than_allowed() {
    let bench = bench_with(30).await;
    for n in 0..100 {
        bench.record(report(&format!("m{n}"), n));
    }
    bench.counts("posted", 20).await;
    let mut about_many = report("many", 0);
    about_many.object.name = "other".to_owned();
    assert!(bench.recorder.record(&bench.served.cluster, Scope::Many, about_many));
    bench.counts("posted", 21).await;
    assert_eq!(bench.counted("dropped"), 80);
}

/// On one route, however many are orphans; and on the same route when it is over.
#[tokio::test]
async fn held_deletes_are_reported_once() {
    let bench = bench().await;
    let mut reporter = leading(&bench);
    let held = |s: u64, held, orphans| {
        let (at, cluster) = (START.plus(s * 1_000), "up".into());
        Note { at, kind: NoteKind::DeletesHeld { cluster, held, orphans, routes: 100 } }
    };
    pass_note(&mut reporter, &held(0, true, 31), Kind::HttpRoute, "longest");
    let (cluster, route) = ("one".into(), ObjectKey::new("n", "longest"));
    let kind = NoteKind::Orphan { cluster, route, kept: Some(KeepReason::ShareExceeded) };
    pass_note(&mut reporter, &Note { at: START, kind }, Kind::HttpRoute, "longest");
    pass_to(&mut reporter, 9);
    reporter.on_note(&held(10, false, 0));
    reporter.on_note(&held(10, false, 0));
    bench.counts("posted", 2).await;
    let expected = ["DeletesHeld HTTPRoute longest", "DeletesNotHeld HTTPRoute longest"];
    assert_eq!(posted(&bench).await, expected);
    let found = events(&bench.served).await;
    assert!(found[0]["message"].as_str().unwrap().starts_with("31 of the 100 routes of upstream"));
}
