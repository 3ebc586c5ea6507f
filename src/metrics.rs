//! What is counted: Prometheus metrics, and what the probes need to know of the watches.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::core::action::{Action, Note, Verb};
use crate::core::event::Outcome;
use crate::core::ids::{ClusterName, Kind};

/// Everything that is counted in one process.
#[derive(Debug, Default)]
pub struct Metrics {}

/// What a watch tells of itself. Its methods cost an atomic or two.
#[derive(Debug)]
pub struct WatchMetrics {}

impl Metrics {
    /// Nothing counted yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// The place of one watch; made at the first call.
    pub fn watch(&self, _cluster: &ClusterName, _kind: Kind) -> Arc<WatchMetrics> {
        Arc::new(WatchMetrics {})
    }

    /// A cluster is gone: so are its watches' metrics.
    pub fn forget_cluster(&self, _cluster: &ClusterName) {}

    /// An action was put into the queue.
    pub fn action_queued(&self, _verb: Verb) {}

    /// An action left the queue, after so long, and is under way.
    pub fn action_started(&self, _verb: Verb, _waited: Duration) {}

    /// A try failed and is made again.
    pub fn action_retried(&self, _verb: Verb) {}

    /// A request was answered (`code` 0: it was not).
    pub fn request(&self, _cluster: &ClusterName, _method: &'static str, _code: u16) {}

    /// An action's fate. `took` is from the start of its first try; zero when it was never tried.
    pub fn action_finished(&self, _action: &Action, _outcome: &Outcome, _took: Duration) {}

    /// How many actions wait, and how many are under way.
    pub fn queue(&self, _waiting: usize, _under_way: usize) {}

    /// The machine told something.
    pub fn note(&self, _note: &Note) {}

    /// The machine took an event, which took so long.
    pub fn event_handled(&self, _took: Duration) {}

    /// Whether this process leads.
    pub fn leader(&self, _leads: bool) {}

    /// When the Lease was last renewed, and until when leader-only work may start; told at every
    /// renewal and every change.
    pub fn lease(&self, _renewed: Option<Instant>, _until: Option<Instant>) {}

    /// Lines that the event log could not take.
    pub fn log_lines_lost(&self, _lines: u64) {}
}

impl WatchMetrics {
    /// A list began.
    pub fn listing(&self) {}

    /// The list is complete, with so many objects; the watch is live.
    pub fn live(&self, _objects: u64) {}

    /// The watch goes on where it broke.
    pub fn resumed(&self) {}

    /// The watch broke, or can't be had.
    pub fn lost(&self, _error: &str) {}

    /// Something came from the API server: an event, a bookmark.
    pub fn heard(&self, _is_event: bool) {}
}
