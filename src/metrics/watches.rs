//! The watches, for metrics and readiness.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::MetricType::Gauge;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;

use super::Metrics;
use super::counts::{Counters, add};
use super::text::encode_family;
use crate::clock::millis;
use crate::core::contract::error_cause::RequestFailure;
use crate::core::data::ids::{ClusterName, Kind};
use crate::core::view::WatchState;

/// The metrics of one watch. Updating them costs a lock that hardly anybody else takes.
#[derive(Debug)]
pub struct WatchMetrics {
    watch: Mutex<Watch>,
    counts: KindCounts,
}

#[derive(Debug)]
struct Watch {
    state: WatchState,
    /// The first list is complete or has failed: readiness no longer waits for this watch.
    was_tried: bool,
    was_listed: bool,
    received_at: Option<Instant>,
    /// Why it was lost.
    failure: Option<RequestFailure>,
}

/// Counts of all watches of one kind. They outlive each watch, because a counter never falls.
#[derive(Debug)]
struct KindCounts {
    relists: Counter,
    resumes: Counter,
    events: Counter,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl WatchMetrics {
    fn new(counts: KindCounts) -> Self {
        let watch = Watch {
            state: WatchState::Never,
            was_tried: false,
            was_listed: false,
            received_at: None,
            failure: None,
        };
        Self { watch: Mutex::new(watch), counts }
    }

    pub fn list_started(&self) {
        let before = std::mem::replace(&mut lock(&self.watch).state, WatchState::Listing);
        if before != WatchState::Never {
            self.counts.relists.inc();
        }
    }

    /// The list is complete, and the watch is live.
    pub fn list_finished(&self) {
        let mut watch = lock(&self.watch);
        watch.was_listed = true;
        watch.was_tried = true;
        watch.state = WatchState::Live;
        watch.received_at = Some(Instant::now());
    }

    /// The watch continues where it was lost.
    pub fn resumed(&self) {
        self.counts.resumes.inc();
        let mut watch = lock(&self.watch);
        watch.state = WatchState::Live;
        watch.received_at = Some(Instant::now());
    }

    /// The watch was lost, or could not be started.
    pub fn lost(&self, failure: &RequestFailure) {
        let mut watch = lock(&self.watch);
        watch.failure = Some(failure.clone());
        watch.state = WatchState::Lost;
        watch.was_tried = true;
    }

    /// The watch brought a change.
    pub fn event_received(&self) {
        self.counts.events.inc();
        self.bookmark_received();
    }

    /// The API server showed that the watch is alive.
    pub fn bookmark_received(&self) {
        lock(&self.watch).received_at = Some(Instant::now());
    }
}

/// Whether the process is ready, and the state of each watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Readiness {
    /// It is ready now, or was ready once.
    pub ready: bool,
    /// By cluster and kind.
    pub watches: Vec<WatchStatus>,
}

/// One watch, as the probes show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchStatus {
    pub cluster: ClusterName,
    pub kind: Kind,
    pub state: WatchState,
    /// At least one list was complete.
    pub was_listed: bool,
    /// How long ago it last brought anything, bookmarks included.
    pub received_ago_ms: Option<u64>,
    /// Why it is lost, while it is. The text may hold addresses.
    pub failure: Option<RequestFailure>,
}

#[derive(Debug)]
pub(super) struct WatchTable {
    table: Mutex<Table>,
    restarts: Counters<2>,
    events: Counters<1>,
}

#[derive(Debug, Default)]
struct Table {
    watches: BTreeMap<(ClusterName, Kind), Arc<WatchMetrics>>,
    /// Clusters for which readiness does not wait.
    discovered: BTreeSet<ClusterName>,
    was_ready: bool,
}

/// How many of a cluster's watches are in each state.
#[derive(Clone, Copy, Debug, Default)]
struct ClusterWatches {
    all: usize,
    listed: usize,
    live: usize,
    lost: usize,
}

impl Table {
    fn by_cluster(&self) -> BTreeMap<&ClusterName, ClusterWatches> {
        let mut clusters: BTreeMap<_, ClusterWatches> = BTreeMap::new();
        for ((cluster, _), watch) in &self.watches {
            let (watch, counts) = (lock(&watch.watch), clusters.entry(cluster).or_default());
            counts.all += 1;
            counts.listed += usize::from(watch.was_listed);
            counts.live += usize::from(watch.state == WatchState::Live);
            counts.lost += usize::from(watch.state == WatchState::Lost);
        }
        clusters
    }

    fn statuses(&self) -> Vec<WatchStatus> {
        let status = |((cluster, kind), watch): (&(ClusterName, Kind), &Arc<WatchMetrics>)| {
            let watch = lock(&watch.watch);
            let is_lost = watch.state == WatchState::Lost;
            WatchStatus {
                cluster: cluster.clone(),
                kind: *kind,
                state: watch.state,
                was_listed: watch.was_listed,
                received_ago_ms: watch.received_at.map(|at| millis(at.elapsed())),
                failure: watch.failure.clone().filter(|_| is_lost),
            }
        };
        self.watches.iter().map(status).collect()
    }
}

impl WatchTable {
    pub(super) fn new(r: &mut Registry) -> Self {
        let help = "Watches that were restarted, by a list or where they were lost";
        let restarts = add(r, "throughline_watch_restarts", help, Counters::default());
        let help = "Changes that watches brought, without lists and bookmarks";
        let events = add(r, "throughline_watch_events", help, Counters::default());
        let table = Self { table: Mutex::default(), restarts, events };
        // Creates their series at zero.
        Kind::ALL.into_iter().for_each(|kind| drop(table.counts(kind)));
        table
    }

