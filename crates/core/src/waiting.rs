//! Writes that wait because an API server did not carry out the last attempt, and the probes that
//! find out early that it would now.
//!
//! Each write has a pause of its own, which grows. The cause may end long before: so one write of
//! each group, a cluster and a kind of object there, is tried every [`PROBE_MS`], in turn. Once one
//! of them succeeds, all that waited for the same are due. A write is never tried more often for
//! it: what the API server refuses costs it one request per group and interval.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use super::context::WriteTarget;
use super::contract::event::Outcome;
use super::data::ids::{ClusterId, Kind};
use super::data::time::UnixMillis;
use super::data::used_names::{HoldsNames, UsedNames};
use super::flight::{Blocked, WritePauses};
use super::machine::Machine;
use super::timers::Due;

/// While writes of a group wait, one of them is tried this often.
pub const PROBE_MS: u64 = 15_000;

/// The shortest time between two releases of a group: less than [`PROBE_MS`], so that each probe
/// that succeeds can release.
const RELEASE_MS: u64 = PROBE_MS / 2;

/// A probe passes over so many writes that have nothing to write at the moment.
const NOT_DUE_MAX: usize = 8;

/// The writes for which one success speaks: to one kind of object in one cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
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

/// The waiting writes of all groups.
#[derive(Default)]
pub(crate) struct WaitingWrites {
    groups: BTreeMap<WriteGroup, GroupState>,
}

#[derive(Default)]
struct GroupState {
    /// Whose last attempt failed, and what it waits for. One that no longer waits, or is gone,
    /// leaves when its turn comes.
    waiting: BTreeSet<(Blocked, WriteTarget)>,
    /// Whose turn it was last.
    probed: Option<(Blocked, WriteTarget)>,
    /// `None` while nothing waits, or nothing could be written.
    next_probe_at: Option<UnixMillis>,
    released_at: Option<UnixMillis>,
}

impl HoldsNames for GroupState {
    fn mark(&self, used: &mut UsedNames) {
        let Self { waiting, probed, next_probe_at: _, released_at: _ } = self;
        waiting.mark(used);
        probed.mark(used);
    }
}

impl HoldsNames for WaitingWrites {
    fn mark(&self, used: &mut UsedNames) {
        let Self { groups } = self;
        groups.values().for_each(|group| group.mark(used));
    }
}

impl WaitingWrites {
    /// When a write of the group is tried next, if one waits.
    pub(crate) fn next_probe_at(&self, group: WriteGroup) -> Option<UnixMillis> {
        self.groups.get(&group)?.next_probe_at
    }

    /// Adds a target. Returns when the group's next probe is due.
    fn add(&mut self, blocked: Blocked, target: WriteTarget, now: UnixMillis) -> UnixMillis {
        let group = self.groups.entry(target.group()).or_default();
        group.waiting.insert((blocked, target));
        *group.next_probe_at.get_or_insert(now.plus(PROBE_MS))
    }

    /// A target's write succeeded.
    fn remove(&mut self, blocked: Blocked, target: WriteTarget) {
        if let Some(group) = self.groups.get_mut(&target.group()) {
            group.waiting.remove(&(blocked, target));
        }
    }

    fn is_empty(&self, group: WriteGroup) -> bool {
        self.groups.get(&group).is_none_or(|group| group.waiting.is_empty())
    }

    /// Takes the target whose turn it is.
    fn take_next(&mut self, group: WriteGroup) -> Option<WriteTarget> {
        let group = self.groups.get_mut(&group)?;
        let after = group.probed.map_or(Bound::Unbounded, Bound::Excluded);
        let later = group.waiting.range((after, Bound::Unbounded)).next();
        let next = *later.or_else(|| group.waiting.first())?;
        group.waiting.remove(&next);
        group.probed = Some(next);
        Some(next.1)
    }

