//! How an API server's reads may differ from etcd: its watch cache lags, it answers lists from that
//! cache, it sends no bookmarks, or the pages of a list expire early. Writes and reads of single
//! objects always use the newest state.

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
    /// From now on, watches show nothing newer than `version`. With `lists`, neither do lists.
    pub(super) fn lag(&mut self, version: u64, lists: bool) {
        self.cached = Some(version);
        self.are_lists_cached = lists;
    }

    pub(super) fn catch_up(&mut self) {
        self.cached = None;
        self.are_lists_cached = false;
    }

    /// The resourceVersion up to which watches show changes.
    pub(super) fn cached_version(&self, newest: u64) -> u64 {
        self.cached.map_or(newest, |cached| cached.min(newest))
    }

    /// The resourceVersion of a new list.
    pub(super) fn listed_version(&self, newest: u64) -> u64 {
        if self.are_lists_cached { self.cached_version(newest) } else { newest }
    }
}
