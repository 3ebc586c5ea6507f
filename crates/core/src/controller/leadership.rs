//! Whether this instance may mirror, nudge and delete.

use crate::data::time::UnixMillis;

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Leadership {
    pub(crate) is_leader: bool,
    /// Until then this instance waits before it may lead, because it created the Lease: the old one
    /// may have been deleted while its holder still writes. Meanwhile no instance may write, so
    /// nothing is late.
    pub(crate) wait_until: UnixMillis,
}

impl Leadership {
    /// Whether this instance does not write only because it waits after creating the Lease.
    pub(crate) fn waits_for_lease(&self, now: UnixMillis) -> bool {
        !self.is_leader && now < self.wait_until
    }

    pub(crate) fn on_pending(&mut self, wait_ms: u64, now: UnixMillis) {
        self.wait_until = now.plus(wait_ms);
    }

    /// It leads, or no longer holds the Lease.
    pub(crate) fn on_decided(&mut self, is_leader: bool, now: UnixMillis) {
        self.is_leader = is_leader;
        self.wait_until = self.wait_until.min(now);
    }
}
