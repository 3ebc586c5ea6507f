//! A hub Connector that a person has paused: nothing is written to it, and nothing about it is held,
//! behind or late.

use super::mirror::Mirror;

impl Mirror<'_> {
    /// Leaves the object as it is. A write in flight is answered first; none follows it.
    pub(super) fn paused(&mut self) {
        self.drop_claims();
        self.untrack_removal();
        // What went wrong before says nothing about the time after.
        if self.connector.repair.as_ref().is_some_and(|repair| !repair.flight.is_in_flight()) {
            self.connector.repair = None;
        }
    }

    /// The pause is over: what is behind counts as late from now on.
    pub(super) fn resumed(&mut self) {
        self.repair().free_since = self.ctx.now;
    }
}
