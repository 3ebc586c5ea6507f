//! The route of a deleted project: a DELETE is sent only after the root answered 404 about that very
//! Project.

use super::*;
use throughline::core::contract::action::AbsentProject;
use throughline::core::contract::membership::SourceName;
use throughline::discovery::ProjectRoot;
use throughline_sim::apiserver::{SimApiServerSettings, SimMiloHandle};

use crate::cluster::serve;
use crate::live::http2::milo;

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
        let milo = milo(None, SimApiServerSettings::default()).await;
        milo.add_project("other", &[], true);
        let mut deleted = Self { place, milo };
        deleted.ask(deleted.milo.url(), PATIENCE);
        deleted
    }

    /// Has this API server asked for the Project, and waits so long for its answer.
    fn ask(&mut self, url: String, timeout: Duration) {
        let root = Arc::new(ProjectRoot::new(client_at("root", &url), timeout));
        self.place.applier = self.place.applier.clone().with_projects(root);
    }

    /// Has a server asked that answers every request with a 404 with these details.
    fn ask_for_404(&mut self, details: Value) {
        let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {},
            "status": "Failure", "reason": "NotFound", "message": "not found",
            "details": details, "code": 404});
        let header = (http::header::CONTENT_TYPE, "application/json");
        let answer = (http::StatusCode::NOT_FOUND, [header], status.to_string());
        let app = axum::Router::new().fallback(move || std::future::ready(answer.clone()));
        self.ask(serve(app), PATIENCE);
    }

    fn root_gets(&self) -> u64 {
        let requests = self.milo.root_requests();
        requests.get(&(ApiVerb::Get, Resource::Projects)).copied().unwrap_or(0)
    }

    /// The root answers so the next time.
    fn answers(&self, code: u16) {
        self.milo.inject_at_root(&fault(ApiVerb::Get, Resource::Projects, code), 1);
    }

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

const GROUP: &str = "resourcemanager.miloapis.com";

/// The details of a 404.
fn about(name: &str, group: &str, kind: &str) -> Value {
    json!({ "name": name, "group": group, "kind": kind })
}

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
    deleted.ask_for_404(about("up", GROUP, "projects"));
    assert_eq!(deleted.place.outcome().await.name(), "applied");
}

#[tokio::test]
async fn any_other_answer_of_the_root_keeps_the_route() {
    let broken: [(&str, Break<Deleted>, &str); 20] = [
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
        ("no root", |d| d.place.reset(), "conflict: …no discovery"),
        ("leadership", |d| d.place.may = false, "dropped"),
        ("of another project", |d| d.of("other"), "conflict: …"),
        ("no evidence", |d| d.place.required().absent_project = None, "conflict: …no evidence"),
        // A 404 about anything else.
        ("another name", |d| d.ask_for_404(about("up2", GROUP, "projects")), "conflict: …404"),
        ("another kind", |d| d.ask_for_404(about("up", GROUP, "organizations")), "conflict: …404"),
        ("another group", |d| d.ask_for_404(about("up", "a.com", "projects")), "conflict: …404"),
        (
            "no name",
            |d| d.ask_for_404(json!({"group": GROUP, "kind": "projects"})),
            "conflict: …404",
        ),
        ("no details", |d| d.ask_for_404(json!({})), "conflict: …404"),
        ("no Projects", |d| d.ask(d.place.up.handle.url(), PATIENCE), "conflict: …404"),
    ];
    for (what, break_it, expected) in broken {
        let mut deleted = Deleted::new().await;
        break_it(&mut deleted);
        deleted.place.is_kept(what, expected).await;
    }
}
