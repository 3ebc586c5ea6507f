//! The one attempt at an action, and its evidence about the API server.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinError;
use tokio::time::Instant;

use super::FinishedAction;
use crate::apply::{self, ActionClusters, Applier};
use crate::client::CallError;
use crate::core::contract::action::Decision;
use crate::core::contract::error_cause::ErrorCause;
use crate::core::contract::event::Outcome;
use crate::leader::gate::Gate;

/// An action in its queue, or with its attempt in flight.
#[derive(Debug)]
pub(super) struct PendingAction {
    pub(super) decision: Decision,
    pub(super) clusters: ActionClusters,
    queued_at: Instant,
}

/// Evidence of an attempt about the API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// It answered in time, even if with an error.
    Came,
    TimedOut,
    /// Nothing was sent, or the request failed at once because no connection could be made.
    None,
}

impl PendingAction {
    pub(super) fn new(decision: Decision, clusters: ActionClusters) -> Self {
        Self { decision, clusters, queued_at: Instant::now() }
    }

    pub(super) async fn attempt(
        self: Arc<Self>,
        applier: Applier,
        gate: Gate,
    ) -> (FinishedAction, Answer) {
        let waited = self.queued_at.elapsed();
        let began = Instant::now();
        let action = &self.decision.action;
        let clusters = &self.clusters;
        let is_lead = || !action.is_leader_only() || gate.is_open();
        let may_write = || is_lead() && applier.are_joined(clusters);

        // If it may not write, this instance lost the lead or a cluster has left.
        let result = match may_write() {
            true => applier.apply(action, may_write).await,
            false => Ok(Outcome::Dropped),
        };
        let answer = Answer::of(&result);
        let outcome = result.unwrap_or_else(|error| apply::outcome(&error));
        let took = began.elapsed();
        (FinishedAction { decision: self.decision.clone(), outcome, waited, took }, answer)
    }

    /// Ends the action without an attempt.
    pub(super) fn unattempted(&self, outcome: Outcome) -> FinishedAction {
        let waited = Duration::ZERO;
        let took = Duration::ZERO;
        FinishedAction { decision: self.decision.clone(), outcome, waited, took }
    }

    /// Ends the action after its attempt panicked: whether the write took effect is unknown.
    pub(super) fn panicked(&self, error: &JoinError) -> (FinishedAction, Answer) {
        let outcome = apply::outcome(&CallError::Defect(error.to_string()));
        (self.unattempted(outcome), Answer::None)
    }
}

impl Answer {
    fn of(result: &Result<Outcome, CallError>) -> Self {
        match result {
            Ok(Outcome::Dropped) => Self::None,
            Err(error) => match error.cause() {
                ErrorCause::TimedOut => Self::TimedOut,
                _ if error.code().is_some() => Self::Came,
                _ => Self::None,
            },
            // A delete makes several requests and has an outcome whichever of them fails.
            Ok(Outcome::Failed { error, .. } | Outcome::Unanswered { error, .. })
                if error.cause == ErrorCause::TimedOut =>
            {
                Self::TimedOut
            }
            Ok(Outcome::Failed { error, .. } | Outcome::Unanswered { error, .. })
                if matches!(error.cause, ErrorCause::Unreachable | ErrorCause::Kubeconfig) =>
            {
                Self::None
            }
            Ok(_) => Self::Came,
        }
    }
}
