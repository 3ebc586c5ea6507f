//! Actions: those decided in this step, those without an outcome, and those that the executor has
//! not taken yet.
//!
//! The actions of a step get their numbers at its end, in the order of cluster, kind, namespace and
//! name. So the numbers depend only on what is written, not on which rule or timer came first.
//!
//! An action outlives its subject. It occupies its queue until it ends, whether or not the object
//! still exists.

use std::collections::{BTreeMap, VecDeque};

use super::memory::Memory;
use crate::contract::action::{Action, Decision};
use crate::data::ids::{ActionId, ClusterName};
use crate::data::object_ref::ClusterId;
use crate::data::time::UnixMillis;
use crate::plan::Write;
use crate::subject::Subject;
use crate::world::World;
use crate::write_queue::QueueKey;

#[derive(Default)]
pub(crate) struct InFlight {
    /// Decided in this step. Empty between two steps.
    decided: BTreeMap<Subject, Decided>,
    last_id: u64,
    actions: BTreeMap<ActionId, Submitted>,
    /// Not yet taken by the executor, oldest first.
    outbox: VecDeque<Decision>,
}

struct Decided {
    queue: QueueKey,
    write: Box<Write>,
}

pub(crate) struct Submitted {
    pub(crate) subject: Subject,
    /// The queue that admitted it.
    pub(crate) queue: QueueKey,
    pub(crate) at: UnixMillis,
}

impl InFlight {
    pub(crate) fn decide(&mut self, subject: Subject, queue: QueueKey, write: Box<Write>) {
        self.decided.insert(subject, Decided { queue, write });
    }

    /// Whether this step already decided a write of the subject.
    pub(crate) fn is_decided(&self, subject: &Subject) -> bool {
        self.decided.contains_key(subject)
    }

    /// Numbers the writes of this step, and queues them for the executor.
    pub(crate) fn submit_decided(&mut self, world: &World, memory: &mut Memory, now: UnixMillis) {
        let mut decided: Vec<_> = std::mem::take(&mut self.decided).into_iter().collect();
        decided.sort_by_cached_key(|(_, decided)| {
            let at = decided.write.job.object();
            (world.name_of(at.cluster), at.kind, at.name.clone())
        });
        for (subject, Decided { queue, write }) in decided {
            self.last_id += 1;
            let id = ActionId(self.last_id);
            memory.on_started(&write.job, queue, id, now);
            self.actions.insert(id, Submitted { subject, queue, at: now });
            let cluster = world.name_of(write.job.object().cluster);
            self.outbox.push_back(decision(id, cluster, *write, now));
        }
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

fn decision(id: ActionId, cluster: ClusterName, write: Write, now: UnixMillis) -> Decision {
    let object = write.job.object();
    let action = Action {
        id,
        verb: write.job.verb(),
        cluster,
        kind: object.kind,
        object: object.name.clone(),
        annotations: write.annotations,
        precondition: write.precondition,
        connectors: write.connectors,
    };
    Decision { at: now, action, urgency: write.urgency, because: write.because }
}
