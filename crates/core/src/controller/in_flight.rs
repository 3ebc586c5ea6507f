//! Actions: those that this moment decides, those without an outcome, and those that the executor
//! has not taken yet.
//!
//! What a moment decides gets its numbers when it ends, by cluster, kind, namespace and name. So
//! they depend on nothing else than what is written: not on which rule or timer came first.
//!
//! An action outlives its subject: its place in the queue is free again when the action ends,
//! whatever became of the object.

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
    /// Decided in this moment. Empty between two moments.
    decided: BTreeMap<Subject, Box<PlannedWrite>>,
    last_id: u64,
    actions: BTreeMap<ActionId, Submitted>,
    /// For the executor, oldest first.
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

    /// A write of this moment is not decided a second time.
    pub(crate) fn is_decided(&self, subject: &Subject) -> bool {
        self.decided.contains_key(subject)
    }

    /// What the moment decided, in the order of its numbers.
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

    /// Hands an action to the executor. It is in flight until [`Self::finish`].
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

    /// `None`: it has ended before, its cluster has left, or it was never decided.
    pub(crate) fn finish(&mut self, id: ActionId) -> Option<Submitted> {
        self.actions.remove(&id)
    }

    /// The cluster left: nobody waits for the outcomes of its actions.
    pub(crate) fn forget(&mut self, cluster: ClusterId) -> Vec<Submitted> {
        let of_cluster = |_: &ActionId, action: &mut Submitted| action.subject.cluster() == cluster;
        self.actions.extract_if(.., of_cluster).map(|(_, action)| action).collect()
    }

    /// Whether an action of this number was ever decided.
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
