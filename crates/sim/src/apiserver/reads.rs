//! How an API server's reads may differ from etcd: its watch cache lags, it answers lists from that
//! cache, it sends no bookmarks, or the pages of a list expire early. Writes and reads of single
//! objects always use the newest state.

use std::collections::BTreeMap;
use std::time::Duration;

use super::handle::SimApiServerHandle;
use super::request::Resource;
use super::store::{LockedCluster, ServedObject, ServerBackup};

/// The current faults of reads.
#[derive(Clone, Debug, Default)]
pub(super) struct Reads {
    /// The resourceVersion that the watch cache has reached; `None` if it follows etcd.
    cached: Option<u64>,
    /// Lists are answered from the watch cache, too. API servers since 1.31 wait for the cache
    /// instead.
    are_lists_cached: bool,
    pub(super) has_no_bookmarks: bool,
    pub(super) do_pages_expire: bool,
}

impl Reads {
    pub(super) fn catch_up(&mut self) {
        self.cached = None;
        self.are_lists_cached = false;
    }
}

impl LockedCluster<'_> {
    /// The resourceVersion up to which watches show changes.
    pub(super) fn cached_version(&self) -> u64 {
        self.state.reads.cached.map_or(self.version(), |cached| cached.min(self.version()))
    }

    /// The resourceVersion of a new list.
    pub(super) fn listed_version(&self) -> u64 {
        if self.state.reads.are_lists_cached { self.cached_version() } else { self.version() }
    }

    /// All objects of a resource at `version`, in the order of their etcd keys. `None` if the
    /// history does not go back that far.
    pub(super) fn all_at(
        &self,
        version: u64,
        resource: Resource,
        namespace: Option<&str>,
    ) -> Option<Vec<ServedObject>> {
        let all = self.all(resource, namespace);
        if version >= self.version() {
            return Some(all);
        }
        let mut then: BTreeMap<_, _> =
            all.into_iter().map(|object| (object.key().to_string(), object)).collect();
        for change in self.changes(resource, version).ok()?.into_iter().rev() {
            let key = change.object.key();
            if namespace.is_some_and(|namespace| key.namespace != namespace) {
                continue;
            }
            match change.previous {
                Some(previous) => then.insert(key.to_string(), previous),
                None => then.remove(&key.to_string()),
            };
        }
        Some(then.into_values().collect())
    }
}

impl SimApiServerHandle {
    /// The cluster's resourceVersion.
    pub fn version(&self) -> u64 {
        self.server.lock().version()
    }

    /// From now on, the watch cache stays at `version`: watches show nothing newer. With `lists`,
    /// neither do lists.
    pub fn lag_reads(&self, version: u64, lists: bool) {
        let mut cluster = self.server.lock();
        cluster.state.reads.cached = Some(version);
        cluster.state.reads.are_lists_cached = lists;
    }

    /// The watch cache follows etcd again.
    pub fn catch_up(&self) {
        let mut cluster = self.server.lock();
        cluster.state.reads.catch_up();
        cluster.sim.wake_watches(&self.server.cluster);
    }

    /// Whether watches get the bookmarks that they requested.
    pub fn set_bookmarks(&self, sends: bool) {
        self.server.lock().state.reads.has_no_bookmarks = !sends;
    }

    /// Whether all pages of a list after the first get a 410, as after a compaction.
    pub fn set_pages_expire(&self, expire: bool) {
        self.server.lock().state.reads.do_pages_expire = expire;
    }

    /// Repeats each of the next `times` writes after this time, like a proxy that repeats a request
    /// after a time-out. No client gets the second response.
    pub fn repeat_writes(&self, times: usize, after: Duration) {
        let mut cluster = self.server.lock();
        cluster.state.repeats.extend(std::iter::repeat_n(after, times));
    }

    /// All objects of the cluster, including Leases and Events.
    pub fn backup(&self) -> Option<ServerBackup> {
        self.server.lock().backup()
    }

    /// Restores the cluster from a backup, like an etcd restore: the server restarts.
    pub fn restore(&self, backup: &ServerBackup) {
        self.server.lock().restore(backup);
        self.cut_watches(None);
    }

    /// The etcd lost all data: the cluster is like a new one.
    pub fn lose_everything(&self) {
        self.restore(&ServerBackup::default());
    }
}
