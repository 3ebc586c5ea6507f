//! Access to clusters: clients made from kubeconfigs, requests with explicit time-outs and without
//! hidden retries, errors classified where they occur.

mod connection;
mod connections;
mod credentials;
mod error;
mod fingerprint;
mod object;
pub(crate) mod pace;
pub(crate) mod pool;
pub(crate) mod projects;
mod request;
mod service;
mod spec;
mod tls;
mod weak_map;

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use http::header::RETRY_AFTER;
use http::{Request, Response};
use http_body_util::BodyExt;
use kube::client::Body;
use kube::core::Status;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::core::data::ids::{ClusterName, Role};
use crate::environment::here;
use crate::metrics::{ClusterRequests, Metrics};

use connection::Connection;
use error::root_cause;

pub use connections::Connections;
pub use error::CallError;
pub(crate) use error::shortened;
pub(crate) use object::AnyObject;
pub use projects::ProjectRoot;
pub use request::{JSON, get, no_request, path, with_body};
pub(crate) use service::{Timeouts, call_error, current_version, kube_client, went_backwards};
pub(crate) use spec::Entries;
pub use spec::{ConnectionSpec, Credentials, KubeconfigText, Server, read_kubeconfig};

/// The longest response body that is read as a whole. Lists that a run follows are not limited by it.
const RESPONSE_BYTES_MAX: usize = 32 * 1024 * 1024;

/// The largest object in JSON: etcd accepts at most 1.5 MiB, an API server requests of at most 3 MiB.
pub const OBJECT_BYTES_MAX: usize = 8 * 1024 * 1024;

/// A watch that ends sooner ended at once.
pub(crate) const AT_ONCE: Duration = Duration::from_secs(10);

/// A configured cluster and its Kubernetes client.
pub struct ClusterClient {
    roles: Vec<Role>,
    connection: Arc<Connection>,
    /// The task that makes a client of new credentials.
    replacing: Mutex<JoinSet<()>>,
    /// Counts the cluster's requests while this client exists.
    requests: ClusterRequests,
}

impl fmt::Debug for ClusterClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClusterClient").field("name", self.name()).finish_non_exhaustive()
    }
}

impl ClusterClient {
    /// Neither connects nor reads the kubeconfig yet.
    pub fn new(
        name: ClusterName,
        roles: Vec<Role>,
        spec: ConnectionSpec,
        connections: &Connections,
        metrics: Arc<Metrics>,
    ) -> Self {
        Self::with_connection(roles, Connection::new(name, spec, connections), &metrics)
    }

    /// A client without roles whose requests go to `client`, such as an in-memory API server.
    pub fn with_client(name: ClusterName, client: kube::Client, metrics: Arc<Metrics>) -> Self {
        Self::with_connection(Vec::new(), Connection::fixed(name, client), &metrics)
    }

    fn with_connection(roles: Vec<Role>, connection: Connection, metrics: &Metrics) -> Self {
        let requests = metrics.requests(&connection.name);
        Self { roles, connection: Arc::new(connection), replacing: Mutex::default(), requests }
    }

    /// Switches to other credentials, or another server. The former ones stay in use until a client of
    /// the new ones exists. A new address is a move (see [`ClusterClient::moves`]); with the same
    /// address, open requests continue. Call it within a tokio runtime.
    pub fn replace(&self, spec: ConnectionSpec) {
        let mut replacing = self.replacing.lock().unwrap_or_else(PoisonError::into_inner);
        *replacing = JoinSet::new(); // ends a former task
        if let Some(next) = self.connection.route_to(spec) {
            replacing.spawn(here(self.connection.clone().switch_to(next)));
        }
    }

    pub fn name(&self) -> &ClusterName {
        &self.connection.name
    }

    pub fn roles(&self) -> &[Role] {
        &self.roles
    }

    /// The pod's namespace, the kubeconfig context's, or `default`.
    ///
    /// # Errors
    /// [`CallError::NoClient`].
    pub async fn default_namespace(&self) -> Result<String, CallError> {
        self.connection.default_namespace().await
    }

    /// The server that receives the requests, for rate limits by server. The text may hold a password.
    ///
    /// # Errors
    /// [`CallError::NoClient`].
    pub(crate) async fn host(&self) -> Result<Arc<str>, CallError> {
        self.connection.host().await
    }

    /// Changes whenever the kubeconfig's address changes; open watches should then be opened again.
    pub fn moves(&self) -> watch::Receiver<()> {
        self.connection.moves.subscribe()
    }

    /// Waits until other credentials are in use, from the kubeconfig or [`ClusterClient::replace`]:
    /// failed requests may now succeed.
    pub(crate) async fn renewed(&self) {
        self.connection.renewed.notified().await;
    }

