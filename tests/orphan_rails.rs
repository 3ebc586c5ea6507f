//! The checks just before an orphan is deleted: each can fail, and then nothing is deleted.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "support/sim_apiserver/mod.rs"]
mod sim_apiserver;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use sim_apiserver::TestServer;
use sim_apiserver::orphan::{self, UID, namespace, ns, project_and_hub};
use throughline::apply::{self, Applier};
use throughline::client::ClusterClient;
use throughline::config::ClusterConfig;
use throughline::core::contract::action::{AbsentObjects, Action, Precondition, Verb};
use throughline::core::contract::event::Outcome;
use throughline::core::data::ids::{ActionId, ClusterName, Kind, ObjectKey, Role};
use throughline::metrics::Metrics;
use throughline::sim::apiserver::{ApiVerb, Fault, Resource, ServerMode};

/// A project and its hub with one orphan, and the action that deletes it.
struct Place {
    up: TestServer,
    hub: TestServer,
    applier: Applier,
    action: Action,
    files: Vec<PathBuf>,
    may: bool,
}

fn route() -> Value {
    orphan::route("r", &["blog", "site"])
}

impl Place {
    async fn new() -> Self {
        static PLACES: AtomicUsize = AtomicUsize::new(0);
        let (up, hub) = project_and_hub().await;
        let version = hub.put(route());
        let (mut ways, mut files) = (BTreeMap::new(), Vec::new());
        for (served, role) in [(&up, Role::Upstream), (&hub, Role::Hub)] {
            let number = PLACES.fetch_add(1, Ordering::Relaxed);
            let file = format!("throughline-rails-{}-{number}", std::process::id());
            let file = std::env::temp_dir().join(file);
            served.write_kubeconfig(&file);
            let name: ClusterName = served.cluster.clone();
            let config = ClusterConfig {
                name: name.clone(),
                roles: vec![role],
                kubeconfig: Some(file.clone()),
                context: None,
                in_cluster: false,
            };
            files.push(file);
            ways.insert(name, Arc::new(ClusterClient::new(config, Arc::new(Metrics::new()))));
        }
        let action = Action {
            id: ActionId(1),
            verb: Verb::Delete,
            cluster: "hub".into(),
            kind: Kind::HttpRoute,
            object: ObjectKey::new(ns(), "r"),
            annotations: Vec::new(),
            precondition: Precondition {
                annotation: None,
                uid: Some("u-r".into()),
                resource_version: Some(version.to_string()),
                absent: Some(AbsentObjects {
                    kind: Kind::Gateway,
                    namespace_deleted: false,
                    cluster: "up".into(),
                    namespace: "shop".into(),
                    namespace_uid: Some(UID.into()),
                    names: vec!["blog".into(), "site".into()],
                }),
            },
            connectors: Vec::new(),
        };
        let applier = Applier::new(ways, Duration::from_secs(10));
        Self { up, hub, applier, action, files, may: true }
    }

    /// Changes the route, and updates the action to its new version.
    fn with_route(&mut self, change: impl FnOnce(&mut Value)) {
        let mut route = route();
        change(&mut route);
        let version = self.hub.put(route);
        self.action.precondition.resource_version = Some(version.to_string());
    }

    fn absent(&mut self) -> &mut AbsentObjects {
        self.action.precondition.absent.as_mut().unwrap()
    }

    async fn outcome(&self) -> Outcome {
        let done = self.applier.apply(&self.action, || self.may).await;
        done.unwrap_or_else(|error| apply::outcome(&error))
    }

    fn deletes(&self) -> u64 {
        let requests = self.hub.handle.requests();
        requests.get(&(ApiVerb::Delete, Kind::HttpRoute.into())).copied().unwrap_or(0)
    }

    async fn stands(&self) -> bool {
        let path = format!("/apis/gateway.networking.k8s.io/v1/namespaces/{}/httproutes/r", ns());
        self.hub.get(&path).await.0 == 200
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        for file in &self.files {
            let _ = std::fs::remove_file(file);
        }
    }
}

fn fault(verb: ApiVerb, kind: Kind, code: u16) -> Fault {
    let resource = Some(Resource::from(kind));
    Fault { verbs: vec![verb], resource, code, retry_after_s: None, executes: false }
}

#[tokio::test]
async fn a_proved_orphan_is_deleted_and_the_outcome_holds_it_whole() {
    let place = Place::new().await;
    let Outcome::Applied { deleted: Some(deleted), .. } = place.outcome().await else {
        panic!("not deleted");
    };
    let deleted: Value = serde_json::from_str(&deleted).unwrap();
    assert_eq!(deleted["spec"]["parentRefs"], route()["spec"]["parentRefs"]);
    assert!(!place.stands().await);
}