    /// Takes every target that waits for no more than `blocked`. None shortly after the last time.
    fn take_all(
        &mut self,
        group: WriteGroup,
        blocked: Blocked,
        now: UnixMillis,
    ) -> Vec<WriteTarget> {
        let Some(group) = self.groups.get_mut(&group) else { return Vec::new() };
        if group.released_at.is_some_and(|at| now < at.plus(RELEASE_MS)) {
            return Vec::new();
        }
        let covered = group.waiting.iter().take_while(|(waits_for, _)| *waits_for <= blocked);
        let taken: Vec<_> = covered.copied().collect();
        if !taken.is_empty() {
            group.released_at = Some(now);
        }
        for one in &taken {
            group.waiting.remove(one);
        }
        taken.into_iter().map(|(_, target)| target).collect()
    }

    /// Sets the time of the group's next probe. `None` when nothing waits.
    fn schedule(&mut self, group: WriteGroup, now: UnixMillis) -> Option<UnixMillis> {
        let group = self.groups.get_mut(&group)?;
        group.next_probe_at = (!group.waiting.is_empty()).then(|| now.plus(PROBE_MS));
        group.next_probe_at
    }

    /// Probes the group no longer, until a write of it fails or [`Machine::resume_probes`].
    fn suspend(&mut self, group: WriteGroup) {
        if let Some(group) = self.groups.get_mut(&group) {
            group.next_probe_at = None;
        }
    }

    /// The groups of a cluster, or of all, in which writes wait without a probe.
    fn suspended(&self, of: Option<ClusterId>) -> Vec<WriteGroup> {
        let is_suspended = |group: &WriteGroup| {
            let state = self.groups.get(group);
            state.is_some_and(|s| s.next_probe_at.is_none() && !s.waiting.is_empty())
        };
        match of {
            Some(cluster) => WriteGroup::of(cluster).into_iter().filter(is_suspended).collect(),
            None => self.groups.keys().copied().filter(is_suspended).collect(),
        }
    }

    /// The cluster left.
    fn forget(&mut self, cluster: ClusterId) -> Vec<WriteGroup> {
        let groups = WriteGroup::of(cluster).into_iter();
        groups.filter(|group| self.groups.remove(group).is_some()).collect()
    }
}

/// What a failed attempt waits for; `None` for an outcome that says nothing about the API server.
fn blocked_by(outcome: &Outcome) -> Option<Blocked> {
    match outcome {
        Outcome::Failed { .. } | Outcome::Unanswered { .. } => Some(Blocked::Failing),
        Outcome::NotFound => Some(Blocked::Missing),
        Outcome::Refused { .. } => Some(Blocked::Refused),
        Outcome::Applied { .. }
        | Outcome::Unchanged
        | Outcome::Superseded
        | Outcome::Conflict { .. }
        | Outcome::Dropped
        | Outcome::DryRun => None,
    }
}

impl Machine {
    /// An attempt failed: the target waits from now on. Called before its rule takes the outcome, so
    /// that the rule can say when the next attempt is.
    pub(crate) fn wait_for_api(&mut self, target: WriteTarget, outcome: &Outcome) {
        if let Some(blocked) = blocked_by(outcome) {
            let at = self.ctx.waiting.add(blocked, target, self.ctx.now);
            self.ctx.timers.no_later(Due::Probe(target.group()), at);
        }
    }

    /// What a success of this target's write says about others: the failure that it ends.
    pub(crate) fn ended_failure(
        &mut self,
        target: WriteTarget,
        outcome: &Outcome,
    ) -> Option<Blocked> {
        match outcome {
            Outcome::Applied { .. } | Outcome::Unchanged => self.pauses(target)?.blocked(),
            _ => None,
        }
    }

    /// Tries one of the group's waiting writes.
    pub(crate) fn probe(&mut self, group: WriteGroup) {
        if !self.may_write_group(group) {
            // Until leadership or the watches are back; then `resume_probes` is called.
            return self.ctx.waiting.suspend(group);
        }
        let mut not_due = 0;
        while not_due < NOT_DUE_MAX
            && let Some(target) = self.ctx.waiting.take_next(group)
        {
            match self.try_again(target) {
                Some(true) => break,
                Some(false) => not_due += 1,
                None => {}
            }
        }
        self.schedule_probe(group);
    }

