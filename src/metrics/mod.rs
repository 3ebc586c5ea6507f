//! What is counted: Prometheus metrics, and what the probes need to know of the watches.
//!
//! Names that dashboards for controllers expect are controller-runtime's and client-go's; ours begin
//! with `throughline_`. What is counted per event or per action costs an atomic or a short lock.

mod counts;
mod lease;
mod process;
mod text;
mod watches;

use std::sync::Arc;
use std::time::Duration;

use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use tokio::time::Instant;

use crate::core::action::{Action, Note, Noted, Verb};
use crate::core::event::Outcome;
use crate::core::ids::{ClusterName, Kind};
use crate::core::keep::OrphanCounts;
use crate::core::phase::Phases;
use counts::{Counts, LEADER, QUEUE, by};
use lease::LeaseTimes;
use process::Process;
pub use text::Format;
pub use watches::{Readiness, WatchMetrics, WatchStatus};
use watches::{Requests, Watches};

/// How things stand in the machine at one moment.
#[derive(Clone, Debug, Default)]
pub struct Levels {
    /// Connectors, by phase.
    pub phases: Phases,
    /// Routes that are orphans, or can't be told not to be.
    pub orphans: OrphanCounts,
}

/// What became of a Kubernetes Event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventFate {
    /// It was created, or counted where it was there.
    Posted,
    /// An API server did not take it.
    Failed,
    /// It was not sent: there were too many, or they were forbidden a moment ago.
    Dropped,
}

