//! The checks just before an orphan is deleted: each can fail, and then nothing is deleted.

mod project;

use std::fs::{create_dir, remove_dir};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use throughline::apply::{self, Applier};
use throughline::core::contract::action::{AbsentObjects, Action, Precondition, Verb};
use throughline::core::contract::event::Outcome;
use throughline::core::data::ids::{Kind, NamespacedName};
use throughline::fleet::ClusterTable;
use throughline::live_log::{DeletedRoutes, deleted_routes_file};
use throughline_sim::apiserver::{
    ApiVerb, Fault, Resource, ServerMode, SimApiServerSettings, SimMilo,
};

use crate::cluster::{SHOP, absent, client_at, project_and_hub, write};
use crate::sim_apiserver::{TestServer, serve_milo};
use crate::stage::{Tenant, object, with};
use crate::temp_folder::temp_folder;

/// A project and its hub with one orphan, and the action that deletes it.
struct Place {
    up: TestServer,
    hub: TestServer,
    clusters: ClusterTable,
    applier: Applier,
    action: Action,
    /// Of the event log, which is named `log`.
    folder: PathBuf,
    backup: PathBuf,
    may: bool,
    /// A root with one project, which is another.
    milo: SimMilo,
}

fn route() -> Value {
    SHOP.route("r", LONG_AGO, &["blog", "site"])
}

impl Place {
    async fn new() -> Self {
        let (up, hub) = project_and_hub().await;
        let version = hub.put(route());
        let clusters: ClusterTable = [("up", &up), ("hub", &hub)]
            .map(|(name, served)| client_at(name, &served.handle.url()))
            .into_iter()
            .collect();
        let precondition = Precondition {
            uid: Some("u-r".into()),
            resource_version: Some(version.to_string()),
            absent: Some(absent("up", &["blog", "site"])),
            ..Precondition::default()
        };
        let (cluster, object) = ("hub".into(), NamespacedName::new(SHOP.hub_namespace(), "r"));
        let delete = write(Verb::Delete, Kind::HttpRoute, "r");
        let action = Action { cluster, object, annotations: Vec::new(), precondition, ..delete };
        let folder = temp_folder("orphan-rails");
        let backup = deleted_routes_file(&folder.join("log"));
        let applier = Applier::default();
        let (_, milo) = serve_milo(SimApiServerSettings::default(), None).await;
        milo.add_project("other", &[], true);
        let mut place =
            Self { up, hub, clusters, applier, action, folder, backup, may: true, milo };
        place.reset();
        place
    }

    /// Writes backups beside the log, and knows no root to ask for projects.
    fn reset(&mut self) {
        let backup = DeletedRoutes::beside(&self.folder.join("log"));
        self.applier = Applier::new(self.clusters.clone(), PATIENCE, Some(backup));
    }

