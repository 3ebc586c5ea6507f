//! Prometheus metrics, and the state of the watches for the probes.
//!
//! Where dashboards for controllers expect a metric, it has the name that controller-runtime or
//! client-go gives it; the others begin with `throughline_`. Counting an event or an action costs an
//! atomic operation or a short lock.

mod actions;
mod counts;
mod lease;
mod notes;
mod process;
mod requests;
mod text;
mod user_impact;
mod watches;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use tokio::time::Instant;

use crate::client::pool::OpenConnections;
use crate::clock::wall_clock_now;
use crate::core::contract::hold_reason::HoldReason;
use crate::core::contract::keep_reason::OrphanCounts;
use crate::core::contract::membership::{MemberState, MembershipCount};
use crate::core::data::ids::{ClusterName, Kind};
use crate::core::view::phase::Phases;
use counts::{Instruments, LEADER, lane};
use lease::LeaseMetrics;
use process::ProcessMetrics;
pub(crate) use process::max_fds;
pub use requests::ClusterRequests;
use requests::RequestCounts;
pub use text::Format;
use user_impact::UserImpact;
use watches::{ClusterStates, Detail, WatchTable};
pub use watches::{Readiness, WatchMetrics, WatchStatus};

/// Counts that only the machine knows, at one moment.
#[derive(Clone, Debug, Default)]
pub struct MachineCounts {
    /// Connectors, by phase.
    pub phases: Phases,
    /// Routes that are orphans, or that may be.
    pub orphans: OrphanCounts,
    /// Objects that a person has paused, by cluster and kind.
    pub paused: BTreeMap<(ClusterName, Kind), u64>,
    /// Discovered clusters, by source and state.
    pub members: Vec<MembershipCount>,
}

/// What happened to a Kubernetes Event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
pub(crate) enum ReloadResult {
    Applied,
    Refused,
}

impl ReloadResult {
    const ALL: [Self; 2] = [Self::Applied, Self::Refused];

    const fn as_str(self) -> &'static str {
        match self {
            Self::Applied => "applied",
            Self::Refused => "refused",
        }
    }
}

