//! Sends the Events of one cluster, one at a time.

use std::sync::Arc;
use std::time::Duration;

use backon::{ExponentialBuilder, Retryable};
use http::Request;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tracing::{debug, warn};

use super::correlate::Correlator;
use super::object::{EventReport, EventWrite};
use crate::client::{CallError, ClusterClient, ErrorClass, with_body};
use crate::core::data::objects::FIELD_MANAGER;
use crate::environment;
use crate::metrics::{EventDelivery, Metrics};

/// For each request.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Attempts after the first. client-go makes eleven, ten seconds apart, while other Events wait.
const RETRIES_MAX: usize = 2;
const PAUSE_MIN: Duration = Duration::from_millis(500);
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// No Event is sent for this long after one was forbidden.
const FORBIDDEN_PAUSE: Duration = Duration::from_mins(1);

#[derive(Debug)]
pub(super) struct Worker {
    cluster: Arc<ClusterClient>,
    metrics: Arc<Metrics>,
    correlator: Correlator,
    last_number: u64,
    paused_until: Option<Instant>,
}

impl Worker {
    pub(super) fn new(cluster: Arc<ClusterClient>, metrics: Arc<Metrics>) -> Self {
        let correlator = Correlator::default();
        Self { cluster, metrics, correlator, last_number: 0, paused_until: None }
    }

    /// Runs until the last [`Recorder`](super::Recorder) is dropped.
    pub(super) async fn run(mut self, mut reports: mpsc::Receiver<EventReport>) {
        while let Some(report) = reports.recv().await {
            let delivery = self.deliver(report).await;
            self.metrics.count_kubernetes_event(delivery);
        }
    }

    async fn deliver(&mut self, report: EventReport) -> EventDelivery {
        if self.paused_until.is_some_and(|until| Instant::now() < until) {
            return EventDelivery::Dropped;
        }
        let number = self.next_number();
        let Some(write) = self.correlator.correlate(report, number) else {
            return EventDelivery::Dropped;
        };
        match self.send(&write).await {
            Ok(()) => {
                self.paused_until = None;
                EventDelivery::Posted
            }
            Err((verb, error)) => {
                self.log_failure(verb, &error);
                EventDelivery::Failed
            }
        }
    }

    /// A number that this worker never returned before, and no other instance returns.
    fn next_number(&mut self) -> u64 {
        let nanos = u64::try_from(environment::wall_clock().as_nanos()).unwrap_or(u64::MAX);
        self.last_number = nanos.max(self.last_number + 1);
        self.last_number
    }

    async fn send(&self, write: &EventWrite) -> Result<(), (&'static str, CallError)> {
        if write.count > 1 {
            match self.with_retries("patch", write).await {
                // The Event has expired: create it again, with its count.
                Err(CallError::Status { code: 404, .. }) => {}
                done => return done.map_err(|error| ("patch", error)),
            }
        }
        self.with_retries("create", write).await.map_err(|error| ("create", error))
    }

    async fn with_retries(&self, verb: &str, write: &EventWrite) -> Result<(), CallError> {
        let pauses = ExponentialBuilder::default()
            .with_min_delay(PAUSE_MIN)
            .with_max_delay(PAUSE_MAX)
            .with_max_times(RETRIES_MAX)
            .with_jitter()
            .with_jitter_seed(environment::random());
        let is_retried = |error: &CallError| {
            error.class() == ErrorClass::Backoff
                && error.retry_after().is_none_or(|after| after <= PAUSE_MAX)
        };
        let pause = |error: &CallError, pause: Option<Duration>| {
            pause.map(|pause| error.retry_after().unwrap_or(pause))
        };
        (|| self.request(verb, write)).retry(pauses).when(is_retried).adjust(pause).await
    }

    async fn request(&self, verb: &str, write: &EventWrite) -> Result<(), CallError> {
        let all = format!("/api/v1/namespaces/{}/events", write.report.object.namespace);
        let manager = format!("fieldManager={FIELD_MANAGER}");
        let request = if verb == "patch" {
            let one = Request::patch(format!("{all}/{}?{manager}", write.name));
            let one = one.header("content-type", "application/merge-patch+json");
            with_body(one, &write.patch())
        } else {
            with_body(Request::post(format!("{all}?{manager}")), &write.event())
        };
        self.cluster.call(request?, TIMEOUT).await.map(drop)
    }

    /// Missing Events are no emergency: missing rights are logged once a pause, the rest at debug.
    fn log_failure(&mut self, verb: &str, error: &CallError) {
        let cluster = self.cluster.name();
        match error {
            // In a namespace that is being deleted, everybody is forbidden to create objects.
            CallError::Status { code: 403, message, .. } if !message.contains("terminated") => {
                self.paused_until = Some(Instant::now() + FORBIDDEN_PAUSE);
                warn!(%cluster, %error, quiet_s = FORBIDDEN_PAUSE.as_secs(),
                    "cannot create Kubernetes Events: grant create and patch on events to the user \
                     or ServiceAccount, or set events.enabled to false (failed at {verb})");
            }
            _ => debug!(%cluster, %error, verb, "could not post a Kubernetes Event"),
        }
    }
}
