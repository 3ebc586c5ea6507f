//! What all watches of a run share, and what they send.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use tokio::sync::{mpsc, watch};

use super::log::WatchLog;
use super::pace::Pace;
use crate::config::WatchConfig;
use crate::core::contract::event::EventKind;

/// One stay of a cluster in the fleet. No two have the same number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MembershipId(pub u64);

/// An event of a watch.
#[derive(Debug)]
pub struct WatchMessage {
    /// The stay of the cluster that the watch belongs to.
    pub membership: MembershipId,
    pub kind: EventKind,
}

/// What all watches of a run share.
#[derive(Debug)]
pub struct WatchShared {
    pub(super) config: WatchConfig,
    pub(super) bus: mpsc::Sender<WatchMessage>,
    pub(super) pace: Pace,
    pub(super) log: Arc<WatchLog>,
    clusters: AtomicUsize,
    /// Changes when more of the hubs' objects is kept than before.
    hub_lists: watch::Sender<()>,
}

impl WatchShared {
    /// Events go to `bus`; the watches wait while it is full. Each API server gets at most
    /// `lists_in_parallel` first lists at a time.
    pub fn new(
        config: WatchConfig,
        bus: mpsc::Sender<WatchMessage>,
        lists_in_parallel: usize,
    ) -> Self {
        let (pace, log) = (Pace::new(lists_in_parallel), Arc::new(WatchLog::new()));
        let (clusters, hub_lists) = (AtomicUsize::new(0), watch::Sender::new(()));
        Self { config, bus, pace, log, clusters, hub_lists }
    }

    /// Has every watch of a hub's objects for upstreams list again.
    pub fn list_hubs_again(&self) {
        self.hub_lists.send_replace(());
    }

    /// Changes when those are to be listed again.
    pub(super) fn hub_lists(&self) -> watch::Receiver<()> {
        self.hub_lists.subscribe()
    }

    /// How many clusters are watched.
    pub fn set_clusters(&self, clusters: usize) {
        self.clusters.store(clusters, Relaxed);
    }

    /// Whether there are so many clusters that even those which an API server knows already must not
    /// all come back to it at once, and the log must not have a line for each.
    pub(super) fn is_crowd(&self) -> bool {
        self.clusters.load(Relaxed) > self.pace.parallel()
    }
}
