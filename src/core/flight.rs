//! One target's writes: at most one in flight, and when the next may be tried.

use super::event::Outcome;
use super::ids::ActionId;
use super::settings::RetrySettings;
use super::time::UnixMillis;

/// The state of the writes to one target.
#[derive(Debug, Default)]
pub(crate) struct Flight {
    pub(crate) in_flight: Option<ActionId>,
    /// No try before this.
    pub(crate) not_before: UnixMillis,
    failures: u32,
    /// The pause ends early when the object is seen changed.
    until_seen: bool,
    /// What the last try came back with, for a person.
    pub(crate) error: Option<Box<str>>,
}

/// What a finished action means for its target.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Landed {
    /// The object is as the action wished.
    Yes,
    /// It is not, or may not be; the target is looked at again at [`Flight::not_before`].
    No,
    /// Nor will it be soon: a person should hear of it.
    Refused,
}

impl Flight {
    pub(crate) fn launch(&mut self, id: ActionId) {
        self.in_flight = Some(id);
    }

    pub(crate) fn is_free(&self, now: UnixMillis) -> bool {
        self.in_flight.is_none() && self.not_before <= now
    }

    /// Nothing under way, and nothing to remember.
    pub(crate) fn is_idle(&self) -> bool {
        self.in_flight.is_none() && self.failures == 0 && self.not_before == UnixMillis(0)
    }

    /// The object was seen in a new version: what waited for just that may go on.
    pub(crate) fn seen(&mut self) {
        if std::mem::take(&mut self.until_seen) {
            self.not_before = UnixMillis(0);
        }
    }

    /// What is wished changed: a pause that was about the old wish is over. A pause because
    /// the API fails is not.
    pub(crate) fn wish_changed(&mut self) {
        if self.failures == 0 {
            self.not_before = UnixMillis(0);
        }
    }

    /// Pauses until `at`, not counted as a failure.
    pub(crate) fn pause_until(&mut self, at: UnixMillis) {
        self.not_before = self.not_before.max(at);
    }

    /// Takes the outcome of the action in flight.
    pub(crate) fn land(
        &mut self,
        now: UnixMillis,
        outcome: &Outcome,
        retry: &RetrySettings,
    ) -> Landed {
        self.in_flight = None;
        let backoff_ms = doubled(retry.first_ms, self.failures, retry.max_ms);
        let mut fail = |pause_ms: u64, until_seen: bool, error: &str| {
            self.failures = self.failures.saturating_add(1);
            self.not_before = now.plus(pause_ms);
            self.until_seen = until_seen;
            self.error = Some(error.into());
        };
        match outcome {
            Outcome::Applied { .. } | Outcome::Unchanged | Outcome::DryRun => {
                *self = Flight::default();
                Landed::Yes
            }
            Outcome::Superseded => Landed::No,
            // The gate may be closed a good while before word of it comes: no reason to ask it again
            // and again meanwhile.
            Outcome::Dropped => {
                self.pause_until(now.plus(retry.first_ms));
                Landed::No
            }
            Outcome::Conflict { error } => {
                fail(backoff_ms, true, error);
                Landed::No
            }
            Outcome::NotFound => {
                fail(retry.max_ms, true, "the object is gone (404)");
                Landed::No
            }
            Outcome::Failed { error, retry_after_ms } => {
                fail(backoff_ms.max(retry_after_ms.unwrap_or(0)), false, error);
                Landed::No
            }
            Outcome::Unanswered { error, .. } => {
                fail(backoff_ms, false, error);
                Landed::No
            }
            Outcome::Refused { error } => {
                fail(retry.refused_ms, false, error);
                self.failures = 0;
                Landed::Refused
            }
        }
    }
}

/// `first`, doubled `times` times, at most `max`.
pub(crate) fn doubled(first: u64, times: u32, max: u64) -> u64 {
    first.saturating_mul(1_u64.checked_shl(times).unwrap_or(u64::MAX)).min(max)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: UnixMillis = UnixMillis(1_000_000);

    fn landed(flight: &mut Flight, outcome: Outcome) -> (Landed, u64) {
        flight.launch(ActionId(1));
        assert!(!flight.is_free(NOW.plus(1_000_000)));
        let landed = flight.land(NOW, &outcome, &RetrySettings::default());
        (landed, flight.not_before.since(NOW))
    }

    fn failed(retry_after_ms: Option<u64>) -> Outcome {
        Outcome::Failed { error: "503".into(), retry_after_ms }
    }

    #[test]
    fn failures_back_off_and_a_success_forgets_them() {
        let mut flight = Flight::default();
        let pauses: Vec<_> = (0..8).map(|_| landed(&mut flight, failed(None)).1).collect();
        assert_eq!(pauses, [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000]);
        assert_eq!(landed(&mut flight, failed(Some(90_000))).1, 90_000);
        assert_eq!(landed(&mut flight, Outcome::Unchanged), (Landed::Yes, 0));
        assert!(flight.is_free(NOW) && flight.error.is_none());
        assert_eq!(landed(&mut flight, failed(Some(500))).1, 1_000);
    }

    #[test]
    fn a_conflict_waits_for_the_object_to_be_seen_and_a_failure_does_not() {
        let mut flight = Flight::default();
        landed(&mut flight, Outcome::Conflict { error: String::new() });
        assert!(!flight.is_free(NOW));
        flight.wish_changed();
        assert!(!flight.is_free(NOW), "a failing API is not asked again for a new wish");
        flight.seen();
        assert!(flight.is_free(NOW));
        landed(&mut flight, failed(None));
        flight.seen();
        assert!(!flight.is_free(NOW));
        assert!(!flight.is_free(NOW.plus(1_999)) && flight.is_free(NOW.plus(2_000)));
    }

    #[test]
    fn a_refusal_waits_long_unless_something_else_is_wished() {
        let mut flight = Flight::default();
        let refused = Outcome::Refused { error: "403".into() };
        assert_eq!(landed(&mut flight, refused), (Landed::Refused, 300_000));
        flight.seen();
        assert!(!flight.is_free(NOW));
        flight.wish_changed();
        assert!(flight.is_free(NOW));
        assert_eq!(landed(&mut flight, Outcome::NotFound).1, 60_000);
    }

    #[test]
    fn what_met_a_closed_gate_pauses_and_is_no_failure() {
        let mut flight = Flight::default();
        for _ in 0..5 {
            assert_eq!(landed(&mut flight, Outcome::Dropped), (Landed::No, 1_000));
        }
        assert!(!flight.is_free(NOW) && flight.is_free(NOW.plus(1_000)));
        assert_eq!((flight.failures, &flight.error), (0, &None));
    }
}
