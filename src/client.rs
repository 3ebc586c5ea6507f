//! Clusters as they are reached: clients made from kubeconfigs, requests with a time-out of their
//! own and no hidden retries, errors sorted where they are born.

mod request;

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use http::header::RETRY_AFTER;
use http::{Request, Response, StatusCode};
use kube::Client;
use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::Status;
use tokio::sync::OnceCell;

use crate::config::ClusterConfig;
use crate::core::ids::{ClusterName, Kind, Role};
use crate::metrics::Metrics;

pub use request::{JSON, get, no_request, path, with_body};

/// A TCP connection, with TLS where it is asked for, must stand after this.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// An answer longer than this, in bytes, is refused: no page of a list is that long.
const ANSWER_BYTES_MAX: usize = 256 * 1024 * 1024;

/// A configured cluster and the way to it.
pub struct Cluster {
    config: ClusterConfig,
    /// Made when it is asked for, and made anew after the credentials were refused.
    client: RwLock<Arc<OnceCell<Client>>>,
    metrics: Arc<Metrics>,
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster").field("name", &self.config.name).finish_non_exhaustive()
    }
}

/// What to do about a failed request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// It will fail again.
    Never,
    /// It may succeed a little later.
    Backoff,
    /// It was decided on an old view of the object.
    Refetch,
}

/// Why a request failed. Printed without addresses.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// The API server said no.
    #[error("{code} {reason}: {message}")]
    Status {
        /// The HTTP status code.
        code: u16,
        /// The machine-readable reason, e.g. `Forbidden`.
        reason: String,
        /// What the API server says about it.
        message: String,
        /// The object that the answer is about, as `gateways.gateway.networking.k8s.io/NAME`; empty
        /// where it names none.
        about: String,
        /// When it wants to be asked again.
        retry_after: Option<Duration>,
    },
    /// No client could be made: the kubeconfig, its credentials.
    #[error("no way to the cluster: {0}")]
    NoClient(String),
    /// No answer at all.
    #[error("can't reach the API server: {0}")]
    Unreachable(String),
    /// No answer in time.
    #[error("no answer from the API server within {} ms", .0.as_millis())]
    TimedOut(Duration),
    /// The answer broke off or is not what it should be.
    #[error("the API server's answer can't be used: {0}")]
    Unreadable(String),
}

impl CallError {
    /// What to do about it.
    pub fn class(&self) -> Class {
        match self {
            // The patch names the uid it was decided for: an object of the same name with another
            // uid answers 422 about `metadata.uid` where it doesn't answer 409.
            CallError::Status { code: 422, message, .. } if message.contains("metadata.uid") => {
                Class::Refetch
            }
            CallError::Status { code: 409, reason, .. } if reason != "AlreadyExists" => {
                Class::Refetch
            }
            CallError::Status { code: 404 | 410, .. } => Class::Refetch,
            CallError::Status { code: 401 | 408 | 429, .. } => Class::Backoff,
            CallError::Status { code, .. } if (400..500).contains(code) => Class::Never,
            CallError::Status { .. }
            | CallError::NoClient(_)
            | CallError::Unreachable(_)
            | CallError::TimedOut(_)
            | CallError::Unreadable(_) => Class::Backoff,
        }
    }

    /// The HTTP status code; 0 when there was none.
    pub fn code(&self) -> u16 {
        match self {
            CallError::Status { code, .. } => *code,
            _ => 0,
        }
    }

    /// The API server says that this object, and not something that it is a part of, is not there.
    pub fn is_absence_of(&self, kind: Kind, name: &str) -> bool {
        self.is_absence(kind.resource(), name)
    }

    /// The same, for a resource by its full name, e.g. `leases.coordination.k8s.io`.
    pub fn is_absence(&self, resource: &str, name: &str) -> bool {
        matches!(self, CallError::Status { code: 404, reason, about, .. }
            if reason == "NotFound" && *about == format!("{resource}/{name}"))
    }

    /// When the API server wants to be asked again.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            CallError::Status { retry_after, .. } => *retry_after,
            _ => None,
        }
    }

    /// What a person can do about it; `None` when waiting is all.
    pub fn remedy(&self, verb: &str, kind: Kind) -> Option<String> {
        let resource = kind.resource();
        Some(match self {
            CallError::Status { code: 401, .. } => "the credentials were refused: renew the token \
                 or certificate in the kubeconfig; it is read again at each try"
                .to_owned(),
            CallError::Status { code: 403, .. } => {
                format!("grant {verb} on {resource} to the user or ServiceAccount")
            }
            CallError::Status { code: 404, .. } if verb != "patch" && verb != "delete" => {
                format!("install the CustomResourceDefinition {resource}; it is looked for again")
            }
            CallError::NoClient(_) => {
                "mend the kubeconfig; it is read again at each try".to_owned()
            }
            _ => return None,
        })
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
        CallError::Status {
            code: status.code,
            reason,
            message: status.message,
            about,
            retry_after: retry_after.or(seconds.map(|s| Duration::from_secs(s.into()))),
        }
    }
}

impl Cluster {
    /// A cluster; nothing is connected or read yet.
    pub fn new(config: ClusterConfig, metrics: Arc<Metrics>) -> Self {
        Self { config, client: RwLock::default(), metrics }
    }

    /// Its name.
    pub fn name(&self) -> &ClusterName {
        &self.config.name
    }

    /// What it is to us.
    pub fn roles(&self) -> &[Role] {
        &self.config.roles
    }

