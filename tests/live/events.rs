//! Events: what is posted and counted, what happens when they are refused, and which process posts.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use throughline::config::Config;
use throughline::core::action::{Hop, Note, Noted, Stall};
use throughline::core::event::{Event, Happened};
use throughline::core::ids::{Kind, ObjectKey, Role};
use throughline::core::keep::Keep;
use throughline::core::settings::Settings;
use throughline::core::subject::Subject;
use throughline::core::time::UnixMillis;
use throughline::events::{Recorder, Reference, Report, Reporter, Severity};
use throughline::front::{Fault, FrontSettings, Mode, Resource, Verb};
use throughline::metrics::{Format, Metrics};
use throughline::narrate::Listen;
use throughline::run::Run;
use tokio::sync::watch;

use crate::front::{START, Served, serve};
use crate::{Kubeconfig, cluster};

const EVENTS: &str = "/api/v1/namespaces/n/events";
const UID: &str = "6bcb0b35-0000-4000-8000-000000000001";

fn report(message: &str, at: u64) -> Report {
    let about = Reference {
        api_version: "gateway.networking.k8s.io/v1".into(),
        kind: "Gateway".into(),
        namespace: "n".into(),
        name: "g".into(),
        uid: "u-1".into(),
        resource_version: "7".into(),
    };
    let at = UnixMillis(1_795_252_772_000 + at * 1000);
    Report { at, about, severity: Severity::Warning, reason: "Stalled", message: message.into() }
}

/// A cluster with the namespace `n`, and who records to it.
struct Desk {
    served: Served,
    recorder: Recorder,
    metrics: Arc<Metrics>,
    _workers: tokio::task::JoinSet<()>,
    _kubeconfig: Kubeconfig,
}

