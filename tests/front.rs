//! What can be made to go wrong at the front, and what clients see of it.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "support/front/mod.rs"]
mod front;

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use front::{Served, serve};
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Api, PostParams};
use serde_json::{Value, json};
use throughline::core::ids::{ClusterName, Kind, ObjectKey, Role};
use throughline::event_log::ClusterSpec;
use throughline::front::{Fault, FrontSettings, Mode, Resource, Verb};
use throughline::world::World;

const CONNECTORS: &str = "/apis/networking.datumapis.com/v1alpha1/connectors";
const A: &str = "/apis/networking.datumapis.com/v1alpha1/namespaces/ns/connectors/a";
const GATEWAYS: &str = "/apis/gateway.networking.k8s.io/v1/gateways";

fn connector(name: &str) -> Value {
    json!({"apiVersion": "networking.datumapis.com/v1alpha1", "kind": "Connector",
        "metadata": {"namespace": "ns", "name": name}})
}

fn gateway(name: &str) -> Value {
    json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway",
        "metadata": {"namespace": "ns", "name": name}})
}

fn annotate(value: &str) -> Value {
    json!({"metadata": {"annotations": {"k": value}}})
}

async fn served() -> Served {
    serve(FrontSettings::default()).await
}

fn version(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
}

#[tokio::test]
async fn a_cluster_that_is_down_can_not_be_reached_and_comes_back_as_it_was() {
    let served = served().await;
    let before = served.put(connector("a"));
    let mut watch = served.watch(&format!("{CONNECTORS}?watch=1&resourceVersion={before}")).await;
    served.front.set_mode(Mode::Down);
    assert!(watch.next().await.unwrap().is_err(), "a watch ends with its connection");
    assert!(served.answer("GET", A, &Value::Null).await.is_err());
    served.put(connector("b"));
    served.front.set_mode(Mode::Serving);
    let mut watch = served.watch(&format!("{CONNECTORS}?watch=1&resourceVersion={before}")).await;
    let (what, object) = watch.event().await;
    assert_eq!((what.as_str(), &object["metadata"]["name"]), ("ADDED", &json!("b")));
}

#[tokio::test]
async fn a_frozen_cluster_takes_requests_and_says_nothing() {
    let settings =
        FrontSettings { bookmark_every: Duration::from_millis(1), ..FrontSettings::default() };
    let served = serve(settings).await;
    let path = format!("{CONNECTORS}?watch=1&resourceVersion=1&allowWatchBookmarks=true");
    let mut watch = served.watch(&path).await;
    assert_eq!(watch.event().await.0, "BOOKMARK");
    served.front.set_mode(Mode::Frozen);
    // Bookmarks that were under way arrive; then there is silence.
    while tokio::time::timeout(Duration::from_millis(300), watch.event()).await.is_ok() {}
    let get = served.get("/livez");
    assert!(tokio::time::timeout(Duration::from_millis(300), get).await.is_err());
    served.put(connector("a"));
    served.front.set_mode(Mode::Serving);
    assert_eq!(served.get("/livez").await, (200, json!("ok")));
    while watch.event().await.0 != "ADDED" {}
}

#[tokio::test]
async fn only_the_watches_that_are_cut_break() {
    let served = served().await;
    let from = served.put(connector("a"));
    let mut cut = served.watch(&format!("{CONNECTORS}?watch=1&resourceVersion={from}")).await;
    let mut kept = served.watch(&format!("{GATEWAYS}?watch=1&resourceVersion={from}")).await;
    served.front.cut_watches(Some(Resource::Connectors));
    assert!(cut.next().await.unwrap().is_err());
    served.put(gateway("g"));
    assert_eq!(kept.event().await.0, "ADDED");
    served.front.cut_watches(None);
    assert!(kept.next().await.unwrap().is_err());
    let mut again = served.watch(&format!("{CONNECTORS}?watch=1&resourceVersion=0")).await;
    assert_eq!(again.event().await.1["metadata"]["name"], "a");
}

#[tokio::test]
async fn a_watch_from_before_a_compaction_is_told_410() {
    let served = served().await;
    let before = served.put(connector("a"));
    let now = served.put(connector("b"));
    served.front.compact();
    let mut old = served.watch(&format!("{CONNECTORS}?watch=1&resourceVersion={before}")).await;
    let (what, status) = old.event().await;
    assert_eq!(
        (what.as_str(), &status["code"], &status["reason"]),
        ("ERROR", &json!(410), &json!("Expired"))
    );
    assert!(old.next().await.is_none(), "that was its last line");
    let mut new = served.watch(&format!("{CONNECTORS}?watch=1&resourceVersion={now}")).await;
    served.put(connector("c"));
    assert_eq!(new.event().await.1["metadata"]["name"], "c");
}