    fn counts(&self, kind: Kind) -> KindCounts {
        let kind = ("kind", kind.as_str());
        let restarts = |by| self.restarts.get_or_create(&[kind, ("by", by)]).clone();
        KindCounts {
            relists: restarts("list"),
            resumes: restarts("resume"),
            events: self.events.get_or_create(&[kind]).clone(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        lock(&self.table)
    }

    /// The clusters whose watches are all live.
    pub(super) fn live_clusters(&self) -> Vec<ClusterName> {
        let table = self.lock();
        let live =
            table.by_cluster().into_iter().filter(|(_, watches)| watches.live == watches.all);
        live.map(|(cluster, _)| cluster.clone()).collect()
    }

    /// How many clusters are followed, and how many are not, and why.
    pub(super) fn clusters_by_state(&self) -> [(&'static str, usize); 3] {
        let (table, mut joining, mut lost) = (self.lock(), 0, 0);
        let clusters = table.by_cluster();
        for watches in clusters.values() {
            match watches {
                ClusterWatches { lost: 1.., .. } => lost += 1,
                watches if watches.listed < watches.all => joining += 1,
                _ => {}
            }
        }
        [("followed", clusters.len() - joining - lost), ("joining", joining), ("lost", lost)]
    }

    pub(super) fn remove_cluster(&self, cluster: &ClusterName) {
        let mut table = self.lock();
        for kind in Kind::ALL {
            table.watches.remove(&(cluster.clone(), kind));
        }
        table.discovered.remove(cluster);
    }
}

impl Metrics {
    /// The metrics of one watch; created at the first call.
    pub fn watch(&self, cluster: &ClusterName, kind: Kind) -> Arc<WatchMetrics> {
        let new = || Arc::new(WatchMetrics::new(self.watches.counts(kind)));
        self.watches.lock().watches.entry((cluster.clone(), kind)).or_insert_with(new).clone()
    }

    /// Readiness does not wait for this cluster, because it was discovered.
    pub fn set_discovered(&self, cluster: &ClusterName) {
        self.watches.lock().discovered.insert(cluster.clone());
    }

    /// The clusters whose Connectors are not followed at present, although they were tried.
    pub fn lost_clusters(&self) -> BTreeSet<ClusterName> {
        let statuses = self.watches.lock().statuses().into_iter();
        let is_lost =
            |watch: &WatchStatus| watch.kind == Kind::Connector && watch.state == WatchState::Lost;
        statuses.filter(is_lost).map(|watch| watch.cluster).collect()
    }

    /// The clusters of the run, whether they are seen or not.
    pub fn clusters(&self) -> BTreeSet<ClusterName> {
        self.watches.lock().watches.keys().map(|(cluster, _)| cluster.clone()).collect()
    }

    /// Whether a cluster's Connectors are followed at present.
    pub fn is_followed(&self, cluster: &ClusterName) -> bool {
        let table = self.watches.lock();
        let watch = table.watches.get(&(cluster.clone(), Kind::Connector));
        watch.is_some_and(|watch| lock(&watch.watch).state == WatchState::Live)
    }

    /// Ready once every watch of the configured clusters has been tried and at least one cluster is
    /// fully listed: a broken cluster must not hold up the others, nor may thousands that are
    /// discovered, and an instance that sees no cluster is of no use. Once ready, it stays so.
    pub fn readiness(&self) -> Readiness {
        let mut table = self.watches.lock();
        let is_tried = |((cluster, _), watch): (&(ClusterName, Kind), &Arc<WatchMetrics>)| {
            lock(&watch.watch).was_tried || table.discovered.contains(cluster)
        };
        let all_tried = table.watches.iter().all(is_tried);
        let any_listed = table.by_cluster().values().any(|watches| watches.listed == watches.all);
        table.was_ready |= all_tried && any_listed;
        Readiness { ready: table.was_ready, watches: table.statuses() }
    }
}

impl Collector for WatchTable {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let statuses = self.lock().statuses();
        let mut kinds: BTreeMap<Kind, Vec<&WatchStatus>> = BTreeMap::new();
        for status in &statuses {
            kinds.entry(status.kind).or_default().push(status);
        }
        let label = |kind: &Kind| ("kind", kind.to_string());
        let states = [
            (WatchState::Never, "never"),
            (WatchState::Listing, "listing"),
            (WatchState::Live, "live"),
            (WatchState::Lost, "lost"),
        ];
        let counts = kinds.iter().flat_map(|(kind, watches)| {
            states.map(|(state, name)| {
                let count = watches.iter().filter(|watch| watch.state == state).count();
                (vec![label(kind), ("state", name.to_owned())], count as f64)
            })
        });
        let help = "Watches, by kind and state.";
        encode_family(&mut encoder, Gauge, ("throughline_watches", help), counts)?;
        let silence = kinds.iter().filter_map(|(kind, watches)| {
            let longest_ms = watches.iter().filter_map(|watch| watch.received_ago_ms).max()?;
            Some((vec![label(kind)], longest_ms as f64 / 1_000.0))
        });
        let help = "The longest time since a watch brought anything, bookmarks included.";
        let name = "throughline_watch_silence_seconds";
        encode_family(&mut encoder, Gauge, (name, help), silence)
    }
}