async fn desk() -> Desk {
    let served = serve(FrontSettings::default()).await;
    served.put(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"}}));
    let kubeconfig = Kubeconfig::of(&served);
    let metrics = Arc::new(Metrics::new());
    let clusters = vec![cluster(&served, &kubeconfig)];
    let (recorder, workers) = Recorder::start(clusters, metrics.clone());
    Desk { served, recorder, metrics, _workers: workers, _kubeconfig: kubeconfig }
}

async fn events(served: &Served) -> Vec<Value> {
    let (code, list) = served.get("/api/v1/events").await;
    assert_eq!(code, 200);
    list["items"].as_array().unwrap().clone()
}

/// Asks again and again until it is so; a test that waits in vain is ended by its runner.
async fn until(what: &str, is: impl AsyncFn() -> bool) {
    for _ in 0..3_000 {
        if is().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("in vain: {what}");
}

impl Desk {
    fn record(&self, report: Report) {
        self.recorder.record(&self.served.cluster, report);
    }

    fn counted(&self, fate: &str) -> u64 {
        let name = format!("throughline_events_{fate}_total ");
        let text = self.metrics.text(None, Format::Plain);
        text.lines().find_map(|line| line.strip_prefix(&name)).unwrap().parse().unwrap()
    }

    async fn counts(&self, fate: &str, wanted: u64) {
        until(fate, async || self.counted(fate) == wanted).await;
    }

    fn asked(&self, verb: Verb) -> u64 {
        self.served.front.requests().get(&(verb, Resource::Events)).copied().unwrap_or(0)
    }
}

#[tokio::test]
async fn an_equal_event_is_counted_and_one_that_expired_is_made_anew() {
    let desk = desk().await;
    for at in 0..3 {
        desk.record(report("m", at));
    }
    desk.counts("posted", 3).await;
    let found = events(&desk.served).await;
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
    assert_eq!(desk.served.send("DELETE", &format!("{EVENTS}/{name}"), &Value::Null).await.0, 200);
    desk.record(report("m", 4));
    desk.record(report("other", 5));
    desk.counts("posted", 5).await;
    let found = events(&desk.served).await;
    let counts: Vec<_> = found.iter().map(|event| event["count"].as_u64().unwrap()).collect();
    assert_eq!(counts, [4, 1], "{found:?}");
    assert_eq!(found[0]["firstTimestamp"], "2026-11-21T09:19:32Z");
}

#[tokio::test]
async fn where_events_are_forbidden_nobody_insists() {
    let desk = desk().await;
    let forbidden = Fault { resource: Some(Resource::Events), ..Fault::of_writes(403) };
    desk.served.front.fail(&forbidden, 1_000);
    for at in 0..10 {
        desk.record(report(&format!("m{at}"), at));
    }
    desk.counts("dropped", 9).await;
    assert_eq!((desk.counted("failed"), desk.asked(Verb::Create)), (1, 1));
}

#[tokio::test]
async fn what_may_pass_is_tried_again_and_what_may_not_is_not() {
    let desk = desk().await;
    let broken = Fault { resource: Some(Resource::Events), ..Fault::of_writes(500) };
    desk.served.front.fail(&broken, 2);
    desk.record(report("m", 0));
    desk.counts("posted", 1).await;
    assert_eq!(desk.asked(Verb::Create), 3);
    let mut elsewhere = report("m", 1);
    elsewhere.about.namespace = "nowhere".into();
    desk.record(elsewhere);
    desk.counts("failed", 1).await;
    assert_eq!(desk.asked(Verb::Create), 4);
}

#[tokio::test]
async fn whoever_records_never_waits() {
    let desk = desk().await;
    desk.served.front.set_mode(Mode::Frozen);
    for at in 0..1_500 {
        let mut report = report("m", 0);
        report.about.name = format!("g-{at}");
        desk.record(report);
    }
    // Nothing has come to its end: these are the ones that did not fit.
    assert_eq!((desk.counted("dropped"), desk.counted("posted")), (500, 0));
}

/// One cluster with every role: the hub's Connector can't be written for a while.
async fn run_with(events_on: bool, dry_run: bool) -> Vec<Value> {
    let served = serve_all().await;
    let kubeconfig = Kubeconfig::of(&served);
    let mut config = Config::default();
    config.clusters.push(throughline::config::ClusterConfig {
        name: served.cluster.clone(),
        roles: vec![Role::Upstream, Role::Downstream, Role::Edge],
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
    let broken = Fault { resource: connectors, ..Fault::of_writes(500) };
    served.front.fail(&broken, 1_000_000);

    let (stop, stopping) = watch::channel(false);
    let running = tokio::spawn(Run::new(config, Vec::new()).unwrap().until(stopping));
    if events_on && !dry_run {
        until("it stalls", async || !events(&served).await.is_empty()).await;
        served.front.clear_faults();
        until("it recovers", async || events(&served).await.len() == 2).await;
    } else {
        // It would have stalled by now.
        tokio::time::sleep(Duration::from_millis(2_000)).await;
    }
    stop.send_replace(true);
    running.await.unwrap().unwrap();
    events(&served).await
}

async fn serve_all() -> Served {
    let served = serve(FrontSettings::default()).await;
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
async fn a_stall_and_its_end_are_told_on_the_connector_at_the_hub() {
    let events = run_with(true, false).await;
    let of = |event: &Value| {
        let text = |member: &str| event[member].as_str().unwrap().to_owned();
        (text("type"), text("reason"), text("message"))
    };
    let told: Vec<_> = events.iter().map(of).collect();
    assert_eq!((told[0].0.as_str(), told[0].1.as_str()), ("Warning", "StalledMirror"), "{told:?}");
    assert!(
        told[0].2.starts_with("upstream's status is not mirrored to the hub within 1 s: writes")
    );
    let recovered = ("Normal", "Recovered", "upstream's status is mirrored again");
    assert_eq!((told[1].0.as_str(), told[1].1.as_str(), told[1].2.as_str()), recovered);
    let involved = &events[0]["involvedObject"];
    assert_eq!((&involved["kind"], &involved["name"]), (&json!("Connector"), &json!("lab")));
    assert!(involved["uid"].is_string() && involved["resourceVersion"].is_string(), "{involved}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_and_one_that_was_told_so_leave_none() {
    let (dry, off) = tokio::join!(run_with(true, true), run_with(false, false));
    assert_eq!((dry.len(), off.len()), (0, 0));
}

fn stall(name: &str, ended: bool) -> Note {
    let stall = Stall {
        cluster: "one".into(),
        connector: ObjectKey::new("n", name),
        hop: Hop::Mirrored,
        since: UnixMillis(0),
        reason: format!(
            "writes to the hub fail: webhook at https://10.0.0.7:443/x said {}",
            "ab".repeat(32)
        ),
    };
    Note { at: START, what: if ended { Noted::StallEnded(stall) } else { Noted::Stalled(stall) } }
}

/// As a run calls it.
fn tell(reporter: &mut Reporter, note: &Note, kind: Kind, name: &str) {
    reporter.noted(note);
    let object = ObjectKey::new("n", name);
    let subject =
        Subject { cluster: "one".into(), kind, object, uid: None, resource_version: None };
    reporter.noted_about(note, &subject);
}

/// What began before it led, and is not over ten seconds later, a new leader tells.
#[tokio::test]
async fn a_new_leader_tells_what_is_still_the_matter() {
    let desk = desk().await;
    let mut reporter = Reporter::new(desk.recorder.clone(), Settings::default());
    let happens = |at_s: u64, what| Event { at: START.plus(at_s * 1000), what };
    for name in ["a", "b"] {
        tell(&mut reporter, &stall(name, false), Kind::Connector, name);
    }
    reporter.event(&happens(0, Happened::LeadershipAcquired));
    tell(&mut reporter, &stall("a", true), Kind::Connector, "a");
    desk.counts("posted", 1).await;
    reporter.event(&happens(9, Happened::TimedOut));
    reporter.event(&happens(10, Happened::TimedOut));
    reporter.event(&happens(11, Happened::TimedOut));
    desk.counts("posted", 2).await;
    let found = events(&desk.served).await;
    let of = |e: &Value| (e["involvedObject"]["name"].clone(), e["reason"].clone());
    let told: Vec<_> = found.iter().map(of).collect();
    assert_eq!(told, [("a".into(), "Recovered".into()), ("b".into(), "StalledMirror".into())]);
    // Without the webhook's address and the node id.
    let message = found[1]["message"].as_str().unwrap();
    assert!(message.starts_with("upstream's status is not mirrored to the hub within 5 s: writes"));
    assert!(!message.contains("10.0.0.7") && !message.contains("abab"), "{message}");

    reporter.event(&happens(12, Happened::LeadershipLost));
    tell(&mut reporter, &stall("b", true), Kind::Connector, "b");
    assert_eq!((desk.counted("posted"), desk.asked(Verb::Create)), (2, 2));
}

/// On one route, however many are orphans; and on the same one, or what was it, when it is over.
#[tokio::test]
async fn held_deletes_are_told_once_a_hold() {
    let desk = desk().await;
    let mut reporter = Reporter::new(desk.recorder.clone(), Settings::default());
    reporter.event(&Event { at: START, what: Happened::LeadershipAcquired });
    let held = |held, orphans| {
        let cluster = "up".into();
        Note { at: START, what: Noted::DeletesHeld { cluster, held, orphans, routes: 100 } }
    };
    tell(&mut reporter, &held(true, 31), Kind::HttpRoute, "longest");
    let (cluster, route) = ("one".into(), ObjectKey::new("n", "longest"));
    let what = Noted::Orphan { cluster, route, kept: Some(Keep::ShareExceeded) };
    tell(&mut reporter, &Note { at: START, what }, Kind::HttpRoute, "longest");
    reporter.noted(&held(false, 0));
    reporter.noted(&held(false, 0));
    desk.counts("posted", 2).await;
    let found = events(&desk.served).await;
    let of = |e: &Value| (e["involvedObject"]["name"].clone(), e["reason"].clone());
    let told: Vec<_> = found.iter().map(of).collect();
    let longest = || Value::from("longest");
    assert_eq!(told, [(longest(), "DeletesHeld".into()), (longest(), "DeletesNotHeld".into())]);
    assert!(found[0]["message"].as_str().unwrap().starts_with("31 of the 100 routes of upstream"));
}
