//! The writes to one object, with the only backoff of the program.
//!
//! At most one write is in flight. A failure delays the next one. Its [`FailureClass`] determines
//! what ends the delay early: a change of the object, another desired value, or evidence that the
//! API server accepts such writes again.
//!
//! After a failure there is a *backoff*. There are also *pauses*, which a success of other writes
//! does not end. Most pauses come from *contention*: another writer changes the value back. From a
//! certain number of overwrites on, each one doubles the pause, so that two controllers never
//! overwrite each other at full speed.

use crate::contract::error_cause::{ErrorCause, RequestFailure};
use crate::contract::event::Outcome;
use crate::contract::settings::RetrySettings;
use crate::data::ids::{ActionId, ResourceVersion};
use crate::data::time::UnixMillis;
use crate::write_queue::{Due, Rank};

/// After this many conflicts in a row, the object changes faster than a write takes.
const CONFLICTS_UNTIL_STARVING: u32 = 3;

/// How often a success of other writes may release a failed one. Another object may alternate
/// between success and failure, and a lasting failure must not be retried after each of its
/// successes.
const RELEASE_INTERVAL_MS: u64 = 30_000;

#[derive(Debug, Default)]
pub(crate) struct WriteState {
    in_flight: Option<Started>,
    /// The failure of the last attempt.
    failure: Option<Box<Failure>>,
    /// No attempt starts before this, even if the API server works.
    paused_until: Option<UnixMillis>,
    contention: Option<Box<Contention>>,
}

#[derive(Debug)]
struct Started {
    id: ActionId,
    /// The watch has shown another version since the write was decided.
    object_changed: bool,
}

#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) class: FailureClass,
    pub(crate) error: RequestFailure,
    failed_at: UnixMillis,
    wait: Wait,
    /// When a success of such writes last released this failure, or an earlier one in the same row.
    released_at: Option<UnixMillis>,
    /// Failures of this class in a row.
    failures: u32,
    /// The attempt before failed, too, so it is a problem. Conflicts count from the fourth one on.
    pub(crate) is_repeated: bool,
}

/// What the next attempt waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wait {
    Until(UnixMillis),
    /// The backoff is over. If the rule queues its retries, the write now waits to be admitted.
    Turn,
    /// The next attempt is no retry: it was admitted, or such writes succeed again.
    Nothing,
}

/// Why the last write failed, ordered by how many other failures a success ends. If a refused write
/// succeeds, the other failed writes may succeed as well. If an unanswered one succeeds, this does
/// not concern refused ones.
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

/// Another writer keeps changing the value.
#[derive(Debug)]
pub(crate) struct Contention {
    /// How often the value was overwritten without a quiet period in between.
    pub(crate) overwrites: u32,
    pub(crate) last_at: UnixMillis,
    queued_ms: u64,
    /// The field manager of the last such writer, if known.
    pub(crate) manager: Option<Box<str>>,
}

/// When overwrites cause pauses, and how long these are.
pub(crate) struct ContentionLimits {
    /// The first overwrite that causes a pause, counted from 1.
    pub(crate) pause_from: u32,
    /// The first pause; each further overwrite doubles it.
    pub(crate) first_ms: u64,
    pub(crate) max_ms: u64,
    /// After this long without an overwrite, the count starts again.
    pub(crate) quiet_ms: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Completion {
    Written { object_changed: bool },
    NotWritten,
}

impl WriteState {
    /// The end of the backoff or pause, even if it is past.
    pub(crate) fn not_before(&self) -> Option<UnixMillis> {
        self.failure().and_then(Failure::waits_until).max(self.paused_until)
    }

    pub(crate) fn is_in_flight(&self) -> bool {
        self.in_flight.is_some()
    }

    pub(crate) fn action(&self) -> Option<ActionId> {
        self.in_flight.as_ref().map(|started| started.id)
    }

