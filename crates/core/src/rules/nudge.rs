//! Nudge: the carrier does not bring a mirrored value to an edge, so the hub Connector is changed in
//! another annotation, which makes the carrier try again.
//!
//! An edge whose watch is lost shows nothing, and a change made during its outage makes the outage
//! longer. So only an edge counts that is seen to be behind, 10 s after the mirror; from then on the
//! pauses double. Nudges of one hub wait in its queue, and a carrier that answers none is asked
//! rarely.

use crate::contract::action::Urgency;
use crate::contract::settings::MirrorSettings;
use crate::data::time::UnixMillis;
use crate::plan::{Job, Next, Turn, Write};
use crate::rate_limit::Rate;
use crate::rules::mirror::{self, Place};
use crate::write_queue::{Due, QueueKey};
use crate::write_state::doubled;

/// A quarter of what the carrier takes by default, and so many at once.
const RATE: Rate = Rate::every_ms(200, 10);

/// A carrier that does not answer is asked this often.
pub(crate) const SILENT_EVERY_MS: u64 = 10_000;

/// After so many nudges without an arrival at any edge, the carrier does not answer.
const UNANSWERED_MAX: u32 = 20;

/// What throughline remembers of a hub Connector for this rule.
#[derive(Debug, Default)]
pub(crate) struct NudgeMemory {
    nudges: u32,
    /// The pause after the last one.
    next_at: UnixMillis,
}

/// Whether the carrier of a hub answers nudges.
#[derive(Debug, Default)]
pub(crate) struct Carrier {
    /// Nudges since a value last arrived at an edge.
    unanswered: u32,
}

/// `behind_since`: since when an edge whose watch is live is seen to be behind.
pub(crate) fn plan(
    view: &mirror::View<'_>,
    memory: &NudgeMemory,
    behind_since: UnixMillis,
) -> Next {
    let settings = &view.settings.mirror;
    let write = &view.memory.write;
    if !settings.nudge || !view.is_leader || write.is_in_flight() {
        return Next::AwaitChange;
    }

    let now = view.now;
    let next_at = (memory.nudges(settings, now) > 0).then_some(memory.next_at);
    let due_at = behind_since.plus(settings.nudge_after_ms);
    let due_at = [next_at, write.not_before()].into_iter().flatten().fold(due_at, UnixMillis::max);
    if now < due_at {
        return Next::RequeueAt(due_at);
    }
    let queue = QueueKey::Nudges(view.place.at.cluster);
    let write = || nudge(view, now.since(behind_since) / 1_000);
    Next::Write(Turn::in_queue(queue, Due::at(due_at), view.admitted_by, now, write))
}

fn nudge(view: &mirror::View<'_>, waited_s: u64) -> Write {
    let Place { at, row, .. } = view.place;
    let number = row.seen.nudge.wrapping_add(1);
    let key = view.settings.mirror.nudge_key.clone();
    Write {
        job: Job::Nudge(at.clone(), number),
        annotations: vec![(key, Some(number.to_string()))],
        precondition: row.unchanged(),
        connectors: vec![at.name.key()],
        urgency: Urgency::Nudge,
        because: format!(
            "an edge whose watch is live has not shown the mirrored value for {waited_s} s; any change \
             of the object makes the carrier try again"
        ),
    }
}

/// How fast a hub is nudged.
pub(crate) fn rate(is_silent: bool) -> Rate {
    if is_silent { Rate::every_ms(SILENT_EVERY_MS, 1) } else { RATE }
}

impl NudgeMemory {
    /// How many nudges count. Somebody at the edge may undo it again, so the pauses grow until that
    /// is over.
    pub(crate) fn nudges(&self, settings: &MirrorSettings, now: UnixMillis) -> u32 {
        let counts_until = self.next_at.plus(settings.contention_quiet_ms);
        if now <= counts_until { self.nudges } else { 0 }
    }

    /// The hub says something new, or a person paused it: what was nudged before does not count.
    pub(crate) fn on_mirrored(&mut self) {
        self.nudges = 0;
    }

    /// The next one waits longer than this one did.
    pub(crate) fn on_written(&mut self, settings: &MirrorSettings, now: UnixMillis) {
        self.nudges = self.nudges(settings, now) + 1;
        let pause_ms = doubled(settings.nudge_after_ms, self.nudges, settings.nudge_max_ms);
        self.next_at = now.plus(pause_ms);
    }
}

impl Carrier {
    /// Counts a nudge. Returns whether the carrier counts as silent from now on.
    pub(crate) fn on_nudged(&mut self) -> bool {
        self.unanswered = self.unanswered.saturating_add(1);
        self.unanswered == UNANSWERED_MAX
    }

    /// A value arrived at an edge. Returns whether the carrier had been silent.
    pub(crate) fn on_arrived(&mut self) -> bool {
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

    const NOW: UnixMillis = UnixMillis(1_000_000);

    #[test]
    fn the_pauses_between_nudges_double_and_count_until_it_is_quiet() {
        let settings = MirrorSettings::default();
        let mut memory = NudgeMemory::default();
        let pauses = [(); 3].map(|()| {
            memory.on_written(&settings, NOW);
            memory.next_at.since(NOW)
        });
        assert_eq!(pauses, [20_000, 40_000, 80_000]);

        let quiet_at = memory.next_at.plus(settings.contention_quiet_ms);
        assert_eq!(memory.nudges(&settings, quiet_at), 3);
        assert_eq!(memory.nudges(&settings, quiet_at.plus(1)), 0);
    }

    #[test]
    fn a_carrier_is_silent_after_twenty_nudges_without_an_arrival() {
        let mut carrier = Carrier::default();
        let fell_silent: Vec<_> = (0..25).filter(|_| carrier.on_nudged()).collect();
        assert_eq!((fell_silent, carrier.is_silent()), (vec![19], true));
        assert!(carrier.on_arrived() && !carrier.on_arrived());
    }
}
