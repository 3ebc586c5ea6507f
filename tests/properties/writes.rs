//! Carries out the machine's writes as the executor and an API server would, with injected faults.

use throughline::core::contract::action::{Action, Verb};
use throughline::core::contract::error_cause::RequestFailure;
use throughline::core::contract::event::{EventKind, Outcome};
use throughline::core::data::ids::ActionId;
use throughline::core::data::objects::FIELD_MANAGER;
use throughline_sim::{ApiError, Preconditions, SimClusters};

use crate::sim::{SECOND, Sim};

/// What happens to a write: whether and when it is applied, and which answer comes when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteFault {
    /// Applied and answered.
    None,
    /// Applied; the same answer comes twice.
    AnsweredTwice,
    /// Fails and is not applied.
    Failed,
    /// Reported as failed, but applied.
    FailedButApplied,
    /// Refused with a retry-after.
    Throttled,
    Conflict,
    Refused,
    NotFound,
    Superseded,
    /// Applied at once, and answered a minute later.
    AnsweredLate,
    /// Applied and answered a minute later.
    AppliedLate,
}

/// What becomes of a write, and in which run of the machine it was decided.
pub enum Due {
    Apply { action: Box<Action>, run: u32, write_fault: WriteFault },
    Answer { id: ActionId, run: u32, outcome: Outcome },
}

impl Sim {
    pub(super) fn send(&mut self, action: &Action) {
        let key = (
            action.cluster.clone(),
            action.kind,
            action.object.clone(),
            action.precondition.uid.clone(),
        );
        let before = self.in_flight.insert(key, (action.id, self.now));
        if let Some((id, at)) = before {
            panic!("{} has action {id:?} in flight since {at} already", action.object);
        }
        let write_fault = match self.write_faults.as_slice() {
            [] => WriteFault::None,
            write_faults => write_faults[self.next_write_fault % write_faults.len()],
        };
        self.next_write_fault += 1;
        let error = RequestFailure::from("injected by the test");
        let outcome = match write_fault {
            WriteFault::Failed => Outcome::Failed { error, retry_after_ms: None },
            WriteFault::Throttled => Outcome::Failed { error, retry_after_ms: Some(3 * SECOND) },
            WriteFault::Conflict => Outcome::Conflict { error },
            WriteFault::Refused => Outcome::Refused { error },
            WriteFault::NotFound => Outcome::NotFound,
            WriteFault::Superseded => Outcome::Superseded,
            WriteFault::None
            | WriteFault::AnsweredTwice
            | WriteFault::FailedButApplied
            | WriteFault::AnsweredLate
            | WriteFault::AppliedLate => {
                let is_late = write_fault == WriteFault::AppliedLate;
                let apply =
                    Due::Apply { action: action.clone().into(), run: self.run, write_fault };
                return self.due(if is_late { 70 * SECOND } else { self.write_ms }, apply);
            }
        };
        self.due(self.write_ms, Due::Answer { id: action.id, run: self.run, outcome });
    }

    fn due(&mut self, ms: u64, due: Due) {
        self.sequence += 1;
        self.writes.insert((self.now.plus(ms), self.sequence), due);
    }

    pub(super) fn apply_or_answer(&mut self, due: Due) {
        match due {
            Due::Apply { action, run, write_fault } => {
                let is_gated = action.is_leader_only() && !self.leads && run == self.run;
                let mut outcome = match is_gated {
                    true => Outcome::Dropped,
                    false => carry_out(&mut self.clusters, &action),
                };
                if matches!(outcome, Outcome::Applied { .. }) && run == self.run {
                    self.touched.insert((action.cluster.clone(), action.precondition.uid.clone()));
                }
                self.collect();
                if write_fault == WriteFault::FailedButApplied {
                    let error = RequestFailure::from("injected by the test");
                    outcome = Outcome::Failed { error, retry_after_ms: None };
                }
                let ms = if write_fault == WriteFault::AnsweredLate { 70 * SECOND } else { 1 };
                let answer = || Due::Answer { id: action.id, run, outcome: outcome.clone() };
                self.due(ms, answer());
                if write_fault == WriteFault::AnsweredTwice {
                    self.due(ms + 7, answer());
                }
            }
            Due::Answer { id, run, outcome } if run == self.run => {
                self.in_flight.retain(|_, (flying, _)| *flying != id);
                self.feed(EventKind::ActionFinished { id, outcome });
            }
            Due::Answer { .. } => {}
        }
    }
}

fn carry_out(clusters: &mut SimClusters, action: &Action) -> Outcome {
    let Action { cluster, kind, object, annotations, precondition, .. } = action;
    let must = Preconditions::from(precondition);
    assert!(action.verb != Verb::Delete || precondition.absent.is_some(), "without evidence");
    if let Some(absent) = &precondition.absent {
        assert!(absent.namespace_uid.is_some(), "without the namespace's uid");
        if let Some(error) = clusters.absence_conflict(absent) {
            return Outcome::Conflict { error: error.into() };
        }
    }
    let result = if action.verb == Verb::Delete {
        let deleted = clusters.delete(cluster, *kind, object, &must);
        deleted.map(|()| Outcome::Applied { resource_version: None })
    } else {
        let patched = clusters.patch(cluster, *kind, object, annotations, &must, FIELD_MANAGER);
        patched.map(|(version, is_changed)| match is_changed {
            true => Outcome::Applied { resource_version: Some(version) },
            false => Outcome::Unchanged,
        })
    };
    result.unwrap_or_else(|error| match error {
        ApiError::NotFound => Outcome::NotFound,
        ApiError::Conflict(error) => Outcome::Conflict { error: error.into() },
        ApiError::Invalid(error) => Outcome::Refused { error: error.into() },
        ApiError::Unreachable => {
            Outcome::Failed { error: error.to_string().into(), retry_after_ms: None }
        }
    })
}
