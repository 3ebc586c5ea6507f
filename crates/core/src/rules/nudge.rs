//! Nudge: when the carrier does not bring a mirrored value to an edge, another annotation of the
//! hub Connector is changed, which makes the carrier try again.
//!
//! An edge whose watch is lost shows nothing, and every change that must be carried during its
//! outage makes the outage longer. So only an edge that a live watch shows out of sync is nudged,
//! first 10 s after the mirror. Then the pauses double. Nudges of one hub share a queue, and a
//! carrier that does not answer is nudged rarely.

use crate::contract::action::Urgency;
use crate::contract::settings::MirrorSettings;
use crate::data::time::UnixMillis;
use crate::plan::{Job, Next, Turn, Write};
use crate::rate_limit::Rate;
use crate::rules::hop::{self, HopMemory};
use crate::rules::mirror::{self, Place};
use crate::write_queue::{Due, QueueKey};
use crate::write_state::doubled;

/// A quarter of the carrier's default rate, with a burst of 10.
const RATE: Rate = Rate::every_ms(200, 10);

/// How often a carrier that does not answer is nudged.
pub(crate) const SILENT_EVERY_MS: u64 = 10_000;

/// After this many nudges without a carried value at any edge, the carrier does not answer.
const UNANSWERED_MAX: u32 = 20;

#[derive(Debug, Default)]
pub(crate) struct NudgeMemory {
    nudges: u32,
    /// The end of the pause after the last nudge.
    next_at: UnixMillis,
}

/// Whether the carrier of a hub answers nudges.
#[derive(Debug, Default)]
pub(crate) struct Carrier {
    /// Nudges that were or may have been written since a value was last carried to an edge.
    unanswered: u32,
}

/// `hop`: which edges are out of sync.
pub(crate) fn plan(view: &hop::View<'_>, memory: &NudgeMemory, hop: &HopMemory) -> Next {
    let hop::View { mirror: view, plan, .. } = view;
    let mirror::View { now, is_leader, .. } = *view;
    let settings = &view.settings().mirror;
    let write = &view.memory.write;
    let may_nudge = settings.nudge && is_leader && !write.is_in_flight();
    let out_of_sync_since = hop.seen_out_of_sync_since(view.place.world);
    let is_wanted = may_nudge && plan.verdict.routes_as_desired();
    let Some(out_of_sync_since) = out_of_sync_since.filter(|_| is_wanted) else {
        return Next::AWAIT_CHANGE;
    };

    let in_sync_since = view.memory.sync.in_sync_since().unwrap_or_default();
    let out_of_sync_since = out_of_sync_since.max(in_sync_since);
    let next_at = (memory.nudges(settings, now) > 0).then_some(memory.next_at);
    let due_at = out_of_sync_since.plus(settings.nudge_after_ms);
    let due_at = [next_at, write.not_before()].into_iter().flatten().fold(due_at, UnixMillis::max);
    if now < due_at {
        return Next::requeue_at(due_at);
    }
    let queue = QueueKey::Nudges(view.place.at.cluster);
    let write = || nudge(view, now.since(out_of_sync_since) / 1_000);
    Next::write(Turn::in_queue(queue, Due::at(due_at), view.admitted_by, now, write))
}

fn nudge(view: &mirror::View<'_>, waited_s: u64) -> Write {
    let Place { at, row, .. } = view.place;
    let number = row.seen.nudge.wrapping_add(1);
    let key = view.settings().mirror.nudge_key.clone();
    Write {
        job: Job::Nudge(at.clone()),
        annotations: vec![(key, Some(number.to_string()))],
        precondition: row.unchanged(),
        connectors: vec![at.name.clone()],
        urgency: Urgency::Nudge,
        because: format!(
            "an edge whose watch is live has not shown the mirrored value for {waited_s} s; any change \
             of the object makes the carrier try again"
        ),
    }
}

/// The rate at which a hub is nudged.
pub(crate) fn rate(is_silent: bool) -> Rate {
    if is_silent { Rate::every_ms(SILENT_EVERY_MS, 1) } else { RATE }
}

impl NudgeMemory {
    /// How many nudges count. Another writer at the edge may undo the value again, so a nudge
    /// counts until the edge has been quiet for `contention_quiet_ms`.
    pub(crate) fn nudges(&self, settings: &MirrorSettings, now: UnixMillis) -> u32 {
        let counts_until = self.next_at.plus(settings.contention_quiet_ms);
        if now <= counts_until { self.nudges } else { 0 }
    }

    /// The hub has a new value, or an operator paused it: earlier nudges do not count.
    pub(crate) fn on_mirrored(&mut self) {
        self.nudges = 0;
    }

    pub(crate) fn on_written(&mut self, settings: &MirrorSettings, now: UnixMillis) {
        self.nudges = self.nudges(settings, now) + 1;
        let pause_ms = doubled(settings.nudge_after_ms, self.nudges, settings.nudge_max_ms);
        self.next_at = now.plus(pause_ms);
    }
}

impl Carrier {
    /// Counts a nudge that was or may have been written. Returns whether the carrier becomes silent
    /// with it.
    pub(crate) fn on_nudged(&mut self) -> bool {
        self.unanswered = self.unanswered.saturating_add(1);
        self.unanswered == UNANSWERED_MAX
    }

    /// A value was carried to an edge. Returns whether the carrier had been silent.
    pub(crate) fn on_carried(&mut self) -> bool {
        let was_silent = self.is_silent();
        self.unanswered = 0;
        was_silent
    }

    pub(crate) fn is_silent(&self) -> bool {
        self.unanswered >= UNANSWERED_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_carrier_is_silent_after_twenty_nudges_without_an_arrival() {
        let mut carrier = Carrier::default();
        let fell_silent: Vec<_> = (0..25).filter(|_| carrier.on_nudged()).collect();
        assert_eq!((fell_silent, carrier.is_silent()), (vec![19], true));
        assert!(carrier.on_carried() && !carrier.on_carried());
    }
}
