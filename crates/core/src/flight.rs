//! The writes to one target: at most one in flight, and when the next may be tried.

use super::contract::error_cause::{ErrorCause, RequestFailure};
use super::contract::event::Outcome;
use super::contract::settings::RetrySettings;
use super::data::ids::{ActionId, ResourceVersion};
use super::data::time::UnixMillis;
use super::data::used_names::{HoldsNames, UsedNames};

/// After so many conflicts in a row, the object changes faster than a write to it takes.
const CONFLICTS_UNTIL_STARVING: u8 = 3;

/// The state of the writes to one target. `W` is what a write in flight makes of it.
#[derive(Debug)]
pub(crate) struct Flight<W = ()> {
    in_flight: Option<(ActionId, W)>,
    /// No attempt before this, however well the API server works.
    paused_until: UnixMillis,
    /// No attempt before this, because the last one failed.
    failed_until: UnixMillis,
    failures: u32,
    /// Conflicts in a row.
    conflicts: u8,
    /// The pause after the failure ends early when the object changes.
    until_changed: bool,
    /// What the API server must do for the next attempt to succeed.
    blocked: Option<Blocked>,
    /// Why the last attempt failed.
    pub(crate) error: Option<Box<RequestFailure>>,
}

/// Why an API server did not carry out a write, by how much a success elsewhere says about it: a
/// write that was refused and now succeeds says that the others may, too; one that got no answer
/// says nothing about those that were refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Blocked {
    /// No connection, no answer, or a 5xx.
    Failing,
    /// 404, though the watch shows the object.
    Missing,
    /// 403, 422, an admission webhook.
    Refused,
}

impl HoldsNames for Blocked {
    fn mark(&self, _: &mut UsedNames) {}
}

impl<W: HoldsNames> HoldsNames for Flight<W> {
    fn mark(&self, used: &mut UsedNames) {
        let Self {
            in_flight,
            paused_until: _,
            failed_until: _,
            failures: _,
            conflicts: _,
            until_changed: _,
            blocked: _,
            error: _,
        } = self;
        in_flight.mark(used);
    }
}

impl<W> Default for Flight<W> {
    fn default() -> Self {
        Self {
            in_flight: None,
            paused_until: UnixMillis(0),
            failed_until: UnixMillis(0),
            failures: 0,
            conflicts: 0,
            until_changed: false,
            blocked: None,
            error: None,
        }
    }
}

/// The part of a flight that does not depend on what it writes.
pub(crate) trait WritePauses {
    /// What the last attempt failed of, if the API server was the reason.
    fn blocked(&self) -> Option<Blocked>;

    /// Whether nothing is in flight and a pause runs because the API server did not carry out the
    /// last write.
    fn waits_for_api(&self, now: UnixMillis) -> bool;

    /// Ends the pause after a failure. A pause that protects from other writers stays.
    fn end_failure_pause(&mut self);
}

impl<W> WritePauses for Flight<W> {
    fn blocked(&self) -> Option<Blocked> {
        self.blocked
    }

    fn waits_for_api(&self, now: UnixMillis) -> bool {
        self.blocked.is_some() && !self.is_in_flight() && self.failed_until > now
    }

    fn end_failure_pause(&mut self) {
        self.failed_until = UnixMillis(0);
        self.until_changed = false;
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
    /// The same refusal as before: a person knows.
    RefusedAgain,
}

impl<W> Flight<W> {
    pub(crate) fn started(&mut self, id: ActionId, write: W) {
        debug_assert!(self.in_flight.is_none(), "two writes to one target in flight");
        self.in_flight = Some((id, write));
    }

    /// The action in flight gets its final id, unless another one is in flight by now.
    pub(crate) fn renumber(&mut self, from: ActionId, to: ActionId) {
        if let Some((id, _)) = self.in_flight.as_mut().filter(|(id, _)| *id == from) {
            *id = to;
        }
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
        !self.is_in_flight() && self.not_before() <= now
    }