/// All metrics of one process.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    instruments: Instruments,
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
    /// Where connections to API servers are counted.
    pub(crate) fn open_connections(&self) -> OpenConnections {
        // Each guard is dropped before the next is taken: a second one would wait for the first.
        let by = |protocol| {
            let gauge = self.instruments.connections.get_or_create(&[("protocol", protocol)]);
            gauge.clone()
        };
        OpenConnections { http1: by("http/1.1"), http2: by("h2") }
    }

    pub fn new() -> Self {
        let mut registry = Registry::default();
        let instruments = Instruments::new(&mut registry);
        let detail = Arc::new(Detail::default());
        let watches = Arc::new(WatchTable::new(detail.clone()));
        let requests = Arc::new(RequestCounts::new(detail.clone()));
        registry.register_collector(Box::new(Arc::clone(&watches)));
        registry.register_collector(Box::new(Arc::clone(&requests)));
        let lease = Arc::new(LeaseMetrics::default());
        registry.register_collector(Box::new(Arc::clone(&lease)));
        registry.register_collector(Box::new(ProcessMetrics::new()));
        let user_impact = Arc::new(UserImpact::new(detail.clone()));
        registry.register_collector(Box::new(Arc::clone(&user_impact)));
        let metrics = Self { registry, instruments, watches, requests, detail, lease, user_impact };
        // Shown from the start, with 0.
        drop(metrics.open_connections());
        metrics
    }

    /// Where the requests to a cluster are counted. The counts have series of their own until the last
    /// clone of this is dropped.
    pub fn requests(&self, cluster: &ClusterName) -> Arc<ClusterRequests> {
        self.requests.of_cluster(cluster)
    }

    /// The metrics of one watch; created at the first call.
    pub fn watch(&self, cluster: &ClusterName, kind: Kind) -> Arc<WatchMetrics> {
        self.watches.watch(cluster, kind)
    }

    /// How many clusters are joined. Beyond 200 there are no series for each.
    pub fn set_clusters(&self, clusters: usize) {
        self.detail.set_clusters(clusters);
    }

    /// Readiness does not wait for this cluster, because it was discovered.
    pub fn set_discovered(&self, cluster: &ClusterName) {
        self.watches.set_discovered(cluster);
    }

    /// Removes the metrics of a cluster that is gone.
    pub fn remove_cluster(&self, cluster: &ClusterName) {
        self.watches.remove_cluster(cluster);
        self.set_answers(cluster, None);
        self.instruments.deletes_held.remove(&[("cluster", cluster.to_string())]);
        self.instruments.touches_waiting.remove(&[("cluster", cluster.to_string())]);
        for reason in HoldReason::ALL {
            let labels = [("cluster", cluster.to_string()), ("reason", reason.as_str().into())];
            self.instruments.held.remove(&labels);
        }
        for kind in Kind::ALL {
            self.instruments.writes_waiting.remove(&lane(cluster, kind));
            self.instruments.writes_hung.remove(&lane(cluster, kind));
        }
    }

    /// Whether the process is ready. Once ready, it stays so.
    pub fn readiness(&self) -> Readiness {
        self.watches.readiness()
    }

    /// The clusters whose Connectors are not followed at present, although they were tried.
    pub fn lost_clusters(&self) -> BTreeSet<ClusterName> {
        self.watches.lost_clusters()
    }

    /// The clusters of the run, whether they are seen or not.
    pub fn clusters(&self) -> BTreeSet<ClusterName> {
        self.watches.clusters()
    }

    /// Whether a cluster's Connectors are followed at present.
    pub fn is_followed(&self, cluster: &ClusterName) -> bool {
        self.watches.is_followed(cluster)
    }

    /// `took` is the machine's time for one event.
    pub fn event_handled(&self, took: Duration) {
        self.instruments.events.observe(took.as_secs_f64());
    }

    /// Called at every change.
    pub fn set_leader(&self, is_leader: bool) {
        let was = self.instruments.leader.get_or_create(&[LEADER]).set(i64::from(is_leader));
        if was != i64::from(is_leader) {
            self.instruments.leadership_changes.inc();
        }
    }

    /// The configuration that was loaded at the start is in force.
    pub(crate) fn config_loaded(&self) {
        let seconds = i64::try_from(wall_clock_now().0 / 1000).unwrap_or(i64::MAX);
        self.instruments.config_loaded.set(seconds);
    }

    /// A changed configuration was applied or refused.
    pub(crate) fn config_reloaded(&self, result: ReloadResult) {
        self.instruments.config_reloads.get_or_create(&[("result", result.as_str())]).inc();
        self.instruments.config_refused.set(i64::from(result == ReloadResult::Refused));
        if result == ReloadResult::Applied {
            self.config_loaded();
        }
    }

    #[cfg(test)]
    pub(crate) fn config_reloads(&self, result: ReloadResult) -> u64 {
        self.instruments.config_reloads.get_or_create(&[("result", result.as_str())]).get()
    }

    /// When this instance last renewed the Lease, and until when the gate is open. Called at every
    /// renewal and every change.
    pub fn set_lease(&self, renewed: Option<Instant>, until: Option<Instant>) {
        self.lease.set(renewed, until);
    }

    /// Empty when nobody holds the Lease.
    pub fn set_lease_holder(&self, holder: &str) {
        self.lease.set_holder(holder);
    }

    /// The Lease's holder, as last seen; `None` when nobody holds it, and without an election.
    pub fn lease_holder(&self) -> Option<String> {
        self.lease.holder()
    }

    pub fn add_log_lines_lost(&self, lines: u64) {
        self.instruments.log_lines_lost.inc_by(lines);
    }

    /// Lines that were not written to the event log.
    pub fn log_lines_lost(&self) -> u64 {
        self.instruments.log_lines_lost.get()
    }

    pub fn count_kubernetes_event(&self, delivery: EventDelivery) {
        let counter = match delivery {
            EventDelivery::Posted => &self.instruments.events_posted,
            EventDelivery::Failed => &self.instruments.events_failed,
            EventDelivery::Dropped => &self.instruments.events_dropped,
        };
        counter.inc();
    }

    /// All metrics as text. `counts` are the machine's at this moment; `None`, when the loop did not
    /// answer, leaves them out.
    pub fn text(&self, counts: Option<&MachineCounts>, format: Format) -> String {
        self.instruments.clusters.clear();
        let cluster_count = |state, clusters| {
            let gauge = self.instruments.clusters.get_or_create(&[("state", state)]);
            set(&gauge, usize::try_from(gauge.get()).unwrap_or_default() + clusters);
        };
        let ClusterStates { followed, joining, lost } = self.watches.cluster_states();
        for (state, clusters) in [("followed", followed), ("joining", joining), ("lost", lost)] {
            cluster_count(state, clusters);
        }
        match counts {
            Some(MachineCounts { phases, orphans, paused, members }) => {
                for member in members {
                    match member.state {
                        // Their watches tell.
                        MemberState::Joined | MemberState::Held => {}
                        state => cluster_count(state.as_str(), member.clusters),
                    }
                }
                for (phase, connectors) in phases {
                    let gauge = self.instruments.phases.get_or_create(&[("phase", phase.as_str())]);
                    set(&gauge, usize::try_from(*connectors).unwrap_or(usize::MAX));
                }
                self.instruments.paused.clear();
                for ((cluster, kind), objects) in paused {
                    let labels = [("cluster", cluster.to_string()), ("kind", kind.to_string())];
                    let gauge = self.instruments.paused.get_or_create(&labels);
                    set(&gauge, usize::try_from(*objects).unwrap_or(usize::MAX));
                }
                let kept = orphans.kept.iter().map(|(keep, routes)| (keep.as_str(), *routes));
                for (reason, routes) in kept.chain([("none", orphans.orphans)]) {
                    let gauge = self.instruments.orphans.get_or_create(&[("reason", reason)]);
                    set(&gauge, usize::try_from(routes).unwrap_or(usize::MAX));
                }
            }
            None => {
                self.instruments.phases.clear();
                self.instruments.paused.clear();
                self.instruments.orphans.clear();
            }
        }
        text::encode(&self.registry, format)
    }
}

fn set(gauge: &Gauge, value: usize) {
    gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
}
