//! Whether this instance leads, and the wait for its first Lease. Leading decides what is written.

use super::context::Context;
use super::data::ids::ClusterId;
use super::data::interner::Key;
use super::data::time::UnixMillis;
use super::machine::Machine;
use super::write_queue::QueueKey;

/// The wait for the first Lease.
#[derive(Clone, Copy, Default)]
pub(crate) struct LeaseWait {
    /// Until when this instance waits, or has waited, before it may lead by a Lease that it created:
    /// meanwhile nobody may write, so nothing is late.
    pub(crate) until: UnixMillis,
    pub(crate) ms: u64,
}

/// Whether this instance may decide leader-only writes.
#[derive(Default)]
pub(crate) struct Leadership {
    leads: bool,
    wait: LeaseWait,
}

impl Context {
    /// Whether leader-only writes may be decided.
    pub(crate) fn leads(&self) -> bool {
        self.leadership.leads
    }

    pub(crate) fn lease_wait(&self) -> LeaseWait {
        self.leadership.wait
    }

    /// This instance created the Lease, because there was none, and may lead after this time: it
    /// can't know whether the Lease was deleted under a holder that still writes.
    pub(crate) fn start_lease_wait(&mut self, ms: u64) {
        self.leadership.wait = LeaseWait { until: self.now.plus(ms), ms };
    }

    /// The instance leads, or holds the Lease no longer.
    fn end_lease_wait(&mut self) {
        let wait = &mut self.leadership.wait;
        wait.until = wait.until.min(self.now);
    }

    /// Whether the only reason not to write is the wait for a Lease that was not there.
    pub(crate) fn waits_for_lease(&self) -> bool {
        !self.leads() && self.now < self.leadership.wait.until
    }
}

impl Machine {
    pub(super) fn leadership_acquired(&mut self) {
        self.ctx.leadership.leads = true;
        self.ctx.end_lease_wait();
        self.evaluate_unsettled();
    }

    pub(super) fn leadership_lost(&mut self) {
        let has_waited = self.ctx.waits_for_lease();
        self.ctx.leadership.leads = false;
        self.ctx.end_lease_wait();
        self.hubs.values_mut().for_each(|hub| hub.retries.clear());
        for queue in [QueueKey::Removals, QueueKey::AllowedRemovals, QueueKey::Deletes] {
            // Nothing is left to wait for.
            self.evaluate_queued(queue);
        }
        if has_waited {
            // What is not done counts as late from now on, not from the end of the wait.
            self.evaluate_unsettled();
        }
    }

    /// Hub objects that wait for the leader, in the order of their names.
    pub(super) fn unsettled(&self) -> Vec<(ClusterId, Vec<Key>, Vec<Key>)> {
        let hubs = self.hubs.iter().map(|(&id, hub)| {
            (id, hub.unsettled.iter().copied().collect(), hub.orphans.iter().copied().collect())
        });
        hubs.collect()
    }
}
