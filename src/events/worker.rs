//! Sends the Events of one cluster, one after another.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use backon::{ExponentialBuilder, Retryable};
use http::Request;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tracing::{debug, warn};

use super::correlate::Correlator;
use super::object::{Report, Sending};
use crate::client::{CallError, Class, Cluster, with_body};
use crate::core::objects::FIELD_MANAGER;
use crate::metrics::{EventFate, Metrics};

/// One try of one request.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Tries after the first. client-go makes eleven, ten seconds apart; others wait behind them.
const RETRIES: usize = 2;
const PAUSES: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(5));
/// Nothing is sent for so long after Events were forbidden.
const QUIET: Duration = Duration::from_mins(1);

pub(super) struct Worker {
    cluster: Arc<Cluster>,
    metrics: Arc<Metrics>,
    correlator: Correlator,
    last_number: u64,
    quiet_until: Option<Instant>,
}

impl Worker {
    pub(super) fn new(cluster: Arc<Cluster>, metrics: Arc<Metrics>) -> Self {
        let correlator = Correlator::default();
        Self { cluster, metrics, correlator, last_number: 0, quiet_until: None }
    }

    /// Until nobody can report any longer.
    pub(super) async fn run(mut self, mut reports: mpsc::Receiver<Report>) {
        while let Some(report) = reports.recv().await {
            let fate = self.take(report).await;
            self.metrics.kubernetes_event(fate);
        }
    }

    async fn take(&mut self, report: Report) -> EventFate {
        if self.quiet_until.is_some_and(|until| Instant::now() < until) {
            return EventFate::Dropped;
        }
        let number = self.number();
        let Some(sending) = self.correlator.correlate(report, number) else {
            return EventFate::Dropped;
        };
        match self.send(&sending).await {
            Ok(()) => {
                self.quiet_until = None;
                EventFate::Posted
            }
            Err((verb, error)) => {
                self.tell(verb, &error);
                EventFate::Failed
            }
        }
    }

    /// A number that was never given before, and that no other process gives.
    fn number(&mut self) -> u64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let nanos = u64::try_from(since.as_nanos()).unwrap_or(u64::MAX);
        self.last_number = nanos.max(self.last_number + 1);
        self.last_number
    }

    async fn send(&self, sending: &Sending) -> Result<(), (&'static str, CallError)> {
        if sending.count > 1 {
            match self.with_retries("patch", sending).await {
                // Events expire: it is made anew, with what it counts.
                Err(CallError::Status { code: 404, .. }) => {}
                done => return done.map_err(|error| ("patch", error)),
            }
        }
        self.with_retries("create", sending).await.map_err(|error| ("create", error))
    }

    async fn with_retries(&self, verb: &str, sending: &Sending) -> Result<(), CallError> {
        let (first, longest) = PAUSES;
        let pauses = ExponentialBuilder::default()
            .with_min_delay(first)
            .with_max_delay(longest)
            .with_max_times(RETRIES)
            .with_jitter();
        let again = |error: &CallError| {
            error.class() == Class::Backoff && error.retry_after().is_none_or(|a| a <= longest)
        };
        let pause = |error: &CallError, pause: Option<Duration>| {
            pause.map(|pause| error.retry_after().unwrap_or(pause))
        };
        (|| self.request(verb, sending)).retry(pauses).when(again).adjust(pause).await
    }

    async fn request(&self, verb: &str, sending: &Sending) -> Result<(), CallError> {
        let all = format!("/api/v1/namespaces/{}/events", sending.report.about.namespace);
        let manager = format!("fieldManager={FIELD_MANAGER}");
        let request = if verb == "patch" {
            let one = Request::patch(format!("{all}/{}?{manager}", sending.name));
            let one = one.header("content-type", "application/merge-patch+json");
            with_body(one, &sending.patch())
        } else {
            with_body(Request::post(format!("{all}?{manager}")), &sending.event())
        };
        self.cluster.call(request?, TIMEOUT).await.map(drop)
    }

    /// Events are for people who look at objects; that there are none is told once, and not at length.
    fn tell(&mut self, verb: &str, error: &CallError) {
        let cluster = self.cluster.name();
        match error {
            // In a namespace that is being deleted, creating is forbidden to everybody.
            CallError::Status { code: 403, message, .. } if !message.contains("terminated") => {
                self.quiet_until = Some(Instant::now() + QUIET);
                warn!(%cluster, %error, quiet_s = QUIET.as_secs(),
                    "no Events can be left: grant create and patch on events to the user or \
                     ServiceAccount, or set events.enabled to false (tried to {verb} one)");
            }
            _ => debug!(%cluster, %error, verb, "an Event could not be left"),
        }
    }
}
