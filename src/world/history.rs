//! What changed in the world, kept for watches that resume: a bounded history for each cluster and
//! kind, beside the objects. A world without one pays nothing for it.

use std::collections::VecDeque;
use std::sync::Arc;

use tokio::sync::watch;

use super::{Store, World};
use crate::core::ids::{ClusterName, Kind};
use crate::core::objects::Object;

/// What became of an object, as a watch names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Changed {
    /// It is new.
    Added,
    /// It changed.
    Modified,
    /// It is gone.
    Deleted,
}

/// One change of one object.
#[derive(Clone, Debug)]
pub struct Change<T = Arc<Object>> {
    /// The resourceVersion that the change made.
    pub version: u64,
    /// What became of the object.
    pub what: Changed,
    /// The object after it; of a deleted one its last state, with the deletion's resourceVersion.
    pub object: T,
}

/// The history does not reach back that far.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("changes are known from resourceVersion {oldest} on")]
pub struct TooOld {
    /// The oldest resourceVersion from which a watch can start.
    pub oldest: u64,
}

/// The last changes, oldest first.
#[derive(Clone, Debug)]
pub(crate) struct Ring<T> {
    changes: VecDeque<Change<T>>,
    /// Changes up to this version may be forgotten.
    forgotten: u64,
    limit: usize,
}

impl<T: Clone> Ring<T> {
    pub(crate) fn new(limit: usize, version: u64) -> Self {
        Self { changes: VecDeque::new(), forgotten: version, limit }
    }

    pub(crate) fn record(&mut self, change: Change<T>) {
        self.changes.push_back(change);
        while self.changes.len() > self.limit {
            self.forgotten = self.changes.pop_front().map_or(self.forgotten, |c| c.version);
        }
    }

    pub(crate) fn since(&self, version: u64) -> Result<Vec<Change<T>>, TooOld> {
        if version < self.forgotten {
            return Err(TooOld { oldest: self.forgotten });
        }
        let start = self.changes.partition_point(|c| c.version <= version);
        Ok(self.changes.range(start..).cloned().collect())
    }

    pub(crate) fn forget(&mut self, version: u64) {
        self.changes.clear();
        self.forgotten = version;
    }
}

/// The history of one cluster.
pub(super) struct History {
    kinds: [Ring<Arc<Object>>; 5],
    /// The cluster's resourceVersion, for those who wait for it to grow.
    version: watch::Sender<u64>,
}

impl Store {
    /// Takes down a change that made the present version.
    pub(super) fn record(&mut self, what: Changed, object: &Arc<Object>) {
        let Some(history) = &mut self.history else { return };
        let change = Change { version: self.version, what, object: object.clone() };
        history.kinds[object.kind().index()].record(change);
        history.version.send_replace(self.version);
    }
}

impl World {
    /// From now on every change goes into a history of at most `changes_per_kind` for each cluster
    /// and kind, and [`World::poll_event`] has nothing more to give: watches read the history.
    /// Where one is kept already, it stays as it is.
    pub fn keep_history(&mut self, changes_per_kind: usize) {
        self.silent = true;
        for store in self.clusters.values_mut().filter(|s| s.history.is_none()) {
            // To a watch, version 0 means "from whatever there is".
            store.version = store.version.max(1);
            store.history = Some(Box::new(History {
                kinds: std::array::from_fn(|_| Ring::new(changes_per_kind, store.version)),
                version: watch::Sender::new(store.version),
            }));
        }
    }

    /// The cluster's resourceVersion; 0 when there is no such cluster.
    pub fn version(&self, cluster: &ClusterName) -> u64 {
        self.clusters.get(cluster).map_or(0, |s| s.version)
    }

    /// Makes a new resourceVersion for a change of something that is not kept here.
    pub(crate) fn next_version(&mut self, cluster: &ClusterName) -> u64 {
        let Some(store) = self.clusters.get_mut(cluster) else { return 0 };
        store.version += 1;
        if let Some(history) = &store.history {
            history.version.send_replace(store.version);
        }
        store.version
    }

    /// The changes of a kind after `version`, in order; none without a history.
    ///
    /// # Errors
    /// The history does not reach back to `version`.
    pub fn changes_since(
        &self,
        cluster: &ClusterName,
        kind: Kind,
        version: u64,
    ) -> Result<Vec<Change>, TooOld> {
        let history = self.clusters.get(cluster).and_then(|s| s.history.as_ref());
        history.map_or(Ok(Vec::new()), |h| h.kinds[kind.index()].since(version))
    }

    /// Forgets a cluster's history up to now, as a compaction of etcd does.
    pub fn forget_history(&mut self, cluster: &ClusterName) {
        let Some(store) = self.clusters.get_mut(cluster) else { return };
        if let Some(history) = &mut store.history {
            history.kinds.iter_mut().for_each(|ring| ring.forget(store.version));
        }
    }

    /// Tells of every new resourceVersion of a cluster; `None` without a history.
    pub fn subscribe(&self, cluster: &ClusterName) -> Option<watch::Receiver<u64>> {
        Some(self.clusters.get(cluster)?.history.as_ref()?.version.subscribe())
    }
}
