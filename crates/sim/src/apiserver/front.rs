//! The state that all clusters behind one listener share.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use super::SimApiServerSettings;
use super::fault::ServerMode;
use crate::signal::Sender;

pub(super) struct Front {
    pub(super) settings: SimApiServerSettings,
    pub(super) mode: Sender<ServerMode>,
    pub(super) latency: Sender<Duration>,
    /// Asks all clients to reconnect (GOAWAY).
    pub(super) goaways: Sender<()>,
    pub(super) connections: Arc<Gauge>,
    /// Requests without a response yet. A started watch has its response.
    pub(super) requests: Arc<Gauge>,
    /// Running watches.
    pub(super) watches: Arc<Gauge>,
}

impl Front {
    pub(super) fn new(settings: SimApiServerSettings) -> Self {
        Self {
            settings,
            mode: Sender::new(ServerMode::Serving),
            latency: Sender::new(Duration::ZERO),
            goaways: Sender::new(()),
            connections: Arc::default(),
            requests: Arc::default(),
            watches: Arc::default(),
        }
    }
}

/// The current number, and the highest so far.
#[derive(Default)]
pub(super) struct Gauge {
    now: AtomicUsize,
    max: AtomicUsize,
}

impl Gauge {
    /// Counts one more until the result is dropped.
    pub(super) fn count(self: &Arc<Self>) -> Counted {
        let now = self.now.fetch_add(1, Relaxed) + 1;
        self.max.fetch_max(now, Relaxed);
        Counted(self.clone())
    }

    pub(super) fn now(&self) -> usize {
        self.now.load(Relaxed)
    }

    pub(super) fn max(&self) -> usize {
        self.max.load(Relaxed)
    }
}

/// One counted item of a [`Gauge`].
pub(super) struct Counted(Arc<Gauge>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.now.fetch_sub(1, Relaxed);
    }
}
