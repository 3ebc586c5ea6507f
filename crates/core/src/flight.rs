//! The writes to one target: at most one in flight, and when the next may be tried. This is the only
//! backoff of the program.
//!
//! A failure pauses the next write, and its [`FailureClass`] says what ends the pause early: a change of
//! the object, another desired value, or evidence that the API server carries out such writes again.

use super::contract::error_cause::{ErrorCause, RequestFailure};
use super::contract::event::Outcome;
use super::contract::settings::RetrySettings;
use super::data::ids::{ActionId, ResourceVersion};
use super::data::time::UnixMillis;
use super::data::used_names::{HoldsNames, UsedNames};

/// After so many conflicts in a row, the object changes faster than a write to it takes.
const CONFLICTS_UNTIL_STARVING: u8 = 3;

/// A lasting failure beside an object that alternates between success and failure must not be tried
/// again with each success.
const RELEASE_INTERVAL_MS: u64 = 30_000;

/// The state of the writes to one target. `W` is what a write in flight makes of it.
#[derive(Debug)]
pub(crate) struct Flight<W = ()> {
    in_flight: Option<(ActionId, W)>,
    /// No attempt before this, however well the API server works.
    paused_until: UnixMillis,
    /// The last attempt failed.
    failure: Option<Box<Failure>>,
}

#[derive(Debug)]
struct Failure {
    class: FailureClass,
    error: RequestFailure,
    /// No attempt before this. `None`: the pause ended early.
    paused_until: Option<UnixMillis>,
    /// It is written like any other: it had its turn, or such writes succeed again.
    is_released: bool,
    /// When that last happened to this failure, or to one before it in a row.
    released_at: Option<UnixMillis>,
    failures: u32,
    /// Conflicts in a row.
    conflicts: u8,
}

/// Why the last write was not carried out. Ordered by how much a success elsewhere says about it: a
/// write that was refused and now succeeds says that the others may, too; one that got no answer
/// says nothing about those that were refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum FailureClass {
    /// 409. Ends when the object changes.
    Conflict,
    /// No connection, no answer, 429 or 5xx. Ends when a watch of the cluster is live again.
    Unreachable,
    /// 404 although the watch shows the object. Ends when the object changes.
    Missing,
    /// 403, 422 or a webhook. Ends when something else is desired.
    Refused,
}

impl<W: HoldsNames> HoldsNames for Flight<W> {
    fn mark(&self, used: &mut UsedNames) {
        let Self { in_flight, paused_until: _, failure: _ } = self;
        in_flight.mark(used);
    }
}

impl<W> Default for Flight<W> {
    fn default() -> Self {
        Self { in_flight: None, paused_until: UnixMillis(0), failure: None }
    }
}

/// The part of a flight that does not depend on what it writes.
pub(crate) trait WriteFailure {
    /// Why the last attempt failed.
    fn failure_class(&self) -> Option<FailureClass>;

    /// The API server carries out such writes again. Returns whether that ended a pause.
    fn api_answers(&mut self, up_to: FailureClass, now: UnixMillis) -> bool;
}

impl<W> WriteFailure for Flight<W> {
    fn failure_class(&self) -> Option<FailureClass> {
        Some(self.failure.as_ref()?.class)
    }

    fn api_answers(&mut self, up_to: FailureClass, now: UnixMillis) -> bool {
        let is_in_flight = self.is_in_flight();
        let Some(failure) = self.failure.as_mut().filter(|_| !is_in_flight) else { return false };

        let is_concerned = failure.class >= FailureClass::Unreachable && failure.class <= up_to;
        if !is_concerned || !failure.may_be_released(now) {
            return false;
        }
        failure.paused_until = None;
        failure.is_released = true;
        failure.released_at = Some(now);
        true
    }
}

