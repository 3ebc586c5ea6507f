//! Access to clusters: clients made from kubeconfigs, requests with their own time-outs and no
//! hidden retries, errors classified where they occur.

mod connection;
mod connections;
mod credentials;
mod error;
mod fingerprint;
mod object;
pub(crate) mod pace;
pub(crate) mod pool;
mod request;
mod service;
mod spec;
mod tls;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use http::header::RETRY_AFTER;
use http::{Request, Response};
use kube::client::Body;
use kube::core::Status;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::config::ClusterConfig;
use crate::core::data::ids::{ClusterName, Role};
use crate::metrics::{ClusterRequests, Metrics};

use connection::Connection;
use error::root_cause;

pub use crate::core::contract::error_cause::ErrorClass;
pub use connections::Connections;
pub use error::CallError;
pub(crate) use error::shortened;
pub(crate) use object::AnyObject;
pub use request::{JSON, get, no_request, path, with_body};
pub(crate) use service::{Timeouts, call_error, kube_client, went_back};
pub use spec::{ConnectionSpec, Credentials, KubeconfigText, Server, TextError};

/// A longer response body is an error where it is read as a whole. Lists that a run follows are not.
const RESPONSE_BYTES_MAX: usize = 32 * 1024 * 1024;

/// No object is longer than this in JSON: etcd accepts at most 1.5 MiB, an API server takes requests of
/// at most 3 MiB.
pub const OBJECT_BYTES_MAX: usize = 8 * 1024 * 1024;

/// A watch that ends before this ended at once.
pub(crate) const AT_ONCE: Duration = Duration::from_secs(10);

/// A configured cluster and its Kubernetes client.
pub struct ClusterClient {
    name: ClusterName,
    roles: Vec<Role>,
    connection: Connection,
    /// Counts them for as long as this client exists.
    requests: Arc<ClusterRequests>,
}

impl fmt::Debug for ClusterClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClusterClient").field("name", self.name()).finish_non_exhaustive()
    }
}

impl ClusterClient {
    /// With connections of its own. Does not connect and does not read the kubeconfig yet.
    pub fn new(config: ClusterConfig, metrics: Arc<Metrics>) -> Self {
        let spec = ConnectionSpec::from(&config);
        let connections = Connections::default();
        Self::shared(config.name, config.roles, spec, &connections, metrics)
    }

    /// With connections that it shares with others. Does not connect and does not read the kubeconfig
    /// yet.
    pub fn shared(
        name: ClusterName,
        roles: Vec<Role>,
        spec: ConnectionSpec,
        connections: &Connections,
        metrics: Arc<Metrics>,
    ) -> Self {
        let connection = Connection::new(name.clone(), spec, connections.clone());
        let requests = metrics.requests(&name);
        Self { name, roles, connection, requests }
    }

    /// With requests that go to `client`, such as an API server in memory.
    pub fn with_client(config: ClusterConfig, client: kube::Client, metrics: Arc<Metrics>) -> Self {
        let connection = Connection::fixed(config.name.clone(), client);
        let requests = metrics.requests(&config.name);
        Self { name: config.name, roles: config.roles, connection, requests }
    }

    /// Uses other credentials, or another server. The former ones stay in use until a client could be
    /// made of these; another address is a move (see [`ClusterClient::moves`]), and the same address
    /// keeps what is open. Call it within a tokio runtime.
    pub fn replace(&self, spec: ConnectionSpec) {
        self.connection.replace(spec);
    }

    pub fn name(&self) -> &ClusterName {
        &self.name
    }

    pub fn roles(&self) -> &[Role] {
        &self.roles
    }

    /// The pod's own namespace, the kubeconfig context's, or `default`.
    ///
    /// # Errors
    /// [`CallError::NoClient`].
    pub async fn default_namespace(&self) -> Result<String, CallError> {
        self.connection.default_namespace().await
    }

    /// Which server requests go to, for those who pace them by server. The text may hold a password.
    ///
    /// # Errors
    /// [`CallError::NoClient`].
    pub(crate) async fn host(&self) -> Result<Arc<str>, CallError> {
        self.connection.host().await
    }

    /// Changes whenever the kubeconfig names another address: what is open then should be opened
    /// again there.
    pub fn moves(&self) -> watch::Receiver<()> {
        self.connection.moves()
    }

    /// Waits until other credentials are in use after [`ClusterClient::replace`]: what failed before may
    /// succeed now.
    pub(crate) async fn renewed(&self) {
        self.connection.renewed().await;
    }

    /// Sends a request and waits at most `timeout` for the response's head.
    ///
    /// # Errors
    /// [`CallError`]; so is every response other than 2xx.
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

    /// Sends a request whose response body is read piece by piece. The waiting for its head and for the
    /// pieces takes at most `timeout` together; what the caller does between two pieces is not counted.
    ///
    /// # Errors
    /// As [`ClusterClient::open`].
    pub async fn stream(
        &self,
        request: Request<Vec<u8>>,
        timeout: Duration,
    ) -> Result<TimedFrames<'_>, CallError> {
        let began = Instant::now();
        let frames = Frames::new(self.open(request, timeout).await?.into_body());
        let left = timeout.saturating_sub(began.elapsed());
        Ok(TimedFrames { cluster: self, frames, timeout, left })
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

    /// The same, with the response's head.
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

    /// The connection may be dead.
    fn timed_out(&self, timeout: Duration) -> CallError {
        let error = CallError::TimedOut(timeout);
        self.connection.request_failed(&error);
        error
    }
}

async fn read(body: Body) -> Result<Bytes, CallError> {
    let mut frames = Frames::new(body);
    let mut whole = Vec::new();
    while let Some(frame) = frames.next().await? {
        if whole.len() + frame.len() > RESPONSE_BYTES_MAX {
            return Err(CallError::Unreadable(format!("more than {RESPONSE_BYTES_MAX} bytes")));
        }
        whole.extend_from_slice(&frame);
    }
    Ok(whole.into())
}

/// A response body, in pieces as they arrive.
pub struct Frames(futures::stream::BoxStream<'static, Result<Bytes, CallError>>);

impl fmt::Debug for Frames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Frames")
    }
}

impl Frames {
    pub fn new(body: Body) -> Self {
        let stream = http_body_util::BodyStream::new(body);
        let data = stream.filter_map(|frame| {
            let data = match frame {
                Ok(frame) => frame.into_data().ok().map(Ok),
                Err(error) => Some(Err(CallError::Unreadable(root_cause(&error)))),
            };
            futures::future::ready(data)
        });
        Self(data.boxed())
    }

    /// The next piece; `None` at the end.
    ///
    /// # Errors
    /// The response broke off.
    pub async fn next(&mut self) -> Result<Option<Bytes>, CallError> {
        self.0.next().await.transpose()
    }
}

/// A response body in pieces, and how long they may still take.
pub struct TimedFrames<'c> {
    cluster: &'c ClusterClient,
    frames: Frames,
    timeout: Duration,
    left: Duration,
}

impl fmt::Debug for TimedFrames<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TimedFrames").field("left", &self.left).finish_non_exhaustive()
    }
}

impl TimedFrames<'_> {
    /// The next piece; `None` at the end.
    ///
    /// # Errors
    /// The response broke off, or takes too long.
    pub async fn next(&mut self) -> Result<Option<Bytes>, CallError> {
        let began = Instant::now();
        let next = tokio::time::timeout(self.left, self.frames.next()).await;
        self.left = self.left.saturating_sub(began.elapsed());
        next.unwrap_or_else(|_| Err(self.cluster.timed_out(self.timeout)))
    }
}
