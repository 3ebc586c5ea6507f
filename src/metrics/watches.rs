//! The watches, for metrics and readiness.

mod series;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Instant;

use crate::clock::millis;
use crate::core::contract::error_cause::RequestFailure;
use crate::core::data::ids::{ClusterName, Kind};
use crate::core::view::WatchState;

/// The metrics of one watch. Updating them costs an atomic operation or two.
#[derive(Debug)]
pub struct WatchMetrics {
    epoch: Instant,
    state: AtomicU8,
    /// The first list is complete or has failed: readiness no longer waits for this watch.
    was_tried: AtomicBool,
    was_listed: AtomicBool,
    /// Milliseconds since `epoch`; `NEVER` before the first response.
    last_activity_ms: AtomicU64,
    objects: AtomicU64,
    lists: AtomicU64,
    resumes: AtomicU64,
    events: AtomicU64,
    /// Why the watch was lost. Written rarely, and never while an event is handled.
    failure: Mutex<Option<RequestFailure>>,
}

const NEVER: u64 = u64::MAX;

/// With more clusters than this there are no series for each, unless the configuration says so.
const PER_CLUSTER_MAX: usize = 200;

impl WatchMetrics {
    fn new(epoch: Instant) -> Self {
        Self {
            epoch,
            state: AtomicU8::new(WatchState::Never as u8),
            was_tried: AtomicBool::new(false),
            was_listed: AtomicBool::new(false),
            last_activity_ms: AtomicU64::new(NEVER),
            objects: AtomicU64::new(0),
            lists: AtomicU64::new(0),
            resumes: AtomicU64::new(0),
            events: AtomicU64::new(0),
            failure: Mutex::default(),
        }
    }

    pub fn list_started(&self) {
        self.state.store(WatchState::Listing as u8, Relaxed);
        self.lists.fetch_add(1, Relaxed);
    }

    /// The list is complete, with so many objects, and the watch is live.
    pub fn list_finished(&self, objects: u64) {
        self.objects.store(objects, Relaxed);
        self.was_listed.store(true, Relaxed);
        self.was_tried.store(true, Relaxed);
        self.became_live();
    }

    /// The watch continues where it was lost.
    pub fn resumed(&self) {
        self.resumes.fetch_add(1, Relaxed);
        self.became_live();
    }

    fn became_live(&self) {
        self.state.store(WatchState::Live as u8, Relaxed);
        self.bookmark_received();
    }

    /// The watch was lost, or could not be started.
    pub fn lost(&self, failure: &RequestFailure) {
        *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(failure.clone());
        self.state.store(WatchState::Lost as u8, Relaxed);
        self.was_tried.store(true, Relaxed);
    }

    /// The watch brought a change.
    pub fn event_received(&self) {
        self.bookmark_received();
        self.events.fetch_add(1, Relaxed);
    }

    /// The API server showed that the watch is alive.
    pub fn bookmark_received(&self) {
        self.last_activity_ms.store(millis(self.epoch.elapsed()), Relaxed);
    }

    fn state(&self) -> WatchState {
        let state = self.state.load(Relaxed);
        let states = [WatchState::Listing, WatchState::Live, WatchState::Lost];
        states.into_iter().find(|s| *s as u8 == state).unwrap_or(WatchState::Never)
    }

    fn age_seconds(&self) -> Option<f64> {
        let at_ms = self.last_activity_ms.load(Relaxed);
        (at_ms != NEVER).then_some(())?;
        Some((self.epoch.elapsed().as_secs_f64() - at_ms as f64 / 1000.0).max(0.0))
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
    epoch: Instant,
    table: RwLock<BTreeMap<(ClusterName, Kind), Arc<WatchMetrics>>>,
    /// Clusters for which readiness does not wait.
    discovered: RwLock<BTreeSet<ClusterName>>,
    detail: Arc<Detail>,
    was_ready: AtomicBool,
}

/// How many of the watched clusters are followed, and how many are not, and why.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ClusterStates {
    pub(super) followed: usize,
    pub(super) joining: usize,
    pub(super) lost: usize,
}

type Rows = Vec<((ClusterName, Kind), Arc<WatchMetrics>)>;

impl WatchTable {
    pub(super) fn new(detail: Arc<Detail>) -> Self {
        Self {
            epoch: Instant::now(),
            table: RwLock::default(),
            discovered: RwLock::default(),
            detail,
            was_ready: AtomicBool::new(false),
        }
    }

    pub(super) fn set_discovered(&self, cluster: &ClusterName) {
        let mut discovered = self.discovered.write().unwrap_or_else(PoisonError::into_inner);
        discovered.insert(cluster.clone());
    }

