//! Tests of the test harness itself, without throughline.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::cluster::apiserver::{ApiServer, NOBODY, THROUGHLINE, client};
use crate::cluster::faults::{Fault, Gate, Rule};
use crate::cluster::fleet::{Fleet, Mirrored, Spec, app};
use crate::cluster::follow::{Task, WatchUpdate, follow, watch};
use crate::cluster::objects::{
    TRIGGER, UPSTREAM_STATUS, annotation, connector, install, same, status,
};
use crate::cluster::proxy::FaultProxy;
use crate::cluster::rest::{CONNECTORS, GATEWAYS, NAMESPACES, Resource, Rest};
use crate::cluster::rights::{folders, revoke};
use crate::cluster::testbed::{Testbed, Topology};
use crate::cluster::{SOON, ensure, eventually, oracle};

/// The roles whose permissions the tests' user has here.
const HUB: &[&str] = &["downstream"];
const ANNOTATION: &str = "example.com/value";

async fn create_lab(rest: &Rest) {
    rest.create(NAMESPACES, json!({ "metadata": { "name": "a" } })).await.unwrap();
    rest.create(CONNECTORS, connector("a", "lab")).await.unwrap();
}

async fn annotation_of_lab(rest: &Rest) -> Option<String> {
    let lab = rest.read(CONNECTORS, "a", "lab").await.unwrap();
    annotation(&lab, ANNOTATION).map(str::to_owned)
}

async fn annotate_lab(rest: &Rest, value: &str) -> Result<Value, u16> {
    rest.annotate(CONNECTORS, ("a", "lab"), ANNOTATION, Some(value)).await.map_err(|r| r.code)
}

/// One watch from `version` on, in the background. The channel yields the annotation of each event, and
/// at the end the error code.
fn watch_from(
    rest: &Rest,
    version: String,
) -> (Task, tokio::sync::mpsc::UnboundedReceiver<Result<String, u16>>) {
    let (to, from) = tokio::sync::mpsc::unbounded_channel();
    let rest = rest.clone();
    let task = Task::spawn(async move {
        let mut see = |seen: WatchUpdate| {
            if let WatchUpdate::Applied(object) = seen {
                let _ = to.send(Ok(annotation(&object, ANNOTATION).unwrap_or_default().to_owned()));
            }
        };
        let ended = watch(&rest, CONNECTORS, &version, &mut see).await;
        let _ = to.send(Err(ended.err().unwrap_or(0)));
    });
    (task, from)
}

