//! The faults that the simulated API server can inject, and what its clients see of them.

use std::time::Duration;

use serde_json::{Value, json};
use throughline_core::data::ids::{Kind, NamespacedName};
use throughline_sim::apiserver::{Resource, SimApiServerSettings};

use crate::sim_apiserver::{self, TestServer, serve, version};

const CONNECTORS: &str = "/apis/networking.datumapis.com/v1alpha1/connectors";
const A: &str = "/apis/networking.datumapis.com/v1alpha1/namespaces/ns/connectors/a";
const PROJECTS: &str = "/apis/resourcemanager.miloapis.com/v1alpha1/projects";
const GATEWAYS: &str = "/apis/gateway.networking.k8s.io/v1/gateways";

pub(crate) fn connector(name: &str) -> Value {
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

async fn served() -> TestServer {
    serve(SimApiServerSettings::default()).await
}

#[tokio::test]
async fn cutting_the_watches_of_one_resource_leaves_the_others_alone() {
    let served = served().await;
    let from = served.put(connector("a"));
    let mut cut = served.watch(&format!("{CONNECTORS}?watch=1&resourceVersion={from}")).await;
    let mut kept = served.watch(&format!("{GATEWAYS}?watch=1&resourceVersion={from}")).await;
    served.handle.cut_watches(Some(Resource::Connectors));
    assert!(cut.next().await.unwrap().is_err());
    served.put(gateway("g"));
    assert_eq!(kept.event().await.0, "ADDED");
    served.handle.cut_watches(None);
    assert!(kept.next().await.unwrap().is_err());
    let mut again = served.watch(&format!("{CONNECTORS}?watch=1&resourceVersion=0")).await;
    assert_eq!(again.event().await.1["metadata"]["name"], "a");
}

#[tokio::test]
async fn the_history_is_bounded() {
    let settings = SimApiServerSettings { history_changes: 3, ..SimApiServerSettings::default() };
    let served = serve(settings).await;
    let versions: Vec<u64> = (0..5).map(|n| served.put(connector(&format!("c{n}")))).collect();
    let events = async |from: u64| {
        let path = format!("{CONNECTORS}?watch=1&resourceVersion={from}&timeoutSeconds=1");
        let mut watch = served.watch(&path).await;
        let mut all = Vec::new();
        while let Some(event) = watch.next().await {
            all.push(event.unwrap().0);
        }
        all
    };
    assert_eq!(events(versions[1]).await, ["ADDED", "ADDED", "ADDED"]);
    assert_eq!(events(versions[0]).await, ["ERROR"]);
}

#[tokio::test]
async fn bookmarks_advance_the_version_of_an_idle_watch() {
    let settings = SimApiServerSettings {
        bookmark_every: Duration::from_millis(5),
        ..SimApiServerSettings::default()
    };
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
async fn a_watch_delivers_every_change_once_and_in_order() {
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
        assert!(version(&object) > last, "a deletion has its own version");
    };
    tokio::join!(writes, reads);
}

#[tokio::test]
async fn a_patch_records_its_manager_and_keeps_the_bytes_of_the_status() {
    let served = served().await;
    let mut object = connector("a");
    object["status"] = json!({"z": 1, "a": 2});
    let unsorted = object.to_string().replace(r#"{"a":2,"z":1}"#, r#"{"z":1.0, "a":2}"#);
    served.put(unsorted);
    let (_, object) = served.send("PATCH", &format!("{A}?fieldManager=me"), &annotate("v")).await;
    let entry = &object["metadata"]["managedFields"][1];
    assert_eq!(entry["manager"], "me");
    assert_eq!(entry["time"], sim_apiserver::START.to_string());
    let key = NamespacedName::new("ns", "a");
    let sim = served.sim.lock().unwrap();
    let object = sim.get(&served.cluster, Kind::Connector, &key).unwrap();
    assert_eq!(object.meta.annotations.get("k"), Some("v"), "the simulated cluster has it");
    assert_eq!(object.status(), Some(r#"{"z":1.0, "a":2}"#));
}

#[tokio::test]
async fn unsupported_query_parameters_are_refused() {
    let served = served().await;
    for query in
        ["fieldSelector=spec.a%3Db", "watch=1&fieldSelector=metadata.name%3Da", "dryRun=All"]
    {
        let (code, status) = served.get(&format!("{CONNECTORS}?{query}")).await;
        assert_eq!((code, &status["reason"]), (400, &json!("BadRequest")), "{query}");
    }
    assert_eq!(served.get(PROJECTS).await.0, 404, "only Milo has projects");
}

#[tokio::test]
async fn dropping_the_handle_stops_the_server() {
    let served = served().await;
    let mut watch = served.watch(&format!("{CONNECTORS}?watch=1&resourceVersion=1")).await;
    drop(served.handle);
    assert!(watch.next().await.unwrap().is_err());
    let request = http::Request::get("/livez").body(kube::client::Body::empty()).unwrap();
    assert!(served.client.send(request).await.is_err());
}
