//! The writes to one target: at most one in flight, and when the next may be tried.

use super::contract::error_cause::{ErrorCause, RequestFailure};
use super::contract::event::Outcome;
use super::contract::settings::RetrySettings;
use super::data::ids::ActionId;
use super::data::time::UnixMillis;

/// The state of the writes to one target. `W` is what a write in flight makes of it.
#[derive(Debug)]
pub(crate) struct Flight<W = ()> {
    in_flight: Option<(ActionId, W)>,
    /// No attempt before this.
    pub(crate) not_before: UnixMillis,
    failures: u32,
    /// The pause ends early when the object changes.
    until_changed: bool,
    /// Why the last attempt failed.
    pub(crate) error: Option<Box<RequestFailure>>,
}

impl<W> Default for Flight<W> {
    fn default() -> Self {
        Self {
            in_flight: None,
            not_before: UnixMillis(0),
            failures: 0,
            until_changed: false,
            error: None,
        }
    }
}

/// What an outcome means for its target.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum WriteResult {
    /// The object is as the action wanted it.
    Written,
    /// It is not, or may not be. The target is due again at [`Flight::not_before`].
    NotWritten,
    /// The API server will refuse it again: a person should know.
    Refused,
}

impl<W> Flight<W> {
    pub(crate) fn started(&mut self, id: ActionId, write: W) {
        debug_assert!(self.in_flight.is_none(), "two writes to one target in flight");
        self.in_flight = Some((id, write));
    }

    /// The action in flight.
    pub(crate) fn action(&self) -> Option<ActionId> {
        self.in_flight.as_ref().map(|(id, _)| *id)
    }

    /// What the action in flight writes.
    pub(crate) fn writing(&self) -> Option<&W> {
        self.in_flight.as_ref().map(|(_, write)| write)
    }

    pub(crate) fn is_in_flight(&self) -> bool {
        self.in_flight.is_some()
    }

    pub(crate) fn is_free(&self, now: UnixMillis) -> bool {
        !self.is_in_flight() && self.not_before <= now
    }

    /// Nothing is in flight, and there is nothing to remember.
    pub(crate) fn is_idle(&self) -> bool {
        !self.is_in_flight() && self.failures == 0 && self.not_before == UnixMillis(0)
    }

    /// The object changed: a pause that waited for just that is over.
    pub(crate) fn object_changed(&mut self) {
        if std::mem::take(&mut self.until_changed) {
            self.not_before = UnixMillis(0);
        }
    }

    /// What is desired changed: a pause about the old value is over. A pause because the API
    /// fails is not.
    pub(crate) fn desired_changed(&mut self) {
        if self.failures == 0 {
            self.not_before = UnixMillis(0);
        }
    }

    /// Pauses until `at`; not counted as a failure.
    pub(crate) fn pause_until(&mut self, at: UnixMillis) {
        self.not_before = self.not_before.max(at);
    }

