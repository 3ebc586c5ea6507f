//! How fast a hub is written where nothing else limits it: nudges, values that others overwrite, and one
//! Connector that flaps. What concerns one Connector often concerns a thousand, and a thousand writes in
//! one second are more than a carrier takes (Karmada: about 20 changes a second).

use super::deferral::Deferrals;
use super::retries::Retries;
use crate::contract::settings::DEFER_MS_MIN;
use crate::data::time::UnixMillis;
use crate::data::turns::Turns;
use crate::data::used_names::{HoldsNames, UsedNames};

/// The time between two nudges: a quarter of what the carrier takes by default.
const NUDGE_EVERY_MS: u64 = 200;
/// So many nudges may go at once.
const NUDGES_AT_ONCE: u64 = 10;
/// After so many nudges without an arrival at any edge, the carrier does not answer.
const UNANSWERED_MAX: u32 = 20;
/// A carrier that does not answer is asked this often.
const SILENT_EVERY_MS: u64 = 10_000;
/// Turns are given out for this long ahead.
const GIVEN_OUT_MS: u64 = 300_000;
/// The time between two writes of values for which others contend: a tenth of what the carrier takes.
const REWRITE_EVERY_MS: u64 = 500;
/// So many mirrors of one Connector may follow one another at once.
const MIRRORS_AT_ONCE: u64 = 20;
/// After that, the time between two of them.
const MIRROR_EVERY_MS: u64 = DEFER_MS_MIN;

/// The pace of one hub.
#[derive(Default)]
pub(crate) struct HubPace {
    pub(super) nudges: NudgePace,
    pub(super) deferrals: Deferrals,
    pub(super) retries: Retries,
    rewrites: Turns,
}

impl HoldsNames for HubPace {
    fn mark(&self, used: &mut UsedNames) {
        let Self { nudges: _, deferrals, retries, rewrites: _ } = self;
        deferrals.mark(used);
        retries.mark(used);
    }
}

impl HubPace {
    /// How much later than its own pause an overwritten value is written again, because others are
    /// before it. A writer that contends for one value often contends for a whole fleet's.
    pub(super) fn queue_rewrite(&mut self, now: UnixMillis) -> u64 {
        let queued_ms = self.rewrites.next(now, REWRITE_EVERY_MS, 1).since(now);
        self.rewrites.take(now, REWRITE_EVERY_MS);
        queued_ms
    }
}

/// The mirrors of one Connector. One that flaps must not keep the hub and its carrier busy for all
/// others.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct MirrorPace(Turns);

impl MirrorPace {
    /// When the next mirror may be written.
    pub(super) fn next(self, now: UnixMillis) -> UnixMillis {
        self.0.next(now, MIRROR_EVERY_MS, MIRRORS_AT_ONCE)
    }

    pub(super) fn mirrored(&mut self, now: UnixMillis) {
        self.0.take(now, MIRROR_EVERY_MS);
    }
}

/// The nudges of one hub.
#[derive(Default)]
pub(super) struct NudgePace {
    turns: Turns,
    unanswered: u32,
    /// Counts how often the carrier fell silent or answered again: turns given out before do not
    /// count.
    round: u32,
}

/// When a Connector may be nudged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct NudgeTurn {
    pub(super) at: UnixMillis,
    round: u32,
}

impl NudgePace {
    /// The next turn. The error is when to ask again: the turns of the next minutes are given out.
    pub(super) fn take_turn(&mut self, now: UnixMillis) -> Result<NudgeTurn, UnixMillis> {
        let (every_ms, at_once) =
            if self.is_silent() { (SILENT_EVERY_MS, 1) } else { (NUDGE_EVERY_MS, NUDGES_AT_ONCE) };
        let last_at = now.plus(GIVEN_OUT_MS);
        if self.turns.even_at > last_at {
            return Err(last_at);
        }
        let at = self.turns.next(now, every_ms, at_once);
        self.turns.take(now, every_ms);
        Ok(NudgeTurn { at, round: self.round })
    }

    pub(super) fn is_valid(&self, turn: NudgeTurn) -> bool {
        turn.round == self.round
    }

    pub(super) fn nudged(&mut self, now: UnixMillis) {
        self.unanswered = self.unanswered.saturating_add(1);
        if self.unanswered == UNANSWERED_MAX {
            self.begin_round(now.plus(SILENT_EVERY_MS));
        }
    }

    fn begin_round(&mut self, even_at: UnixMillis) {
        self.turns = Turns { even_at };
        self.round = self.round.wrapping_add(1);
    }

    /// A value arrived at an edge. Returns whether the carrier had been silent, so that everything
    /// that waits for a turn takes a new one.
    pub(super) fn answered(&mut self, now: UnixMillis) -> bool {
        let was_silent = self.is_silent();
        self.unanswered = 0;
        if was_silent {
            self.begin_round(now);
        }
        was_silent
    }

    fn is_silent(&self) -> bool {
        self.unanswered >= UNANSWERED_MAX
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
mod tests {
    use super::*;

    fn turns(pace: &mut NudgePace, now: u64, count: usize) -> Vec<u64> {
        (0..count).map(|_| pace.take_turn(UnixMillis(now)).unwrap().at.0).collect()
    }

    #[test]
    fn ten_go_at_once_and_then_five_a_second() {
        let mut pace = NudgePace::default();
        let turns = turns(&mut pace, 1_000_000, 1_000);
        assert!(turns[..10].iter().all(|at| *at == 1_000_000), "{:?}", &turns[..10]);
        assert_eq!(turns[10..13], [1_000_200, 1_000_400, 1_000_600]);
        assert_eq!(turns[999], 1_000_000 + 990 * 200);
    }

    #[test]
    fn a_carrier_that_does_not_answer_is_asked_every_ten_seconds_until_it_does() {
        let mut pace = NudgePace::default();
        for _ in 0..UNANSWERED_MAX {
            assert!(!pace.is_silent());
            pace.nudged(UnixMillis(1_000_000));
        }
        let now = 1_000_000;
        assert_eq!(turns(&mut pace, now, 2), [now + 10_000, now + 20_000]);
        let old = pace.take_turn(UnixMillis(now)).unwrap();
        assert!(pace.is_valid(old));
        assert!(pace.answered(UnixMillis(now + 15_000)) && !pace.answered(UnixMillis(now)));
        assert!(!pace.is_valid(old));
        assert_eq!(turns(&mut pace, now + 15_000, 2), [now + 15_000; 2]);
    }

    #[test]
    fn turns_are_given_out_for_five_minutes() {
        let mut pace = NudgePace::default();
        let now = UnixMillis(1_000_000);
        (0..UNANSWERED_MAX).for_each(|_| pace.nudged(now));
        let given = (0..1_000).filter(|_| pace.take_turn(now).is_ok()).count();
        assert_eq!((given, pace.take_turn(now)), (30, Err(now.plus(300_000))));
    }
}
