//! The one attempt at an action, and what it says about the API server.

use std::time::Duration;

use tokio::time::Instant;

use super::FinishedAction;
use crate::apply::{self, Applier, Concerned};
use crate::client::CallError;
use crate::core::contract::action::Decision;
use crate::core::contract::error_cause::ErrorCause;
use crate::core::contract::event::Outcome;
use crate::leader::gate::Gate;

/// An action that waits in its lane.
#[derive(Debug)]
pub(super) struct PendingAction {
    pub(super) decision: Decision,
    pub(super) concerned: Concerned,
    /// Its place in time in its lane: when it, or the first of those that it replaced, was queued.
    pub(super) since: u64,
    queued_at: Instant,
}

/// An attempt that ended.
#[derive(Debug)]
pub(super) struct EndedAttempt {
    action: PendingAction,
    result: Result<Outcome, AttemptError>,
    waited: Duration,
    took: Duration,
}

/// Why an attempt ended without an outcome.
#[derive(Debug)]
enum AttemptError {
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
        Self { decision, concerned, since: 0, queued_at: Instant::now() }
    }

    /// How long it has been queued.
    pub(super) fn waited(&self) -> Duration {
        self.queued_at.elapsed()
    }

    pub(super) async fn attempt(self, applier: Applier, gate: Gate) -> EndedAttempt {
        let (waited, began) = (self.waited(), Instant::now());
        let (action, concerned) = (&self.decision.action, &self.concerned);
        let is_lead = || !action.is_leader_only() || gate.is_open();
        let may_write = || is_lead() && applier.are_joined(concerned);

        if !may_write() {
            let (result, took) = (Err(AttemptError::GateClosed), Duration::ZERO);
            return EndedAttempt { action: self, result, waited, took };
        }
        let result = applier.apply(action, may_write).await.map_err(AttemptError::Failed);
        EndedAttempt { action: self, result, waited, took: began.elapsed() }
    }

    /// Ends the action without an attempt.
    pub(super) fn unattempted(self, outcome: Outcome) -> FinishedAction {
        let (waited, took) = (Duration::ZERO, Duration::ZERO);
        FinishedAction { decision: self.decision, outcome, waited, took }
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

    pub(super) fn finished(self) -> FinishedAction {
        let Self { action, result, waited, took } = self;
        let outcome = match result {
            Ok(outcome) => outcome,
            Err(AttemptError::GateClosed) => Outcome::Dropped,
            Err(AttemptError::Failed(error)) => apply::outcome(&error),
        };
        FinishedAction { decision: action.decision, outcome, waited, took }
    }
}