    /// Sends a request and waits at most `timeout` for the response's head.
    ///
    /// # Errors
    /// [`CallError`], also for every response other than 2xx.
    pub async fn open(
        &self,
        request: Request<Vec<u8>>,
        timeout: Duration,
    ) -> Result<Response<Body>, CallError> {
        let method = match *request.method() {
            http::Method::GET => "GET",
            http::Method::PATCH => "PATCH",
            http::Method::DELETE => "DELETE",
            http::Method::PUT => "PUT",
            _ => "POST",
        };
        let response = tokio::time::timeout(timeout, self.send(request)).await;
        let response = response.unwrap_or(Err(CallError::TimedOut(timeout)));
        let code = match &response {
            Ok(response) => Some(response.status().as_u16()),
            Err(error) => {
                self.connection.request_failed(error);
                error.code()
            }
        };
        self.requests.count(method, code);
        response
    }

    async fn send(&self, request: Request<Vec<u8>>) -> Result<Response<Body>, CallError> {
        let response = self.connection.send(request.map(Body::from)).await?;
        if response.status().is_success() {
            return Ok(response);
        }
        let code = response.status().as_u16();
        let retry_after = response.headers().get(RETRY_AFTER).and_then(|v| v.to_str().ok());
        let retry_after = retry_after.and_then(|v| v.parse().ok()).map(Duration::from_secs);
        let body = read(response.into_body()).await.unwrap_or_default();
        let status = serde_json::from_slice::<Status>(&body).unwrap_or_else(|_| Status {
            message: String::from_utf8_lossy(&body).chars().take(200).collect(),
            ..Status::default()
        });
        Err(CallError::of_status(Status { code, ..status }, retry_after))
    }

    /// Sends a request whose response body is read piece by piece. The waits for its head and for the
    /// pieces take at most `timeout` together; the caller's work between two pieces does not count.
    ///
    /// # Errors
    /// As [`ClusterClient::open`].
    pub async fn stream(
        &self,
        request: Request<Vec<u8>>,
        timeout: Duration,
    ) -> Result<TimedFrames<'_>, CallError> {
        let began = Instant::now();
        let frames = frames(self.open(request, timeout).await?.into_body());
        let left = timeout.saturating_sub(began.elapsed());
        Ok(TimedFrames { cluster: self, frames, timeout, left: Some(left) })
    }

    /// Sends a request and reads the whole response body, within `timeout`.
    ///
    /// # Errors
    /// As [`ClusterClient::open`].
    pub async fn call(
        &self,
        request: Request<Vec<u8>>,
        timeout: Duration,
    ) -> Result<Bytes, CallError> {
        self.call_with_head(request, timeout).await.map(Response::into_body)
    }

    /// As [`ClusterClient::call`], with the response's head.
    ///
    /// # Errors
    /// As [`ClusterClient::open`].
    pub async fn call_with_head(
        &self,
        request: Request<Vec<u8>>,
        timeout: Duration,
    ) -> Result<Response<Bytes>, CallError> {
        let response = async {
            let (head, body) = self.open(request, timeout).await?.into_parts();
            Ok(Response::from_parts(head, read(body).await?))
        };
        let response = tokio::time::timeout(timeout, response).await;
        response.unwrap_or_else(|_| Err(self.timed_out(timeout)))
    }

    /// The error of a request that timed out. Reports it, because the connection may be dead.
    fn timed_out(&self, timeout: Duration) -> CallError {
        let error = CallError::TimedOut(timeout);
        self.connection.request_failed(&error);
        error
    }
}

async fn read(body: Body) -> Result<Bytes, CallError> {
    let mut frames = frames(body);
    let mut whole = Vec::new();
    while let Some(frame) = frames.try_next().await? {
        if whole.len() + frame.len() > RESPONSE_BYTES_MAX {
            return Err(CallError::Unreadable(format!("more than {RESPONSE_BYTES_MAX} bytes")));
        }
        whole.extend_from_slice(&frame);
    }
    Ok(whole.into())
}

/// A response body, in pieces as they arrive. An error means that it broke off.
pub type Frames = BoxStream<'static, Result<Bytes, CallError>>;

pub fn frames(body: Body) -> Frames {
    body.into_data_stream().map_err(|e| CallError::Unreadable(root_cause(&e))).boxed()
}

/// A response body in pieces, and the time for them.
pub struct TimedFrames<'c> {
    cluster: &'c ClusterClient,
    frames: Frames,
    timeout: Duration,
    /// `None`: each wait may take the whole time-out.
    left: Option<Duration>,
}

impl TimedFrames<'_> {
    /// Limits the wait for each piece instead, for a response of unknown length.
    pub fn by_piece(self) -> Self {
        Self { left: None, ..self }
    }

    /// The next piece; `None` at the end.
    ///
    /// # Errors
    /// The response broke off, or takes too long.
    pub async fn next(&mut self) -> Result<Option<Bytes>, CallError> {
        let began = Instant::now();
        let within = self.left.unwrap_or(self.timeout);
        let next = tokio::time::timeout(within, self.frames.try_next()).await;
        self.left = self.left.map(|left| left.saturating_sub(began.elapsed()));
        next.unwrap_or_else(|_| Err(self.cluster.timed_out(self.timeout)))
    }
}
