//! The last questions before an orphan is deleted, one by one: what breaks, and that nothing is
//! deleted then.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "support/front/mod.rs"]
mod front;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use front::Served;
use front::orphan::{self, UID, namespace, ns, project_and_hub};
use serde_json::{Value, json};
use throughline::apply::{self, Apply};
use throughline::client::Cluster;
use throughline::config::ClusterConfig;
use throughline::core::action::{AbsentGateways, Action, Precondition, Verb};
use throughline::core::event::Outcome;
use throughline::core::ids::{ActionId, ClusterName, Kind, ObjectKey, Role};
use throughline::front::{Fault, Mode, Resource, Verb as Request};
use throughline::metrics::Metrics;

/// A project and its hub, with one orphan; and the delete of it.
struct Place {
    up: Served,
    hub: Served,
    apply: Apply,
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
        for (served, role) in [(&up, Role::Upstream), (&hub, Role::Downstream)] {
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
            ways.insert(name, Arc::new(Cluster::new(config, Arc::new(Metrics::new()))));
        }
        let action = Action {
            id: ActionId(1),
            verb: Verb::Delete,
            cluster: "hub".into(),
            kind: Kind::HttpRoute,
            object: ObjectKey::new(ns(), "r"),
            annotations: Vec::new(),
            precondition: Precondition {
                uid: Some("u-r".into()),
                resource_version: Some(version.to_string()),
                absent: Some(AbsentGateways {
                    cluster: "up".into(),
                    namespace: "shop".into(),
                    namespace_uid: Some(UID.into()),
                    names: vec!["blog".into(), "site".into()],
                }),
            },
            connectors: Vec::new(),
        };
        let apply = Apply::new(ways, Duration::from_secs(10));
        Self { up, hub, apply, action, files, may: true }
    }

    /// The route is changed, and the delete decided on what it is now.
    fn judged_as(&mut self, change: impl FnOnce(&mut Value)) {
        let mut route = route();
        change(&mut route);
        let version = self.hub.put(route);
        self.action.precondition.resource_version = Some(version.to_string());
    }

    fn absent(&mut self) -> &mut AbsentGateways {
        self.action.precondition.absent.as_mut().unwrap()
    }

    async fn outcome(&self) -> Outcome {
        let done = self.apply.carry_out(&self.action, || self.may).await;
        done.unwrap_or_else(|error| apply::outcome(&error))
    }

    fn deletes(&self) -> u64 {
        let requests = self.hub.front.requests();
        requests.get(&(Request::Delete, Kind::HttpRoute.into())).copied().unwrap_or(0)
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

fn fault(verb: Request, kind: Kind, code: u16) -> Fault {
    let resource = Some(Resource::from(kind));
    Fault { verbs: vec![verb], resource, code, retry_after_s: None, carried_out: false }
}

#[tokio::test]
async fn an_orphan_that_is_proved_goes_and_is_told_whole() {
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
async fn what_is_not_proved_stays() {
    let broken: [(&str, Break, &str); 24] = [
        ("leadership", |p| p.may = false, "dropped"),
        ("a parent is there", |p| _ = p.up.put(gateway("site")), "conflict: …exists"),
        ("the other one is", |p| _ = p.up.put(gateway("blog")), "conflict: …exists"),
        ("another namespace", |p| _ = p.up.put(namespace("other")), "conflict: …another one"),
        ("no uid is known", |p| p.absent().namespace_uid = None, "conflict: …another one"),
        ("no such namespace", |p| p.fail(Kind::Namespace, 404), "conflict: …be told: 404"),
        ("no parents", |p| p.absent().names.clear(), "conflict"),
        ("fewer parents", |p| drop(p.absent().names.pop()), "conflict: …others than"),
        ("no evidence", |p| p.action.precondition.absent = None, "conflict: …no evidence"),
        ("no way there", |p| p.absent().cluster = "elsewhere".into(), "conflict: …others than"),
        ("another route", |p| p.action.precondition.uid = Some("u-0".into()), "conflict: …another"),
        ("no uid", |p| p.action.precondition.uid = None, "conflict: …another one of that name"),
        ("changed", |p| _ = p.hub.put(relabelled("x")), "conflict: …changed meanwhile"),
        ("no version", |p| p.action.precondition.resource_version = None, "conflict: …changed"),
        ("protected", |p| p.judged_as(protect), "conflict: …protected"),
        ("finalizers", |p| p.judged_as(finalize), "conflict: …finalizer"),
        ("being deleted", |p| p.judged_as(condemn), "conflict: …being deleted"),
        ("gone", |p| p.action.object.name = "gone".into(), "not_found"),
        ("no Gateways served", |p| p.up.front.set_served(Kind::Gateway, false), "conflict: …404"),
        ("404", |p| p.fail(Kind::Gateway, 404), "conflict: …be told: 404"),
        ("403", |p| p.fail(Kind::Gateway, 403), "conflict: …be told: 403"),
        ("503", |p| p.fail(Kind::Gateway, 503), "failed: …be told: 503"),
        ("namespaces 403", |p| p.fail(Kind::Namespace, 403), "conflict: …be told: 403"),
        ("upstream down", |p| p.up.front.set_mode(Mode::Down), "failed: …be told"),
    ];
    for (what, break_it, expected) in broken {
        let mut place = Place::new().await;
        break_it(&mut place);
        let before = place.stands().await;
        let outcome = place.outcome().await;
        let error = match &outcome {
            Outcome::Conflict { error } | Outcome::Failed { error, .. } => error.as_str(),
            _ => "",
        };
        let (name, said) = expected.split_once(": …").unwrap_or((expected, ""));
        assert!(outcome.name() == name && error.contains(said), "{what}: {outcome:?}");
        assert_eq!(place.deletes(), 0, "{what}");
        assert!(before && place.stands().await, "{what}");
    }
}

impl Place {
    fn fail(&self, kind: Kind, code: u16) {
        self.up.front.fail(&fault(Request::Get, kind, code), 1);
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
async fn a_delete_that_is_refused_is_told_so_and_one_without_an_answer_too() {
    let place = Place::new().await;
    place.hub.front.fail(&fault(Request::Delete, Kind::HttpRoute, 403), 1);
    assert_eq!(place.outcome().await.name(), "refused");
    place.hub.front.fail(&fault(Request::Delete, Kind::HttpRoute, 500).carried_out(), 1);
    let Outcome::Unanswered { deleted: Some(deleted), .. } = place.outcome().await else {
        panic!("whether it was carried out is not known");
    };
    assert!(deleted.contains("parentRefs"));
    assert!(!place.stands().await);
}