/// A write whose last attempt failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Retry {
    /// The end of its pause.
    pub(crate) at: UnixMillis,
    /// The API server answered that it will not carry it out, or does not know the object.
    pub(crate) is_refused: bool,
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
        self.paused_until.max(self.failed_until().unwrap_or_default())
    }

    fn failed_until(&self) -> Option<UnixMillis> {
        self.failure.as_ref()?.paused_until
    }

    /// `None`: the next write is no retry, because the last one did not fail by the API server's doing, or
    /// because such writes succeed again.
    pub(crate) fn retry(&self) -> Option<Retry> {
        let failure = self.failure.as_ref().filter(|_| !self.is_in_flight())?;
        let is_retry = failure.class >= FailureClass::Unreachable && !failure.is_released;
        is_retry.then(|| Retry {
            at: failure.paused_until.unwrap_or_default(),
            is_refused: failure.class >= FailureClass::Missing,
        })
    }

    /// Why the last attempt failed.
    pub(crate) fn error(&self) -> Option<&RequestFailure> {
        Some(&self.failure.as_ref()?.error)
    }

    /// Whether so many writes in a row met an object in a newer version that the next one would,
    /// too.
    pub(crate) fn is_starving(&self) -> bool {
        self.failure.as_ref().is_some_and(|failure| failure.conflicts >= CONFLICTS_UNTIL_STARVING)
    }

    /// Whether the last attempt met a conflict.
    pub(crate) fn is_conflicting(&self) -> bool {
        self.failure.as_ref().is_some_and(|failure| failure.conflicts > 0)
    }

    /// Nothing is in flight, and there is nothing to remember.
    pub(crate) fn is_idle(&self) -> bool {
        !self.is_in_flight() && self.failure.is_none() && self.paused_until == UnixMillis(0)
    }

    /// The object changed: a pause that waited for just that is over.
    pub(crate) fn object_changed(&mut self) {
        if let Some(failure) = &mut self.failure
            && matches!(failure.class, FailureClass::Conflict | FailureClass::Missing)
        {
            failure.paused_until = None;
        }
    }

    /// What is desired changed: a pause about the old value is over. A pause because the API
    /// fails is not.
    pub(crate) fn desired_changed(&mut self) {
        if self.failure.as_ref().is_none_or(|failure| failure.failures == 0) {
            self.end_pauses();
        }
    }

    /// A person has ended what kept the object from being written: the next attempt may come at once.
    pub(crate) fn end_pauses(&mut self) {
        self.paused_until = UnixMillis(0);
        self.end_failure_pause();
    }

    /// A queue of retries gave it its turn.
    pub(crate) fn on_turn(&mut self) {
        if let Some(failure) = &mut self.failure {
            failure.paused_until = None;
            failure.is_released = true;
        }
    }

    /// Ends the pause after a failure. A pause that protects from other writers stays.
    pub(crate) fn end_failure_pause(&mut self) {
        if let Some(failure) = &mut self.failure {
            failure.paused_until = None;
        }
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
                self.failed(FailureClass::Conflict, outcome, error, retry, now)
            }
            Outcome::NotFound => {
                let gone = RequestFailure::new(ErrorCause::NotFound, "the object is gone (404)");
                self.failed(FailureClass::Missing, outcome, &gone, retry, now)
            }
            Outcome::Failed { error, .. } | Outcome::Unanswered { error, .. } => {
                self.failed(FailureClass::Unreachable, outcome, error, retry, now)
            }
            Outcome::Refused { error } => {
                self.failed(FailureClass::Refused, outcome, error, retry, now)
            }
        };
        Some((result, write))
    }

    fn failed(
        &mut self,
        class: FailureClass,
        outcome: &Outcome,
        error: &RequestFailure,
        retry: &RetrySettings,
        now: UnixMillis,
    ) -> WriteResult {
        let previous = self.failure.take();
        let failures = previous.as_ref().map_or(0, |previous| previous.failures);
        let conflicts = previous.as_ref().map_or(0, |previous| previous.conflicts);
        let is_known =
            previous.as_ref().is_some_and(|old| old.class == class && old.error == *error);
        let released_at = previous.and_then(|previous| previous.released_at);

        let is_refused = class == FailureClass::Refused;
        let is_conflict = class == FailureClass::Conflict;
        self.failure = Some(Box::new(Failure {
            class,
            error: error.clone(),
            paused_until: Some(now.plus(pause_ms(outcome, failures, retry))),
            is_released: false,
            released_at,
            failures: if is_refused { 0 } else { failures.saturating_add(1) },
            conflicts: if is_conflict { conflicts.saturating_add(1) } else { 0 },
        }));
        match (is_refused, is_known) {
            (false, _) => WriteResult::NotWritten,
            (true, false) => WriteResult::Refused,
            (true, true) => WriteResult::RefusedAgain,
        }
    }
}

impl Failure {
    fn may_be_released(&self, now: UnixMillis) -> bool {
        self.released_at.is_none_or(|at| now.since(at) >= RELEASE_INTERVAL_MS)
    }
}

