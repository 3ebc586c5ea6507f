//! The connection of one cluster: its shared credentials, and its URL.

use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use http::uri::PathAndQuery;
use http::{Request, Response, Uri};
use kube::Client;
use kube::client::Body;
use tokio::sync::{Notify, watch};
use tokio::task::AbortHandle;
use tokio::time::sleep;
use tracing::{info, warn};

use super::connections::Connections;
use super::credentials::{Address, Made, Member, SharedCredentials};
use super::pool::Host;
use super::spec::ConnectionSpec;
use super::{CallError, no_request};
use crate::core::data::ids::ClusterName;
use crate::environment::spawn;

/// The pause between two attempts to use new credentials.
const REPLACE_PAUSE: Duration = Duration::from_secs(5);

/// The connection of one cluster.
pub(super) struct Connection {
    name: ClusterName,
    connections: Connections,
    route: Arc<RwLock<Arc<Route>>>,
    moves: Arc<watch::Sender<()>>,
    /// Notified when the credentials given to `replace` are in use.
    renewed: Arc<Notify>,
    /// The task that makes a client of new credentials.
    replacing: Mutex<Option<AbortHandle>>,
}

enum Route {
    Shared(SharedRoute),
    /// A client that is never replaced, for relative URLs.
    Fixed(Client),
}

/// Shared credentials, with one server.
struct SharedRoute {
    spec: ConnectionSpec,
    credentials: Arc<SharedCredentials>,
    member: Arc<Member>,
    /// From the last client used.
    target: Mutex<Option<Target>>,
}

/// A client with the cluster's URL and connections.
#[derive(Clone)]
struct Target {
    made: Arc<Made>,
    address: Address,
    host: Arc<Host>,
}

impl Connection {
    pub(super) fn new(name: ClusterName, spec: ConnectionSpec, connections: Connections) -> Self {
        let moves = Arc::new(watch::Sender::new(()));
        let route = SharedRoute::new(&name, spec, &connections, moves.clone());
        Self::with_route(name, connections, Route::Shared(route), moves)
    }

    /// A connection with a client that is never replaced.
    pub(super) fn fixed(name: ClusterName, client: Client) -> Self {
        let moves = Arc::new(watch::Sender::new(()));
        Self::with_route(name, Connections::default(), Route::Fixed(client), moves)
    }

    fn with_route(
        name: ClusterName,
        connections: Connections,
        route: Route,
        moves: Arc<watch::Sender<()>>,
    ) -> Self {
        let route = Arc::new(RwLock::new(Arc::new(route)));
        let renewed = Arc::default();
        Self { name, connections, route, moves, renewed, replacing: Mutex::default() }
    }

    fn route(&self) -> Arc<Route> {
        self.route.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Switches to `spec` once a client of it exists.
    pub(super) fn replace(&self, spec: ConnectionSpec) {
        let mut replacing = self.replacing.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(former) = replacing.take() {
            former.abort();
        }
        let before = self.route();
        if matches!(&*before, Route::Shared(route) if route.spec == spec) {
            return;
        }
        let next = SharedRoute::new(&self.name, spec, &self.connections, self.moves.clone());
        let replacement = Replacement {
            name: self.name.clone(),
            before,
            next,
            route: self.route.clone(),
            moves: self.moves.clone(),
            renewed: self.renewed.clone(),
        };
        *replacing = Some(spawn(replacement.run()).abort_handle());
    }

    /// Sends a request whose URL is a path within the API server.
    pub(super) async fn send(&self, request: Request<Body>) -> Result<Response<Body>, CallError> {
        let route = self.route();
        match &*route {
            Route::Fixed(client) => {
                client.clone().send(request).await.map_err(|e| CallError::no_response(&e))
            }
            Route::Shared(route) => {
                let target = route.target().await?;
                let request = target.addressed(request)?;
                target.made.client.clone().send(request).await.map_err(|e| target.made.failed(&e))
            }
        }
    }

    /// The pod's namespace, the kubeconfig context's, or `default`.
    pub(super) async fn default_namespace(&self) -> Result<String, CallError> {
        match &*self.route() {
            Route::Fixed(client) => Ok(client.default_namespace().to_owned()),
            Route::Shared(route) => {
                Ok(route.credentials.made().await?.client.default_namespace().to_owned())
            }
        }
    }

    /// The server that receives the requests: scheme, host and port.
    ///
    /// # Errors
    /// [`CallError::NoClient`].
    pub(super) async fn host(&self) -> Result<Arc<str>, CallError> {
        match &*self.route() {
            Route::Fixed(_) => Ok(self.name.as_str().into()),
            Route::Shared(route) => Ok(route.target().await?.host.name()),
        }
    }

    /// Reports that a request failed, so that its kubeconfig is checked soon.
    pub(super) fn request_failed(&self, error: &CallError) {
        if let Route::Shared(route) = &*self.route() {
            route.credentials.request_failed(error);
        }
    }

    /// Changes whenever the cluster's address changes.
    pub(super) fn moves(&self) -> watch::Receiver<()> {
        self.moves.subscribe()
    }

    /// Waits until other credentials are in use.
    pub(super) async fn renewed(&self) {
        self.renewed.notified().await;
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let replacing = self.replacing.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(replacing) = replacing {
            replacing.abort();
        }
    }
}

impl SharedRoute {
    fn new(
        name: &ClusterName,
        spec: ConnectionSpec,
        connections: &Connections,
        moves: Arc<watch::Sender<()>>,
    ) -> Self {
        let credentials = connections.credentials(&spec.credentials);
        let member = Member { name: name.clone(), server: spec.server.clone(), moves };
        let member = Arc::new(member);
        credentials.add(&member);
        Self { spec, credentials, member, target: Mutex::default() }
    }

