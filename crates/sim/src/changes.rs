//! Recent changes, so that watches can resume: a limited history for each cluster and kind.
//! Clusters that are not served keep none.

use std::collections::VecDeque;
use std::sync::Arc;

use super::signal;

use super::{SimCluster, SimClusters};
use throughline_core::data::ids::{ClusterName, Kind};
use throughline_core::data::objects::Object;
use throughline_core::data::per_kind::PerKind;

/// How an object changed, as in a watch event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeKind {
    Added,
    Modified,
    Deleted,
}

/// One change of one object.
#[derive(Clone, Debug)]
pub struct Change<T = Arc<Object>> {
    /// The resourceVersion that the change created.
    pub version: u64,
    pub kind: ChangeKind,
    /// The object after the change; if deleted, its last state with the deletion's resourceVersion.
    pub object: T,
    /// The object before the change.
    pub previous: Option<T>,
}

impl<T> Change<T> {
    /// Converts the objects of the change.
    pub(crate) fn map<U>(self, form: impl Fn(T) -> U) -> Change<U> {
        let Change { version, kind, object, previous } = self;
        Change { version, kind, object: form(object), previous: previous.map(form) }
    }
}

/// The history does not go back that far.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("changes are known from resourceVersion {oldest} on")]
pub struct TooOld {
    /// The oldest resourceVersion from which a watch can start.
    pub oldest: u64,
}

/// The most recent changes, oldest first.
#[derive(Clone, Debug)]
pub(crate) struct ChangeHistory<T> {
    changes: VecDeque<Change<T>>,
    /// Changes up to this version may have been dropped.
    dropped_until: u64,
    limit: usize,
}

impl<T: Clone> ChangeHistory<T> {
    pub(crate) fn new(limit: usize, version: u64) -> Self {
        Self { changes: VecDeque::new(), dropped_until: version, limit }
    }

    pub(crate) fn record(&mut self, change: Change<T>) {
        self.changes.push_back(change);
        while self.changes.len() > self.limit {
            self.dropped_until = self.changes.pop_front().map_or(self.dropped_until, |c| c.version);
        }
    }

    pub(crate) fn since(&self, version: u64) -> Result<Vec<Change<T>>, TooOld> {
        if version < self.dropped_until {
            return Err(TooOld { oldest: self.dropped_until });
        }
        let start = self.changes.partition_point(|c| c.version <= version);
        Ok(self.changes.range(start..).cloned().collect())
    }

    pub(crate) fn clear(&mut self, version: u64) {
        self.changes.clear();
        self.dropped_until = version;
    }
}

/// The history of one cluster.
pub(super) struct ClusterHistory {
    by_kind: PerKind<ChangeHistory<Arc<Object>>>,
    /// Wakes the watches after a change.
    changed: signal::Sender<()>,
}

impl SimCluster {
    /// The version of the next change. The first change after a restore gets a version after all
    /// that the restore undid, as with bumped revisions (`etcdutl snapshot restore
    /// --bump-revision`). If versions were used twice, no client could distinguish them.
    pub(super) fn next_version(&mut self) -> u64 {
        if let Some(undone) = self.undone_until.take() {
            self.version.set(undone.max(self.version.get()));
            if let Some(history) = &mut self.history {
                history.by_kind.values_mut().for_each(|changes| changes.clear(undone + 1));
            }
        }
        self.version.next()
    }

    /// Records the change that created the current version.
    pub(super) fn record(
        &mut self,
        kind: ChangeKind,
        object: &Arc<Object>,
        previous: Option<Arc<Object>>,
    ) {
        let Some(history) = &mut self.history else { return };
        let version = self.version.get();
        let change = Change { version, kind, object: object.clone(), previous };
        history.by_kind[object.kind()].record(change);
        history.changed.set(());
    }

    pub(super) fn keep_history(&mut self, changes_per_kind: usize) {
        // A watch from version 0 may start anywhere, so no cluster may have version 0.
        if self.version.get() == 0 {
            self.version.next();
        }
        let version = self.version.get();
        self.history = Some(Box::new(ClusterHistory {
            by_kind: PerKind::from_fn(|_| ChangeHistory::new(changes_per_kind, version)),
            changed: signal::Sender::new(()),
        }));
    }
}

impl SimClusters {
    /// From now on, records changes (at most `changes_per_kind` for each cluster and kind) instead
    /// of returning them from [`SimClusters::poll_event`]. An existing history is kept.
    pub fn keep_history(&mut self, changes_per_kind: usize) {
        self.history_changes = Some(changes_per_kind);
        for cluster in self.clusters.values_mut().filter(|c| c.history.is_none()) {
            cluster.keep_history(changes_per_kind);
        }
    }

    /// The cluster's resourceVersion; 0 if there is no such cluster.
    pub fn version(&self, cluster: &ClusterName) -> u64 {
        self.clusters.get(cluster).map_or(0, |c| c.version.get())
    }

    /// Increments the resourceVersion for an object that is stored elsewhere (a Lease or an Event).
    pub(crate) fn next_version(&mut self, cluster: &ClusterName) -> u64 {
        let Some(cluster) = self.clusters.get_mut(cluster) else { return 0 };
        let version = cluster.next_version();
        if let Some(history) = &cluster.history {
            history.changed.set(());
        }
        version
    }

    /// The changes of a kind after `version`, in order; none without a history.
    ///
    /// # Errors
    /// The history does not go back to `version`.
    pub fn changes_since(
        &self,
        cluster: &ClusterName,
        kind: Kind,
        version: u64,
    ) -> Result<Vec<Change>, TooOld> {
        let history = self.clusters.get(cluster).and_then(|c| c.history.as_ref());
        history.map_or(Ok(Vec::new()), |h| h.by_kind[kind].since(version))
    }

    /// Drops a cluster's history until now, as an etcd compaction does.
    pub fn clear_history(&mut self, cluster: &ClusterName) {
        let Some(cluster) = self.clusters.get_mut(cluster) else { return };
        let version = cluster.version.get();
        if let Some(history) = &mut cluster.history {
            history.by_kind.values_mut().for_each(|changes| changes.clear(version));
        }
    }

    /// Wakes watches without a change, because what they show is different now.
    pub(crate) fn wake_watches(&self, cluster: &ClusterName) {
        if let Some(history) = self.clusters.get(cluster).and_then(|c| c.history.as_ref()) {
            history.changed.set(());
        }
    }

    /// Follows the changes of a cluster; `None` without a history.
    pub fn subscribe(&self, cluster: &ClusterName) -> Option<signal::Receiver<()>> {
        Some(self.clusters.get(cluster)?.history.as_ref()?.changed.subscribe())
    }
}
