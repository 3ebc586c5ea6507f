//! The route of a deleted project: a DELETE is sent only after the root answered 404 about that very
//! Project.

use super::*;
use throughline::client::ProjectRoot;
use throughline::core::contract::action::AbsentProject;
use throughline::core::contract::membership::SourceName;

use crate::cluster::serve;

impl Place {
    /// The action is justified by the route's project, which the root does not have.
    async fn of_deleted_project() -> Self {
        let mut place = Self::new().await;
        let project = AbsentProject { source: SourceName::Milo, cluster: "up".into() };
        place.required().absent = None;
        place.required().absent_project = Some(project);
        place.ask(place.milo.root.url(), PATIENCE);
        place
    }

    /// Has this API server asked for the Project, and waits so long for its answer.
    fn ask(&mut self, url: String, timeout: Duration) {
        let root = Arc::new(ProjectRoot::new(client_at("root", &url), timeout));
        self.applier.set_projects(root);
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

    /// The root answers so the next time.
    fn answers(&self, code: u16) {
        self.milo.root.inject(&fault(ApiVerb::Get, Resource::Projects, code), 1);
    }

    /// The root accepts the request and does not answer.
    fn silent(&mut self) {
        self.milo.root.set_mode(ServerMode::Frozen);
        self.ask(self.milo.root.url(), Duration::from_millis(200));
    }

    /// The delete is to be justified by another project than the route's.
    fn of(&mut self, project: &str) {
        self.required().absent_project.as_mut().unwrap().cluster = project.into();
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
    let place = Place::of_deleted_project().await;
    assert_eq!(place.outcome().await.name(), "applied");
    assert!(!place.stands().await);
    assert_eq!(place.milo.root.requests()[&(ApiVerb::Get, Resource::Projects)], 1);
    assert_eq!((place.deletes(), place.backed_up().len()), (1, 2));
    // Its control plane, which answers for every name, was not asked.
    assert!(place.milo.unknown_requests().is_empty());
    // The same 404 from elsewhere: what makes it proof are its details.
    let mut place = Place::of_deleted_project().await;
    place.ask_for_404(about("up", GROUP, "projects"));
    assert_eq!(place.outcome().await.name(), "applied");
}

#[tokio::test]
async fn any_other_answer_of_the_root_keeps_the_route() {
    let broken: [(&str, Break, &str); 20] = [
        ("a live Project", |p| _ = p.milo.add_project("up", &[], true), "conflict: …up exists"),
        ("one not ready", |p| _ = p.milo.add_project("up", &[], false), "conflict: …up exists"),
        (
            "one being deleted",
            |p| {
                p.milo.add_project("up", &[], true);
                p.milo.start_deletion("up");
            },
            "conflict: …up exists",
        ),
        ("401", |p| p.answers(401), "failed: …401"),
        ("403", |p| p.answers(403), "conflict: …403"),
        ("404 about nothing", |p| p.answers(404), "conflict: …404"),
        ("429", |p| p.answers(429), "failed: …429"),
        ("500", |p| p.answers(500), "failed: …500"),
        ("no answer", |p| p.silent(), "failed: …project up"),
        ("down", |p| p.milo.root.set_mode(ServerMode::Down), "failed: …project up"),
        ("no root", |p| p.reset(), "conflict: …no discovery"),
        ("leadership", |p| p.may = false, "dropped"),
        ("of another project", |p| p.of("other"), "conflict: …"),
        ("no evidence", |p| p.required().absent_project = None, "conflict: …no evidence"),
        // A 404 about anything else.
        ("another name", |p| p.ask_for_404(about("up2", GROUP, "projects")), "conflict: …404"),
        ("another kind", |p| p.ask_for_404(about("up", GROUP, "organizations")), "conflict: …404"),
        ("another group", |p| p.ask_for_404(about("up", "a.com", "projects")), "conflict: …404"),
        (
            "no name",
            |p| p.ask_for_404(json!({"group": GROUP, "kind": "projects"})),
            "conflict: …404",
        ),
        ("no details", |p| p.ask_for_404(json!({})), "conflict: …404"),
        ("no Projects", |p| p.ask(p.up.handle.url(), PATIENCE), "conflict: …404"),
    ];
    for (what, break_it, expected) in broken {
        Place::of_deleted_project().await.keeps_its_route(what, break_it, expected).await;
    }
}