#[tokio::test]
async fn the_history_is_bounded() {
    let settings = FrontSettings { history_changes: 3, ..FrontSettings::default() };
    let served = serve(settings).await;
    let versions: Vec<u64> = (0..5).map(|n| served.put(connector(&format!("c{n}")))).collect();
    let events = |from: u64| {
        let served = &served;
        async move {
            let path = format!("{CONNECTORS}?watch=1&resourceVersion={from}&timeoutSeconds=1");
            let mut watch = served.watch(&path).await;
            let mut all = Vec::new();
            while let Some(event) = watch.next().await {
                all.push(event.unwrap().0);
            }
            all
        }
    };
    assert_eq!(events(versions[1]).await, ["ADDED", "ADDED", "ADDED"]);
    assert_eq!(events(versions[0]).await, ["ERROR"]);
}

#[tokio::test]
async fn a_fault_answers_so_many_writes_and_carries_none_out() {
    let served = served().await;
    served.put(connector("a"));
    served.front.fail(&Fault::of_writes(429).retry_after(7), 2);
    assert_eq!(served.get(A).await.0, 200, "reads are not concerned");
    for _ in 0..2 {
        let answer = served.answer("PATCH", A, &annotate("v")).await.unwrap();
        assert_eq!(answer.status().as_u16(), 429);
        assert_eq!(answer.headers()["retry-after"], "7");
    }
    assert!(served.get(A).await.1["metadata"]["annotations"].is_null());
    let (code, object) = served.send("PATCH", A, &annotate("v")).await;
    assert_eq!((code, &object["metadata"]["annotations"]["k"]), (200, &json!("v")));
    let requests = served.front.requests();
    assert_eq!(requests[&(Verb::Patch, Resource::Connectors)], 3);
    assert_eq!(requests[&(Verb::Get, Resource::Connectors)], 2);
    assert_eq!(served.front.writes(), 3);
}

#[tokio::test]
async fn a_write_can_land_and_its_answer_be_lost() {
    let served = served().await;
    served.put(connector("a"));
    served.front.fail(&Fault::of_writes(504).carried_out(), 1);
    assert_eq!(served.send("PATCH", A, &annotate("v")).await.0, 504);
    assert_eq!(served.get(A).await.1["metadata"]["annotations"]["k"], "v");
}

#[tokio::test]
async fn faults_of_watching_concern_one_resource_and_can_be_taken_back() {
    let served = served().await;
    served.front.fail(&Fault::of_watching(Kind::Connector, 403), usize::from(u8::MAX));
    let (code, status) = served.get(CONNECTORS).await;
    assert_eq!((code, &status["reason"]), (403, &json!("Forbidden")));
    assert_eq!(served.get(&format!("{CONNECTORS}?watch=1")).await.0, 403);
    assert_eq!(served.get(GATEWAYS).await.0, 200);
    served.front.clear_faults();
    assert_eq!(served.get(CONNECTORS).await.0, 200);
}

#[tokio::test]
async fn a_resource_that_is_not_served_is_no_path() {
    let served = served().await;
    served.front.set_served(Kind::Gateway, false);
    assert_eq!(served.get(GATEWAYS).await, (404, json!("404 page not found\n")));
    assert_eq!(served.get(CONNECTORS).await.0, 200);
    served.front.set_served(Kind::Gateway, true);
    assert_eq!(served.get(GATEWAYS).await.0, 200);
}

#[tokio::test]
async fn latency_comes_before_every_answer() {
    let served = served().await;
    let latency = Duration::from_millis(50);
    served.front.set_latency(latency);
    let start = Instant::now();
    assert_eq!(served.get("/readyz").await.0, 200);
    assert!(start.elapsed() >= latency);
}

