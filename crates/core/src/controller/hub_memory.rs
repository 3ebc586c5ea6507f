//! The memory of one hub Connector: one part for each rule.

use crate::contract::settings::MirrorSettings;
use crate::data::time::UnixMillis;
use crate::rules::hop::HopMemory;
use crate::rules::mirror::{MirrorMemory, SyncState, Verdict};
use crate::rules::nudge::NudgeMemory;

#[derive(Debug, Default)]
pub(crate) struct HubMemory {
    pub(crate) mirror: MirrorMemory,
    pub(crate) nudge: NudgeMemory,
    pub(crate) hop: HopMemory,
}

impl HubMemory {
    /// The hub Connector or one of its edges is known to be out of sync. A failed write is not
    /// released when the API server answers unless this is so.
    pub(super) fn is_out_of_sync(&self) -> bool {
        self.mirror.sync == SyncState::OutOfSync
            || self.mirror.deferred_since.is_some()
            || self.hop.is_any_edge_out_of_sync()
    }

    pub(super) fn forget_what_is_over(
        &mut self,
        verdict: Verdict,
        settings: &MirrorSettings,
        now: UnixMillis,
    ) {
        let is_nudged = self.nudge.nudges(settings, now) > 0;
        match verdict {
            Verdict::Paused | Verdict::Disabled => {
                self.hop.forget_edges();
                self.nudge.on_mirrored();
            }
            Verdict::InSync | Verdict::BothAbsent
                if !self.hop.is_any_edge_out_of_sync() && !is_nudged =>
            {
                self.mirror.on_edges_in_sync(settings, now);
            }
            _ => {}
        }
    }

    /// Whether an empty memory would lead to the same plan and the same notes.
    pub(super) fn is_at_rest(
        &self,
        verdict: Verdict,
        settings: &MirrorSettings,
        now: UnixMillis,
    ) -> bool {
        self.mirror.is_at_rest(now)
            && self.nudge.nudges(settings, now) == 0
            && self.hop.is_at_rest()
            && !matches!(verdict, Verdict::AbsenceGrace(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_stays_small() {
        assert!(size_of::<HubMemory>() <= 320, "{}", size_of::<HubMemory>());
    }
}
