//! Prometheus metrics, and the state of the watches for the probes.
//!
//! A metric that dashboards for controllers expect has client-go's name; the others begin with
//! `throughline_`. Counting an event or an action costs an atomic operation or a short lock.

mod causes;
mod counts;
mod lease;
mod process;
mod requests;
mod text;
mod user_impact;
mod watches;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use prometheus_client::registry::Registry;

use crate::core::contract::action::Verb;
use crate::core::contract::cause::{Hop, State};
use crate::core::contract::event::Outcome;
use crate::core::contract::membership::{MemberState, MembershipCount};
use crate::core::contract::note::{Note, NoteKind};
use crate::core::data::closed_list::closed_list;
use crate::core::data::ids::ClusterName;
use causes::OpenProblems;
use counts::Counts;
use lease::Lease;
pub(crate) use process::max_fds;
use requests::AllRequests;
pub use requests::ClusterRequests;
pub use text::Format;
use text::gauges;
use user_impact::Edges;
use watches::Watches;
pub use watches::{Readiness, WatchMetrics, WatchStatus};

/// The most clusters with a series for each of what users see and of the requests.
const PER_CLUSTER_MAX: usize = 200;

/// Counts that only the machine can give, at one time.
#[derive(Clone, Debug, Default)]
pub struct MachineCounts {
    /// Connectors, by state.
    pub states: BTreeMap<State, u64>,
    /// Discovered clusters, by source and state.
    pub members: Vec<MembershipCount>,
}

/// The result of posting a Kubernetes Event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[derive(strum::EnumString, strum::IntoStaticStr, strum::VariantArray, strum::VariantNames)]
#[strum(serialize_all = "snake_case", const_into_str)]
pub enum EventDelivery {
    /// Created, or counted on the existing Event.
    Posted,
    /// Rejected by the API server.
    Failed,
    /// Not sent: over the rate limit, or while Events are forbidden.
    Dropped,
}

/// The result of a changed configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[derive(strum::EnumString, strum::IntoStaticStr, strum::VariantArray, strum::VariantNames)]
#[strum(serialize_all = "snake_case", const_into_str)]
pub enum ReloadResult {
    Applied,
    Refused,
}

closed_list!(EventDelivery, ReloadResult);

/// All metrics of one process.
#[derive(Debug, Default)]
pub struct Metrics {
    counts: Counts,
    /// The number of joined clusters.
    clusters: AtomicUsize,
    problems: Mutex<OpenProblems>,
    watches: Mutex<Watches>,
    requests: Arc<Mutex<AllRequests>>,
    lease: Mutex<Lease>,
    edges: Mutex<Edges>,
}

impl Metrics {
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the number of joined clusters. Above 200, what users see and the requests are summed over
    /// all; the causes are not, because an alert asks for each cluster whether anybody watches it.
    pub fn set_clusters(&self, clusters: usize) {
        self.clusters.store(clusters, Relaxed);
    }

    /// Removes the metrics of a cluster that left.
    pub fn remove_cluster(&self, cluster: &ClusterName) {
        lock(&self.watches).remove_cluster(cluster);
        self.set_answers(cluster, None);
        self.counts.queue.remove(&[("name", cluster.to_string())]);
    }

    /// Records an event; `took` is the machine's time for it.
    pub fn event_handled(&self, took: Duration) {
        self.counts.loop_time.observe(took.as_secs_f64());
    }

    /// Counts a note of the machine.
    pub fn count_note(&self, note: &Note) {
        match &note.kind {
            NoteKind::HopPassed { hop, after_ms: Some(after_ms), .. }
                if Hop::TIMED.contains(hop) =>
            {
                let seconds = Duration::from_millis(*after_ms).as_secs_f64();
                self.counts.hops.get_or_create(&[("hop", hop.as_str())]).observe(seconds);
            }
            NoteKind::Began(problem) => {
                let begun = u64::from(lock(&self.problems).begin(problem));
                self.counts
                    .causes
                    .get_or_create(&[("cause", problem.cause.as_str())])
                    .inc_by(begun);
            }
            NoteKind::Ended(problem) => lock(&self.problems).end(problem),
            _ => {}
        }
    }

    /// Counts an action that ended, `after` this long since the decision.
    pub fn action_finished(&self, verb: Verb, outcome: &Outcome, after: Duration) {
        let labels = [("verb", verb.as_str()), ("outcome", outcome.name())];
        self.counts.actions.get_or_create(&labels).inc();
        // An unsent action gives no information about API servers.
        if !matches!(outcome, Outcome::Superseded | Outcome::Dropped | Outcome::DryRun) {
            let histogram = self.counts.action_time.get_or_create(&[("verb", verb.as_str())]);
            histogram.observe(after.as_secs_f64());
        }
    }

    /// Sets the number of waiting writes to a cluster.
    pub fn set_queue(&self, cluster: &ClusterName, waiting: usize) {
        let gauge = self.counts.queue.get_or_create(&[("name", cluster.to_string())]);
        gauge.set(i64::try_from(waiting).unwrap_or(i64::MAX));
    }

    /// Counts a configuration reload by its result.
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

    /// The number of lines that could not be written to the event log.
    pub fn log_lines_lost(&self) -> u64 {
        self.counts.log_lines_lost.get()
    }

    pub fn count_kubernetes_event(&self, delivery: EventDelivery) {
        self.counts.events.get_or_create(&[("result", delivery.as_str())]).inc();
    }

    /// All metrics as text. `counts` are the machine's current counts; `None`, if the loop did not
    /// answer, omits them.
    pub fn text(&self, counts: Option<&MachineCounts>, format: Format) -> String {
        let mut scrape = Registry::default();
        let watches = lock(&self.watches).statuses();
        let is_per_cluster = self.clusters.load(Relaxed) <= PER_CLUSTER_MAX;
        self.counts.scrape(&mut scrape);
        watches::scrape(&mut scrape, &watches);
        scrape_states(&mut scrape, &watches, counts);
        lock(&self.problems).scrape(&mut scrape, &watches);
        lock(&self.requests).scrape(&mut scrape, is_per_cluster);
        lock(&self.lease).scrape(&mut scrape);
        lock(&self.edges).scrape(&mut scrape, is_per_cluster);
        process::scrape(&mut scrape);
        text::encode(&scrape, format)
    }
}

/// Adds clusters and connectors by state.
fn scrape_states(scrape: &mut Registry, watches: &[WatchStatus], counts: Option<&MachineCounts>) {
    let sample = |state: &str, count: f64| (vec![("state", state.to_owned())], count);
    let mut clusters: Vec<_> = watches::clusters_by_state(watches)
        .map(|(state, count)| sample(state, count as f64))
        .to_vec();
    if let Some(MachineCounts { states, members }) = counts {
        for state in [MemberState::Idle, MemberState::NotReady] {
            let members = members.iter().filter(|member| member.state == state);
            let count: usize = members.map(|member| member.clusters).sum();
            clusters.push(sample(state.as_str(), count as f64));
        }
        let count = |state| states.get(&state).copied().unwrap_or_default() as f64;
        let connectors = State::ALL.map(|state| sample(state.as_str(), count(state)));
        scrape.register("throughline_connectors", "Connectors by state", gauges(connectors));
    }
    scrape.register("throughline_clusters", "Clusters by state", gauges(clusters));
}

/// Ignores poisoning: every statement leaves the counts consistent, so a panic elsewhere does no harm.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
