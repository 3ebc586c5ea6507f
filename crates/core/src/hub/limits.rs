//! How fast a hub is written. What concerns one Connector often concerns a thousand, and a thousand
//! writes in one second are more than a carrier takes (Karmada: about 20 changes a second).

use super::mirror::Mirror;
use crate::contract::settings::{DEFER_MS_MIN, MirrorSettings};
use crate::data::time::UnixMillis;
use crate::data::used_names::{HoldsNames, UsedNames};
use crate::rate_limit::Rate;
use crate::write_queue::{QueueKey, QueueLimit};

/// Mirrors of one Connector. One that flaps must not keep the hub and its carrier busy for all others.
pub(super) const CONNECTOR_RATE: Rate = Rate::every_ms(DEFER_MS_MIN, 20);

/// A Connector that was mirrored so recently, or that waited so recently because it had been, waits in the
/// queue of its upstream.
pub(super) const REPEAT_MS: u64 = 10_000;

/// Each Connector of an upstream is mirrored again within this time, however many change.
const REPEATS_WITHIN_S: u64 = 30;
const REPEATS_PER_SECOND_MIN: u64 = 20;

/// A quarter of what the carrier takes by default, and so many at once.
const NUDGES_PER_SECOND: u32 = 5;
const NUDGES_AT_ONCE: u32 = 10;

/// After so many nudges without an arrival at any edge, the carrier does not answer.
const UNANSWERED_MAX: u32 = 20;

/// A carrier that does not answer is asked this often.
pub(super) const SILENT_EVERY_MS: u64 = 10_000;

/// A tenth of what the carrier takes.
const REWRITES_PER_SECOND: u32 = 2;

/// What the carrier takes: removals that a person allowed, and retries.
pub(super) const CARRIER_RATE: Rate = Rate::every_ms(50, 20);

/// Whether the carrier of a hub answers nudges.
#[derive(Default)]
pub(super) struct Carrier {
    /// Nudges since a value last arrived at an edge.
    unanswered: u32,
}

impl HoldsNames for Carrier {
    fn mark(&self, _: &mut UsedNames) {
        let Self { unanswered: _ } = self;
    }
}

impl Carrier {
    /// Counts a nudge. Returns whether the carrier counts as silent from now on.
    pub(super) fn nudged(&mut self) -> bool {
        self.unanswered = self.unanswered.saturating_add(1);
        self.unanswered == UNANSWERED_MAX
    }

    /// A value arrived at an edge. Returns whether the carrier had been silent.
    pub(super) fn answered(&mut self) -> bool {
        let was_silent = self.is_silent();
        self.unanswered = 0;
        was_silent
    }

    fn is_silent(&self) -> bool {
        self.unanswered >= UNANSWERED_MAX
    }
}

impl Mirror<'_> {
    pub(super) fn limit_of(&self, queue: QueueKey) -> QueueLimit {
        match queue {
            QueueKey::Repeats(_) => {
                let per_second = self.repeats_per_second();
                QueueLimit::of(Rate::per_second(per_second, per_second))
            }
            QueueKey::Rewrites(_) => QueueLimit::of(Rate::per_second(REWRITES_PER_SECOND, 1)),
            QueueKey::Deferrable(_) => deferrable(&self.ctx.settings.mirror),
            QueueKey::Nudges(_) if self.carrier.is_silent() => {
                QueueLimit::of(Rate::every_ms(SILENT_EVERY_MS, 1))
            }
            QueueKey::Nudges(_) => {
                QueueLimit::of(Rate::per_second(NUDGES_PER_SECOND, NUDGES_AT_ONCE))
            }
            QueueKey::Removals => {
                QueueLimit::at_most_per_minute(self.ctx.settings.mirror.max_removals_per_minute)
            }
            QueueKey::AllowedRemovals => QueueLimit::of(CARRIER_RATE),
            QueueKey::Immediate | QueueKey::Touches(_) | QueueKey::Deletes => {
                QueueLimit::of(Rate::UNLIMITED)
            }
        }
    }

    /// How many Connectors of the upstream that change again and again are mirrored in a second.
    pub(super) fn repeats_per_second(&self) -> u32 {
        repeats_per_second(self.upstream.map_or(0, |upstream| upstream.named))
    }

    /// The carrier fell silent, or answers again: what was nudged before does not count.
    pub(super) fn restart_nudges(&mut self, at: UnixMillis) {
        let queue = QueueKey::Nudges(self.at.cluster);
        let limit = self.limit_of(queue);
        self.ctx.restart_queue(queue, limit, at);
    }
}

fn repeats_per_second(hub_connectors: u64) -> u32 {
    let per_second = hub_connectors.div_ceil(REPEATS_WITHIN_S).max(REPEATS_PER_SECOND_MIN);
    u32::try_from(per_second).unwrap_or(u32::MAX)
}

/// `mirror.deferredPerSecond`, twice that at once, and as many without an outcome, so that a hub that
/// answers slowly is not given ever more of them. 0 lifts the limit.
fn deferrable(settings: &MirrorSettings) -> QueueLimit {
    let per_second = settings.deferrable_per_second;
    let at_once = per_second.saturating_mul(2);
    let limit = QueueLimit::of(Rate::per_second(per_second, at_once));
    match per_second {
        0 => limit,
        _ => QueueLimit { in_flight_max: at_once as usize, ..limit },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_connector_of_a_large_upstream_is_mirrored_again_within_30_s() {
        assert_eq!([0, 600, 601, 3_000].map(repeats_per_second), [20, 20, 21, 100]);
    }

    #[test]
    fn a_carrier_is_silent_after_twenty_nudges_without_an_arrival() {
        let mut carrier = Carrier::default();
        let fell_silent: Vec<_> = (0..25).filter(|_| carrier.nudged()).collect();
        assert_eq!((fell_silent, carrier.is_silent()), (vec![19], true));
        assert!(carrier.answered() && !carrier.answered());
    }

    #[test]
    fn deferred_mirrors_have_no_limit_where_none_is_set() {
        let settings = |deferrable_per_second| MirrorSettings {
            deferrable_per_second,
            ..MirrorSettings::default()
        };
        assert_eq!(deferrable(&settings(0)).in_flight_max, usize::MAX);
        assert_eq!(deferrable(&settings(0)).rate, Rate::UNLIMITED);
        assert_eq!(deferrable(&settings(8)).in_flight_max, 16);
        assert_eq!(deferrable(&settings(8)).rate, Rate::per_second(8, 16));
    }
}
