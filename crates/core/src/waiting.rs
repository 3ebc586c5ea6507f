//! Ends the pauses of failed writes once the API server carries out such writes again.
//!
//! Each write that failed has a pause of its own, which grows. The cause may end before: a write of the
//! same group succeeds whose last attempt had failed, too, or a watch of the cluster is live again. Then
//! all that failed for the same reason, or for a lesser one, are due.

use std::collections::BTreeMap;

use super::clusters::Place;
use super::context::WriteTarget;
use super::contract::event::Outcome;
use super::data::ids::{ClusterId, Kind};
use super::data::time::UnixMillis;
use super::flight::{FailureClass, WriteFailure};
use super::machine::Machine;

/// The shortest time between two releases of a group.
const RELEASE_MS: u64 = 7_500;

/// The writes for which one success speaks: to one kind of object in one cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct WriteGroup {
    pub(crate) cluster: ClusterId,
    pub(crate) kind: Kind,
}

impl WriteGroup {
    /// The groups that a cluster may have.
    fn of(cluster: ClusterId) -> [Self; 3] {
        let kinds = [Kind::Connector, Kind::Gateway, Kind::HttpRoute];
        kinds.map(|kind| Self { cluster, kind })
    }
}

impl WriteTarget {
    pub(crate) fn group(self) -> WriteGroup {
        match self {
            WriteTarget::HubConnector(at) => {
                WriteGroup { cluster: at.cluster, kind: Kind::Connector }
            }
            WriteTarget::Touch(cluster, _) => WriteGroup { cluster, kind: Kind::Gateway },
            WriteTarget::Route(cluster, _) => WriteGroup { cluster, kind: Kind::HttpRoute },
        }
    }
}

/// When each group was last released.
#[derive(Default)]
pub(crate) struct Releases(BTreeMap<WriteGroup, UnixMillis>);

impl Releases {
    fn may_release(&self, group: WriteGroup, now: UnixMillis) -> bool {
        self.0.get(&group).is_none_or(|at| now >= at.plus(RELEASE_MS))
    }

    /// The cluster left.
    pub(crate) fn forget(&mut self, cluster: ClusterId) {
        self.0.retain(|group, _| group.cluster != cluster);
    }
}

impl Machine {
    /// What a success of this target's write says about others: the failure that it ends.
    pub(crate) fn ended_failure(
        &mut self,
        target: WriteTarget,
        outcome: &Outcome,
    ) -> Option<FailureClass> {
        match outcome {
            Outcome::Applied { .. } | Outcome::Unchanged => {
                self.write_failure(target)?.failure_class()
            }
            _ => None,
        }
    }

    /// A watch of the cluster is live and current, so its API server answers.
    pub(crate) fn release_unreached(&mut self, cluster: ClusterId) {
        for group in WriteGroup::of(cluster) {
            self.release(group, FailureClass::Unreachable);
        }
    }

    /// The API server carries out writes of the group again: those that failed for this reason, or for a
    /// lesser one, are due.
    pub(crate) fn release(&mut self, group: WriteGroup, up_to: FailureClass) {
        let now = self.ctx.now;
        if !self.ctx.releases.may_release(group, now) {
            return;
        }

        let mut released = self.unfinished(group);
        released.retain(|target| {
            self.write_failure(*target).is_some_and(|write| write.api_answers(up_to, now))
        });
        if !released.is_empty() {
            self.ctx.releases.0.insert(group, now);
        }
        for target in released {
            match target {
                WriteTarget::HubConnector(at) => self.evaluate_hub_connector(at),
                WriteTarget::Touch(edge, target) => self.evaluate_touch(edge, target),
                WriteTarget::Route(hub, key) => self.evaluate_route(hub, key),
            }
        }
    }

    /// The targets of a group that are still to be written; those whose last write failed are among them.
    fn unfinished(&self, group: WriteGroup) -> Vec<WriteTarget> {
        let WriteGroup { cluster, kind } = group;
        if kind == Kind::Gateway {
            let targets = self.edges.get(&cluster).map(|edge| edge.failed_touches());
            let touch = |target| WriteTarget::Touch(cluster, target);
            return targets.unwrap_or_default().into_iter().map(touch).collect();
        }
        let Some(hub) = self.hubs.get(&cluster) else { return Vec::new() };
        match kind {
            Kind::Connector => {
                let connector = |&key| WriteTarget::HubConnector(Place { cluster, key });
                hub.unsettled.iter().map(connector).collect()
            }
            _ => hub.orphans.iter().map(|&key| WriteTarget::Route(cluster, key)).collect(),
        }
    }

    /// The writes to a target; `None` where it is gone, or has nothing to remember.
    fn write_failure(&mut self, target: WriteTarget) -> Option<&mut dyn WriteFailure> {
        Some(match target {
            WriteTarget::HubConnector(at) => {
                let connector = self.hubs.get_mut(&at.cluster)?.connectors.get_mut(&at.key)?;
                &mut connector.repair.as_deref_mut()?.flight
            }
            WriteTarget::Touch(edge, target) => {
                &mut self.edges.get_mut(&edge)?.open_touch_mut(target)?.flight
            }
            WriteTarget::Route(hub, key) => {
                &mut self.hubs.get_mut(&hub)?.routes.get_mut(&key)?.flight
            }
        })
    }
}
