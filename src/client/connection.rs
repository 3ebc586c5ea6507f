//! The connection of one cluster: its shared credentials, and its URL.

use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use http::uri::PathAndQuery;
use http::{Request, Response, Uri};
use kube::Client;
use kube::client::Body;
use tokio::sync::{Notify, watch};
use tokio::time::sleep;
use tracing::{info, warn};

use super::connections::Connections;
use super::credentials::{Address, Made, Member, SharedCredentials};
use super::pool::Host;
use super::spec::ConnectionSpec;
use super::{CallError, no_request};
use crate::core::data::ids::ClusterName;

/// The pause between two attempts to use new credentials.
const REPLACE_PAUSE: Duration = Duration::from_secs(5);

/// The connection of one cluster.
pub(super) struct Connection {
    pub(super) name: ClusterName,
    connections: Connections,
    route: RwLock<Arc<Route>>,
    /// Changes whenever the cluster's address changes.
    pub(super) moves: watch::Sender<()>,
    /// Notified when other credentials are in use.
    pub(super) renewed: Arc<Notify>,
}

enum Route {
    Shared(SharedRoute),
    /// A client that is never replaced, for relative URLs.
    Fixed(Client),
}

/// Shared credentials, with one server.
pub(super) struct SharedRoute {
    credentials: Arc<SharedCredentials>,
    connections: Connections,
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
    pub(super) fn new(name: ClusterName, spec: ConnectionSpec, connections: &Connections) -> Self {
        let moves = watch::Sender::new(());
        let renewed = Arc::<Notify>::default();
        let route = SharedRoute::new(&name, spec, connections, moves.clone(), renewed.clone());
        let route = RwLock::new(Arc::new(Route::Shared(route)));
        let connections = connections.clone();
        Self { name, connections, route, moves, renewed }
    }

    /// A connection with a client that is never replaced.
    pub(super) fn fixed(name: ClusterName, client: Client) -> Self {
        let route = RwLock::new(Arc::new(Route::Fixed(client)));
        let connections = Connections::default();
        Self { name, connections, route, moves: watch::Sender::new(()), renewed: Arc::default() }
    }

    fn route(&self) -> Arc<Route> {
        self.route.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The route of `spec`; `None` if it is the current one.
    pub(super) fn route_to(&self, spec: ConnectionSpec) -> Option<SharedRoute> {
        if matches!(&*self.route(), Route::Shared(route) if route.member.spec == spec) {
            return None;
        }
        let renewed = self.renewed.clone();
        Some(SharedRoute::new(&self.name, spec, &self.connections, self.moves.clone(), renewed))
    }

    /// Switches to `next` once a client of it exists.
    pub(super) async fn switch_to(self: Arc<Self>, next: SharedRoute) {
        let mut logged = None;
        let target = loop {
            match next.target().await {
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
        let has_moved = match &*self.route() {
            Route::Shared(before) => {
                let before = before.target.lock().unwrap_or_else(PoisonError::into_inner);
                // Without a target no connection is open yet.
                before.as_ref().is_some_and(|before| before.address != target.address)
            }
            Route::Fixed(_) => true,
        };
        let route = Arc::new(Route::Shared(next));
        *self.route.write().unwrap_or_else(PoisonError::into_inner) = route;
        if has_moved {
            self.moves.send_replace(());
            info!(cluster = %self.name, "the cluster is at another address: connecting to that one");
        } else {
            info!(cluster = %self.name, "new connections use the new credentials");
        }
        self.renewed.notify_waiters();
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
}

impl SharedRoute {
    fn new(
        name: &ClusterName,
        spec: ConnectionSpec,
        connections: &Connections,
        moves: watch::Sender<()>,
        renewed: Arc<Notify>,
    ) -> Self {
        let credentials = connections.credentials(&spec.credentials);
        let member = Arc::new(Member { name: name.clone(), spec, moves, renewed });
        credentials.add(&member);
        let connections = connections.clone();
        Self { credentials, connections, member, target: Mutex::default() }
    }

    async fn target(&self) -> Result<Target, CallError> {
        let made = self.credentials.made().await?;
        let mut target = self.target.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(target) = target.as_ref().filter(|target| Arc::ptr_eq(&target.made, &made)) {
            return Ok(target.clone());
        }
        let address = made.address.of(&self.member.spec.server)?;
        let host = self.connections.host(&address.url, &made.tls).map_err(CallError::NoClient)?;
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
