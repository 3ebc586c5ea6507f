//! Clusters in memory that behave like API servers as far as throughline needs it: one increasing
//! resourceVersion per cluster, merge patches without effect if nothing differs, preconditions, the
//! annotation limit, watch events in order. A simulated carrier copies annotations from the hub to
//! the edges.
//!
//! Changes are returned as [`Event`]s, like those from watches of real clusters, or served over
//! HTTP: [`apiserver`] serves a cluster as a kube-apiserver does. The demo, what-if replays and the
//! tests use both.
//!
#![doc = include_str!("../README.md")]

pub mod apiserver;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use throughline_core::contract::event::{ClusterSpec, Event, EventKind};
use throughline_core::data::ids::{ClusterName, Kind, NamespacedName, Role};
use throughline_core::data::objects::Object;
use throughline_core::data::per_kind::PerKind;
use throughline_core::data::time::UnixMillis;

mod carrier;
mod changes;
mod restore;
pub mod signal;
mod writes;

pub use carrier::CarrierRate;
use carrier::{HubQueue, PendingCarry};
pub(crate) use changes::ChangeHistory;
pub use changes::{Change, ChangeKind, TooOld};
pub use restore::Backup;

/// The API server's limit for all annotations of one object, keys and values together.
pub const ANNOTATION_LIMIT_BYTES: usize = 256 * 1024;

#[derive(Default)]
struct SimCluster {
    version: VersionCounter,
    objects: PerKind<BTreeMap<NamespacedName, Arc<Object>>>,
    /// Kinds whose watch is lost: their changes produce no events.
    lost_watches: BTreeSet<Kind>,
    reachable: bool,
    history: Option<Box<changes::ClusterHistory>>,
    /// The latest version before a restore, until the next change.
    undone_until: Option<u64>,
}

/// The resourceVersion of a cluster, or of several that share one etcd.
#[derive(Clone, Default)]
struct VersionCounter(Arc<AtomicU64>);

impl VersionCounter {
    fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }

    fn next(&self) -> u64 {
        self.0.fetch_add(1, Relaxed) + 1
    }

    fn set(&self, version: u64) {
        self.0.store(version, Relaxed);
    }
}

/// Several clusters and the carrier between them. The default has none.
#[derive(Default)]
pub struct SimClusters {
    now: UnixMillis,
    clusters: BTreeMap<ClusterName, SimCluster>,
    /// The clusters of each role. Searching thousands of projects for each write would take longer
    /// than the write.
    by_role: BTreeMap<Role, BTreeSet<ClusterName>>,
    pending_carries: BTreeMap<(ClusterName, NamespacedName), PendingCarry>,
    /// The pending carries that are not stuck, by due time.
    carry_queue: BTreeSet<(UnixMillis, ClusterName, NamespacedName)>,
    carrier_delay_ms: u64,
    /// Set if the carrier has a rate.
    hub_queue: Option<HubQueue>,
    /// Whether writes update `managedFields`.
    has_managed_fields: bool,
    events: VecDeque<Event>,
    /// The length of histories; `None` if changes are events instead.
    history_changes: Option<usize>,
    /// The number of assigned uids.
    uids: u64,
}

impl SimClusters {
    /// Empty clusters. `carrier_delay_ms` is the time that a change takes from the hub to the
    /// edges.
    pub fn new(clusters: &[ClusterSpec], carrier_delay_ms: u64) -> Self {
        let mut sim = Self { carrier_delay_ms, ..Self::default() };
        clusters.iter().for_each(|cluster| sim.add_cluster(cluster, None));
        sim
    }

    /// Adds an empty cluster, replacing one of that name. With `shares_etcd`, its resourceVersion
    /// is that of the other cluster, as for all projects of one Milo.
    pub fn add_cluster(&mut self, spec: &ClusterSpec, shares_etcd: Option<&ClusterName>) {
        let shared = shares_etcd.and_then(|other| self.clusters.get(other));
        let version = shared.map(|other| other.version.clone()).unwrap_or_default();
        self.remove_cluster(&spec.name);
        for role in &spec.roles {
            self.by_role.entry(*role).or_default().insert(spec.name.clone());
        }
        let mut cluster = SimCluster { reachable: true, version, ..SimCluster::default() };
        if let Some(changes) = self.history_changes {
            cluster.keep_history(changes);
        }
        self.clusters.insert(spec.name.clone(), cluster);
    }

    /// Removes a cluster with its objects. No watch shows this.
    pub fn remove_cluster(&mut self, name: &ClusterName) {
        self.clusters.remove(name);
        for names in self.by_role.values_mut() {
            names.remove(name);
        }
        self.forget_carries(name);
    }

    /// Maintains `managedFields` from now on, as API servers do. Recordings omit them.
    pub fn keep_managed_fields(&mut self) {
        self.has_managed_fields = true;
    }

    /// The simulated time.
    pub fn now(&self) -> UnixMillis {
        self.now
    }

    /// The next event that a watch would deliver.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// The current state of an object.
    pub fn get(
        &self,
        cluster: &ClusterName,
        kind: Kind,
        key: &NamespacedName,
    ) -> Option<&Arc<Object>> {
        self.clusters.get(cluster)?.objects[kind].get(key)
    }

    /// All objects of a kind in a cluster, by namespace and name.
    pub fn objects(&self, cluster: &ClusterName, kind: Kind) -> impl Iterator<Item = &Arc<Object>> {
        self.clusters.get(cluster).into_iter().flat_map(move |c| c.objects[kind].values())
    }

    /// The clusters that have a role.
    pub fn with_role(&self, role: Role) -> impl Iterator<Item = &ClusterName> {
        self.by_role.get(&role).into_iter().flatten()
    }

    pub fn has_role(&self, cluster: &ClusterName, role: Role) -> bool {
        self.by_role.get(&role).is_some_and(|names| names.contains(cluster))
    }

    /// Makes a cluster unreachable, or reachable again: requests fail and the carrier waits. It does
    /// not affect watches; see [`SimClusters::lose_watch`] and [`SimClusters::list`].
    pub fn set_reachable(&mut self, cluster: &ClusterName, reachable: bool) {
        if let Some(cluster) = self.clusters.get_mut(cluster) {
            cluster.reachable = reachable;
        }
    }

    /// Loses a watch; its changes produce no events until the kind is listed again.
    pub fn lose_watch(&mut self, name: &ClusterName, kind: Kind, error: &str) {
        if let Some(cluster) = self.clusters.get_mut(name) {
            cluster.lost_watches.insert(kind);
            let error = error.into();
            self.emit(EventKind::WatchLost { cluster: name.clone(), kind, error });
        }
    }

    /// Lists a kind in full, and watches it from there.
    pub fn list(&mut self, name: &ClusterName, kind: Kind) {
        let Some(cluster) = self.clusters.get_mut(name) else { return };
        cluster.lost_watches.remove(&kind);
        let objects: Vec<_> = self.objects(name, kind).cloned().collect();
        self.emit(EventKind::ListStarted { cluster: name.clone(), kind });
        for object in objects {
            self.emit(EventKind::Listed { cluster: name.clone(), object });
        }
        self.emit(EventKind::ListFinished { cluster: name.clone(), kind });
    }

    fn emit(&mut self, kind: EventKind) {
        if self.history_changes.is_none() {
            self.events.push_back(Event { at: self.now, kind });
        }
    }
}

/// How watches report a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchNotice {
    /// As a change, unless the watch is lost.
    Applied,
    /// As part of a running list; the carrier ignores it.
    Listed,
}
