//! How the simulation carries out writes, and how a test prints a run.

use std::collections::BTreeMap;

use throughline::core::contract::action::{Action, Decision, Verb};
use throughline::core::contract::cause::{Problem, State};
use throughline::core::contract::event::Outcome;
use throughline::core::contract::note::NoteKind;
use throughline::core::data::ids::{Kind, ObjectKey};
use throughline::core::data::objects::FIELD_MANAGER;
use throughline::core::data::time::UnixMillis;
use throughline_sim::{ApiError, Preconditions, SimClusters};

use crate::sim::{RecordedAction, START, Sim};

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

impl Sim {
    /// What makes connectors stuck, and has not ended.
    pub fn stuck(&self) -> Vec<String> {
        let mut open = BTreeMap::new();
        for note in &self.notes {
            match &note.kind {
                NoteKind::Began(problem) => _ = open.insert(problem.id(), problem),
                NoteKind::Ended(problem) => {
                    let ended = open.remove(&problem.id());
                    assert!(ended.is_some(), "ended, and never began: {problem:?}");
                }
                NoteKind::HopPassed { .. } | NoteKind::Symptom { .. } => {}
            }
        }
        let is_stuck = |problem: &&Problem| problem.cause.info().state == Some(State::Stuck);
        open.into_values().filter(is_stuck).map(Problem::sentence).collect()
    }

    /// The actions, a line each.
    pub fn describe_actions(&self, from: usize) -> String {
        let line = |a: &RecordedAction| {
            let Decision { at, action, because, .. } = &a.decision;
            format!(
                "{} {:?} {} {} {:?}: {because}\n",
                at.since(UnixMillis(START)),
                action.verb,
                action.cluster,
                action.object,
                action.annotations
            )
        };
        self.actions[from..].iter().map(line).collect()
    }
}

/// Carries out an action as the executor and an API server would.
pub fn carry_out(clusters: &mut SimClusters, action: &Action) -> Outcome {
    let Action { cluster, kind, object, annotations, precondition, .. } = action;
    let must = Preconditions::from(precondition);
    assert!(action.verb != Verb::Delete || precondition.absent.is_some(), "without evidence");
    if let Some(absent) = &precondition.absent {
        let alive = absent.names.iter().any(|name| {
            let key = ObjectKey::new(&absent.namespace, name);
            clusters.get(&absent.cluster, absent.kind, &key).is_some()
        });
        let namespace = ObjectKey::new("", &absent.namespace);
        let namespace = clusters.get(&absent.cluster, Kind::Namespace, &namespace);
        let agrees = namespace.map(|n| &*n.meta.uid) == absent.namespace_uid.as_deref();
        if agrees == absent.namespace_deleted {
            return Outcome::Conflict { error: "the namespace has another uid".into() };
        }
        if alive && !absent.namespace_deleted {
            return Outcome::Conflict { error: "it exists".into() };
        }
    }
    let result = if action.verb == Verb::Delete {
        clusters
            .delete(cluster, *kind, object, &must)
            .map(|()| Outcome::Applied { resource_version: None })
    } else {
        let patched = clusters.patch(cluster, *kind, object, annotations, &must, FIELD_MANAGER);
        patched.map(|(version, changed)| match changed {
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
