//! How writes fare, and what is told of a run.

use std::collections::BTreeMap;

use throughline::core::action::{Action, Decision, Noted, Verb};
use throughline::core::event::Outcome;
use throughline::core::ids::{Kind, ObjectKey};
use throughline::core::time::UnixMillis;
use throughline::world::{ApiError, OURS, Preconditions, World};

use crate::sim::{Acted, START, Sim};

/// What becomes of a write: whether and when it lands, and which answer comes when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It lands and is answered.
    Fair,
    /// It lands; the same answer comes twice.
    AnsweredTwice,
    /// It fails without having landed.
    Failed,
    /// It fails for us, but has landed.
    FailedYetLanded,
    /// The server asks for patience.
    Throttled,
    Conflict,
    Refused,
    NotFound,
    Superseded,
    /// Neither lands nor is answered.
    Lost,
    /// Lands, never answered.
    LostYetLanded,
    /// Lands at once, answered after it was given up.
    AnsweredLate,
    /// Lands and is answered after it was given up.
    LandedLate,
}

impl Sim {
    /// Stalls that were told and did not end.
    pub fn open_stalls(&self) -> Vec<String> {
        let mut open = BTreeMap::new();
        for note in &self.notes {
            match &note.what {
                Noted::Stalled(s) => {
                    open.insert((&s.cluster, &s.connector, s.hop), &s.reason);
                }
                Noted::StallEnded(s) => {
                    let ended = open.remove(&(&s.cluster, &s.connector, s.hop));
                    assert!(ended.is_some(), "a stall ended that was never told: {s:?}");
                }
                _ => {}
            }
        }
        open.into_iter().map(|(stall, reason)| format!("{stall:?}: {reason}")).collect()
    }

    /// One line an action, for a person.
    pub fn story(&self, from: usize) -> String {
        let line = |a: &Acted| {
            let Decision { at, action, because } = &a.decision;
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

/// One action, as the executor and an API server carry it out.
pub fn carry_out(world: &mut World, action: &Action) -> Outcome {
    let Action { cluster, kind, object, annotations, precondition, .. } = action;
    let must = Preconditions {
        uid: precondition.uid.clone(),
        resource_version: precondition.resource_version.clone(),
    };
    let result = if action.verb == Verb::Delete {
        let absent = precondition.absent.as_ref().expect("a delete names its evidence");
        let alive = absent.names.iter().any(|name| {
            let key = ObjectKey::new(&absent.namespace, name);
            world.get(&absent.cluster, Kind::Gateway, &key).is_some()
        });
        let namespace = ObjectKey::new("", &absent.namespace);
        let namespace = world.get(&absent.cluster, Kind::Namespace, &namespace);
        if namespace.map(|n| &*n.meta.uid) != absent.namespace_uid.as_deref() {
            return Outcome::Conflict { error: "the namespace is another one".into() };
        }
        if alive {
            return Outcome::Conflict { error: "a parent exists after all".into() };
        }
        world
            .delete(cluster, *kind, object, &must)
            .map(|()| Outcome::Applied { resource_version: None, deleted: None })
    } else {
        let patched = world.patch(cluster, *kind, object, annotations, &must, OURS);
        patched.map(|(version, changed)| match changed {
            true => Outcome::Applied { resource_version: Some(version), deleted: None },
            false => Outcome::Unchanged,
        })
    };
    result.unwrap_or_else(|error| match error {
        ApiError::NotFound => Outcome::NotFound,
        ApiError::Conflict(error) => Outcome::Conflict { error },
        ApiError::Invalid(error) => Outcome::Refused { error },
        ApiError::Unreachable => Outcome::Failed { error: error.to_string(), retry_after_ms: None },
    })
}
