//! Prometheus metrics, and the state of the watches for the probes.
//!
//! Where dashboards for controllers expect a metric, it has the name that client-go gives it; the
//! others begin with `throughline_`. Counting an event or an action costs an atomic operation or a
//! short lock.

mod causes;
mod counts;
mod lease;
mod process;
mod requests;
mod text;
mod user_impact;
mod watches;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::core::contract::action::Verb;
use crate::core::contract::cause::{Hop, State};
use crate::core::contract::event::Outcome;
use crate::core::contract::membership::{MemberState, MembershipCount};
use crate::core::contract::note::{self, Note, NoteKind};
use crate::core::data::closed_list::closed_list;
use crate::core::data::ids::ClusterName;
use crate::core::view::phase::{Phase, Phases};
use causes::Causes;
use counts::Counts;
use lease::LeaseMetrics;
use process::ProcessMetrics;
pub(crate) use process::max_fds;
pub use requests::ClusterRequests;
use requests::RequestCounts;
pub use text::Format;
use user_impact::UserImpact;
use watches::WatchTable;
pub use watches::{Readiness, WatchMetrics, WatchStatus};

/// With more clusters than this there is no series for each of what every cluster has.
const PER_CLUSTER_MAX: usize = 200;

/// Counts that only the machine knows, at one moment.
#[derive(Clone, Debug, Default)]
pub struct MachineCounts {
    /// Connectors, by phase.
    pub phases: Phases,
    /// Discovered clusters, by source and state.
    pub members: Vec<MembershipCount>,
}

/// What happened to a Kubernetes Event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[derive(strum::EnumString, strum::IntoStaticStr, strum::VariantArray, strum::VariantNames)]
#[strum(serialize_all = "snake_case", const_into_str)]
pub enum EventDelivery {
    /// Created, or counted on the Event that existed.
    Posted,
    /// The API server did not accept it.
    Failed,
    /// Not sent: there were too many, or Events were forbidden a moment ago.
    Dropped,
}

/// What became of a changed configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[derive(strum::EnumString, strum::IntoStaticStr, strum::VariantArray, strum::VariantNames)]
#[strum(serialize_all = "snake_case", const_into_str)]
pub enum ReloadResult {
    Applied,
    Refused,
}

closed_list!(EventDelivery, ReloadResult);

/// Whether metrics have series for each cluster.
#[derive(Debug, Default)]
struct Detail {
    clusters: AtomicUsize,
}

impl Detail {
    fn is_per_cluster(&self) -> bool {
        self.clusters.load(Relaxed) <= PER_CLUSTER_MAX
    }
}