    pub(super) fn cluster_states(&self) -> ClusterStates {
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        let mut clusters: BTreeMap<&ClusterName, (bool, bool)> = BTreeMap::new();
        for ((cluster, _), watch) in &*table {
            let (is_listed, is_lost) = clusters.entry(cluster).or_insert((true, false));
            *is_listed &= watch.was_listed.load(Relaxed);
            *is_lost |= watch.state() == WatchState::Lost;
        }
        let mut states = ClusterStates::default();
        for state in clusters.into_values() {
            let count = match state {
                (_, true) => &mut states.lost,
                (true, false) => &mut states.followed,
                (false, false) => &mut states.joining,
            };
            *count += 1;
        }
        states
    }

    pub(super) fn watch(&self, cluster: &ClusterName, kind: Kind) -> Arc<WatchMetrics> {
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        let new = || Arc::new(WatchMetrics::new(self.epoch));
        Arc::clone(table.entry((cluster.clone(), kind)).or_insert_with(new))
    }

    pub(super) fn remove_cluster(&self, cluster: &ClusterName) {
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        for kind in Kind::ALL {
            table.remove(&(cluster.clone(), kind));
        }
        self.discovered.write().unwrap_or_else(PoisonError::into_inner).remove(cluster);
    }

    /// The clusters whose Connectors are not followed at present, although they were tried.
    pub(super) fn lost_clusters(&self) -> BTreeSet<ClusterName> {
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        let lost = table.iter().filter(|((_, kind), watch)| {
            *kind == Kind::Connector && watch.state() == WatchState::Lost
        });
        lost.map(|((cluster, _), _)| cluster.clone()).collect()
    }

    /// The clusters of the run, whether they are seen or not.
    pub(super) fn clusters(&self) -> BTreeSet<ClusterName> {
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        table.keys().map(|(cluster, _)| cluster.clone()).collect()
    }

    /// Whether a cluster's Connectors are followed at present.
    pub(super) fn is_followed(&self, cluster: &ClusterName) -> bool {
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        let watch = table.get(&(cluster.clone(), Kind::Connector));
        watch.is_some_and(|watch| watch.state() == WatchState::Live)
    }

    fn rows(&self) -> Rows {
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        table.iter().map(|(key, watch)| (key.clone(), Arc::clone(watch))).collect()
    }

    /// Ready once every watch of the configured clusters has been tried and at least one cluster is
    /// fully listed: a broken cluster must not hold up the others, nor may thousands that are
    /// discovered, and an instance that sees no cluster is of no use.
    pub(super) fn readiness(&self) -> Readiness {
        let rows = self.rows();
        let mut fully_listed: BTreeMap<&ClusterName, bool> = BTreeMap::new();
        for ((cluster, _), watch) in &rows {
            *fully_listed.entry(cluster).or_insert(true) &= watch.was_listed.load(Relaxed);
        }
        let discovered = self.discovered.read().unwrap_or_else(PoisonError::into_inner);
        let is_tried = |((cluster, _), watch): &((ClusterName, _), Arc<WatchMetrics>)| {
            watch.was_tried.load(Relaxed) || discovered.contains(cluster)
        };
        let all_tried = rows.iter().all(is_tried);
        drop(discovered);
        if all_tried && fully_listed.values().any(|listed| *listed) {
            self.was_ready.store(true, Relaxed);
        }
        let status = |((cluster, kind), watch): &((ClusterName, Kind), Arc<WatchMetrics>)| {
            let state = watch.state();
            let failure = || watch.failure.lock().unwrap_or_else(PoisonError::into_inner).clone();
            WatchStatus {
                cluster: cluster.clone(),
                kind: *kind,
                state,
                was_listed: watch.was_listed.load(Relaxed),
                received_ago_ms: watch.age_seconds().map(|age| (age * 1_000.0) as u64),
                failure: (state == WatchState::Lost).then(failure).flatten(),
            }
        };
        Readiness {
            ready: self.was_ready.load(Relaxed),
            watches: rows.iter().map(status).collect(),
        }
    }
}

/// Whether metrics have series for each cluster.
#[derive(Debug, Default)]
pub(super) struct Detail {
    clusters: AtomicUsize,
}

impl Detail {
    pub(super) fn set_clusters(&self, clusters: usize) {
        self.clusters.store(clusters, Relaxed);
    }

    pub(super) fn is_per_cluster(&self) -> bool {
        self.clusters.load(Relaxed) <= PER_CLUSTER_MAX
    }
}
