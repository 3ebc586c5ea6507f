//! Actions: those decided in this step, those without an outcome, and those that the executor has
//! not taken yet.
//!
//! The actions of a step get their numbers at its end, in the order of cluster, kind, namespace and
//! name. So the numbers depend only on what is written, not on which rule or timer came first.
//!
//! An action outlives its subject. It occupies its queue until it ends, whether or not the object
//! still exists.

use std::collections::{BTreeMap, VecDeque};

use crate::contract::action::{Action, Decision};
use crate::data::ids::{ActionId, ClusterName};
use crate::data::object_ref::ClusterId;
use crate::data::time::UnixMillis;
use crate::plan::PlannedWrite;
use crate::subject::Subject;
use crate::write_queue::QueueKey;

#[derive(Default)]
pub(crate) struct InFlight {
    /// Decided in this step. Empty between two steps.
    decided: BTreeMap<Subject, Box<PlannedWrite>>,
    last_id: u64,
    actions: BTreeMap<ActionId, Submitted>,
    /// Not yet taken by the executor, oldest first.
    outbox: VecDeque<Decision>,
}

pub(crate) struct Submitted {
    pub(crate) subject: Subject,
    /// The queue that admitted it.
    pub(crate) queue: QueueKey,
    pub(crate) at: UnixMillis,
}

impl InFlight {
    pub(crate) fn decide(&mut self, subject: Subject, write: Box<PlannedWrite>) {
        self.decided.insert(subject, write);
    }

    /// Whether this step already decided a write of the subject.
    pub(crate) fn is_decided(&self, subject: &Subject) -> bool {
        self.decided.contains_key(subject)
    }

    /// The writes of this step, in the order of their numbers.
    pub(crate) fn take_decided(
        &mut self,
        name_of: impl Fn(ClusterId) -> ClusterName,
    ) -> Vec<(Subject, Box<PlannedWrite>)> {
        let mut decided: Vec<_> = std::mem::take(&mut self.decided).into_iter().collect();
        decided.sort_by_cached_key(|(_, planned)| {
            let at = planned.write.job.object();
            (name_of(at.cluster), at.kind, at.name.clone())
        });
        decided
    }

    pub(crate) fn next_id(&mut self) -> ActionId {
        self.last_id += 1;
        ActionId(self.last_id)
    }

    /// Queues an action for the executor. It is in flight until [`Self::finish`].
    pub(crate) fn submit(
        &mut self,
        id: ActionId,
        subject: Subject,
        cluster: ClusterName,
        planned: PlannedWrite,
        now: UnixMillis,
    ) {
        let PlannedWrite { write, queue, .. } = planned;
        self.actions.insert(id, Submitted { subject, queue, at: now });

        let object = write.job.object();
        let action = Action {
            id,
            verb: write.job.verb(),
            cluster,
            kind: object.kind,
            object: object.name.key(),
            annotations: write.annotations,
            precondition: write.precondition,
            connectors: write.connectors,
        };
        self.outbox.push_back(Decision {
            at: now,
            action,
            urgency: write.urgency,
            because: write.because,
        });
    }

    /// `None`: it has already ended, its cluster has left, or it was never decided.
    pub(crate) fn finish(&mut self, id: ActionId) -> Option<Submitted> {
        self.actions.remove(&id)
    }

    /// The cluster left: the outcomes of its actions no longer matter.
    pub(crate) fn forget(&mut self, cluster: ClusterId) -> Vec<Submitted> {
        let of_cluster = |_: &ActionId, action: &mut Submitted| action.subject.cluster() == cluster;
        self.actions.extract_if(.., of_cluster).map(|(_, action)| action).collect()
    }

    pub(crate) fn has_decided(&self, id: ActionId) -> bool {
        id.0 <= self.last_id
    }

    pub(crate) fn len(&self) -> usize {
        self.actions.len()
    }

    pub(crate) fn poll_action(&mut self) -> Option<Decision> {
        self.outbox.pop_front()
    }
}
