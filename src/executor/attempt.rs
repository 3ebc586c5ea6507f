//! One attempt at an action, and what follows from it: an outcome, or a pause and another attempt.

use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};
use tokio::time::Instant;

use super::ExecutorConstants;
use super::FinishedAction;
use crate::apply::{self, Applier, Concerned};
use crate::client::{CallError, ErrorClass};
use crate::core::contract::action::Decision;
use crate::core::contract::error_cause::ErrorCause;
use crate::core::contract::event::Outcome;
use crate::environment;
use crate::leader::gate::Gate;
use crate::metrics::Metrics;

/// An action without an outcome.
#[derive(Debug)]
pub(super) struct PendingAction {
    pub(super) decision: Decision,
    pub(super) concerned: Concerned,
    /// Its place in time in its lane: when it, or the first of those that it replaced, was queued.
    pub(super) since: u64,
    queued_at: Instant,
    /// `None` until the first attempt.
    attempts: Option<Attempts>,
    /// The moment of the next attempt, while the action pauses after a failed one.
    pub(super) paused_until: Option<Instant>,
}

/// The attempts at one action.
#[derive(Debug)]
struct Attempts {
    began: Instant,
    /// How long the action was queued before the first.
    waited: Duration,
    made: u32,
    /// The pauses that are left.
    pauses: ExponentialBackoff,
    /// Why the last one failed.
    failure: Option<CallError>,
}

/// An attempt that ended.
#[derive(Debug)]
pub(super) struct EndedAttempt {
    pub(super) action: PendingAction,
    pub(super) result: Result<Outcome, AttemptError>,
}

/// Why an attempt ended without an outcome.
#[derive(Debug)]
pub(super) enum AttemptError {
    /// This instance may not write, or a cluster has left: not attempted.
    GateClosed,
    Failed(CallError),
}

/// What an attempt says about the API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// It answered in time, if only with an error.
    Came,
    TimedOut,
    /// Nothing was sent, or the request failed at once for want of a connection.
    None,
}

impl PendingAction {
    pub(super) fn new(decision: Decision, concerned: Concerned) -> Self {
        let queued_at = Instant::now();
        Self { decision, concerned, since: 0, queued_at, attempts: None, paused_until: None }
    }

    pub(super) fn is_started(&self) -> bool {
        self.attempts.is_some()
    }

    /// Begins the attempts. Returns how long the action was queued.
    pub(super) fn start(&mut self, config: &ExecutorConstants) -> Duration {
        let waited = self.queued_at.elapsed();
        let pauses = ExponentialBuilder::default()
            .with_min_delay(Duration::from_millis(config.backoff_first_ms))
            .with_max_delay(Duration::from_millis(config.backoff_max_ms))
            .with_max_times(config.tries.saturating_sub(1))
            .with_jitter()
            .with_jitter_seed(environment::random());
        let (began, pauses) = (Instant::now(), pauses.build());
        self.attempts = Some(Attempts { began, waited, made: 0, pauses, failure: None });
        waited
    }

    /// Makes one attempt.
    pub(super) async fn attempt(
        mut self,
        applier: Applier,
        gate: Gate,
        metrics: &Metrics,
    ) -> EndedAttempt {
        let (action, concerned) = (&self.decision.action, &self.concerned);
        let is_lead = || !action.is_leader_only() || gate.is_open();
        let may_write = || is_lead() && applier.are_joined(concerned);
        if !may_write() {
            return EndedAttempt { action: self, result: Err(AttemptError::GateClosed) };
        }
        if let Some(attempts) = &mut self.attempts {
            if attempts.made > 0 {
                metrics.action_retried(action.verb);
            }
            attempts.made += 1;
        }
        let result = applier.apply(action, may_write).await;
        EndedAttempt { result: result.map_err(AttemptError::Failed), action: self }
    }

    /// The pause before the next attempt; `None` when the attempt that failed was the last.
    pub(super) fn pause_after(&mut self, error: &CallError, longest: Duration) -> Option<Duration> {
        let asked = error.retry_after();
        // A Retry-After beyond the longest pause is left to the machine, which waits without
        // blocking the object.
        if error.class() != ErrorClass::Backoff || asked.is_some_and(|asked| asked > longest) {
            return None;
        }
        let attempts = self.attempts.as_mut()?;
        let pause = attempts.pauses.next()?;
        attempts.failure = Some(error.clone());
        Some(asked.unwrap_or(pause))
    }

    pub(super) fn finished(self, outcome: Outcome) -> FinishedAction {
        let decision = self.decision;
        let Some(Attempts { began, waited, made: attempts, .. }) = self.attempts else {
            let (waited, took) = (Duration::ZERO, Duration::ZERO);
            return FinishedAction { decision, outcome, waited, took, attempts: 0 };
        };
        let took = if attempts == 0 { Duration::ZERO } else { began.elapsed() };
        FinishedAction { decision, outcome, waited, took, attempts }
    }

    /// Ends the action because a cluster left.
    pub(super) fn left(self) -> FinishedAction {
        if self.is_started() { self.superseded() } else { self.finished(Outcome::Dropped) }
    }

    /// Ends the action before its next attempt: with the failure of the last one, if there was one,
    /// because that write may have taken effect.
    pub(super) fn superseded(self) -> FinishedAction {
        let failure = self.attempts.as_ref().and_then(|attempts| attempts.failure.as_ref());
        let outcome = failure.map_or(Outcome::Superseded, apply::outcome);
        self.finished(outcome)
    }
}

impl EndedAttempt {
    pub(super) fn answer(&self) -> Answer {
        match &self.result {
            Err(AttemptError::GateClosed) | Ok(Outcome::Dropped) => Answer::None,
            Err(AttemptError::Failed(error)) => match error.cause() {
                ErrorCause::TimedOut => Answer::TimedOut,
                // An API server that gives up a request at its `timeout`, just before the client
                // does, and a load balancer in front of one that hangs.
                _ if error.code() == Some(504) => Answer::TimedOut,
                _ if error.code().is_some() => Answer::Came,
                _ => Answer::None,
            },
            // A delete makes several requests, and has an outcome whichever fails.
            Ok(Outcome::Failed { error, .. } | Outcome::Unanswered { error, .. })
                if error.cause == ErrorCause::TimedOut =>
            {
                Answer::TimedOut
            }
            Ok(_) => Answer::Came,
        }
    }
}
