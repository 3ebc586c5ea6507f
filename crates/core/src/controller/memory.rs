//! What throughline did, and what it waits for.
//!
//! Nothing here is needed to determine what is desired. The memory is empty after a restart. At
//! rest, an empty memory plans no write except touches that repeat a Gateway's announcement.
//! Entries at rest are dropped.

use std::collections::BTreeMap;

use super::hub_memory::HubMemory;
use crate::data::ids::{ActionId, Kind};
use crate::data::map::Map;
use crate::data::object_ref::{ClusterId, ObjectRef};
use crate::data::time::UnixMillis;
use crate::plan::Job;
use crate::rules::naming::NamingMemory;
use crate::rules::nudge::Carrier;
use crate::rules::orphan::OrphanMemory;
use crate::rules::touch::TouchMemory;
use crate::rules::touch::edge_memory::EdgeMemory;
use crate::subject::{Subject, Target};
use crate::write_queue::QueueKey;
use crate::write_state::{FailureClass, WriteState};

/// The shortest time between two releases of the failed writes of one kind in one cluster.
const RELEASE_MS: u64 = 7_500;

#[derive(Default)]
pub(crate) struct Memory {
    pub(crate) hub: Map<ObjectRef, Box<HubMemory>>,
    /// Whether the carrier of a hub answers nudges.
    pub(crate) carriers: BTreeMap<ClusterId, Carrier>,
    pub(crate) targets: Map<Target, Box<TouchMemory>>,
    pub(crate) edges: BTreeMap<ClusterId, EdgeMemory>,
    pub(crate) routes: BTreeMap<ObjectRef, OrphanMemory>,
    /// Upstreams whose names differ from those in hub labels.
    pub(crate) naming: NamingMemory,
    /// When the failed writes of one kind in one cluster were last released.
    released: BTreeMap<(ClusterId, Kind), UnixMillis>,
}

impl Memory {
    /// `queue`: the one that admitted the write.
    pub(crate) fn on_started(&mut self, job: &Job, queue: QueueKey, id: ActionId, now: UnixMillis) {
        match job {
            Job::Mirror(at, job) => {
                let memory = &mut self.hub.entry(at.clone()).or_default().mirror;
                memory.on_started(*job, queue, id, now);
            }
            Job::Nudge(at) => {
                self.hub.entry(at.clone()).or_default().mirror.write.on_started(id);
            }
            Job::Touch(target, write) => {
                self.targets.entry(target.clone()).or_default().on_started(write, id, now);
            }
            Job::Delete(at) => self.routes.entry(at.clone()).or_default().write.on_started(id),
        }
    }

    pub(crate) fn forget(&mut self, subject: &Subject) {
        match subject {
            Subject::HubConnector(at) => drop(self.hub.remove(at)),
            Subject::Route(at) => drop(self.routes.remove(at)),
            Subject::Target(target) => drop(self.targets.remove(target)),
        }
    }

    pub(crate) fn forget_cluster(&mut self, cluster: ClusterId) {
        self.hub.retain(|at, _| at.cluster != cluster);
        self.routes.retain(|at, _| at.cluster != cluster);
        self.targets.retain(|target, _| target.cluster() != cluster);
        self.edges.remove(&cluster);
        self.carriers.remove(&cluster);
        self.released.retain(|(of, _), _| *of != cluster);
    }

    pub(crate) fn write_state(&mut self, subject: &Subject) -> Option<&mut WriteState> {
        match subject {
            Subject::HubConnector(at) => Some(&mut self.hub.get_mut(at)?.mirror.write),
            Subject::Route(at) => Some(&mut self.routes.get_mut(at)?.write),
            Subject::Target(target) => Some(&mut self.targets.get_mut(target)?.write),
        }
    }

    /// The number of entries.
    pub(crate) fn len(&self) -> usize {
        self.hub.len() + self.routes.len() + self.targets.len() + self.edges.len()
    }

    /// Hub objects that are not at rest, in all hubs.
    pub(crate) fn hub_objects(&self) -> impl Iterator<Item = Subject> {
        let connectors = self.hub.keys().cloned().map(Subject::HubConnector);
        connectors.chain(self.routes.keys().cloned().map(Subject::Route))
    }

    /// The API server accepts writes of the kind again. Returns the subjects whose writes failed
    /// for this reason, or for a lesser one: their backoff is over.
    pub(crate) fn release(
        &mut self,
        cluster: ClusterId,
        kind: Kind,
        up_to: FailureClass,
        now: UnixMillis,
    ) -> Vec<Subject> {
        let last = self.released.get(&(cluster, kind));
        if last.is_some_and(|at| now < at.plus(RELEASE_MS)) {
            return Vec::new();
        }

        let release = |of: ClusterId, write: &mut WriteState| {
            of == cluster && write.on_api_answers(up_to, now)
        };
        let released: Vec<_> = match kind {
            Kind::Connector => {
                let hub = self.hub.iter_mut().filter_map(|(at, memory)| {
                    let is_released =
                        memory.is_out_of_sync() && release(at.cluster, &mut memory.mirror.write);
                    is_released.then(|| Subject::HubConnector(at.clone()))
                });
                hub.collect()
            }
            Kind::Gateway => {
                let targets = self.targets.iter_mut().filter_map(|(target, memory)| {
                    let is_released = release(target.cluster(), &mut memory.write);
                    is_released.then(|| Subject::Target(target.clone()))
                });
                targets.collect()
            }
            Kind::HttpRoute => {
                let routes = self.routes.iter_mut().filter_map(|(at, memory)| {
                    let is_released = release(at.cluster, &mut memory.write);
                    is_released.then(|| Subject::Route(at.clone()))
                });
                routes.collect()
            }
            Kind::HttpProxy | Kind::Namespace => Vec::new(),
        };
        if !released.is_empty() {
            self.released.insert((cluster, kind), now);
        }
        released
    }
}