    /// The namespace that the way to it names: the own one in a pod, the context's, or `default`.
    ///
    /// # Errors
    /// [`CallError::NoClient`].
    pub async fn default_namespace(&self) -> Result<String, CallError> {
        Ok(self.client().await?.default_namespace().to_owned())
    }

    async fn client(&self) -> Result<Client, CallError> {
        let place = self.client.read().unwrap_or_else(PoisonError::into_inner).clone();
        let made = async {
            let mut config = self.kube_config().await?;
            config.connect_timeout = Some(CONNECT_TIMEOUT);
            config.default_retry = false;
            Client::try_from(config).map_err(|e| CallError::NoClient(root_cause(&e)))
        };
        place.get_or_try_init(|| made).await.cloned()
    }

    async fn kube_config(&self) -> Result<kube::Config, CallError> {
        let failed = |error: &dyn std::error::Error| CallError::NoClient(root_cause(error));
        let ClusterConfig { kubeconfig, context, in_cluster, .. } = &self.config;
        let options = KubeConfigOptions { context: context.clone(), ..Default::default() };
        let config = if *in_cluster {
            kube::Config::incluster().map_err(|e| failed(&e))
        } else if let Some(path) = kubeconfig {
            let file = Kubeconfig::read_from(path).map_err(|e| failed(&e))?;
            kube::Config::from_custom_kubeconfig(file, &options).await.map_err(|e| failed(&e))
        } else if context.is_some() {
            kube::Config::from_kubeconfig(&options).await.map_err(|e| failed(&e))
        } else {
            kube::Config::infer().await.map_err(|e| failed(&e))
        };
        let mut config = config?;
        // As Go's clients have it: a proxy is no way to this very host.
        let host = config.cluster_url.host().unwrap_or_default().trim_matches(['[', ']']);
        let is_loopback = |ip: std::net::IpAddr| ip.is_loopback();
        if host == "localhost" || host.parse().is_ok_and(is_loopback) {
            config.proxy_url = None;
        }
        Ok(config)
    }

    /// Sends a request and waits for the answer's head, for `timeout` at most.
    ///
    /// # Errors
    /// [`CallError`]; an answer other than 2xx is one.
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
        let answer = tokio::time::timeout(timeout, self.send(request)).await;
        let answer = answer.unwrap_or(Err(CallError::TimedOut(timeout)));
        let code = answer.as_ref().map_or_else(CallError::code, |a| a.status().as_u16());
        self.metrics.request(self.name(), method, code);
        answer
    }

    async fn send(&self, request: Request<Vec<u8>>) -> Result<Response<Body>, CallError> {
        let client = self.client().await?;
        let answer = client.send(request.map(Body::from)).await;
        let answer = answer.map_err(|e| CallError::Unreachable(root_cause(&e)))?;
        if answer.status().is_success() {
            return Ok(answer);
        }
        let code = answer.status().as_u16();
        if code == 401 {
            // The credentials may have been renewed where they came from.
            *self.client.write().unwrap_or_else(PoisonError::into_inner) = Arc::default();
        }
        let retry_after = answer.headers().get(RETRY_AFTER).and_then(|v| v.to_str().ok());
        let retry_after = retry_after.and_then(|v| v.parse().ok()).map(Duration::from_secs);
        let body = read(answer.into_body()).await.unwrap_or_default();
        let status = serde_json::from_slice::<Status>(&body).unwrap_or_else(|_| Status {
            message: String::from_utf8_lossy(&body).chars().take(200).collect(),
            ..Status::default()
        });
        Err(CallError::of_status(Status { code, ..status }, retry_after))
    }

    /// Sends a request and reads the whole answer, for `timeout` at most.
    ///
    /// # Errors
    /// As [`Cluster::open`].
    pub async fn call(
        &self,
        request: Request<Vec<u8>>,
        timeout: Duration,
    ) -> Result<Bytes, CallError> {
        self.answer(request, timeout).await.map(Response::into_body)
    }

    /// The same, with the answer's head.
    ///
    /// # Errors
    /// As [`Cluster::open`].
    pub async fn answer(
        &self,
        request: Request<Vec<u8>>,
        timeout: Duration,
    ) -> Result<Response<Bytes>, CallError> {
        let whole = async {
            let (head, body) = self.open(request, timeout).await?.into_parts();
            Ok(Response::from_parts(head, read(body).await?))
        };
        tokio::time::timeout(timeout, whole).await.unwrap_or(Err(CallError::TimedOut(timeout)))
    }
}

async fn read(body: Body) -> Result<Bytes, CallError> {
    let mut frames = Frames::new(body);
    let mut whole = Vec::new();
    while let Some(frame) = frames.next().await? {
        if whole.len() + frame.len() > ANSWER_BYTES_MAX {
            return Err(CallError::Unreadable(format!("longer than {ANSWER_BYTES_MAX} bytes")));
        }
        whole.extend_from_slice(&frame);
    }
    Ok(whole.into())
}

/// An answer's body, piece by piece as it comes.
pub struct Frames(futures::stream::BoxStream<'static, Result<Bytes, CallError>>);

impl fmt::Debug for Frames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Frames")
    }
}

impl Frames {
    /// Of an answer.
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
    /// It broke off.
    pub async fn next(&mut self) -> Result<Option<Bytes>, CallError> {
        self.0.next().await.transpose()
    }
}

/// The innermost cause, which is the one that says something; without addresses.
fn root_cause(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    cause.to_string()
}