/// All metrics of one process.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    counts: Counts,
    causes: Arc<Causes>,
    watches: Arc<WatchTable>,
    requests: Arc<RequestCounts>,
    detail: Arc<Detail>,
    lease: Arc<LeaseMetrics>,
    user_impact: Arc<UserImpact>,
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    pub fn new() -> Self {
        let mut registry = Registry::default();
        let counts = Counts::new(&mut registry);
        let detail = Arc::new(Detail::default());
        let watches = Arc::new(WatchTable::new(&mut registry));
        let causes = Arc::new(Causes::new(&mut registry, watches.clone()));
        let requests = Arc::new(RequestCounts::new(detail.clone()));
        let lease = Arc::new(LeaseMetrics::default());
        let user_impact = Arc::new(UserImpact::new(detail.clone()));
        registry.register_collector(Box::new(watches.clone()));
        registry.register_collector(Box::new(causes.clone()));
        registry.register_collector(Box::new(requests.clone()));
        registry.register_collector(Box::new(lease.clone()));
        registry.register_collector(Box::new(user_impact.clone()));
        registry.register_collector(Box::new(ProcessMetrics::new()));
        Self { registry, counts, causes, watches, requests, detail, lease, user_impact }
    }

    /// How many clusters are joined. Beyond 200 there are no series for each.
    pub fn set_clusters(&self, clusters: usize) {
        self.detail.clusters.store(clusters, Relaxed);
    }

    /// Removes the metrics of a cluster that is gone.
    pub fn remove_cluster(&self, cluster: &ClusterName) {
        self.watches.remove_cluster(cluster);
        self.set_answers(cluster, None);
        self.counts.queue.remove(&[("name", cluster.to_string())]);
    }

    /// `took` is the machine's time for one event.
    pub fn event_handled(&self, took: Duration) {
        self.counts.loop_time.observe(took.as_secs_f64());
    }

    /// Counts what the machine notes.
    pub fn count_note(&self, note: &Note) {
        match &note.kind {
            NoteKind::HopPassed { hop, after_ms: Some(after_ms), .. } => {
                let hop = match hop {
                    note::Hop::Upstream => return,
                    note::Hop::Mirrored => Hop::Mirrored,
                    note::Hop::Arrived => Hop::Carried,
                    note::Hop::Touched => Hop::Announced,
                };
                let seconds = Duration::from_millis(*after_ms).as_secs_f64();
                self.counts.hops.get_or_create(&[("hop", hop.as_str())]).observe(seconds);
            }
            NoteKind::Began(problem) => self.causes.begin(problem),
            NoteKind::Ended(problem) => self.causes.end(problem),
            _ => {}
        }
    }

    /// An action ended, so long after it was decided.
    pub fn action_finished(&self, verb: Verb, outcome: &Outcome, after: Duration) {
        let labels = [("verb", verb.as_str()), ("outcome", outcome.name())];
        self.counts.actions.get_or_create(&labels).inc();
        // What was never sent says nothing about API servers.
        if !matches!(outcome, Outcome::Superseded | Outcome::Dropped | Outcome::DryRun) {
            let histogram = self.counts.action_time.get_or_create(&[("verb", verb.as_str())]);
            histogram.observe(after.as_secs_f64());
        }
    }

    /// How many writes to a cluster wait.
    pub fn set_queue(&self, cluster: &ClusterName, waiting: usize) {
        set(&self.counts.queue.get_or_create(&[("name", cluster.to_string())]), waiting);
    }

    /// A changed configuration was applied or refused.
    pub(crate) fn config_reloaded(&self, result: ReloadResult) {
        self.counts.config_reloads.get_or_create(&[("result", result.as_str())]).inc();
    }

    #[cfg(test)]
    pub(crate) fn config_reloads(&self, result: ReloadResult) -> u64 {
        self.counts.config_reloads.get_or_create(&[("result", result.as_str())]).get()
    }

    pub fn add_log_lines_lost(&self, lines: u64) {
        self.counts.log_lines_lost.inc_by(lines);
    }

    /// Lines that were not written to the event log.
    pub fn log_lines_lost(&self) -> u64 {
        self.counts.log_lines_lost.get()
    }

    pub fn count_kubernetes_event(&self, delivery: EventDelivery) {
        self.counts.events.get_or_create(&[("result", delivery.as_str())]).inc();
    }

    /// All metrics as text. `counts` are the machine's at this moment; `None`, when the loop did not
    /// answer, leaves them out.
    pub fn text(&self, counts: Option<&MachineCounts>, format: Format) -> String {
        self.counts.connectors.clear();
        self.counts.clusters.clear();
        let clusters = |state| self.counts.clusters.get_or_create(&[("state", state)]);
        for (state, count) in self.watches.clusters_by_state() {
            set(&clusters(state), count);
        }
        if let Some(MachineCounts { phases, members }) = counts {
            for state in [MemberState::Idle, MemberState::NotReady] {
                let members = members.iter().filter(|member| member.state == state);
                set(&clusters(state.as_str()), members.map(|member| member.clusters).sum());
            }
            for state in State::ALL {
                let of_state = phases.iter().filter(|(phase, _)| state_of(**phase) == state);
                let connectors: u64 = of_state.map(|(_, connectors)| connectors).sum();
                let gauge = self.counts.connectors.get_or_create(&[("state", state.as_str())]);
                set(&gauge, usize::try_from(connectors).unwrap_or(usize::MAX));
            }
        }
        text::encode(&self.registry, format)
    }
}

fn set(gauge: &Gauge, value: usize) {
    gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
}

const fn state_of(phase: Phase) -> State {
    match phase {
        Phase::Settled | Phase::Offline | Phase::Deferred => State::Ok,
        Phase::Mirroring | Phase::Waiting | Phase::Carrying | Phase::Touching => State::Pending,
        Phase::Unreplicated | Phase::Unproven | Phase::Unconfigured | Phase::Paused => State::Held,
        Phase::Unknown => State::Unknown,
        Phase::Stalled => State::Stuck,
    }
}