    /// No attempt before this.
    pub(crate) fn not_before(&self) -> UnixMillis {
        self.paused_until.max(self.failed_until)
    }

    /// When the next attempt may come, with a probe of its group at `probe_at`.
    pub(crate) fn next_attempt_at(&self, probe_at: Option<UnixMillis>) -> UnixMillis {
        let is_probed = self.blocked.is_some() && !self.is_in_flight();
        let failed_until = probe_at
            .filter(|_| is_probed)
            .map_or(self.failed_until, |at| at.min(self.failed_until));
        self.paused_until.max(failed_until)
    }

    /// Whether so many writes in a row met an object in a newer version that the next one would,
    /// too.
    pub(crate) fn is_starving(&self) -> bool {
        self.conflicts >= CONFLICTS_UNTIL_STARVING
    }

    /// Whether the last attempt met a conflict.
    pub(crate) fn is_conflicting(&self) -> bool {
        self.conflicts > 0
    }

    /// Nothing is in flight, and there is nothing to remember.
    pub(crate) fn is_idle(&self) -> bool {
        !self.is_in_flight() && self.failures == 0 && self.not_before() == UnixMillis(0)
    }

    /// The object changed: a pause that waited for just that is over.
    pub(crate) fn object_changed(&mut self) {
        if self.until_changed {
            self.end_failure_pause();
        }
    }

    /// What is desired changed: a pause about the old value is over. A pause because the API
    /// fails is not.
    pub(crate) fn desired_changed(&mut self) {
        if self.failures == 0 {
            (self.paused_until, self.failed_until) = (UnixMillis(0), UnixMillis(0));
        }
    }

    /// A person has ended what kept the object from being written: the next attempt may come at once.
    pub(crate) fn end_pauses(&mut self) {
        self.paused_until = UnixMillis(0);
        self.end_failure_pause();
    }

    /// Pauses until `at`; not counted as a failure.
    pub(crate) fn pause_until(&mut self, at: UnixMillis) {
        self.paused_until = self.paused_until.max(at);
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
            Outcome::Conflict { error } => {
                self.conflicts = self.conflicts.saturating_add(1);
                self.failed(now.plus(backoff_ms), None, error)
            }
            Outcome::NotFound => {
                let gone = RequestFailure::new(ErrorCause::NotFound, "the object is gone (404)");
                self.failed(now.plus(retry.max_ms), Some(Blocked::Missing), &gone)
            }
            Outcome::Failed { error, retry_after_ms } => {
                let pause_ms = backoff_ms.max(retry_after_ms.unwrap_or(0));
                self.failed(now.plus(pause_ms), Some(Blocked::Failing), error)
            }
            Outcome::Unanswered { error, .. } => {
                self.failed(now.plus(backoff_ms), Some(Blocked::Failing), error)
            }
            Outcome::Refused { error } => {
                let is_known =
                    self.blocked == Some(Blocked::Refused) && self.error.as_deref() == Some(error);
                self.failed(now.plus(retry.refused_ms), Some(Blocked::Refused), error);
                self.failures = 0;
                if is_known { WriteResult::RefusedAgain } else { WriteResult::Refused }
            }
        };
        Some((result, write))
    }

    fn failed(
        &mut self,
        until: UnixMillis,
        blocked: Option<Blocked>,
        error: &RequestFailure,
    ) -> WriteResult {
        self.failures = self.failures.saturating_add(1);
        self.failed_until = until;
        self.until_changed = matches!(blocked, None | Some(Blocked::Missing));
        self.blocked = blocked;
        if blocked.is_some() {
            self.conflicts = 0;
        }
        self.error = Some(Box::new(error.clone()));
        WriteResult::NotWritten
    }
}

/// The version of the object that a write made, where known.
pub(crate) fn written_version(outcome: &Outcome) -> ResourceVersion {
    match outcome {
        Outcome::Applied { resource_version: Some(version), .. } => ResourceVersion::new(version),
        _ => ResourceVersion::Absent,
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
        (result, flight.not_before().since(NOW))
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