/// How long to pause after a failed attempt that came after so many failures.
fn pause_ms(outcome: &Outcome, failures: u32, retry: &RetrySettings) -> u64 {
    let backoff_ms = doubled(retry.first_ms, failures, retry.max_ms);
    match outcome {
        // To try again does not help until something changes.
        Outcome::Refused { .. } | Outcome::NotFound => retry.max_ms,
        // One header must not stop a hub for a day.
        Outcome::Failed { retry_after_ms: Some(ms), .. } => backoff_ms.max(*ms).min(retry.max_ms),
        _ => backoff_ms,
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

    fn refused() -> Outcome {
        Outcome::Refused { error: "403".into() }
    }

    fn conflict() -> Outcome {
        Outcome::Conflict { error: "409".into() }
    }

    #[test]
    fn failures_back_off_to_30_s_and_a_success_resets_them() {
        let mut flight = Flight::default();
        let pauses: Vec<_> = (0..7).map(|_| finish(&mut flight, failed(None)).1).collect();
        assert_eq!(pauses, [1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000]);
        assert_eq!(finish(&mut flight, failed(Some(86_400_000))).1, 30_000, "not for a day");
        assert_eq!(finish(&mut flight, Outcome::Unchanged), (WriteResult::Written, 0));
        assert!(flight.is_free(NOW) && flight.is_idle() && flight.error().is_none());
        assert_eq!(finish(&mut flight, failed(Some(500))).1, 1_000);
        assert_eq!(finish(&mut flight, failed(Some(20_000))).1, 20_000);
    }

    #[test]
    fn the_class_of_a_failure_says_what_ends_its_pause() {
        let ends: [fn(&mut Flight); 4] = [
            Flight::object_changed,
            Flight::desired_changed,
            |flight| _ = flight.api_answers(FailureClass::Unreachable, NOW),
            |flight| _ = flight.api_answers(FailureClass::Refused, NOW),
        ];
        for (outcome, expected) in [
            (conflict(), [true, false, false, false]),
            (failed(None), [false, false, true, true]),
            (Outcome::NotFound, [true, false, false, true]),
            (refused(), [false, true, false, true]),
            (Outcome::Dropped, [false, true, false, false]),
        ] {
            let ended = ends.map(|end| {
                let mut flight = Flight::default();
                finish(&mut flight, outcome.clone());
                assert!(!flight.is_free(NOW));
                end(&mut flight);
                flight.is_free(NOW)
            });
            assert_eq!(ended, expected, "{outcome:?}");
        }
    }

    #[test]
    fn what_is_refused_or_missing_waits_30_s() {
        let mut flight = Flight::default();
        assert_eq!(finish(&mut flight, refused()), (WriteResult::Refused, 30_000));
        assert_eq!(finish(&mut flight, Outcome::NotFound).1, 30_000);
    }

    #[test]
    fn a_released_failure_is_no_news_when_it_comes_again() {
        let mut flight = Flight::default();
        assert_eq!(finish(&mut flight, refused()).0, WriteResult::Refused);
        assert!(flight.api_answers(FailureClass::Refused, NOW));
        assert!(flight.is_free(NOW) && !flight.is_idle());
        assert_eq!(finish(&mut flight, refused()).0, WriteResult::RefusedAgain);
    }

    #[test]
    fn a_failure_is_released_at_most_once_in_30_s() {
        let mut flight = Flight::default();
        finish(&mut flight, refused());
        assert!(flight.api_answers(FailureClass::Refused, NOW));
        finish(&mut flight, refused());
        assert!(!flight.api_answers(FailureClass::Refused, NOW.plus(29_999)));
        assert!(flight.api_answers(FailureClass::Refused, NOW.plus(30_000)));
    }

    #[test]
    fn the_backoff_of_an_overloaded_server_goes_on_after_a_release() {
        let mut flight = Flight::default();
        assert_eq!(finish(&mut flight, failed(None)).1, 1_000);
        assert!(flight.api_answers(FailureClass::Unreachable, NOW));
        assert_eq!(finish(&mut flight, failed(None)).1, 2_000);
    }

    #[test]
    fn a_release_leaves_the_pause_that_protects_from_other_writers() {
        let mut flight = Flight::default();
        finish(&mut flight, failed(None));
        flight.pause_until(NOW.plus(16_000));
        assert!(flight.api_answers(FailureClass::Refused, NOW));
        assert_eq!(flight.not_before(), NOW.plus(16_000));
    }

    #[test]
    fn a_closed_gate_brings_a_pause_and_counts_as_no_failure() {
        let mut flight = Flight::default();
        for _ in 0..5 {
            assert_eq!(finish(&mut flight, Outcome::Dropped), (WriteResult::NotWritten, 1_000));
        }
        assert!(!flight.is_free(NOW) && flight.is_free(NOW.plus(1_000)));
        assert_eq!(flight.error(), None);
    }
}
