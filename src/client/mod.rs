//! Access to clusters: clients made from kubeconfigs, requests with their own time-outs and no
//! hidden retries, errors classified where they occur.

mod connection;
mod fingerprint;
mod request;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use http::header::RETRY_AFTER;
use http::{Request, Response, StatusCode};
use kube::client::Body;
use kube::core::Status;
use tokio::sync::watch;

use crate::config::ClusterConfig;
use crate::core::contract::error_cause::{ErrorCause, RequestFailure, is_about_certificate};
use crate::core::data::ids::{ClusterName, Kind, Role};
use crate::metrics::Metrics;

use connection::Connection;

pub use crate::core::contract::error_cause::ErrorClass;
pub use request::{JSON, get, no_request, path, with_body};

/// An API server that asks for a longer pause is asked again all the same: it may be well after a
/// restart, or a proxy may have answered in its place.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(30);

/// A longer response body is an error: no page of a list is that long.
const RESPONSE_BYTES_MAX: usize = 256 * 1024 * 1024;

/// A configured cluster and its Kubernetes client.
pub struct ClusterClient {
    connection: Connection,
    metrics: Arc<Metrics>,
}

impl fmt::Debug for ClusterClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClusterClient").field("name", self.name()).finish_non_exhaustive()
    }
}

/// Why a request failed. The texts hold no addresses.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// The API server answered with an error.
    #[error("{code} {reason}: {message}")]
    Status {
        /// The HTTP status code.
        code: u16,
        /// The machine-readable reason, e.g. `Forbidden`.
        reason: String,
        message: String,
        /// The object that the response is about, as `gateways.gateway.networking.k8s.io/NAME`;
        /// empty where it names none.
        about: String,
        /// How long the API server asks to wait; at most 30 s.
        retry_after: Option<Duration>,
    },
    /// No client could be made: the kubeconfig is missing or broken, or its credentials can't be
    /// read.
    #[error("cannot create a client for the cluster: {0}")]
    NoClient(String),
    #[error("cannot reach the API server: {0}")]
    Unreachable(String),
    #[error("TLS certificate rejected: {0}")]
    Certificate(String),
    #[error("no response from the API server within {} ms", .0.as_millis())]
    TimedOut(Duration),
    /// The response broke off or could not be parsed.
    #[error("unusable response from the API server: {0}")]
    Unreadable(String),
}

impl CallError {
    pub fn cause(&self) -> ErrorCause {
        match self {
            CallError::Status { code, reason, message, .. } => {
                ErrorCause::from_status(*code, reason, message)
            }
            CallError::NoClient(_) => ErrorCause::Kubeconfig,
            CallError::Unreachable(_) => ErrorCause::Unreachable,
            CallError::Certificate(_) => ErrorCause::Certificate,
            CallError::TimedOut(_) => ErrorCause::TimedOut,
            CallError::Unreadable(_) => ErrorCause::Unreadable,
        }
    }

    /// When to retry.
    pub fn class(&self) -> ErrorClass {
        self.cause().class()
    }

    /// The error as the machine and the event log carry it.
    pub fn failure(&self) -> RequestFailure {
        RequestFailure::new(self.cause(), self.to_string())
    }

    /// The HTTP status code; `None` when there was no response.
    pub fn code(&self) -> Option<u16> {
        match self {
            CallError::Status { code, .. } => Some(*code),
            _ => None,
        }
    }

    /// Whether the API server says that this very object does not exist. A 404 about its namespace
    /// or its API says nothing about the object.
    pub fn is_absence_of(&self, kind: Kind, name: &str) -> bool {
        self.is_absence(kind.resource(), name)
    }

    /// The same, for a resource by its full name, e.g. `leases.coordination.k8s.io`.
    pub fn is_absence(&self, resource: &str, name: &str) -> bool {
        matches!(self, CallError::Status { code: 404, reason, about, .. }
            if reason == "NotFound" && *about == format!("{resource}/{name}"))
    }

    /// How long the request waited in vain for a response.
    pub fn waited(&self) -> Duration {
        match self {
            CallError::TimedOut(timeout) => *timeout,
            _ => Duration::ZERO,
        }
    }

    /// How long the API server asks to wait.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            CallError::Status { retry_after, .. } => *retry_after,
            _ => None,
        }
    }

    /// What a person can do about it; `None` when only waiting helps.
    pub fn remedy(&self, verb: &str, kind: Kind) -> Option<String> {
        self.cause().remedy(verb, kind)
    }

    /// The error of a `metav1.Status`.
    pub fn of_status(status: Status, retry_after: Option<Duration>) -> Self {
        let reason = if status.reason.is_empty() {
            let code = StatusCode::from_u16(status.code).ok();
            code.and_then(|c| c.canonical_reason()).unwrap_or("error").to_owned()
        } else {
            status.reason
        };
        let details = status.details.as_ref();
        let about = details.map_or_else(String::new, |d| match (&*d.kind, &*d.group, &*d.name) {
            ("", ..) | (.., "") => String::new(),
            (kind, "", name) => format!("{kind}/{name}"),
            (kind, group, name) => format!("{kind}.{group}/{name}"),
        });
        let seconds = details.map(|d| d.retry_after_seconds).filter(|s| *s > 0);
        let retry_after = retry_after.or(seconds.map(|s| Duration::from_secs(s.into())));
        CallError::Status {
            code: status.code,
            reason,
            message: status.message,
            about,
            retry_after: retry_after.map(|after| after.min(RETRY_AFTER_MAX)),
        }
    }

    /// The error of a request that got no response.
    fn no_response(error: &dyn std::error::Error) -> Self {
        let text = root_cause(error);
        if is_about_certificate(&text) {
            CallError::Certificate(text)
        } else {
            CallError::Unreachable(text)
        }
    }
}

impl ClusterClient {
    /// Does not connect and does not read the kubeconfig yet.
    pub fn new(config: ClusterConfig, metrics: Arc<Metrics>) -> Self {
        Self { connection: Connection::new(config), metrics }
    }

    /// The same, with requests that go to `client`, such as an API server in memory.
    pub fn with_client(config: ClusterConfig, client: kube::Client, metrics: Arc<Metrics>) -> Self {
        Self { connection: Connection::fixed(config, client), metrics }
    }

    pub fn name(&self) -> &ClusterName {
        &self.connection.config().name
    }

    pub fn roles(&self) -> &[Role] {
        &self.connection.config().roles
    }

    /// The pod's own namespace, the kubeconfig context's, or `default`.
    ///
    /// # Errors
    /// [`CallError::NoClient`].
    pub async fn default_namespace(&self) -> Result<String, CallError> {
        Ok(self.connection.client().await?.default_namespace().to_owned())
    }

    /// Changes whenever the kubeconfig names another address: what is open then should be opened
    /// again there.
    pub fn moves(&self) -> watch::Receiver<()> {
        self.connection.moves()
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
        self.metrics.count_request(self.name(), method, code);
        response
    }

    async fn send(&self, request: Request<Vec<u8>>) -> Result<Response<Body>, CallError> {
        let client = self.connection.client().await?;
        let response = client.send(request.map(Body::from)).await;
        let response = response.map_err(|e| CallError::no_response(&e))?;
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
        response.unwrap_or_else(|_| {
            let error = CallError::TimedOut(timeout);
            self.connection.request_failed(&error);
            Err(error)
        })
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

/// The innermost cause: the outer ones say little and name addresses.
fn root_cause(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    cause.to_string()
}
