//! The route of a deleted project: a DELETE is sent only after the root answered 404 about that very
//! Project.

use super::*;
use throughline::client::{ClusterClient, ConnectionSpec, Connections, Credentials, Server};
use throughline::core::contract::action::AbsentProject;
use throughline::core::contract::membership::SourceName;
use throughline::discovery::ProjectRoot;
use throughline::metrics::Metrics;
use throughline_sim::SimClusters;
use throughline_sim::apiserver::{SimApiServerSettings, SimMilo, SimMiloHandle};

/// A Milo root with one other project, and a hub route of the project `up`, which is not there.
struct Deleted {
    place: Place,
    milo: SimMiloHandle,
}

impl Deleted {
    async fn new() -> Self {
        let mut place = Place::new().await;
        let required = &mut place.action.precondition;
        required.absent = None;
        let project = AbsentProject { source: SourceName::Milo, cluster: "up".into() };
        required.absent_project = Some(project);
        let mut sim = SimClusters::new(&[], 0);
        sim.advance(crate::sim_apiserver::START);
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let settings = SimApiServerSettings::default();
        let sim = Arc::new(std::sync::Mutex::new(sim));
        let milo = SimMilo::start(sim, listener, None, settings).unwrap();
        milo.add_project("other", &[], true);
        let mut deleted = Self { place, milo };
        deleted.ask(deleted.milo.url(), Duration::from_secs(10));
        deleted
    }

    /// Has this API server asked for the Project, and waits so long for its answer.
    fn ask(&mut self, url: String, timeout: Duration) {
        let file = Some(self.place.kubeconfigs[0].0.clone());
        let credentials = Credentials::Kubeconfig { file, context: None };
        let spec = ConnectionSpec { credentials, server: Server::Url(url) };
        let (connections, metrics) = (Connections::default(), Arc::new(Metrics::new()));
        let client = ClusterClient::shared("root".into(), Vec::new(), spec, &connections, metrics);
        let root = Arc::new(ProjectRoot::new(Arc::new(client), timeout));
        self.place.applier = self.place.applier.clone().with_projects(root);
    }

    fn root_gets(&self) -> u64 {
        let requests = self.milo.root_requests();
        requests.get(&(ApiVerb::Get, Resource::Projects)).copied().unwrap_or(0)
    }

    /// The root answers so the next time.
    fn answers(&self, code: u16) {
        let resource = Some(Resource::Projects);
        let (verbs, retry_after_s) = (vec![ApiVerb::Get], None);
        let fault = Fault { verbs, resource, code, retry_after_s, executes: false };
        self.milo.inject_at_root(&fault, 1);
    }
}

/// The URL of a server that answers every request with a 404 with these details.
async fn not_found_about(details: &Value) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "reason": "NotFound", "message": "not found", "details": details, "code": 404});
    let header = (http::header::CONTENT_TYPE, "application/json");
    let answer = (http::StatusCode::NOT_FOUND, [header], status.to_string());
    let app = axum::Router::new().fallback(move || std::future::ready(answer.clone()));
    tokio::spawn(async move { axum::serve(listener, app).await });
    url
}

const GROUP: &str = "resourcemanager.miloapis.com";

#[tokio::test]
async fn the_route_of_a_project_that_the_root_does_not_have_is_deleted() {
    let deleted = Deleted::new().await;
    assert_eq!(deleted.place.outcome().await.name(), "applied");
    assert!(!deleted.place.stands().await);
    assert_eq!((deleted.root_gets(), deleted.place.deletes()), (1, 1));
    assert_eq!(deleted.place.backed_up().len(), 2);
    // Its control plane, which answers for every name, was not asked.
    assert!(deleted.milo.unknown_requests().is_empty());
    // The same 404 from elsewhere: what makes it proof are its details.
    let mut deleted = Deleted::new().await;
    let url = not_found_about(&json!({"name": "up", "group": GROUP, "kind": "projects"})).await;
    deleted.ask(url, Duration::from_secs(10));
    assert_eq!(deleted.place.outcome().await.name(), "applied");
}

type BreakProof = fn(&mut Deleted);

#[tokio::test]
async fn any_other_answer_of_the_root_keeps_the_route() {
    let broken: [(&str, BreakProof, &str); 14] = [
        ("a live Project", |d| _ = d.milo.add_project("up", &[], true), "conflict: …up exists"),
        ("one not ready", |d| _ = d.milo.add_project("up", &[], false), "conflict: …up exists"),
        (
            "one being deleted",
            |d| {
                d.milo.add_project("up", &[], true);
                d.milo.start_deletion("up");
            },
            "conflict: …up exists",
        ),
        ("401", |d| d.answers(401), "failed: …401"),
        ("403", |d| d.answers(403), "conflict: …403"),
        ("404 about nothing", |d| d.answers(404), "conflict: …404"),
        ("429", |d| d.answers(429), "failed: …429"),
        ("500", |d| d.answers(500), "failed: …500"),
        ("no answer", |d| d.silent(), "failed: …project up"),
        ("down", |d| d.milo.set_mode(ServerMode::Down), "failed: …project up"),
        ("no root", |d| d.place.applier = d.place.without_root(), "conflict: …no discovery"),
        ("leadership", |d| d.place.may = false, "dropped"),
        ("of another project", |d| d.of("other"), "conflict: …"),
        ("no evidence", |d| d.place.action.precondition.absent_project = None, "conflict: …no ev"),
    ];
    for (what, break_it, expected) in broken {
        let mut deleted = Deleted::new().await;
        break_it(&mut deleted);
        deleted.place.is_kept(what, expected).await;
    }
}

#[tokio::test]
async fn a_404_about_anything_else_keeps_the_route() {
    let others = [
        ("another name", json!({"name": "up2", "group": GROUP, "kind": "projects"})),
        ("another kind", json!({"name": "up", "group": GROUP, "kind": "organizations"})),
        ("another group", json!({"name": "up", "group": "example.com", "kind": "projects"})),
        ("no name", json!({"group": GROUP, "kind": "projects"})),
        ("no details", json!({})),
    ];
    for (what, details) in others {
        let mut deleted = Deleted::new().await;
        deleted.ask(not_found_about(&details).await, Duration::from_secs(10));
        deleted.place.is_kept(what, "conflict: …404").await;
    }
    // An API server that serves no Projects.
    let mut deleted = Deleted::new().await;
    deleted.ask(deleted.place.up.handle.url(), Duration::from_secs(10));
    deleted.place.is_kept("no Projects served", "conflict: …404").await;
}

impl Deleted {
    /// The root accepts the request and does not answer.
    fn silent(&mut self) {
        self.milo.set_mode(ServerMode::Frozen);
        self.ask(self.milo.url(), Duration::from_millis(200));
    }

    /// The delete is to be justified by another project than the route's.
    fn of(&mut self, project: &str) {
        let required = &mut self.place.action.precondition;
        required.absent_project.as_mut().unwrap().cluster = project.into();
        self.milo.remove_project(project);
    }
}

impl Place {
    fn without_root(&self) -> Applier {
        let number = self.backup.to_str().unwrap().trim_end_matches(".deleted.jsonl");
        let applier = Applier::new(self.clusters.clone(), Duration::from_secs(10));
        applier.with_backup(DeletedRoutes::beside(Path::new(number)))
    }
}
