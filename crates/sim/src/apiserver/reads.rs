//! How an API server's reads can differ from what etcd holds: its watch cache lags, it answers lists from
//! that cache, it sends no bookmarks, or a list's pages expire at once. Writes and reads of single
//! objects always use the newest state.

use std::collections::BTreeMap;
use std::time::Duration;

use super::handle::SimApiServerHandle;
use super::request::Resource;
use super::store::{LockedCluster, ServedObject, ServerBackup};

/// What is wrong with the reads at present.
#[derive(Clone, Debug, Default)]
pub(super) struct Reads {
    /// The resourceVersion that the watch cache has reached; `None` if it follows etcd.
    cached: Option<u64>,
    /// Lists are answered from the watch cache, too. API servers from 1.31 on wait for it instead.
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

    /// All objects of a resource as they were at `version`, in the order of their etcd keys. `None` if
    /// the history does not go back so far.
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

    /// From now on the watch cache stands still at `version`: watches show nothing newer. With
    /// `lists`, lists don't either.
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

    /// Whether watches get the bookmarks that they asked for.
    pub fn set_bookmarks(&self, sends: bool) {
        self.server.lock().state.reads.has_no_bookmarks = !sends;
    }

    /// Whether all pages of a list but the first get a 410, as after a compaction in its middle.
    pub fn set_pages_expire(&self, expire: bool) {
        self.server.lock().state.reads.do_pages_expire = expire;
    }

    /// Carries each of the next `times` writes out once more, after this time, as a proxy does that
    /// repeats a request after a time-out. Nobody gets the second answer.
    pub fn repeat_writes(&self, times: usize, after: Duration) {
        let mut cluster = self.server.lock();
        cluster.state.repeats.extend(std::iter::repeat_n(after, times));
    }

    /// Everything that the cluster holds, Leases and Events included.
    pub fn backup(&self) -> Option<ServerBackup> {
        self.server.lock().backup()
    }

    /// Restores the cluster from a backup, as of an etcd: the server starts again.
    pub fn restore(&self, backup: &ServerBackup) {
        self.server.lock().restore(backup);
        self.cut_watches(None);
    }

    /// The etcd lost everything: the cluster is as new.
    pub fn lose_everything(&self) {
        self.restore(&ServerBackup::default());
    }
}
