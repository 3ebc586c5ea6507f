//! Whether this instance may mirror, nudge and delete.

use crate::data::time::UnixMillis;

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Leadership {
    pub(crate) is_leader: bool,
    pub(crate) wait: LeaseWait,
}

/// The wait before this instance may lead by a Lease that it created, because there was none: it
/// cannot know whether the Lease was deleted under a holder that still writes. Meanwhile nobody may
/// write, so nothing is late.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LeaseWait {
    pub(crate) until: UnixMillis,
    pub(crate) ms: u64,
}

impl Leadership {
    /// Whether the only reason not to write is the wait for a Lease that was not there.
    pub(crate) fn waits_for_lease(&self, now: UnixMillis) -> bool {
        !self.is_leader && now < self.wait.until
    }

    pub(crate) fn on_pending(&mut self, wait_ms: u64, now: UnixMillis) {
        self.wait = LeaseWait { until: now.plus(wait_ms), ms: wait_ms };
    }

    /// It leads, or holds the Lease no longer.
    pub(crate) fn on_decided(&mut self, is_leader: bool, now: UnixMillis) {
        self.is_leader = is_leader;
        self.wait.until = self.wait.until.min(now);
    }
}
