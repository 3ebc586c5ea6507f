//! The checks just before an orphan is deleted: each can fail, and then nothing is deleted.

mod project;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use throughline::apply::{self, Applier};
use throughline::client::ClusterClient;
use throughline::config::ClusterConfig;
use throughline::core::contract::action::{AbsentObjects, Action, Precondition, Verb};
use throughline::core::contract::event::Outcome;
use throughline::core::data::ids::{ActionId, ClusterName, Kind, ObjectKey, Role};
use throughline::fleet::ClusterTable;
use throughline::live_log::{DeletedRoutes, deleted_routes_file};
use throughline::metrics::Metrics;
use throughline_sim::apiserver::{ApiVerb, Fault, Resource, ServerMode};

use crate::sim_apiserver::TestServer;
use crate::sim_apiserver::orphan::{self, UID, namespace, ns, project_and_hub};

/// A project and its hub with one orphan, and the action that deletes it.
struct Place {
    up: TestServer,
    hub: TestServer,
    clusters: ClusterTable,
    applier: Applier,
    action: Action,
    files: Vec<PathBuf>,
    backup: PathBuf,
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
                absent_project: None,
            },
            connectors: Vec::new(),
        };
        let number = PLACES.fetch_add(1, Ordering::Relaxed);
        let log = format!("throughline-rails-{}-{number}.jsonl", std::process::id());
        let log = std::env::temp_dir().join(log);
        let backup = deleted_routes_file(&log);
        let _ = std::fs::remove_file(&backup);
        files.push(backup.clone());
        let clusters: ClusterTable = ways.into_iter().collect();
        let applier = Applier::new(clusters.clone(), Duration::from_secs(10));
        let applier = applier.with_backup(DeletedRoutes::beside(&log));
        Self { up, hub, clusters, applier, action, files, backup, may: true }
    }

    /// The lines of the backup of deleted routes.
    fn backed_up(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(&self.backup).unwrap_or_default();
        assert!(text.is_empty() || text.ends_with('\n'), "{text}");
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
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
async fn a_proved_orphan_is_deleted_and_the_backup_holds_it_whole() {
    let place = Place::new().await;
    assert_eq!(place.outcome().await.name(), "applied");
    assert!(!place.stands().await);
    let [backup, end] = &place.backed_up()[..] else { panic!("{:?}", place.backed_up()) };
    assert_eq!(backup["deleted"]["spec"]["parentRefs"], route()["spec"]["parentRefs"]);
    assert_eq!(end["outcome"], "applied");
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
        ("protected", |p| p.with_route(protect), "conflict: …protects route"),
        ("finalizers", |p| p.with_route(finalize), "conflict: …protects route"),
        ("being deleted", |p| p.with_route(condemn), "conflict: …protects route"),
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
        let sent = place
            .backed_up()
            .iter()
            .any(|line| line["outcome"] != "dropped" && line["deleted"].is_null());
        assert!(!sent && (what == "leadership" || place.backed_up().is_empty()), "{what}");
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
    assert_eq!(place.outcome().await.name(), "unanswered");
    assert!(!place.stands().await);
    // 200, but not from an API server that did it.
    let place = Place::new().await;
    place.hub.handle.inject(&fault(ApiVerb::Delete, Kind::HttpRoute, 200), 1);
    assert_eq!(place.outcome().await.name(), "unanswered");
    assert!(place.stands().await);
}

#[tokio::test]
async fn a_route_is_on_the_disk_before_its_delete_is_sent() {
    // Whatever the API server says to the DELETE, the backup holds the route; and then the outcome.
    for (code, executed, outcome) in
        [(403, false, "refused"), (409, false, "conflict"), (500, true, "unanswered")]
    {
        let place = Place::new().await;
        let mut fault = fault(ApiVerb::Delete, Kind::HttpRoute, code);
        fault.executes = executed;
        place.hub.handle.inject(&fault, 1);
        assert_eq!(place.outcome().await.name(), outcome);
        let [backup, end] = &place.backed_up()[..] else { panic!("{:?}", place.backed_up()) };
        assert_eq!(
            (&backup["cluster"], &backup["deleted"]["spec"]),
            (&json!("hub"), &route()["spec"])
        );
        assert_eq!((&end["uid"], &end["outcome"]), (&json!("u-r"), &json!(outcome)));
    }
    // Leadership is asked for after the disk has it: writing takes a while.
    let place = Place::new().await;
    let is_written = std::cell::Cell::new(false);
    let may_write = || {
        is_written.set(!place.backed_up().is_empty());
        false
    };
    let outcome = place.applier.apply(&place.action, may_write).await.unwrap();
    assert_eq!((outcome, is_written.get(), place.deletes()), (Outcome::Dropped, true, 0));

    // A line that a crash cut off costs no other.
    let torn = "{\"at_ms\":1763715600000,\"cluster\":\"hub\",\"deleted\":{\"ki";
    std::fs::write(&place.backup, torn).unwrap();
    assert_eq!(place.outcome().await.name(), "applied");
    let text = std::fs::read_to_string(&place.backup).unwrap();
    let lines: Vec<_> = text.lines().collect();
    assert_eq!((lines.len(), lines[0]), (3, torn));
    assert!(lines[1].contains("parentRefs") && lines[2].contains("\"applied\""), "{text}");
    let mode = std::os::unix::fs::PermissionsExt::mode(
        &std::fs::metadata(&place.backup).unwrap().permissions(),
    );
    assert_eq!(mode & 0o777 & !0o644, 0);
}

#[tokio::test]
async fn a_route_that_cannot_be_written_down_is_not_deleted() {
    let elsewhere = std::env::temp_dir().join(format!("rails-elsewhere-{}", std::process::id()));
    std::fs::write(&elsewhere, "precious").unwrap();
    type BreakIt<'a> = &'a dyn Fn(&mut Place);
    let broken: [(&str, BreakIt<'_>, &str); 3] = [
        ("a folder", &|p| std::fs::create_dir(&p.backup).unwrap(), "directory"),
        (
            "a link",
            &|p| std::os::unix::fs::symlink(&elsewhere, &p.backup).unwrap(),
            "it is a symbolic link",
        ),
        ("no folder", &|p| p.backup_at("/nowhere/log"), "/nowhere/log.deleted.jsonl: No such file"),
    ];
    for (what, break_it, expected) in broken {
        let mut place = Place::new().await;
        break_it(&mut place);
        let outcome = place.outcome().await;
        let said = outcome.error().map_or("", |error| error);
        assert_eq!(outcome.name(), "failed", "{what}");
        assert!(said.starts_with("nothing is deleted, because the route cannot be"), "{said}");
        assert!(said.contains(expected), "{what}: {said}");
        assert!(place.deletes() == 0 && place.stands().await, "{what}");
        let _ = std::fs::remove_dir(&place.backup);
    }
    assert_eq!(std::fs::read_to_string(&elsewhere).unwrap(), "precious");
    std::fs::remove_file(elsewhere).unwrap();

    // Nor is one without any event log.
    let mut place = Place::new().await;
    place.applier = Applier::new(place.clusters.clone(), Duration::from_secs(10));
    assert!(place.outcome().await.error().unwrap().contains("there is no event log"));
    assert!(place.deletes() == 0 && place.stands().await);
}

impl Place {
    fn backup_at(&mut self, log: &str) {
        let backup = DeletedRoutes::beside(std::path::Path::new(log));
        self.applier = self.applier.clone().with_backup(backup);
    }
}