/// Everything that is counted in one process.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    counts: Counts,
    watches: Arc<Watches>,
    requests: Arc<Requests>,
    lease: Arc<LeaseTimes>,
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// Nothing counted yet.
    pub fn new() -> Self {
        let mut registry = Registry::default();
        let counts = Counts::new(&mut registry);
        let (watches, requests) = (Arc::new(Watches::new()), Arc::new(Requests::default()));
        registry.register_collector(Box::new(Arc::clone(&watches)));
        registry.register_collector(Box::new(Arc::clone(&requests)));
        let lease = Arc::new(LeaseTimes::default());
        registry.register_collector(Box::new(Arc::clone(&lease)));
        registry.register_collector(Box::new(Process::new()));
        Self { registry, counts, watches, requests, lease }
    }

    /// The place of one watch; made at the first call.
    pub fn watch(&self, cluster: &ClusterName, kind: Kind) -> Arc<WatchMetrics> {
        self.watches.watch(cluster, kind)
    }

    /// A cluster is gone: so are the metrics of its watches and requests.
    pub fn forget_cluster(&self, cluster: &ClusterName) {
        self.watches.forget(cluster);
        self.counts.deletes_held.remove(&[("cluster", cluster.to_string())]);
        self.requests.forget(cluster);
    }

    /// Whether the process is ready. Once it was, it stays so.
    pub fn readiness(&self) -> Readiness {
        self.watches.readiness()
    }

    /// An action was put into the queue.
    pub fn action_queued(&self, verb: Verb) {
        self.counts.queue_adds.get_or_create(&[QUEUE, by(verb)]).inc();
    }

    /// An action left the queue, after so long, and is under way.
    pub fn action_started(&self, verb: Verb, waited: Duration) {
        self.counts.queue_waited.get_or_create(&[QUEUE, by(verb)]).observe(waited.as_secs_f64());
    }

    /// A try failed and is made again.
    pub fn action_retried(&self, verb: Verb) {
        self.counts.reconciles.get_or_create(&[by(verb), ("result", "requeue")]).inc();
        self.counts.queue_retries.get_or_create(&[QUEUE, by(verb)]).inc();
    }

    /// A request was answered (`code` 0: it was not).
    pub fn request(&self, cluster: &ClusterName, method: &'static str, code: u16) {
        self.requests.count(cluster, method, code);
    }

    /// An action's fate. `took` is from the start of its first try; zero when it was never tried.
    pub fn action_finished(&self, action: &Action, outcome: &Outcome, took: Duration) {
        let verb = action.verb;
        let labels = [("verb", verb.as_str()), ("outcome", outcome.name())];
        self.counts.actions.get_or_create(&labels).inc();
        let result = match outcome {
            Outcome::Applied { .. } | Outcome::Unchanged | Outcome::NotFound => Some("success"),
            Outcome::Conflict { .. } => Some("requeue"),
            Outcome::Refused { .. } | Outcome::Failed { .. } | Outcome::Unanswered { .. } => {
                Some("error")
            }
            // Never reached the wire.
            Outcome::Superseded | Outcome::Dropped | Outcome::DryRun => None,
        };
        if let Some(result) = result {
            self.counts.reconciles.get_or_create(&[by(verb), ("result", result)]).inc();
        }
        if result == Some("error") {
            self.counts.reconcile_errors.get_or_create(&[by(verb)]).inc();
        }
        if took > Duration::ZERO {
            let seconds = took.as_secs_f64();
            self.counts.reconcile_time.get_or_create(&[by(verb)]).observe(seconds);
            self.counts.queue_worked.get_or_create(&[QUEUE, by(verb)]).observe(seconds);
        }
    }

    /// How many actions wait, and how many are under way.
    pub fn queue(&self, waiting: usize, under_way: usize) {
        set(&self.counts.queue_depth.get_or_create(&[QUEUE]), waiting);
        set(&self.counts.under_way, under_way);
    }

    /// The machine told something.
    pub fn note(&self, note: &Note) {
        match &note.what {
            Noted::HopPassed { hop, after_ms: Some(after_ms), .. } => {
                let seconds = Duration::from_millis(*after_ms).as_secs_f64();
                self.counts.hops.get_or_create(&[("hop", hop.as_str())]).observe(seconds);
            }
            Noted::HopPassed { after_ms: None, .. } | Noted::Orphan { .. } => {}
            Noted::DeletesHeld { cluster, held, .. } => {
                let labels = [("cluster", cluster.to_string())];
                self.counts.deletes_held.get_or_create(&labels).set(i64::from(*held));
            }
            Noted::Stalled(stall) => {
                let labels = [("hop", stall.hop.as_str())];
                self.counts.stalls.get_or_create(&labels).inc();
                self.counts.stalls_open.get_or_create(&labels).inc();
            }
            Noted::StallEnded(stall) => {
                self.counts.stalls_open.get_or_create(&[("hop", stall.hop.as_str())]).dec();
            }
            Noted::Anomaly(anomaly) => {
                let labels = [("anomaly", anomaly.anomaly.as_str())];
                self.counts.anomalies.get_or_create(&labels).inc();
            }
        }
    }

    /// The machine took an event, which took so long.
    pub fn event_handled(&self, took: Duration) {
        self.counts.events.observe(took.as_secs_f64());
    }

    /// Whether this process leads; told at every change.
    pub fn leader(&self, leads: bool) {
        let was = self.counts.leader.get_or_create(&[LEADER]).set(i64::from(leads));
        if was != i64::from(leads) {
            self.counts.leadership_changes.inc();
        }
    }

    /// When the Lease was last renewed, and until when leader-only work may start; told at every
    /// renewal and every change.
    pub fn lease(&self, renewed: Option<Instant>, until: Option<Instant>) {
        self.lease.set(renewed, until);
    }

    /// Who holds the Lease was seen; empty for nobody.
    pub fn lease_held_by(&self, holder: &str) {
        self.lease.set_holder(holder);
    }

    /// Who holds the Lease, as it was last seen; `None` for nobody, and without an election.
    pub fn lease_holder(&self) -> Option<String> {
        self.lease.holder()
    }

    /// Lines that the event log could not take.
    pub fn log_lines_lost(&self, lines: u64) {
        self.counts.log_lines_lost.inc_by(lines);
    }

    /// How many lines that were so far.
    pub fn log_lines_lost_so_far(&self) -> u64 {
        self.counts.log_lines_lost.get()
    }

    /// A Kubernetes Event came to its end.
    pub fn kubernetes_event(&self, fate: EventFate) {
        let counter = match fate {
            EventFate::Posted => &self.counts.events_posted,
            EventFate::Failed => &self.counts.events_failed,
            EventFate::Dropped => &self.counts.events_dropped,
        };
        counter.inc();
    }

    /// All metrics as text. `levels` are the machine's at this moment; `None` leaves them out, where
    /// the loop could not be asked.
    pub fn text(&self, levels: Option<&Levels>, format: Format) -> String {
        match levels {
            Some(Levels { phases, orphans }) => {
                for (phase, connectors) in phases {
                    let gauge = self.counts.phases.get_or_create(&[("phase", phase.as_str())]);
                    set(&gauge, usize::try_from(*connectors).unwrap_or(usize::MAX));
                }
                let kept = orphans.kept.iter().map(|(keep, routes)| (keep.as_str(), *routes));
                for (reason, routes) in kept.chain([("none", orphans.orphans)]) {
                    let gauge = self.counts.orphans.get_or_create(&[("reason", reason)]);
                    set(&gauge, usize::try_from(routes).unwrap_or(usize::MAX));
                }
            }
            None => {
                self.counts.phases.clear();
                self.counts.orphans.clear();
            }
        }
        text::encode(&self.registry, format)
    }
}

fn set(gauge: &Gauge, value: usize) {
    gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
}
