//! Plans: what a rule returns. Plain data, without effects.
//!
//! A plan ends in a [`Next`]: wait for a change, plan again at some time, or write. Several rules
//! may plan one subject, which has one timer and one write in flight.

use crate::contract::action::{Precondition, Urgency, Verb};
use crate::data::ids::NamespacedName;
use crate::data::object_ref::ObjectRef;
use crate::data::time::UnixMillis;
use crate::rate_limit::Rate;
use crate::status::liveness::StatusDigest;
use crate::status::trigger::Trigger;
use crate::subject::Target;
use crate::write_queue::{Due, QueueKey};
use crate::write_state::WriteState;

/// One write. It becomes one action of the executor.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Write {
    pub(crate) job: Job,
    pub(crate) annotations: Vec<(String, Option<String>)>,
    pub(crate) precondition: Precondition,
    /// The connectors that the write is about, at most
    /// [`Action::CONNECTORS_MAX`](crate::contract::action::Action::CONNECTORS_MAX).
    pub(crate) connectors: Vec<NamespacedName>,
    pub(crate) urgency: Urgency,
    pub(crate) because: String,
}

/// What a write does, as far as its rule must remember it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Job {
    Mirror(ObjectRef, MirrorJob),
    /// Makes the carrier process a hub Connector again.
    Nudge(ObjectRef),
    Touch(Target, TouchJob),
    Delete(ObjectRef),
}

/// The new value of a hub Connector's status annotation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MirrorJob {
    pub(crate) intent: Intent,
    /// `None` removes the annotation.
    pub(crate) digest: Option<StatusDigest>,
    /// The write is valid although the object may have changed, as long as the annotation has not.
    pub(crate) compares_annotation: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Intent {
    Mirror,
    /// A change that does not affect routing.
    Deferred,
    Removal,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TouchJob {
    /// The Gateway that carries the trigger.
    pub(crate) gateway: ObjectRef,
    pub(crate) trigger: Trigger,
    /// The rate that its limiter is charged.
    pub(crate) rate: Rate,
}

/// A write starts once its queue admits it. It is then planned again, so only an admitted write is
/// built in full.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Turn {
    pub(crate) queue: QueueKey,
    pub(crate) due: Due,
    /// `None`: it waits in the queue.
    pub(crate) write: Option<Box<Write>>,
}

/// What to do next for a subject. With neither, it waits for a change.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Next {
    pub(crate) turn: Option<Turn>,
    /// When to plan it again.
    pub(crate) requeue_at: Option<UnixMillis>,
}

impl Next {
    pub(crate) const AWAIT_CHANGE: Self = Self { turn: None, requeue_at: None };

    pub(crate) fn requeue_at(at: UnixMillis) -> Self {
        Self { requeue_at: Some(at), ..Self::AWAIT_CHANGE }
    }

    pub(crate) fn write(turn: Turn) -> Self {
        Self { turn: Some(turn), ..Self::AWAIT_CHANGE }
    }

    /// Writes at that time, unless a write is in flight or the object is paused until later.
    pub(crate) fn write_at(
        at: UnixMillis,
        state: &WriteState,
        now: UnixMillis,
        turn: impl FnOnce() -> Turn,
    ) -> Self {
        match state.not_before() {
            _ if state.is_in_flight() => Self::AWAIT_CHANGE,
            Some(until) if until > now => Self::requeue_at(until),
            _ if at > now => Self::requeue_at(at),
            _ => Self::write(turn()),
        }
    }

    /// The first write of both plans, and the earlier time.
    pub(crate) fn and(self, other: Self) -> Self {
        Self { turn: self.turn.or(other.turn), ..self }.or_at(other.requeue_at)
    }

    pub(crate) fn or_at(self, at: Option<UnixMillis>) -> Self {
        Self { requeue_at: self.requeue_at.into_iter().chain(at).min(), ..self }
    }
}

impl Turn {
    /// `admitted_by`: the queue that admits the subject now.
    pub(crate) fn in_queue(
        queue: QueueKey,
        due: Due,
        admitted_by: Option<QueueKey>,
        now: UnixMillis,
        write: impl FnOnce() -> Write,
    ) -> Self {
        let may_go = match queue {
            QueueKey::Immediate => due.at <= now,
            queue => admitted_by == Some(queue) && due.early_from <= now,
        };
        Self { queue, due, write: may_go.then(|| Box::new(write())) }
    }
}

impl Job {
    /// The object to write.
    pub(crate) fn object(&self) -> &ObjectRef {
        match self {
            Self::Mirror(at, _) | Self::Nudge(at) | Self::Delete(at) => at,
            Self::Touch(_, touch) => &touch.gateway,
        }
    }

    pub(crate) fn verb(&self) -> Verb {
        match self {
            Self::Mirror(..) => Verb::Mirror,
            Self::Nudge(..) => Verb::Nudge,
            Self::Touch(..) => Verb::Touch,
            Self::Delete(_) => Verb::Delete,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::ids::{Kind, NamespacedName};
    use crate::data::object_ref::ClusterId;

    const NOW: UnixMillis = UnixMillis(1_000_000);
    const NUDGES: QueueKey = QueueKey::Nudges(ClusterId(2));

    fn nudge(admitted_by: Option<QueueKey>) -> Turn {
        let name = NamespacedName::new("ns", "lab");
        let at = ObjectRef { cluster: ClusterId(2), kind: Kind::Connector, name };
        let write = || Write {
            job: Job::Nudge(at),
            annotations: Vec::new(),
            precondition: Precondition::default(),
            connectors: Vec::new(),
            urgency: Urgency::Nudge,
            because: String::new(),
        };
        Turn::in_queue(NUDGES, Due::at(NOW), admitted_by, NOW, write)
    }

    #[test]
    fn a_write_starts_only_when_its_own_queue_admits_it() {
        let touches = QueueKey::Touches(ClusterId(2));

        assert!(nudge(Some(NUDGES)).write.is_some());
        let waits = Turn { queue: NUDGES, due: Due::at(NOW), write: None };
        assert_eq!(nudge(Some(touches)), waits);
        assert_eq!(nudge(None), waits);
    }
}
