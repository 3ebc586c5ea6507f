//! What throughline did and waits for.
//!
//! Nothing here is needed to know what is desired. After a restart it is empty, and at rest an empty
//! memory plans no write: that is the promise "a restart writes nothing". What is at rest is forgotten.

use std::collections::BTreeMap;

use super::hub::{Holds, HubMemory};
use crate::data::ids::{ActionId, ClusterName, Kind};
use crate::data::map::Map;
use crate::data::object_ref::{ClusterId, ObjectRef};
use crate::data::time::UnixMillis;
use crate::next::plan::Job;
use crate::next::rules::{naming, nudge, orphan, touch};
use crate::next::subject::{Subject, Target};
use crate::next::write_state::WriteState;

/// The shortest time between two releases of the failed writes of one kind in one cluster.
const RELEASE_MS: u64 = 7_500;

#[derive(Default)]
pub(crate) struct Memory {
    pub(crate) hub: Map<ObjectRef, Box<HubMemory>>,
    /// Whether the carrier of a hub answers nudges.
    pub(crate) carriers: BTreeMap<ClusterId, nudge::Carrier>,
    /// How many annotations of an upstream are held, and what was reported of that.
    pub(crate) holds: BTreeMap<ClusterName, Holds>,
    pub(crate) targets: Map<Target, Box<touch::TouchMemory>>,
    pub(crate) edges: BTreeMap<ClusterId, touch::EdgeMemory>,
    pub(crate) routes: BTreeMap<ObjectRef, orphan::OrphanMemory>,
    /// The verdicts of the routes that this moment planned.
    pub(crate) planned_routes: BTreeMap<ObjectRef, orphan::Verdict>,
    /// Upstreams whose names do not fit those in hub labels.
    pub(crate) naming: naming::NamingMemory,
    /// When the failed writes of one kind in one cluster were last released.
    released: BTreeMap<(ClusterId, Kind), UnixMillis>,
}

impl Memory {
    pub(crate) fn on_started(&mut self, job: &Job, id: ActionId, now: UnixMillis) {
        match job {
            Job::Mirror(at, _) | Job::Nudge(at, _) => {
                self.hub.entry(at.clone()).or_default().on_started(id);
            }
            Job::Touch(target, write) => {
                self.targets.entry(target.clone()).or_default().on_started(write, id, now);
            }
            Job::Delete(at) => self.routes.entry(at.clone()).or_default().write.on_started(id),
        }
    }

    pub(crate) fn forget(&mut self, subject: &Subject) {
        match subject {
            Subject::HubConnector(at) => {
                self.hub.remove(at);
            }
            Subject::EdgeConnector(_) => {}
            Subject::Route(at) => {
                self.routes.remove(at);
                self.planned_routes.remove(at);
            }
            Subject::Target(target) => {
                self.targets.remove(target);
            }
        }
    }

    /// The cluster left.
    pub(crate) fn forget_cluster(&mut self, cluster: ClusterId) {
        self.hub.retain(|at, _| at.cluster != cluster);
        self.routes.retain(|at, _| at.cluster != cluster);
        self.planned_routes.retain(|at, _| at.cluster != cluster);
        self.targets.retain(|target, _| target.cluster() != cluster);
        self.edges.remove(&cluster);
        self.carriers.remove(&cluster);
        self.released.retain(|(of, _), _| *of != cluster);
    }

    pub(crate) fn write_state(&self, subject: &Subject) -> Option<&WriteState> {
        match subject {
            Subject::HubConnector(at) => Some(&self.hub.get(at)?.mirror.write),
            Subject::Route(at) => Some(&self.routes.get(at)?.write),
            Subject::Target(target) => Some(&self.targets.get(target)?.write),
            Subject::EdgeConnector(_) => None,
        }
    }

    pub(crate) fn write_state_mut(&mut self, subject: &Subject) -> Option<&mut WriteState> {
        match subject {
            Subject::HubConnector(at) => Some(&mut self.hub.get_mut(at)?.mirror.write),
            Subject::Route(at) => Some(&mut self.routes.get_mut(at)?.write),
            Subject::Target(target) => Some(&mut self.targets.get_mut(target)?.write),
            Subject::EdgeConnector(_) => None,
        }
    }

    /// How much is remembered.
    pub(crate) fn len(&self) -> usize {
        self.hub.len() + self.routes.len() + self.targets.len() + self.edges.len()
    }

    /// Hub objects that are not at rest, of all hubs.
    pub(crate) fn unsettled(&self) -> impl Iterator<Item = Subject> {
        let connectors = self.hub.keys().cloned().map(Subject::HubConnector);
        connectors.chain(self.routes.keys().cloned().map(Subject::Route))
    }

    /// Those whose last write failed, of one kind in one cluster.
    pub(crate) fn failed(&self, cluster: ClusterId, kind: Kind) -> Vec<Subject> {
        let has_failed = |write: &WriteState| write.failure().is_some();
        let subjects: Vec<_> = match kind {
            Kind::Connector => {
                let failed = self.hub.iter().filter(|(_, memory)| {
                    memory.is_unsettled() && has_failed(&memory.mirror.write)
                });
                failed.map(|(at, _)| Subject::HubConnector(at.clone())).collect()
            }
            Kind::Gateway => {
                let failed = self.targets.iter().filter(|(_, memory)| has_failed(&memory.write));
                failed.map(|(target, _)| Subject::Target(target.clone())).collect()
            }
            Kind::HttpRoute => {
                let failed = self.routes.iter().filter(|(_, memory)| has_failed(&memory.write));
                failed.map(|(at, _)| Subject::Route(at.clone())).collect()
            }
            Kind::HttpProxy | Kind::Namespace => Vec::new(),
        };
        subjects.into_iter().filter(|subject| subject.cluster() == cluster).collect()
    }

    pub(crate) fn may_release(&self, cluster: ClusterId, kind: Kind, now: UnixMillis) -> bool {
        self.released.get(&(cluster, kind)).is_none_or(|at| now >= at.plus(RELEASE_MS))
    }

    pub(crate) fn on_released(&mut self, cluster: ClusterId, kind: Kind, now: UnixMillis) {
        self.released.insert((cluster, kind), now);
    }
}
