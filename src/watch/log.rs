//! The progress of many lists: at most one line every ten seconds.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tracing::{debug, info};

use crate::environment::spawn;
use crate::report::count;

const PROGRESS_EVERY: Duration = Duration::from_secs(10);

/// Lists completed since the last line about them, and their objects.
#[derive(Debug, Default)]
pub(super) struct ListLog {
    progress: Mutex<(usize, u64)>,
}

impl ListLog {
    /// Counts a complete list.
    pub(super) fn listed(self: &Arc<Self>, objects: u64) {
        debug!(objects, "listed, one of many");
        let mut progress = self.progress.lock().unwrap_or_else(PoisonError::into_inner);
        if progress.0 == 0 {
            spawn(self.clone().log_later());
        }
        progress.0 += 1;
        progress.1 += objects;
    }

    async fn log_later(self: Arc<Self>) {
        tokio::time::sleep(PROGRESS_EVERY).await;
        let mut progress = self.progress.lock().unwrap_or_else(PoisonError::into_inner);
        let (lists, objects) = std::mem::take(&mut *progress);
        info!(lists, objects, "listed: {}", count(lists, "watch"));
    }
}
