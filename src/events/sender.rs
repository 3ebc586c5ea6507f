//! Sends Events to their cluster.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use backon::{ExponentialBuilder, Retryable};
use http::Request;
use k8s_openapi::api::core::v1::Event;
use serde_json::json;
use tokio::time::Instant;
use tracing::{debug, warn};

use super::event::patch;
use crate::client::{CallError, ClusterClient, with_body};
use crate::core::contract::error_cause::ErrorClass;
use crate::core::data::objects::FIELD_MANAGER;
use crate::environment;
use crate::metrics::{EventDelivery, Metrics};

/// The time-out of each request.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Attempts after the first. client-go makes eleven, ten seconds apart.
const RETRIES_MAX: usize = 2;
const PAUSE_MIN: Duration = Duration::from_millis(500);
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// No Event is sent for this long after one was forbidden.
const FORBIDDEN_PAUSE: Duration = Duration::from_mins(1);

/// Sends the Events of one cluster.
#[derive(Debug)]
pub(super) struct Sender {
    cluster: Arc<ClusterClient>,
    metrics: Arc<Metrics>,
    paused_until: Mutex<Option<Instant>>,
}

impl Sender {
    pub(super) fn new(cluster: Arc<ClusterClient>, metrics: Arc<Metrics>) -> Self {
        Self { cluster, metrics, paused_until: Mutex::new(None) }
    }

    pub(super) async fn deliver(&self, event: &Event) {
        if self.is_paused() {
            return self.metrics.count_kubernetes_event(EventDelivery::Dropped);
        }
        let delivery = match self.send(event).await {
            Ok(()) => EventDelivery::Posted,
            Err((verb, error)) => {
                self.log_failure(verb, &error);
                EventDelivery::Failed
            }
        };
        self.metrics.count_kubernetes_event(delivery);
    }

    fn paused_until(&self) -> MutexGuard<'_, Option<Instant>> {
        self.paused_until.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_paused(&self) -> bool {
        self.paused_until().is_some_and(|until| Instant::now() < until)
    }

    async fn send(&self, event: &Event) -> Result<(), (&'static str, CallError)> {
        if event.count > Some(1) {
            match self.with_retries("patch", event).await {
                // The Event has expired: create it again, with its count.
                Err(CallError::Status { code: 404, .. }) => {}
                done => return done.map_err(|error| ("patch", error)),
            }
        }
        self.with_retries("create", event).await.map_err(|error| ("create", error))
    }

    async fn with_retries(&self, verb: &str, event: &Event) -> Result<(), CallError> {
        let pauses = ExponentialBuilder::default()
            .with_min_delay(PAUSE_MIN)
            .with_max_delay(PAUSE_MAX)
            .with_max_times(RETRIES_MAX)
            .with_jitter()
            .with_jitter_seed(environment::random());
        let is_retried = |error: &CallError| {
            error.cause().class() == ErrorClass::Backoff
                && error.retry_after().is_none_or(|after| after <= PAUSE_MAX)
        };
        let pause = |error: &CallError, pause: Option<Duration>| {
            pause.map(|pause| error.retry_after().unwrap_or(pause))
        };
        (|| self.request(verb, event)).retry(pauses).when(is_retried).adjust(pause).await
    }

    async fn request(&self, verb: &str, event: &Event) -> Result<(), CallError> {
        let meta = &event.metadata;
        let [namespace, name] =
            [&meta.namespace, &meta.name].map(|part| part.as_deref().unwrap_or(""));
        let all = format!("/api/v1/namespaces/{namespace}/events");
        let manager = format!("fieldManager={FIELD_MANAGER}");
        let request = if verb == "patch" {
            let request = Request::patch(format!("{all}/{name}?{manager}"));
            let request = request.header("content-type", "application/merge-patch+json");
            with_body(request, &patch(event))
        } else {
            with_body(Request::post(format!("{all}?{manager}")), &json!(event))
        };
        self.cluster.call(request?, TIMEOUT).await.map(drop)
    }

    /// Missing Events are no emergency: missing permissions are logged once a pause, the rest at debug.
    fn log_failure(&self, verb: &str, error: &CallError) {
        let cluster = self.cluster.name();
        match error {
            // In a namespace that is being deleted, nobody may create objects.
            CallError::Status { code: 403, message, .. }
                if !message.contains("terminated") && !self.is_paused() =>
            {
                *self.paused_until() = Some(Instant::now() + FORBIDDEN_PAUSE);
                warn!(%cluster, %error, quiet_s = FORBIDDEN_PAUSE.as_secs(),
                    "cannot create Kubernetes Events: grant create and patch on events to the user \
                     or ServiceAccount, or set events.enabled to false (failed at {verb})");
            }
            _ => debug!(%cluster, %error, verb, "could not post a Kubernetes Event"),
        }
    }
}
