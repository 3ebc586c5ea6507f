//! A Milo API server, as far as throughline sees one: a reverse proxy that maps the paths of project
//! control planes to real API servers, and everything else to the one that holds the Projects. Under
//! the name of a project that it does not have, it answers 200 with an empty list, as Milo does.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures::{StreamExt as _, stream};
use http::{Request, Response, StatusCode, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use kube::Client;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::apiserver::{ApiServer, client, token, write_kubeconfig};
use super::follow::Task;
use super::http::{forward, full};
use super::objects::install_loose;
use super::proxy::FaultProxy;
use super::rest::Resource;

pub(crate) const PROJECTS: Resource =
    Resource::new("resourcemanager.miloapis.com/v1alpha1", "projects", "Project");

/// With `internalServiceDiscovery`.
pub(crate) const CONTROL_PLANES: Resource = Resource::new(
    "infrastructure.miloapis.com/v1alpha1",
    "projectcontrolplanes",
    "ProjectControlPlane",
);

type Answer = Response<UnsyncBoxBody<Bytes, std::io::Error>>;

/// Dropping it closes its connections.
pub(crate) struct Milo {
    address: SocketAddr,
    /// Holds the Projects.
    pub(crate) root: ApiServer,
    pub(crate) root_proxy: FaultProxy,
    shared: Arc<Shared>,
    _accepting: Task,
}

struct Shared {
    root: Client,
    projects: Mutex<BTreeMap<String, Client>>,
    /// Names that were asked for and that no project has.
    strangers: Mutex<BTreeSet<String>>,
}

impl Milo {
    pub(crate) async fn start() -> Self {
        let root = ApiServer::start("milo").await;
        install_loose(root.rest(), PROJECTS, "Cluster").await;
        install_loose(root.rest(), CONTROL_PLANES, "Namespaced").await;
        let root_proxy = FaultProxy::start(&root).await;
        let shared = Arc::new(Shared {
            root: backend(&root_proxy, root.folder()).await,
            projects: Mutex::default(),
            strangers: Mutex::default(),
        });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let accepting = Task::spawn(accept(listener, shared.clone()));
        Self { address, root, root_proxy, shared, _accepting: accepting }
    }

    /// The control plane of a project is this API server from now on.
    pub(crate) async fn serve(&self, project: &str, plane: &FaultProxy) {
        let plane = backend(plane, self.root.folder()).await;
        self.shared.projects.lock().unwrap().insert(project.to_owned(), plane);
    }

    /// A kubeconfig for the root.
    pub(crate) fn kubeconfig(&self, user: &str) -> PathBuf {
        self.kubeconfig_at(user, "")
    }

    /// A kubeconfig for a path of this server.
    pub(crate) fn kubeconfig_at(&self, user: &str, path: &str) -> PathBuf {
        let name = format!("{user}{}.milo.kubeconfig", path.replace('/', "_"));
        let file = self.root.folder().join(name);
        write_kubeconfig(&file, &format!("http://{}{path}", self.address), None, &token(user));
        file
    }

    /// Names of control planes that were asked although no project has them.
    pub(crate) fn strangers(&self) -> BTreeSet<String> {
        self.shared.strangers.lock().unwrap().clone()
    }

    /// Creates a Project that is Ready; returns its uid.
    pub(crate) async fn create(&self, name: &str) -> String {
        let object = json!({ "metadata": { "name": name } });
        let made = self.root.rest().create(PROJECTS, object).await.unwrap();
        self.set_ready(name, "True").await;
        made["metadata"]["uid"].as_str().unwrap().to_owned()
    }

    pub(crate) async fn set_ready(&self, name: &str, status: &str) {
        let status = json!({ "conditions": [{ "type": "Ready", "status": status }] });
        self.root.rest().merge_status(PROJECTS, ("", name), &status).await.unwrap();
    }

    pub(crate) async fn delete(&self, name: &str) {
        self.root.rest().delete(PROJECTS, "", name).await.unwrap();
    }
}

async fn backend(proxy: &FaultProxy, folder: &Path) -> Client {
    // Without a token: the client's is passed on.
    let path = folder.join("backend.kubeconfig");
    write_kubeconfig(&path, &proxy.url(), proxy.ca(), "");
    client(&path).await
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = tokio::task::JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        let Ok((stream, _)) = listener.accept().await else { return };
        let shared = shared.clone();
        connections.spawn(async move {
            let service = service_fn(|request| answer(request, shared.clone()));
            let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

/// The project, and the path at its control plane.
fn project(path: &str) -> Option<(&str, &str)> {
    let rest = path.strip_prefix("/apis/resourcemanager.miloapis.com/v1alpha1/projects/")?;
    let (project, rest) = rest.split_once('/')?;
    Some((project, rest.strip_prefix("control-plane")?))
}

async fn answer(request: Request<Incoming>, shared: Arc<Shared>) -> Result<Answer, hyper::Error> {
    let (parts, body) = request.into_parts();
    let body = body.collect().await?.to_bytes();
    let (backend, path) = match project(parts.uri.path()) {
        None => (shared.root.clone(), parts.uri.path().to_owned()),
        Some((project, path)) => {
            let backend = shared.projects.lock().unwrap().get(project).cloned();
            let Some(backend) = backend else {
                shared.strangers.lock().unwrap().insert(project.to_owned());
                return Ok(empty(&parts.uri));
            };
            (backend, path.to_owned())
        }
    };
    let query = parts.uri.query().map(|query| format!("?{query}")).unwrap_or_default();
    let Ok(answer) = forward(&parts, &format!("{path}{query}"), body, &backend).await else {
        let error = full(Bytes::from_static(b"the backend is down"));
        return Ok(Response::builder().status(StatusCode::BAD_GATEWAY).body(error).unwrap());
    };
    Ok(answer.map(|body| body.map_err(std::io::Error::other).boxed_unsync()))
}

/// What Milo answers for a project that does not exist: an empty list, and a watch without events.
fn empty(uri: &http::Uri) -> Answer {
    let response = Response::builder().header(header::CONTENT_TYPE, "application/json");
    if uri.query().is_some_and(|query| query.contains("watch=")) {
        let never = stream::pending::<Result<Frame<Bytes>, std::io::Error>>().boxed();
        return response.body(StreamBody::new(never).boxed_unsync()).unwrap();
    }
    let list: Value = json!({ "kind": "List", "apiVersion": "v1", "metadata": { "resourceVersion": "1" }, "items": [] });
    response.body(full(list.to_string().into())).unwrap()
}