    /// The watches of a cluster, or leadership (`None`), are back: groups that were not probed without
    /// them are probed at once.
    pub(crate) fn resume_probes(&mut self, of: Option<ClusterId>) {
        for group in self.ctx.waiting.suspended(of) {
            if self.may_write_group(group) {
                self.probe(group);
            }
        }
    }

    /// Whether the rule that writes the group could write at all.
    fn may_write_group(&self, group: WriteGroup) -> bool {
        let is_live = |kind| self.cluster(group.cluster).is_some_and(|c| c.is_live(kind));
        match group.kind {
            Kind::Gateway => self.edges.get(&group.cluster).is_some_and(|edge| edge.ready),
            kind => self.ctx.leads() && is_live(kind),
        }
    }

    /// A write succeeded whose last attempt had failed. What ended that failure may have ended those
    /// of others, too.
    pub(crate) fn write_recovered(&mut self, target: WriteTarget, ended: Blocked) {
        let group = target.group();
        self.ctx.waiting.remove(ended, target);
        self.release_waiting(group, ended);
        if self.ctx.waiting.is_empty(group) {
            self.schedule_probe(group);
        }
    }

    /// The API server carries out writes of the group again: those that wait for no more than
    /// `blocked` are due.
    fn release_waiting(&mut self, group: WriteGroup, blocked: Blocked) {
        let released = self.ctx.waiting.take_all(group, blocked, self.ctx.now);
        if released.is_empty() {
            return;
        }
        self.schedule_probe(group);
        for target in released {
            self.try_again(target);
        }
    }

    /// A watch of the cluster is live and current, so its API server answers.
    pub(crate) fn release_unreached(&mut self, cluster: ClusterId) {
        for group in WriteGroup::of(cluster) {
            self.release_waiting(group, Blocked::Failing);
        }
        self.resume_probes(Some(cluster));
    }

    pub(crate) fn forget_waiting(&mut self, cluster: ClusterId) {
        for group in self.ctx.waiting.forget(cluster) {
            self.ctx.timers.clear(Due::Probe(group));
        }
    }

    fn schedule_probe(&mut self, group: WriteGroup) {
        self.ctx.timers.clear(Due::Probe(group));
        if let Some(at) = self.ctx.waiting.schedule(group, self.ctx.now) {
            self.ctx.timers.no_later(Due::Probe(group), at);
        }
    }

    /// Ends a target's pause and evaluates it. Returns whether it is written now, or shortly; `None`
    /// if it did not wait.
    fn try_again(&mut self, target: WriteTarget) -> Option<bool> {
        let now = self.ctx.now;
        self.pauses(target).filter(|pauses| pauses.waits_for_api(now))?.end_failure_pause();
        Some(match target {
            WriteTarget::HubConnector(at) => {
                self.evaluate_hub_connector(at);
                let hub = self.hubs.get(&at.cluster);
                let connector = hub.and_then(|hub| hub.connectors.get(&at.key));
                let repair = connector.and_then(|connector| connector.repair.as_deref());
                repair.is_some_and(|repair| repair.flight.is_in_flight())
            }
            WriteTarget::Touch(edge, target) => {
                self.evaluate_touch(edge, target);
                let touch = self.edges.get(&edge).and_then(|edge| edge.open_touch(target));
                touch.is_some_and(|touch| touch.scheduled.is_some())
            }
            WriteTarget::Route(hub, key) => {
                self.evaluate_route(hub, key);
                let route = self.hubs.get(&hub).and_then(|hub| hub.routes.get(&key));
                route.is_some_and(|route| route.queued_at.is_some())
            }
        })
    }

    /// The pauses of a target; `None` where it is gone, or has nothing to remember.
    fn pauses(&mut self, target: WriteTarget) -> Option<&mut dyn WritePauses> {
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
