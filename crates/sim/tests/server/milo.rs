//! The simulated Milo: many control planes behind one listener. `tests/shell/live/http2.rs` has its HTTP/2.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kube::Client;
use serde_json::{Value, json};
use throughline_sim::SimClusters;
use throughline_sim::apiserver::{ApiVerb, Fault, Resource, SimApiServerSettings, SimMilo};

use crate::faults::connector;
use crate::sim_apiserver::{WatchEvents, answer, body_of, client, put, serve_milo, version, watch};

const PROJECTS: &str = "/apis/resourcemanager.miloapis.com/v1alpha1/projects";
const CONNECTORS: &str = "apis/networking.datumapis.com/v1alpha1/connectors";

struct Milo {
    sim: Arc<Mutex<SimClusters>>,
    handle: SimMilo,
    client: Client,
}

async fn milo() -> Milo {
    let (sim, handle) = serve_milo(SimApiServerSettings::default(), None).await;
    let client = client(&handle.root.url(), None);
    Milo { sim, handle, client }
}

impl Milo {
    async fn get(&self, path: &str) -> (u16, Value) {
        body_of(answer(&self.client, "GET", path, &Value::Null).await.unwrap()).await
    }

    async fn watch(&self, path: &str) -> WatchEvents {
        watch(&self.client, path).await
    }

    fn put(&self, project: &str, object: &Value) {
        put(&self.sim, &project.into(), object);
    }
}

fn in_project(project: &str, path: &str) -> String {
    format!("{PROJECTS}/{project}/control-plane/{path}")
}