    /// The lines of the backup of deleted routes.
    fn backed_up(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(&self.backup).unwrap_or_default();
        assert!(text.is_empty() || text.ends_with('\n'), "{text}");
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Changes the route's metadata; returns its new version.
    fn change(&self, metadata: Value) -> String {
        self.hub.put(with(route(), json!({ "metadata": metadata }))).to_string()
    }

    /// The action is for the changed route.
    fn put(&mut self, metadata: Value) {
        self.required().resource_version = Some(self.change(metadata));
    }

    fn put_parent(&self, name: &str) {
        self.up.put(object("Gateway", "shop", name));
    }

    fn fail(&self, kind: Kind, code: u16) {
        self.up.handle.inject(&fault(ApiVerb::Get, kind, code), 1);
    }

    fn required(&mut self) -> &mut Precondition {
        &mut self.action.precondition
    }

    fn absent(&mut self) -> &mut AbsentObjects {
        self.required().absent.as_mut().unwrap()
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
        let namespace = format!("namespaces/{}", SHOP.hub_namespace());
        let path = format!("/apis/gateway.networking.k8s.io/v1/{namespace}/httproutes/r");
        self.hub.get(&path).await.0 == 200
    }

    /// After this nothing is deleted, and the outcome has this name and an error that contains what follows
    /// the dots, each.
    async fn keeps_its_route(mut self, what: &str, break_it: Break, expected: &str) {
        break_it(&mut self);
        assert!(self.stands().await, "{what}");
        let outcome = self.outcome().await;
        let error = outcome.error().map_or("", |error| error);
        let (name, said) = expected.split_once(": …").unwrap_or((expected, ""));
        assert!(
            outcome.name() == name && said.split('…').all(|said| error.contains(said)),
            "{what}: {outcome:?}"
        );
        assert_eq!(self.deletes(), 0, "{what}");
        // Leadership is asked for once the backup has the route.
        let backup = self.backed_up();
        let sent = |line: &Value| line["outcome"] != "dropped" && line["deleted"].is_null();
        assert!(!backup.iter().any(sent), "{what}");
        assert!(what == "leadership" || backup.is_empty(), "{what}");
        assert!(self.stands().await, "{what}");
    }
}

fn fault(verb: ApiVerb, resource: impl Into<Resource>, code: u16) -> Fault {
    let resource = Some(resource.into());
    Fault { verbs: vec![verb], resource, ..Fault::on_writes(code) }
}

const PATIENCE: Duration = Duration::from_secs(10);
const OTHER: Tenant = Tenant { uid: "other", ..SHOP };
/// Old enough for an orphan.
const LONG_AGO: u64 = 1_577_934_245_000;
const PROTECTED: &str = "resourcetemplate.karmada.io/deletion-protected";
const DELETED: &str = "2026-11-21T09:00:00Z";

type Break = fn(&mut Place);

#[tokio::test]
async fn an_orphan_that_is_not_proved_is_kept() {
    let broken: [(&str, Break, &str); 24] = [
        ("leadership", |p| p.may = false, "dropped"),
        ("a parent is there", |p| p.put_parent("site"), "conflict: …exists"),
        ("the other one is", |p| p.put_parent("blog"), "conflict: …exists"),
        ("another namespace", |p| _ = p.up.put(OTHER.namespace()), "conflict: …copied from"),
        ("no uid is known", |p| p.absent().namespace_uid = None, "conflict: …copied from"),
        ("no such namespace", |p| p.fail(Kind::Namespace, 404), "conflict: …exists: 404"),
        ("no parents", |p| p.absent().names.clear(), "conflict"),
        ("fewer parents", |p| drop(p.absent().names.pop()), "conflict: …not those"),
        ("no evidence", |p| p.required().absent = None, "conflict: …no evidence"),
        ("no way there", |p| p.absent().cluster = "elsewhere".into(), "conflict: …not those"),
        ("another route", |p| p.required().uid = Some("u-0".into()), "conflict: …another route"),
        ("no uid", |p| p.required().uid = None, "conflict: …another route"),
        ("changed", |p| _ = p.change(json!({"labels": {"x": "y"}})), "conflict: …has changed"),
        ("no version", |p| p.required().resource_version = None, "conflict: …changed"),
        ("protected", |p| p.put(json!({"labels": {PROTECTED: "Always"}})), "conflict: …protects"),
        ("finalizers", |p| p.put(json!({"finalizers": ["example.com/a"]})), "conflict: …protects"),
        ("deleted", |p| p.put(json!({"deletionTimestamp": DELETED})), "conflict: …protects"),
        (
            "gone",
            |p| p.action.object = NamespacedName::new(SHOP.hub_namespace(), "gone"),
            "not_found",
        ),
        ("no Gateways served", |p| p.up.handle.set_served(Kind::Gateway, false), "conflict: …404"),
        ("404", |p| p.fail(Kind::Gateway, 404), "conflict: …exists: 404"),
        ("403", |p| p.fail(Kind::Gateway, 403), "conflict: …exists: 403"),
        ("503", |p| p.fail(Kind::Gateway, 503), "failed: …exists: 503"),
        ("namespaces 403", |p| p.fail(Kind::Namespace, 403), "conflict: …exists: 403"),
        ("upstream down", |p| p.up.handle.set_mode(ServerMode::Down), "failed: …exists"),
    ];
    for (what, break_it, expected) in broken {
        Place::new().await.keeps_its_route(what, break_it, expected).await;
    }
}

#[tokio::test]
async fn a_route_is_on_the_disk_before_its_delete_is_sent() {
    // Whatever the API server says to the DELETE, the backup holds the route; and then the outcome.
    for (answer, outcome, stands) in [
        (None, "applied", false),
        (Some((403, false)), "refused", true),
        (Some((409, false)), "conflict", true),
        (Some((500, true)), "unanswered", false),
        // Not from an API server that did it.
        (Some((200, false)), "unanswered", true),
    ] {
        let place = Place::new().await;
        if let Some((code, executes)) = answer {
            let fault = Fault { executes, ..fault(ApiVerb::Delete, Kind::HttpRoute, code) };
            place.hub.handle.inject(&fault, 1);
        }
        assert_eq!(place.outcome().await.name(), outcome);
        assert_eq!(place.stands().await, stands, "{outcome}");
        let [backup, end] = &place.backed_up()[..] else { panic!("{:?}", place.backed_up()) };
        assert_eq!(backup["cluster"], "hub");
        assert_eq!(backup["deleted"]["spec"], route()["spec"]);
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
    let mode = std::fs::metadata(&place.backup).unwrap().permissions().mode();
    assert_eq!(mode & 0o777 & !0o644, 0);
}

#[tokio::test]
async fn a_route_that_cannot_be_written_down_is_not_deleted() {
    let broken: [(&str, Break, &str); 4] = [
        ("a folder", |p| create_dir(&p.backup).unwrap(), "directory"),
        ("a link", |p| symlink("log", &p.backup).unwrap(), "it is a symbolic link"),
        ("no folder", |p| remove_dir(&p.folder).unwrap(), "/log.deleted.jsonl: No such file"),
        (
            "no log",
            |p| p.applier = Applier::new(p.clusters.clone(), PATIENCE, None),
            "no event log",
        ),
    ];
    for (what, break_it, why) in broken {
        let said = "failed: …nothing is deleted, because the route cannot be written down";
        Place::new().await.keeps_its_route(what, break_it, &format!("{said}…{why}")).await;
    }
}
