//! Plans: what a rule returns. Plain data, without effects.
//!
//! A plan ends in a [`Next`]: wait for a change, plan again at some time, or write. Several rules
//! may plan one subject. [`Agenda`] combines their answers, because a subject has one timer and one
//! write in flight.

use crate::contract::action::{Precondition, Urgency, Verb};
use crate::data::ids::ObjectKey;
use crate::data::object_ref::ObjectRef;
use crate::data::time::UnixMillis;
use crate::rate_limit::Rate;
use crate::status::liveness::StatusDigest;
use crate::status::trigger::Trigger;
use crate::subject::Target;
use crate::write_queue::{Due, QueueKey};
use crate::write_state::Readiness;

/// One write. It becomes one action of the executor.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Write {
    pub(crate) job: Job,
    pub(crate) annotations: Vec<(String, Option<String>)>,
    pub(crate) precondition: Precondition,
    /// The connectors that the write is about, at most
    /// [`Action::CONNECTORS_MAX`](crate::contract::action::Action::CONNECTORS_MAX).
    pub(crate) connectors: Vec<ObjectKey>,
    pub(crate) urgency: Urgency,
    pub(crate) because: String,
}

/// What a write does, as far as its rule must remember it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Job {
    Mirror(ObjectRef, MirrorJob),
    /// Makes the carrier process a hub Connector again: the new number of the nudge annotation.
    Nudge(ObjectRef, u32),
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
    /// `None`: a confirmation.
    pub(crate) reason: Option<TouchReason>,
    /// The rate that its limiter is charged.
    pub(crate) rate: Rate,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TouchReason {
    LivenessChanged,
    WrittenWhileWatchLost,
    ReferencesChanged,
    NotAnnounced,
    PlatformStamp,
    Overwritten,
    WrittenSinceTouch,
    CameWithTrigger,
}

/// A write that starts now, and the queue that admitted it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct PlannedWrite {
    pub(crate) write: Write,
    pub(crate) queue: QueueKey,
    pub(crate) due: Due,
}

/// A write starts once its queue admits it. It is then planned again, so only an admitted write is
/// built in full.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    Waits { queue: QueueKey, due: Due },
    Goes(Box<PlannedWrite>),
}

/// What to do next for a subject.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next {
    AwaitChange,
    RequeueAt(UnixMillis),
    Write(Turn),
}

impl Next {
    /// Writes at that time, unless a write is in flight or the object is paused until later.
    pub(crate) fn write_at(
        at: UnixMillis,
        readiness: Readiness,
        now: UnixMillis,
        turn: impl FnOnce() -> Turn,
    ) -> Self {
        match readiness {
            Readiness::InFlight => Self::AwaitChange,
            Readiness::NotBefore(until) => Self::RequeueAt(until),
            Readiness::Ready if at > now => Self::RequeueAt(at),
            Readiness::Ready => Self::Write(turn()),
        }
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
        match may_go {
            true => Self::Goes(Box::new(PlannedWrite { write: write(), queue, due })),
            false => Self::Waits { queue, due },
        }
    }

    pub(crate) fn due(&self) -> Due {
        match self {
            Self::Waits { due, .. } => *due,
            Self::Goes(planned) => planned.due,
        }
    }
}

/// The combined plans of all rules of one subject.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Agenda {
    pub(crate) write: Option<Turn>,
    pub(crate) requeue_at: Option<UnixMillis>,
}

impl Agenda {
    /// The first write of all plans, and the earliest time at which one must be planned again.
    pub(crate) fn of(plans: impl IntoIterator<Item = Next>) -> Self {
        plans.into_iter().fold(Self::default(), |agenda, next| match next {
            Next::AwaitChange => agenda,
            Next::RequeueAt(at) => agenda.requeue_at(Some(at)),
            Next::Write(turn) => Self { write: agenda.write.or(Some(turn)), ..agenda },
        })
    }

    pub(crate) fn requeue_at(self, at: Option<UnixMillis>) -> Self {
        Self { requeue_at: self.requeue_at.into_iter().chain(at).min(), ..self }
    }
}

impl Job {
    /// The object to write.
    pub(crate) fn object(&self) -> &ObjectRef {
        match self {
            Self::Mirror(at, _) | Self::Nudge(at, _) | Self::Delete(at) => at,
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
    use crate::data::ids::Kind;
    use crate::data::name::NamespacedName;
    use crate::data::object_ref::ClusterId;

    const NOW: UnixMillis = UnixMillis(1_000_000);
    const NUDGES: QueueKey = QueueKey::Nudges(ClusterId(2));

    fn nudge(admitted_by: Option<QueueKey>) -> Turn {
        let name = NamespacedName::new("ns", "lab");
        let at = ObjectRef { cluster: ClusterId(2), kind: Kind::Connector, name };
        let write = || Write {
            job: Job::Nudge(at, 1),
            annotations: Vec::new(),
            precondition: Precondition::default(),
            connectors: Vec::new(),
            urgency: Urgency::Nudge,
            because: String::new(),
        };
        Turn::in_queue(NUDGES, Due::at(NOW), admitted_by, NOW, write)
    }

    #[test]
    fn the_first_write_goes_and_the_earliest_time_counts() {
        let deferred_mirror = Next::RequeueAt(NOW.plus(5_000));
        let hop_is_late_at = Some(NOW.plus(2_000));
        let agenda = Agenda::of([deferred_mirror, Next::Write(nudge(None))]);
        assert_eq!(agenda.requeue_at, Some(NOW.plus(5_000)));

        let agenda = agenda.requeue_at(hop_is_late_at);
        assert_eq!(agenda, Agenda { write: Some(nudge(None)), requeue_at: hop_is_late_at });
    }

    #[test]
    fn a_write_starts_only_when_its_own_queue_admits_it() {
        let touches = QueueKey::Touches(ClusterId(2));

        assert!(matches!(nudge(Some(NUDGES)), Turn::Goes(_)));
        let waits = Turn::Waits { queue: NUDGES, due: Due::at(NOW) };
        assert_eq!(nudge(Some(touches)), waits);
        assert_eq!(nudge(None), waits);
    }
}