#[tokio::test]
async fn bookmarks_tell_how_far_a_quiet_watch_is() {
    let settings =
        FrontSettings { bookmark_every: Duration::from_millis(5), ..FrontSettings::default() };
    let served = serve(settings).await;
    let path = format!("{CONNECTORS}?watch=1&resourceVersion=1&allowWatchBookmarks=true");
    let mut watch = served.watch(&path).await;
    let now = served.put(gateway("g"));
    loop {
        let (what, object) = watch.event().await;
        assert_eq!((what.as_str(), &object["kind"]), ("BOOKMARK", &json!("Connector")));
        if version(&object) == now {
            break;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_tells_every_change_once_and_in_order() {
    let served = served().await;
    let from = served.put(connector("a"));
    let mut watch = served.watch(&format!("{CONNECTORS}?watch=1&resourceVersion={from}")).await;
    let writes = async {
        for n in 0..200 {
            assert_eq!(served.send("PATCH", A, &annotate(&n.to_string())).await.0, 200);
            served.put(gateway("g"));
        }
        let (code, _) = served.send("DELETE", A, &Value::Null).await;
        assert_eq!(code, 200);
    };
    let reads = async {
        let mut last = from;
        for n in 0..200 {
            let (what, object) = watch.event().await;
            assert_eq!(
                (what.as_str(), &object["metadata"]["annotations"]["k"]),
                ("MODIFIED", &json!(n.to_string()))
            );
            assert!(version(&object) > last);
            last = version(&object);
        }
        let (what, object) = watch.event().await;
        assert_eq!(what, "DELETED");
        assert!(version(&object) > last, "a deletion has a version of its own");
    };
    tokio::join!(writes, reads);
}

#[tokio::test]
async fn writes_stand_in_managed_fields_with_the_worlds_time() {
    let served = served().await;
    served.put(connector("a"));
    let (_, object) = served.send("PATCH", &format!("{A}?fieldManager=me"), &annotate("v")).await;
    let entry = &object["metadata"]["managedFields"][1];
    assert_eq!(entry["manager"], "me");
    assert_eq!(entry["time"], front::START.to_string());
    let key = ObjectKey::new("ns", "a");
    let world = served.world.lock().unwrap();
    let object = world.get(&served.cluster, Kind::Connector, &key).unwrap();
    assert_eq!(object.meta.annotations.get("k"), Some("v"), "the world has it");
}

#[tokio::test]
async fn a_status_keeps_its_spelling_under_patches() {
    let served = served().await;
    let mut object = connector("a");
    object["status"] = json!({"z": 1, "a": 2});
    let spelled = object.to_string().replace(r#"{"a":2,"z":1}"#, r#"{"z":1.0, "a":2}"#);
    let object = serde_json::from_str::<throughline::core::objects::Wire>(&spelled).unwrap();
    served.world.lock().unwrap().put(
        &served.cluster,
        object.try_into().unwrap(),
        "test",
        throughline::world::Tell::Applied,
    );
    assert_eq!(served.send("PATCH", A, &annotate("v")).await.0, 200);
    let world = served.world.lock().unwrap();
    let object = world.get(&served.cluster, Kind::Connector, &ObjectKey::new("ns", "a")).unwrap();
    assert_eq!(object.status(), Some(r#"{"z":1.0, "a":2}"#));
}

#[tokio::test]
async fn what_the_front_does_not_do_it_refuses() {
    let served = served().await;
    for query in [
        "labelSelector=a%3Db",
        "fieldSelector=spec.a%3Db",
        "watch=1&fieldSelector=metadata.name%3Da",
        "dryRun=All",
    ] {
        let (code, status) = served.get(&format!("{CONNECTORS}?{query}")).await;
        assert_eq!((code, &status["reason"]), (400, &json!("BadRequest")), "{query}");
    }
}

#[tokio::test]
async fn a_typed_client_holds_a_lease() {
    let served = served().await;
    let leases: Api<Lease> = Api::namespaced(served.client.clone(), "default");
    let mut lease = Lease::default();
    lease.metadata.name = Some("throughline".into());
    let mine = leases.create(&PostParams::default(), &lease).await.unwrap();
    leases.replace("throughline", &PostParams::default(), &mine).await.unwrap();
    let mut changed = mine.clone();
    changed.spec.get_or_insert_default().holder_identity = Some("me".into());
    leases.replace("throughline", &PostParams::default(), &changed).await.unwrap();
    let late = leases.replace("throughline", &PostParams::default(), &changed).await;
    assert!(matches!(late, Err(kube::Error::Api(status)) if status.code == 409));
    assert_eq!(leases.list(&Default::default()).await.unwrap().items.len(), 1);
}

#[tokio::test]
async fn the_front_ends_with_its_handle() {
    let served = served().await;
    let mut watch = served.watch(&format!("{CONNECTORS}?watch=1&resourceVersion=1")).await;
    drop(served.front);
    assert!(watch.next().await.unwrap().is_err());
    let request = http::Request::get("/livez").body(kube::client::Body::empty()).unwrap();
    assert!(served.client.send(request).await.is_err());
}

#[tokio::test]
async fn the_carrier_takes_a_patch_of_the_hub_to_the_edges_watch() {
    let names = ["hub", "edge"].map(ClusterName::from);
    let specs = [Role::Downstream, Role::Edge];
    let specs: Vec<ClusterSpec> = std::iter::zip(&names, specs)
        .map(|(name, role)| ClusterSpec { name: name.clone(), roles: vec![role] })
        .collect();
    let mut world = World::new(&specs, 50);
    world.advance(front::START);
    let world = Arc::new(Mutex::new(world));
    let [hub, edge] = names.map(|name| front::serve_cluster(&world, name));
    let (hub, edge) = (hub.await, edge.await);
    hub.put(connector("a"));
    let from = edge.put(connector("a"));
    let mut watch = edge.watch(&format!("{CONNECTORS}?watch=1&resourceVersion={from}")).await;
    assert_eq!(hub.send("PATCH", A, &annotate("v")).await.0, 200);
    assert!(edge.get(A).await.1["metadata"]["annotations"].is_null(), "it is still on its way");
    world.lock().unwrap().advance(front::START.plus(50));
    assert_eq!(watch.event().await.1["metadata"]["annotations"]["k"], "v");
}