type Break = fn(&mut Place);

#[tokio::test]
async fn an_orphan_that_is_not_proved_is_kept() {
    let broken: [(&str, Break, &str); 24] = [
        ("leadership", |p| p.may = false, "dropped"),
        ("a parent is there", |p| _ = p.up.put(gateway("site")), "conflict: …exists"),
        ("the other one is", |p| _ = p.up.put(gateway("blog")), "conflict: …exists"),
        ("another namespace", |p| _ = p.up.put(namespace("other")), "conflict: …copied from"),
        ("no uid is known", |p| p.absent().namespace_uid = None, "conflict: …copied from"),
        ("no such namespace", |p| p.fail(Kind::Namespace, 404), "conflict: …exists: 404"),
        ("no parents", |p| p.absent().names.clear(), "conflict"),
        ("fewer parents", |p| drop(p.absent().names.pop()), "conflict: …not those"),
        ("no evidence", |p| p.action.precondition.absent = None, "conflict: …no evidence"),
        ("no way there", |p| p.absent().cluster = "elsewhere".into(), "conflict: …not those"),
        (
            "another route",
            |p| p.action.precondition.uid = Some("u-0".into()),
            "conflict: …another route",
        ),
        ("no uid", |p| p.action.precondition.uid = None, "conflict: …another route"),
        ("changed", |p| _ = p.hub.put(relabelled("x")), "conflict: …has changed"),
        ("no version", |p| p.action.precondition.resource_version = None, "conflict: …changed"),
        ("protected", |p| p.with_route(protect), "conflict: …protected"),
        ("finalizers", |p| p.with_route(finalize), "conflict: …finalizer"),
        ("being deleted", |p| p.with_route(condemn), "conflict: …being deleted"),
        ("gone", |p| p.action.object.name = "gone".into(), "not_found"),
        ("no Gateways served", |p| p.up.handle.set_served(Kind::Gateway, false), "conflict: …404"),
        ("404", |p| p.fail(Kind::Gateway, 404), "conflict: …exists: 404"),
        ("403", |p| p.fail(Kind::Gateway, 403), "conflict: …exists: 403"),
        ("503", |p| p.fail(Kind::Gateway, 503), "failed: …exists: 503"),
        ("namespaces 403", |p| p.fail(Kind::Namespace, 403), "conflict: …exists: 403"),
        ("upstream down", |p| p.up.handle.set_mode(ServerMode::Down), "failed: …exists"),
    ];
    for (what, break_it, expected) in broken {
        let mut place = Place::new().await;
        break_it(&mut place);
        let before = place.stands().await;
        let outcome = place.outcome().await;
        let error = outcome.error().map_or("", |error| error);
        let (name, said) = expected.split_once(": …").unwrap_or((expected, ""));
        assert!(outcome.name() == name && error.contains(said), "{what}: {outcome:?}");
        assert_eq!(place.deletes(), 0, "{what}");
        assert!(before && place.stands().await, "{what}");
    }
}

impl Place {
    fn fail(&self, kind: Kind, code: u16) {
        self.up.handle.inject(&fault(ApiVerb::Get, kind, code), 1);
    }
}

fn gateway(name: &str) -> Value {
    json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway",
        "metadata": {"namespace": "shop", "name": name}})
}

fn relabelled(value: &str) -> Value {
    let mut route = route();
    route["metadata"]["labels"]["other"] = value.into();
    route
}

fn protect(route: &mut Value) {
    route["metadata"]["labels"]["resourcetemplate.karmada.io/deletion-protected"] = "Always".into();
}

fn finalize(route: &mut Value) {
    route["metadata"]["finalizers"] = json!(["example.com/mine"]);
}

fn condemn(route: &mut Value) {
    route["metadata"]["deletionTimestamp"] = "2026-11-21T09:00:00Z".into();
}

#[tokio::test]
async fn a_refused_delete_and_an_unanswered_one_have_their_own_outcomes() {
    let place = Place::new().await;
    place.hub.handle.inject(&fault(ApiVerb::Delete, Kind::HttpRoute, 403), 1);
    assert_eq!(place.outcome().await.name(), "refused");
    place.hub.handle.inject(&fault(ApiVerb::Delete, Kind::HttpRoute, 500).but_executed(), 1);
    let Outcome::Unanswered { deleted: Some(deleted), .. } = place.outcome().await else {
        panic!("the answer was lost");
    };
    assert!(deleted.contains("parentRefs"));
    assert!(!place.stands().await);
    // 200, but not from an API server that did it.
    let place = Place::new().await;
    place.hub.handle.inject(&fault(ApiVerb::Delete, Kind::HttpRoute, 200), 1);
    assert_eq!(place.outcome().await.name(), "unanswered");
    assert!(place.stands().await);
}