    /// The end of the pause, regardless of any backoff.
    pub(crate) fn paused_until(&self) -> Option<UnixMillis> {
        self.paused_until
    }

    pub(crate) fn failure(&self) -> Option<&Failure> {
        self.failure.as_deref()
    }

    /// When a failed write is due in a queue of retries: at the end of its backoff. If the API
    /// server refused it and few wait, it may be retried earlier, but it makes no other write wait:
    /// nothing has changed, so it will most likely be refused again.
    ///
    /// `None`: the next write is no retry. The last one did not fail because of the API server, it
    /// was admitted as a retry, or such writes succeed again.
    pub(crate) fn retry(&self) -> Option<Due> {
        let failure = self.failure().filter(|_| !self.is_in_flight())?;
        if failure.class < FailureClass::Unreachable {
            return None;
        }
        match failure.wait {
            Wait::Until(at) if failure.class >= FailureClass::Missing => {
                Some(Due { rank: Rank::Low, at, early_from: failure.failed_at })
            }
            Wait::Until(at) => Some(Due::at(at)),
            Wait::Turn => Some(Due::at(UnixMillis::default())),
            Wait::Nothing => None,
        }
    }

    pub(crate) fn contention(&self) -> Option<&Contention> {
        self.contention.as_deref()
    }

    /// The last attempt met a conflict.
    pub(crate) fn is_conflicting(&self) -> bool {
        self.failure().is_some_and(|failure| failure.class == FailureClass::Conflict)
    }

    /// Several attempts in a row met a conflict, so the next one compares only the annotation.
    pub(crate) fn is_starving(&self) -> bool {
        let conflict = self.failure().filter(|failure| failure.class == FailureClass::Conflict);
        conflict.is_some_and(|conflict| conflict.failures >= CONFLICTS_UNTIL_STARVING)
    }

    /// No write is in flight, and nothing needs to be remembered.
    pub(crate) fn is_idle(&self) -> bool {
        !self.is_in_flight()
            && self.failure.is_none()
            && self.paused_until.is_none()
            && self.contention.is_none()
    }

    pub(crate) fn on_started(&mut self, id: ActionId) {
        debug_assert!(self.in_flight.is_none(), "two writes to one object in flight");
        self.in_flight = Some(Started { id, object_changed: false });
    }

    /// `None`: this action is not in flight.
    pub(crate) fn on_finished(
        &mut self,
        id: ActionId,
        outcome: &Outcome,
        retry: &RetrySettings,
        now: UnixMillis,
    ) -> Option<Completion> {
        let Started { object_changed, .. } = self.in_flight.take_if(|started| started.id == id)?;

        let mut fail = |class| {
            let previous = self.failure.take();
            let failure = Failure::new(class, outcome, previous.as_deref(), retry, now);
            self.failure = Some(Box::new(failure));
            Completion::NotWritten
        };
        let completion = match outcome {
            Outcome::Applied { .. } | Outcome::Unchanged | Outcome::DryRun => {
                self.failure = None;
                // A pause that began during the write is due to an overwrite that was seen then.
                self.paused_until = self.paused_until.filter(|until| *until > now);
                Completion::Written { object_changed }
            }
            // No request was sent, so an earlier failure still counts.
            Outcome::Superseded => Completion::NotWritten,
            Outcome::Dropped => {
                // The gate may be closed before the machine learns of it: do not ask it again at
                // once.
                self.pause(now.plus(retry.first_ms));
                Completion::NotWritten
            }
            Outcome::Conflict { .. } => fail(FailureClass::Conflict),
            Outcome::NotFound => fail(FailureClass::Missing),
            Outcome::Failed { .. } | Outcome::Unanswered { .. } => fail(FailureClass::Unreachable),
            Outcome::Refused { .. } => fail(FailureClass::Refused),
        };
        if object_changed {
            // The watch showed the conflicting change before the outcome, so there is nothing to
            // wait for.
            self.on_object_changed();
        }
        Some(completion)
    }

