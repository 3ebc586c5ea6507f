//! Whether this instance may mirror, nudge and delete.

use crate::data::time::UnixMillis;

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Leadership {
    pub(crate) is_leader: bool,
    /// Until then it waits before it may lead by a Lease that it created, because there was none: it
    /// cannot know whether the Lease was deleted under a holder that still writes. Meanwhile nobody may
    /// write, so nothing is late.
    pub(crate) wait_until: UnixMillis,
}

impl Leadership {
    /// Whether the only reason not to write is the wait for a Lease that was not there.
    pub(crate) fn waits_for_lease(&self, now: UnixMillis) -> bool {
        !self.is_leader && now < self.wait_until
    }

    pub(crate) fn on_pending(&mut self, wait_ms: u64, now: UnixMillis) {
        self.wait_until = now.plus(wait_ms);
    }

    /// It leads, or holds the Lease no longer.
    pub(crate) fn on_decided(&mut self, is_leader: bool, now: UnixMillis) {
        self.is_leader = is_leader;
        self.wait_until = self.wait_until.min(now);
    }
}