    /// Takes the outcome of an action, and returns what it wrote. `None` when another action, or
    /// none, is in flight: this one was given up before.
    pub(crate) fn finished(
        &mut self,
        action: ActionId,
        now: UnixMillis,
        outcome: &Outcome,
        retry: &RetrySettings,
    ) -> Option<(WriteResult, W)> {
        let (_, write) = self.in_flight.take_if(|(id, _)| *id == action)?;
        let backoff_ms = doubled(retry.first_ms, self.failures, retry.max_ms);
        let mut fail = |pause_ms: u64, until_changed: bool, error: &RequestFailure| {
            self.failures = self.failures.saturating_add(1);
            self.not_before = now.plus(pause_ms);
            self.until_changed = until_changed;
            self.error = Some(Box::new(error.clone()));
            WriteResult::NotWritten
        };
        let result = match outcome {
            Outcome::Applied { .. } | Outcome::Unchanged | Outcome::DryRun => {
                *self = Flight::default();
                WriteResult::Written
            }
            Outcome::Superseded => WriteResult::NotWritten,
            // The gate may be closed for a while before the machine learns of it: don't ask it
            // again and again meanwhile.
            Outcome::Dropped => {
                self.pause_until(now.plus(retry.first_ms));
                WriteResult::NotWritten
            }
            Outcome::Conflict { error } => fail(backoff_ms, true, error),
            Outcome::NotFound => {
                let gone = RequestFailure::new(ErrorCause::NotFound, "the object is gone (404)");
                fail(retry.max_ms, true, &gone)
            }
            Outcome::Failed { error, retry_after_ms } => {
                fail(backoff_ms.max(retry_after_ms.unwrap_or(0)), false, error)
            }
            Outcome::Unanswered { error, .. } => fail(backoff_ms, false, error),
            Outcome::Refused { error } => {
                fail(retry.refused_ms, false, error);
                self.failures = 0;
                WriteResult::Refused
            }
        };
        Some((result, write))
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

    fn finish(flight: &mut Flight, outcome: Outcome) -> (WriteResult, u64) {
        let (id, retry) = (ActionId(1), RetrySettings::default());
        flight.started(id, ());
        assert!(!flight.is_free(NOW.plus(1_000_000)));
        assert_eq!(flight.finished(ActionId(2), NOW, &outcome, &retry), None);
        let (result, ()) = flight.finished(id, NOW, &outcome, &retry).unwrap();
        (result, flight.not_before.since(NOW))
    }

    fn failed(retry_after_ms: Option<u64>) -> Outcome {
        Outcome::Failed { error: "503".into(), retry_after_ms }
    }

    #[test]
    fn failures_back_off_and_a_success_resets_them() {
        let mut flight = Flight::default();
        let pauses: Vec<_> = (0..8).map(|_| finish(&mut flight, failed(None)).1).collect();
        assert_eq!(pauses, [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000]);
        assert_eq!(finish(&mut flight, failed(Some(90_000))).1, 90_000);
        assert_eq!(finish(&mut flight, Outcome::Unchanged), (WriteResult::Written, 0));
        assert!(flight.is_free(NOW) && flight.error.is_none());
        assert_eq!(finish(&mut flight, failed(Some(500))).1, 1_000);
    }

    #[test]
    fn a_change_of_the_object_ends_the_pause_after_a_conflict_but_not_after_a_failure() {
        let mut flight = Flight::default();
        finish(&mut flight, Outcome::Conflict { error: "".into() });
        assert!(!flight.is_free(NOW));
        flight.desired_changed();
        assert!(
            !flight.is_free(NOW),
            "a new desired value does not end a pause because the API fails"
        );
        flight.object_changed();
        assert!(flight.is_free(NOW));
        finish(&mut flight, failed(None));
        flight.object_changed();
        assert!(!flight.is_free(NOW));
        assert!(!flight.is_free(NOW.plus(1_999)) && flight.is_free(NOW.plus(2_000)));
    }

    #[test]
    fn a_refusal_waits_long_unless_something_else_is_desired() {
        let mut flight = Flight::default();
        let refused = Outcome::Refused { error: "403".into() };
        assert_eq!(finish(&mut flight, refused), (WriteResult::Refused, 300_000));
        flight.object_changed();
        assert!(!flight.is_free(NOW));
        flight.desired_changed();
        assert!(flight.is_free(NOW));
        assert_eq!(finish(&mut flight, Outcome::NotFound).1, 60_000);
    }

    #[test]
    fn a_closed_gate_brings_a_pause_and_counts_as_no_failure() {
        let mut flight = Flight::default();
        for _ in 0..5 {
            assert_eq!(finish(&mut flight, Outcome::Dropped), (WriteResult::NotWritten, 1_000));
        }
        assert!(!flight.is_free(NOW) && flight.is_free(NOW.plus(1_000)));
        assert_eq!((flight.failures, &flight.error), (0, &None));
    }
}