    pub(crate) fn on_object_changed(&mut self) {
        if let Some(started) = &mut self.in_flight {
            started.object_changed = true;
        }
        if let Some(failure) = &mut self.failure
            && matches!(failure.class, FailureClass::Conflict | FailureClass::Missing)
        {
            failure.end_backoff();
        }
    }

    /// Ends a pause that belongs to the old value. A backoff because the API server fails
    /// continues.
    pub(crate) fn on_desired_changed(&mut self) {
        if self.failure().is_none_or(|failure| failure.class == FailureClass::Refused) {
            self.end_pauses();
        }
    }

    /// The API server accepts such writes again. Returns whether that ended a backoff.
    pub(crate) fn on_api_answers(&mut self, up_to: FailureClass, now: UnixMillis) -> bool {
        let Some(failure) = self.failure.as_mut() else { return false };
        let is_concerned = failure.class >= FailureClass::Unreachable && failure.class <= up_to;
        let is_recent = |at: UnixMillis| now.since(at) < RELEASE_INTERVAL_MS;
        if self.in_flight.is_some() || !is_concerned || failure.released_at.is_some_and(is_recent) {
            return false;
        }

        failure.wait = Wait::Nothing;
        failure.released_at = Some(now);
        true
    }

    /// The queue of retries admitted it.
    pub(crate) fn on_turn(&mut self) {
        if let Some(failure) = &mut self.failure {
            failure.wait = Wait::Nothing;
        }
    }

    /// Another writer changed the value. From a certain number of overwrites on, this causes a
    /// pause.
    pub(crate) fn on_overwritten(
        &mut self,
        manager: Option<&str>,
        limits: &ContentionLimits,
        now: UnixMillis,
    ) {
        let recent = self.contention.take().filter(|old| old.is_recent(limits.quiet_ms, now));
        let overwrites = recent.map_or(0, |old| old.overwrites).saturating_add(1);
        let manager = manager.map(Box::from);
        self.contention =
            Some(Box::new(Contention { overwrites, last_at: now, queued_ms: 0, manager }));

        if let Some(doublings) = overwrites.checked_sub(limits.pause_from) {
            self.pause(now.plus(doubled(limits.first_ms, doublings, limits.max_ms)));
        }
    }

    /// A rewrite starts, after this time in its queue, which does not count as quiet.
    pub(crate) fn on_rewrite_started(&mut self, queued_ms: u64) {
        if let Some(contention) = &mut self.contention {
            contention.queued_ms = queued_ms;
        }
    }

    /// Delays the next attempt without a failure.
    pub(crate) fn pause(&mut self, until: UnixMillis) {
        self.paused_until = self.paused_until.max(Some(until));
    }

    /// The next attempt waits for its turn at most: an operator resumed the object, or the old value
    /// no longer counts.
    pub(crate) fn end_pauses(&mut self) {
        self.paused_until = None;
        self.end_backoff();
    }

    /// Ends the backoff, because another object is written instead or the failed one changed.
    pub(crate) fn end_backoff(&mut self) {
        if let Some(failure) = &mut self.failure {
            failure.end_backoff();
        }
    }

    /// Earlier overwrites do not count.
    pub(crate) fn forget_contention(&mut self) {
        self.contention = None;
    }
}

impl Failure {
    fn new(
        class: FailureClass,
        outcome: &Outcome,
        previous: Option<&Self>,
        retry: &RetrySettings,
        now: UnixMillis,
    ) -> Self {
        let of_class = previous.filter(|previous| previous.class == class);
        let failures = of_class.map_or(0, |previous| previous.failures);
        let gone = || RequestFailure::new(ErrorCause::NotFound, "the object is gone (404)");
        Self {
            class,
            error: outcome.error().cloned().unwrap_or_else(gone),
            failed_at: now,
            wait: Wait::Until(now.plus(backoff_ms(outcome, failures, retry))),
            released_at: previous.and_then(|previous| previous.released_at),
            failures: failures.saturating_add(1),
            is_repeated: match class {
                FailureClass::Conflict => failures >= CONFLICTS_UNTIL_STARVING,
                _ => previous.is_some_and(|previous| previous.class != FailureClass::Conflict),
            },
        }
    }