    async fn target(&self) -> Result<Target, CallError> {
        let made = self.credentials.made().await?;
        let mut target = self.target.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(target) = target.as_ref().filter(|target| Arc::ptr_eq(&target.made, &made)) {
            return Ok(target.clone());
        }
        let address = made.address_of(&self.member.server)?;
        let host = made.host(&address.url)?;
        Ok(target.insert(Target { made, address, host }).clone())
    }
}

impl Target {
    /// The request with its complete URL, bound to the host's connections.
    fn addressed(&self, mut request: Request<Body>) -> Result<Request<Body>, CallError> {
        let path = request.uri().path_and_query().map_or("/", PathAndQuery::as_str);
        let mut url = self.address.url.clone().into_parts();
        let prefix = url.path_and_query.as_ref().map_or("", |prefix| prefix.path());
        let path = format!("{}{path}", prefix.trim_end_matches('/'));
        url.path_and_query = Some(path.parse::<PathAndQuery>().map_err(|e| no_request(&e))?);
        *request.uri_mut() = Uri::from_parts(url).map_err(|e| no_request(&e))?;
        request.extensions_mut().insert(self.host.clone());
        Ok(request)
    }
}

/// New credentials or another server, until a client of them exists.
struct Replacement {
    name: ClusterName,
    before: Arc<Route>,
    next: SharedRoute,
    route: Arc<RwLock<Arc<Route>>>,
    moves: Arc<watch::Sender<()>>,
    renewed: Arc<Notify>,
}

impl Replacement {
    async fn run(self) {
        let mut logged = None;
        let next = loop {
            match self.next.target().await {
                Ok(target) => break target,
                Err(error) => {
                    let error = error.to_string();
                    if logged.as_ref() != Some(&error) {
                        warn!(cluster = %self.name, error,
                            "the changed credentials cannot be used: the former connection stays");
                        logged = Some(error);
                    }
                    sleep(REPLACE_PAUSE).await;
                }
            }
        };
        let has_moved = match &*self.before {
            Route::Shared(before) => {
                let target = before.target.lock().unwrap_or_else(PoisonError::into_inner);
                // Without a target no connection is open yet.
                target.as_ref().is_some_and(|target| target.address != next.address)
            }
            Route::Fixed(_) => true,
        };
        let route = Arc::new(Route::Shared(self.next));
        *self.route.write().unwrap_or_else(PoisonError::into_inner) = route;
        if has_moved {
            self.moves.send_replace(());
            info!(cluster = %self.name, "the cluster is at another address: connecting to that one");
        } else {
            info!(cluster = %self.name, "new connections use the new credentials");
        }
        self.renewed.notify_waiters();
    }
}