fn names(list: &Value) -> Vec<&str> {
    let items = list["items"].as_array().unwrap().iter();
    items.map(|item| item["metadata"]["name"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn projects_are_separate_and_share_one_resource_version() {
    let milo = milo().await;
    for name in ["a", "b"] {
        milo.handle.add_project(name, &[], true);
    }
    milo.put("a", &connector("one"));
    let (_, a) = milo.get(&in_project("a", CONNECTORS)).await;
    assert_eq!(names(&a), ["one"]);
    milo.put("b", &connector("two"));
    let (_, b) = milo.get(&in_project("b", CONNECTORS)).await;
    assert_eq!(names(&b), ["two"]);
    let (_, again) = milo.get(&in_project("a", CONNECTORS)).await;
    assert_eq!(version(&again), version(&b), "writes to others move an idle project's version");
    assert!(version(&again) > version(&a));
    milo.handle.inject("a", &Fault::on_watches(Resource::Connectors, 403), usize::from(u8::MAX));
    assert_eq!(milo.get(&in_project("a", CONNECTORS)).await.0, 403, "faults hit one project");
    assert_eq!(milo.get(&in_project("b", CONNECTORS)).await.0, 200);
    assert_eq!(milo.handle.unknown_requests(), BTreeMap::new());
}

#[tokio::test]
async fn unknown_projects_answer_with_empty_lists_and_are_counted() {
    let milo = milo().await;
    let (code, list) = milo.get(&in_project("typo", CONNECTORS)).await;
    assert_eq!((code, names(&list)), (200, vec![]));
    let _watch = milo.watch(&in_project("typo", &format!("{CONNECTORS}?watch=1"))).await;
    assert_eq!(milo.get(&format!("{PROJECTS}/typo")).await.0, 404, "only the root tells");
    assert_eq!(milo.handle.unknown_requests(), BTreeMap::from([("typo".to_owned(), 2)]));
    assert_eq!(
        milo.handle.root.requests(),
        BTreeMap::from([((ApiVerb::Get, Resource::Projects), 1)])
    );
    assert_eq!(milo.handle.root.load().watches, 1);
    let watched = BTreeMap::from([(Resource::Connectors, 1)]);
    assert_eq!(milo.handle.watched_projects(), watched);
}

#[tokio::test]
async fn the_root_shows_how_projects_come_and_go() {
    let milo = milo().await;
    let first = milo.handle.add_project("a", &[], false);
    let mut watch = milo.watch(&format!("{PROJECTS}?watch=1")).await;
    let ready = |object: &Value| object["status"]["conditions"][0]["status"].clone();
    let (what, object) = watch.event().await;
    assert_eq!((what.as_str(), ready(&object)), ("ADDED", json!("Unknown")));
    assert_eq!(object["metadata"]["namespace"], Value::Null);
    milo.handle.set_ready("a", true);
    let (what, object) = watch.event().await;
    assert_eq!((what.as_str(), ready(&object)), ("MODIFIED", json!("True")));
    milo.handle.start_deletion("a");
    let (what, object) = watch.event().await;
    assert_eq!((what.as_str(), ready(&object)), ("MODIFIED", json!("True")));
    assert!(object["metadata"]["deletionTimestamp"].is_string());
    let metadata = json!({"name": "default", "uid": "the-old-uid"});
    milo.put("a", &json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}));
    milo.put("a", &connector("one"));
    milo.handle.remove_project("a");
    assert_eq!(watch.event().await.0, "DELETED");
    let again = milo.handle.add_project("a", &[], true);
    let (what, object) = watch.event().await;
    assert_eq!((what.as_str(), &object["metadata"]["uid"]), ("ADDED", &json!(again)));
    assert_ne!(first, again);
    let (_, namespaces) = milo.get(&in_project("a", "api/v1/namespaces")).await;
    assert_eq!(namespaces["items"][0]["metadata"]["uid"], "the-old-uid", "which is inherited");
    assert_eq!(names(&milo.get(&in_project("a", CONNECTORS)).await.1), [""; 0]);
}

#[tokio::test]
async fn label_selectors_apply_to_lists_and_watches() {
    let milo = milo().await;
    milo.handle.add_project("a", &[("tier", "gold")], true);
    milo.handle.add_project("b", &[("tier", "tin")], true);
    let selector = "labelSelector=tier%3Dgold";
    let (_, list) = milo.get(&format!("{PROJECTS}?{selector}")).await;
    assert_eq!(names(&list), ["a"]);
    let from = version(&list);
    let mut watch =
        milo.watch(&format!("{PROJECTS}?watch=1&resourceVersion={from}&{selector}")).await;
    milo.handle.set_ready("b", false);
    milo.handle.set_labels("b", &[("tier", "gold")]);
    let (what, object) = watch.event().await;
    assert_eq!((what.as_str(), &object["metadata"]["name"]), ("ADDED", &json!("b")));
    milo.handle.set_ready("b", true);
    assert_eq!(watch.event().await.0, "MODIFIED");
    milo.handle.set_labels("a", &[]);
    let (what, object) = watch.event().await;
    assert_eq!((what.as_str(), &object["metadata"]["name"]), ("DELETED", &json!("a")));
    assert_eq!(object["metadata"]["labels"]["tier"], "gold", "the last state that matched");
    assert_eq!(milo.get(&format!("{PROJECTS}?labelSelector=a%20b")).await.0, 400);
}

#[tokio::test]
async fn a_resource_is_made_at_its_first_request() {
    let milo = milo().await;
    milo.handle.add_project("a", &[], true);
    milo.handle.set_initializing(Duration::from_millis(100));
    let path = in_project("a", CONNECTORS);
    let (code, status) = milo.get(&path).await;
    assert_eq!((code, &status["message"]), (429, &json!("storage is (re)initializing")));
    tokio::time::sleep(Duration::from_millis(110)).await;
    assert_eq!(milo.get(&path).await.0, 200);
    assert_eq!(milo.get(&in_project("a", "api/v1/namespaces")).await.0, 429, "each on its own");
    assert_eq!(milo.get(PROJECTS).await.0, 200);
}

#[tokio::test]
async fn a_restart_cuts_everything_and_old_watches_get_410() {
    let milo = milo().await;
    milo.handle.add_project("a", &[], true);
    milo.put("a", &connector("one"));
    let (_, list) = milo.get(&in_project("a", CONNECTORS)).await;
    let from = version(&list);
    let path = in_project("a", &format!("{CONNECTORS}?watch=1&resourceVersion={from}"));
    let mut cut = milo.watch(&path).await;
    milo.put("a", &connector("two"));
    assert_eq!(cut.event().await.0, "ADDED");
    milo.handle.stop();
    assert!(cut.next().await.unwrap().is_err());
    assert!(answer(&milo.client, "GET", "/livez", &Value::Null).await.is_err());
    milo.handle.resume();
    let mut old = milo.watch(&path).await;
    let (what, status) = old.event().await;
    assert_eq!((what.as_str(), &status["code"]), ("ERROR", &json!(410)));
    assert_eq!(names(&milo.get(&in_project("a", CONNECTORS)).await.1), ["one", "two"]);
}