    fn waits_until(&self) -> Option<UnixMillis> {
        match self.wait {
            Wait::Until(at) => Some(at),
            Wait::Turn | Wait::Nothing => None,
        }
    }

    fn end_backoff(&mut self) {
        if matches!(self.wait, Wait::Until(_)) {
            self.wait = Wait::Turn;
        }
    }
}

/// How long to wait after a failed attempt, given the number of such failures before it.
fn backoff_ms(outcome: &Outcome, failures: u32, retry: &RetrySettings) -> u64 {
    let doubled_ms = doubled(retry.first_ms, failures, retry.max_ms);
    match outcome {
        // Another attempt does not help until something changes.
        Outcome::Refused { .. } | Outcome::NotFound => retry.max_ms,
        // A `Retry-After` header must not stop the writes to a hub for a day.
        Outcome::Failed { retry_after_ms: Some(ms), .. } => doubled_ms.max(*ms).min(retry.max_ms),
        _ => doubled_ms,
    }
}

pub(crate) fn doubled(first: u64, times: u32, max: u64) -> u64 {
    first.saturating_mul(1_u64.checked_shl(times).unwrap_or(u64::MAX)).min(max)
}

/// The version that a write created, if known.
pub(crate) fn written_version(outcome: &Outcome) -> ResourceVersion {
    match outcome {
        Outcome::Applied { resource_version: Some(version) } => ResourceVersion::new(version),
        _ => ResourceVersion::Absent,
    }
}

impl Contention {
    /// Whether the last overwrite is so recent that another one makes the pause longer.
    pub(crate) fn is_recent(&self, quiet_ms: u64, now: UnixMillis) -> bool {
        now < self.quiet_at(quiet_ms)
    }

