//! The data that all watches of a run share, and the messages they send.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use tokio::sync::mpsc;

use super::log::ListLog;
use crate::client::ClusterClient;
use crate::client::pace::Pace;
use crate::config::WatchConstants;
use crate::core::contract::event::EventKind;

/// An event of a watch.
#[derive(Debug)]
pub struct WatchMessage {
    /// The client of the watch: a cluster that joins again has another one.
    pub cluster: Arc<ClusterClient>,
    pub kind: EventKind,
}

/// What all watches of a run share.
#[derive(Debug)]
pub struct WatchShared {
    pub(super) config: WatchConstants,
    pub(super) bus: mpsc::Sender<WatchMessage>,
    pub(super) pace: Pace,
    pub(super) log: Arc<ListLog>,
    clusters: AtomicUsize,
}

impl WatchShared {
    /// Sends events to `bus`; the watches wait while it is full.
    pub fn new(config: WatchConstants, bus: mpsc::Sender<WatchMessage>) -> Self {
        let pace = Pace::new(config.lists_in_parallel);
        let log = Arc::<ListLog>::default();
        Self { config, bus, pace, log, clusters: AtomicUsize::new(0) }
    }

    /// Sets the number of watched clusters.
    pub fn set_clusters(&self, clusters: usize) {
        self.clusters.store(clusters, Relaxed);
    }

    /// Whether the fleet is so large that even known clusters must not all return to an API server at
    /// once, and the log must not have a line for each.
    pub(super) fn is_crowd(&self) -> bool {
        self.clusters.load(Relaxed) > self.pace.parallel()
    }
}