async fn version(rest: &Rest) -> String {
    rest.list(CONNECTORS, "").await.unwrap().1
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn an_api_server_validates_authorizes_and_survives_a_restart() {
    let server = ApiServer::start("one").await;
    let admin = server.rest();
    install(admin, HUB).await;
    create_lab(admin).await;

    // The tests' CRD has a status subresource and the platform's validation.
    admin.merge_status(CONNECTORS, ("a", "lab"), &status(true, 7)).await.unwrap();
    let wrong = json!({ "connectionDetails": { "type": "Telegraph" } });
    let refused = admin.merge_status(CONNECTORS, ("a", "lab"), &wrong).await.unwrap_err();
    assert_eq!(refused.code, 422, "{refused}");
    admin.merge(CONNECTORS, ("a", "lab"), &json!({ "status": null })).await.unwrap();
    let lab = admin.read(CONNECTORS, "a", "lab").await.unwrap();
    same("status", &lab["status"], &status(true, 7)).unwrap();
    admin.merge_status(CONNECTORS, ("a", "lab"), &Value::Null).await.unwrap();
    let lab = admin.read(CONNECTORS, "a", "lab").await.unwrap();
    assert!(lab.get("status").is_none(), "{lab}");

    // Users have exactly the permissions that they were given, and the audit log records them.
    let ours = Rest(client(&server.kubeconfig(THROUGHLINE)).await);
    annotate_lab(&ours, "hello").await.unwrap();
    assert_eq!(ours.create(CONNECTORS, connector("a", "other")).await.unwrap_err().code, 403);
    let nobody = Rest(client(&server.kubeconfig(NOBODY)).await);
    assert_eq!(nobody.items(CONNECTORS).await.unwrap_err().code, 403);
    let stranger = Rest(client(&server.kubeconfig("stranger")).await);
    assert_eq!(stranger.items(CONNECTORS).await.unwrap_err().code, 401);
    let audited = |verb: &str, code| (verb.to_owned(), "connectors".to_owned(), code);
    eventually("the audit log has both requests", SOON, async || {
        let found = server.audited();
        let wanted = [audited("patch", 200), audited("create", 403)];
        ensure(wanted.iter().all(|w| found.contains(w)), || format!("{found:?}"))
    })
    .await;
    revoke(admin, &folders(HUB)).await.unwrap();
    eventually("the permissions are gone", SOON, async || {
        let code = ours.items(CONNECTORS).await.err().map(|refused| refused.code);
        ensure(code == Some(403), || format!("{code:?}"))
    })
    .await;

    // A killed server is gone at once; after a restart the data is there and the old history is not.
    let old = version(admin).await;
    let (_watching, mut seen) = watch_from(admin, old.clone());
    annotate_lab(admin, "still there").await.unwrap();
    assert_eq!(seen.recv().await, Some(Ok("still there".into())));
    server.kill().await;
    assert_eq!(seen.recv().await.unwrap().unwrap_err(), 0);
    assert_eq!(admin.items(CONNECTORS).await.unwrap_err().code, 0);
    server.restart().await;
    assert_eq!(annotation_of_lab(admin).await.as_deref(), Some("still there"));
    // Right after a start it answers 429: its watch cache is not there yet.
    eventually("the old history is not there", SOON, async || {
        let (_watching, mut seen) = watch_from(admin, old.clone());
        let ended = seen.recv().await.unwrap();
        assert!(matches!(ended, Err(410 | 429)), "{ended:?}");
        ensure(ended == Err(410), || format!("{ended:?}"))
    })
    .await;

    // An old version can be listed until etcd compacts it. The restarts empty the API server's own
    // cache, which also holds old versions.
    let old = version(admin).await;
    annotate_lab(admin, "later").await.unwrap();
    let query = format!("?limit=1&resourceVersionMatch=Exact&resourceVersion={old}");
    let path = format!("{}{query}", CONNECTORS.path(""));
    server.restart().await;
    admin.get(&path).await.unwrap();
    server.compact().await;
    server.restart().await;
    assert_eq!(admin.get(&path).await.unwrap_err().code, 410);

    // A frozen server does not answer; a thawed one continues where it was.
    let (_watching, mut seen) = watch_from(admin, version(admin).await);
    server.freeze();
    let asked = admin.items(CONNECTORS);
    assert!(tokio::time::timeout(Duration::from_millis(500), asked).await.is_err());
    server.thaw();
    annotate_lab(admin, "thawed").await.unwrap();
    assert_eq!(seen.recv().await, Some(Ok("thawed".into())));
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn the_proxy_counts_requests_and_applies_rules() {
    let server = ApiServer::start("behind").await;
    let admin = server.rest();
    install(admin, HUB).await;
    create_lab(admin).await;
    let proxy = FaultProxy::start(&server).await;
    let ours = Rest(client(&proxy.kubeconfig(THROUGHLINE)).await);

    // The user is passed on, every request is counted, and writes are kept.
    let nobody = Rest(client(&proxy.kubeconfig(NOBODY)).await);
    assert_eq!(nobody.items(CONNECTORS).await.unwrap_err().code, 403);
    let written = annotate_lab(&ours, "1").await.unwrap();
    ours.items(CONNECTORS).await.unwrap();
    assert_eq!((proxy.count("GET", "connectors"), proxy.reads()), (2, 2));
    let writes = proxy.writes();
    assert_eq!((writes.len(), writes[0].code, &*writes[0].target.name), (1, 200, "lab"));
    assert_eq!(writes[0].body["metadata"]["annotations"][ANNOTATION], "1");
    assert_eq!(written["metadata"]["resourceVersion"], *writes[0].resource_version);

    // Error answers, for a limited number of requests.
    let patches = |rule: Rule| rule.method("PATCH").resource("connectors");
    let rule = proxy.add(patches(Rule::status(409)).times(2));
    for expected in [Err(409), Err(409), Ok(())] {
        assert_eq!(annotate_lab(&ours, "2").await.map(drop), expected);
    }
    assert_eq!(proxy.applied(rule), 2);
    proxy.add(patches(Rule::too_many(7)).times(1));
    assert_eq!(annotate_lab(&ours, "3").await.unwrap_err(), 429);
    assert_eq!(annotation_of_lab(admin).await.as_deref(), Some("2"));

    // When the answer is lost, the write was done; when the connection is cut, it was not.
    proxy.add(patches(Rule::new(Fault::LoseAnswer)).times(1));
    assert_eq!(annotate_lab(&ours, "done").await.unwrap_err(), 0);
    assert_eq!(annotation_of_lab(admin).await.as_deref(), Some("done"));
    proxy.add(patches(Rule::new(Fault::Cut)).times(1));
    assert_eq!(annotate_lab(&ours, "not done").await.unwrap_err(), 0);
    assert_eq!(annotation_of_lab(admin).await.as_deref(), Some("done"));
    assert_eq!(proxy.writes().last().unwrap().code, 0);

    // Requests can be held and delayed.
    let gate = Gate::new();
    proxy.add(patches(Rule::new(Fault::Hold(gate.clone()))));
    let held = tokio::spawn({
        let ours = ours.clone();
        async move { annotate_lab(&ours, "held").await }
    });
    let waits = async || ensure(gate.waiting() == 1, || format!("{}", gate.waiting()));
    eventually("a request is held", SOON, waits).await;
    assert_eq!(annotation_of_lab(admin).await.as_deref(), Some("done"));
    gate.release();
    held.await.unwrap().unwrap();
    assert_eq!(annotation_of_lab(admin).await.as_deref(), Some("held"));
    proxy.clear();
    proxy.add(patches(Rule::new(Fault::Delay(Duration::from_millis(300)))));
    let asked = Instant::now();
    annotate_lab(&ours, "slow").await.unwrap();
    assert!(asked.elapsed() >= Duration::from_millis(300));
    proxy.clear();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn watches_stream_through_the_proxy_until_they_are_cut_frozen_or_expired() {
    let server = ApiServer::start("watched").await;
    let admin = server.rest();
    install(admin, HUB).await;
    create_lab(admin).await;
    let proxy = FaultProxy::start(&server).await;
    let ours = Rest(client(&proxy.kubeconfig(THROUGHLINE)).await);

    let (_watching, mut seen) = watch_from(&ours, version(&ours).await);
    annotate_lab(admin, "1").await.unwrap();
    assert_eq!(seen.recv().await, Some(Ok("1".into())));
    assert_eq!(proxy.open_watches(), 1);

    // While frozen, connections stay and no event comes; afterwards the events come.
    proxy.freeze();
    annotate_lab(admin, "2").await.unwrap();
    let silence = tokio::time::timeout(Duration::from_millis(500), seen.recv()).await;
    assert!(silence.is_err(), "{silence:?}");
    let asked = tokio::time::timeout(Duration::from_millis(300), ours.items(CONNECTORS)).await;
    assert!(asked.is_err());
    proxy.thaw();
    assert_eq!(seen.recv().await, Some(Ok("2".into())));

    // A cut ends every watch at once; new watches work.
    proxy.cut();
    assert_eq!(seen.recv().await.unwrap(), Err(0));
    eventually("no watch is open", SOON, async || {
        ensure(proxy.open_watches() == 0, || proxy.open_watches().to_string())
    })
    .await;
    let (_watching, mut seen) = watch_from(&ours, version(&ours).await);
    annotate_lab(admin, "3").await.unwrap();
    assert_eq!(seen.recv().await, Some(Ok("3".into())));

    // While down, the proxy accepts nothing.
    proxy.down();
    assert_eq!(seen.recv().await.unwrap(), Err(0));
    assert_eq!(ours.items(CONNECTORS).await.unwrap_err().code, 0);
    proxy.up();
    ours.items(CONNECTORS).await.unwrap();

    // Expired, as an event and as an answer. If the API server dies, the watch ends.
    proxy.add(Rule::new(Fault::Expire).watches(true).times(1));
    let (_watching, mut seen) = watch_from(&ours, version(&ours).await);
    assert_eq!(seen.recv().await.unwrap(), Err(410));
    proxy.add(Rule::status(410).watches(true).times(1));
    let (_watching, mut seen) = watch_from(&ours, version(&ours).await);
    assert_eq!(seen.recv().await.unwrap(), Err(410));
    let (_watching, mut seen) = watch_from(&ours, version(&ours).await);
    annotate_lab(admin, "4").await.unwrap();
    assert_eq!(seen.recv().await, Some(Ok("4".into())));
    server.kill().await;
    assert_eq!(seen.recv().await.unwrap(), Err(0));
    assert_eq!(ours.items(CONNECTORS).await.unwrap_err().code, 0);
}

/// The test mirrors and touches itself; the oracle finds everything that it left out.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn the_carrier_carries_and_the_oracle_finds_what_is_missing() {
    let testbed = Testbed::start(Topology::Three).await;
    let spec = Spec { connectors: 4, per_namespace: 2, gateways: 2, ..Spec::of(4) };
    let fleet =
        Fleet::seed(&testbed, Spec { mirrored: Mirrored::Fresh, with_routes: true, ..spec }).await;
    let (namespace, name) = fleet.hub_key(3);
    let said = oracle::converged(&testbed).await.unwrap_err();
    assert!(said.contains("trigger of"), "{said}");
    for i in 0..4 {
        touch_by_hand(&testbed, &fleet, i).await;
    }
    oracle::converges(&testbed).await;

    // After a flip upstream, first the mirror is missing, then the touch.
    fleet.flip(3).await.unwrap();
    let said = oracle::converged(&testbed).await.unwrap_err();
    assert!(said.contains(&format!("annotation of {namespace}/{name} at hub")), "{said}");
    mirror_by_hand(&testbed, &fleet, 3).await;
    let edge = testbed.edge().rest();
    eventually("the flip is carried", SOON, async || {
        let copy = edge.read(CONNECTORS, namespace, &name).await.unwrap();
        let said = annotation(&copy, UPSTREAM_STATUS).unwrap_or_default().to_owned();
        ensure(said.contains("ConnectorNotReady"), || said)
    })
    .await;
    let copy = edge.read(CONNECTORS, namespace, &name).await.unwrap();
    assert!(copy.get("status").is_none(), "the status was carried: {copy}");
    let said = oracle::converged(&testbed).await.unwrap_err();
    assert!(said.contains(&format!("trigger of {namespace}/{}", app(3, 0))), "{said}");
    touch_by_hand(&testbed, &fleet, 3).await;
    oracle::converges(&testbed).await;

    // A trigger on a gateway without connectors is found.
    edge.annotate(GATEWAYS, (namespace, "plain"), TRIGGER, Some("0-0-0")).await.unwrap();
    assert!(oracle::converged(&testbed).await.unwrap_err().contains("plain"));
    edge.annotate(GATEWAYS, (namespace, "plain"), TRIGGER, None).await.unwrap();
    oracle::converges(&testbed).await;

    // An annotation removed at the hub is removed at the edge; one that somebody added there stays.
    edge.annotate(CONNECTORS, (namespace, &name), ANNOTATION, Some("edge")).await.unwrap();
    let carrier = testbed.carrier();
    carrier.set_stuck(true);
    let hub = testbed.hub().rest();
    hub.annotate(CONNECTORS, (namespace, &name), UPSTREAM_STATUS, None).await.unwrap();
    tokio::time::sleep(Duration::from_millis(500)).await;
    let copy = edge.read(CONNECTORS, namespace, &name).await.unwrap();
    assert!(annotation(&copy, UPSTREAM_STATUS).is_some(), "a stuck carrier carried");
    carrier.set_stuck(false);
    hub.annotate(CONNECTORS, (namespace, &name), "example.com/nudge", Some("1")).await.unwrap();
    eventually("the annotation is removed at the edge", SOON, async || {
        let copy = edge.read(CONNECTORS, namespace, &name).await.unwrap();
        let said = [UPSTREAM_STATUS, ANNOTATION].map(|key| annotation(&copy, key));
        ensure(said == [None, Some("edge")], || format!("{said:?}"))
    })
    .await;
    fleet.delete_upstream(3).await.unwrap();
    fleet.delete_at_hub(3).await.unwrap();
    eventually("deleted at the edge", SOON, async || {
        let gone = edge.read(CONNECTORS, namespace, &name).await;
        ensure(gone.is_err_and(|refused| refused.code == 404), || "still there".into())
    })
    .await;
}

async fn mirror_by_hand(testbed: &Testbed, fleet: &Fleet, i: usize) {
    let (namespace, name) = fleet.upstream_key(i);
    let source = testbed.upstream().rest().read(CONNECTORS, namespace, &name).await.unwrap();
    let (hub_namespace, said) = (fleet.hub_key(i).0, source["status"].to_string());
    let hub = testbed.hub().rest();
    hub.annotate(CONNECTORS, (hub_namespace, &name), UPSTREAM_STATUS, Some(&said)).await.unwrap();
}

async fn touch_by_hand(testbed: &Testbed, fleet: &Fleet, i: usize) {
    use throughline::core::status::{liveness, trigger};
    let ((namespace, name), edge) = (fleet.hub_key(i), testbed.edge().rest());
    let copy = edge.read(CONNECTORS, namespace, &name).await.unwrap();
    let now = liveness::read(annotation(&copy, UPSTREAM_STATUS), None);
    let digest = trigger::digest([trigger::connector_part(&name, now.online, &now.node_id)]);
    for g in 0..fleet.spec.gateways {
        let value = trigger::Trigger { digest, n: 1, c: 0 }.to_string();
        edge.annotate(GATEWAYS, (namespace, &app(i, g)), TRIGGER, Some(&value)).await.unwrap();
    }
}

/// Seeding a thousand connectors must not take minutes.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn a_thousand_connectors_are_seeded_and_flipped() {
    let testbed = Testbed::start(Topology::Two).await;
    let started = Instant::now();
    let fleet = Fleet::seed(&testbed, Spec { per_namespace: 100, ..Spec::of(1_000) }).await;
    eprintln!("seeded 1,000 connectors in {:.1} s", started.elapsed().as_secs_f64());
    let counted = async |rest: &Rest, resource: Resource| rest.items(resource).await.unwrap().len();
    assert_eq!(counted(&fleet.up, CONNECTORS).await, 1_000);
    assert_eq!(counted(&fleet.hub, CONNECTORS).await, 1_000);
    assert_eq!(counted(&fleet.edge, GATEWAYS).await, 1_010);

    let (to, mut from) = tokio::sync::mpsc::unbounded_channel();
    let _following = follow(fleet.up.clone(), CONNECTORS, move |seen| {
        let _ = to.send(match seen {
            WatchUpdate::Listed(objects) => objects.len(),
            WatchUpdate::Applied(_) => 1,
            WatchUpdate::Deleted(_) => 0,
        });
    });
    assert_eq!(from.recv().await, Some(1_000));
    let started = Instant::now();
    fleet.flip_all(0..1_000).await.unwrap();
    for _ in 0..1_000 {
        assert_eq!(from.recv().await, Some(1));
    }
    eprintln!("flipped them in {:.1} s", started.elapsed().as_secs_f64());
}