    /// When the contention ends if no further overwrite follows.
    pub(crate) fn quiet_at(&self, quiet_ms: u64) -> UnixMillis {
        self.last_at.plus(quiet_ms).plus(self.queued_ms).plus(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: UnixMillis = UnixMillis(1_000_000);
    const RETRY: RetrySettings = RetrySettings { first_ms: 1_000, max_ms: 30_000 };
    const LIMITS: ContentionLimits =
        ContentionLimits { pause_from: 3, first_ms: 1_000, max_ms: 4_000, quiet_ms: 10_000 };

    fn failed(retry_after_ms: Option<u64>) -> Outcome {
        Outcome::Failed { error: "503".into(), retry_after_ms }
    }

    fn refused() -> Outcome {
        Outcome::Refused { error: "403".into() }
    }

    fn conflict() -> Outcome {
        Outcome::Conflict { error: "409".into() }
    }

    fn write(state: &mut WriteState, outcome: &Outcome) -> Completion {
        state.on_started(ActionId(1));
        assert!(state.is_in_flight());
        assert_eq!(state.on_finished(ActionId(2), outcome, &RETRY, NOW), None);
        state.on_finished(ActionId(1), outcome, &RETRY, NOW).expect("it is in flight")
    }

    fn pause_after(state: &mut WriteState, outcome: &Outcome) -> u64 {
        write(state, outcome);
        state.not_before().map_or(0, |until| until.since(NOW))
    }

    #[test]
    fn failures_back_off_to_30_s_and_a_success_resets_them() {
        let mut state = WriteState::default();

        let pauses = [0; 7].map(|_| pause_after(&mut state, &failed(None)));
        assert_eq!(pauses, [1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000]);
        assert_eq!(pause_after(&mut state, &failed(Some(86_400_000))), 30_000, "not for a day");

        assert!(state.on_api_answers(FailureClass::Unreachable, NOW));
        assert_eq!(pause_after(&mut state, &failed(None)), 30_000, "a release is no success");

        assert_eq!(pause_after(&mut state, &Outcome::Unchanged), 0);
        assert!(state.is_idle());
        assert_eq!(pause_after(&mut state, &failed(Some(500))), 1_000);
        assert_eq!(pause_after(&mut state, &failed(Some(20_000))), 20_000);

        let conflicts = [0; 4].map(|_| pause_after(&mut state, &conflict()));
        assert_eq!(conflicts, [1_000, 2_000, 4_000, 8_000], "an outage is no conflict");
        assert_eq!(pause_after(&mut state, &failed(None)), 1_000, "and a conflict no outage");
    }

    #[test]
    fn the_second_failure_in_a_row_is_one_that_somebody_should_look_at() {
        for (outcomes, is_repeated) in [
            ([refused(), refused()], true),
            ([refused(), failed(None)], true),
            ([refused(), conflict()], false),
            ([conflict(), refused()], false),
            ([refused(), Outcome::Unchanged], false),
        ] {
            let mut state = WriteState::default();
            let found = outcomes.clone().map(|outcome| {
                write(&mut state, &outcome);
                state.failure().is_some_and(|failure| failure.is_repeated)
            });
            assert_eq!(found, [false, is_repeated], "{outcomes:?}");
        }
    }

    #[test]
    fn a_closed_gate_brings_a_pause_and_counts_as_no_failure() {
        let mut state = WriteState::default();
        assert_eq!([0; 3].map(|_| pause_after(&mut state, &Outcome::Dropped)), [1_000; 3]);
        assert!(state.failure().is_none());
    }

    fn ends_with(outcome: &Outcome, end: fn(&mut WriteState)) -> bool {
        let mut state = WriteState::default();
        write(&mut state, outcome);
        assert!(state.not_before() > Some(NOW));
        end(&mut state);
        state.not_before().is_none()
    }

    #[test]
    fn the_class_of_a_failure_says_what_ends_its_pause() {
        let ends: [fn(&mut WriteState); 4] = [
            WriteState::on_object_changed,
            WriteState::on_desired_changed,
            |state| _ = state.on_api_answers(FailureClass::Unreachable, NOW),
            |state| _ = state.on_api_answers(FailureClass::Refused, NOW),
        ];

        for (outcome, expected) in [
            (conflict(), [true, false, false, false]),
            (failed(None), [false, false, true, true]),
            (Outcome::NotFound, [true, false, false, true]),
            (refused(), [false, true, false, true]),
            (Outcome::Dropped, [false, true, false, false]),
        ] {
            assert_eq!(ends.map(|end| ends_with(&outcome, end)), expected, "{outcome:?}");
        }
    }

    #[test]
    fn pauses_grow_from_the_third_overwrite_until_it_is_quiet_again() {
        let mut state = WriteState::default();

        let mut overwrite = |now| {
            state.on_overwritten(None, &LIMITS, now);
            state.paused_until.take().map(|until| until.since(now))
        };
        let pauses = [0; 6].map(|_| overwrite(NOW));
        assert_eq!(pauses, [None, None, Some(1_000), Some(2_000), Some(4_000), Some(4_000)]);

        assert_eq!(overwrite(NOW.plus(LIMITS.quiet_ms + 1)), None);
        assert_eq!(state.contention().map(|last| last.overwrites), Some(1));
    }

    #[test]
    fn a_success_does_not_end_the_pause_of_an_overwrite_that_was_seen_before_it() {
        let mut state = WriteState::default();
        state.on_started(ActionId(1));
        for _ in 0..LIMITS.pause_from {
            state.on_overwritten(None, &LIMITS, NOW);
        }

        state.on_finished(ActionId(1), &Outcome::Unchanged, &RETRY, NOW);

        assert_eq!(state.not_before(), Some(NOW.plus(1_000)));
    }
}
