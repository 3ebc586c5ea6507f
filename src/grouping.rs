//! One cause, one message: groups what many objects suffer from for one reason, so that logs and
//! Kubernetes Events report it when it begins, while it changes, and when it is over.
//!
//! Pure: the caller brings the time, and asks again when [`Groups::due`] has come.

use std::collections::BTreeMap;

use crate::core::contract::action::Verb;
use crate::core::contract::error_cause::ErrorCause;
use crate::core::contract::hold_reason::HoldReason;
use crate::core::contract::keep_reason::KeepReason;
use crate::core::contract::note::{Anomaly, AnomalyKind, Hop, Stall, StallCause};
use crate::core::data::ids::{ClusterName, ObjectKey};
use crate::core::data::time::UnixMillis;

/// How long a group gathers members before it is reported, and stays without any before it counts as
/// over.
pub const GATHER_MS: u64 = 1_000;

/// A group is reported at most this often while it changes. A group of occurrences, which have no
/// end, is over after this long without another.
pub const EVERY_MS: u64 = 60_000;

/// What objects suffer from together.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// By hop too: a connector may be late at two hops for one cause.
    Stall {
        cause: StallCause,
        hop: Hop,
    },
    Anomaly {
        kind: AnomalyKind,
        cluster: ClusterName,
        manager: Option<Box<str>>,
    },
    /// Routes of a hub that are orphans, or would be but for one reason.
    Orphan {
        hub: ClusterName,
        kept: Option<KeepReason>,
    },
    /// Orphans of a hub that were deleted.
    OrphanDeleted {
        hub: ClusterName,
    },
    /// Annotations are left as they are although their upstream cluster seems to say otherwise.
    AnnotationsHeld {
        upstream: ClusterName,
        reason: HoldReason,
    },
    /// Too many routes of an upstream cluster are orphans.
    DeletesHeld {
        upstream: ClusterName,
    },
    /// Hub objects name a project that was deleted.
    ClusterGone {
        upstream: ClusterName,
    },
    /// Watches that are lost.
    Watch {
        error: ErrorCause,
    },
    /// Writes that failed, or were refused.
    Write {
        cluster: ClusterName,
        verb: Verb,
        error: ErrorCause,
        is_refused: bool,
    },
}

impl Cause {
    pub fn of_stall(stall: &Stall) -> Self {
        Self::Stall { cause: stall.cause.clone(), hop: stall.hop }
    }

    pub fn of_anomaly(anomaly: &Anomaly) -> Self {
        Self::Anomaly {
            kind: anomaly.anomaly,
            cluster: anomaly.cluster.clone(),
            manager: anomaly.manager.clone(),
        }
    }
}

/// An object that suffers: its cluster and its name there.
pub type Member = (ClusterName, ObjectKey);

/// Where a group is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Its first report.
    Began,
    /// Its members have changed since the last report.
    Changed,
    /// It has no members any more. Not for occurrences, which have no end.
    Ended,
}

/// The objects that suffer from one cause. `T` is what the caller keeps of each.
#[derive(Debug)]
pub struct Group<T> {
    /// When the first one began to suffer.
    pub since: UnixMillis,
    /// The first one.
    pub first: T,
    /// Those that suffer now; of occurrences, those since the last report.
    pub members: BTreeMap<Member, T>,
    /// How often an object began to suffer; of occurrences, how many there were since the last
    /// report.
    pub total: u64,
    /// How many members the last report had.
    pub reported_members: usize,
    /// When the last change was.
    pub changed_at: UnixMillis,
    /// `None` for occurrences.
    emptied_at: Option<UnixMillis>,
    has_end: bool,
    first_member: Member,
    is_about_one: bool,
    reported_at: Option<UnixMillis>,
    /// Of occurrences: how many were reported in the minute that began then.
    minute: (UnixMillis, usize),
    /// Since when there is something that was not reported.
    unreported_since: Option<UnixMillis>,
}

impl<T: Clone> Group<T> {
    fn new(at: UnixMillis, first_member: Member, first: T, has_end: bool) -> Self {
        Self {
            since: at,
            first,
            members: BTreeMap::new(),
            total: 0,
            reported_members: 0,
            changed_at: at,
            emptied_at: None,
            has_end,
            first_member,
            is_about_one: true,
            reported_at: None,
            minute: (at, 0),
            unreported_since: None,
        }
    }

    /// Whether the first object is the only one that ever suffered.
    pub fn is_about_one(&self) -> bool {
        self.is_about_one
    }

    /// Whether its members have no end of their own.
    pub fn is_occurrences(&self) -> bool {
        !self.has_end
    }

    /// Up to three names, in order.
    pub fn names(&self) -> String {
        const NAMES_MAX: usize = 3;
        let names: Vec<_> =
            self.members.keys().take(NAMES_MAX).map(|(_, object)| object.to_string()).collect();
        let more = if self.members.len() > NAMES_MAX { ", …" } else { "" };
        format!("{}{more}", names.join(", "))
    }

    fn add(&mut self, at: UnixMillis, member: Member, what: T) {
        self.is_about_one &= member == self.first_member;
        self.members.insert(member, what);
        self.total += 1;
        self.emptied_at = None;
        self.changed(at);
    }

    fn changed(&mut self, at: UnixMillis) {
        self.changed_at = at;
        self.unreported_since.get_or_insert(at);
    }

    fn due(&self, few: usize) -> Option<UnixMillis> {
        let Some(reported_at) = self.reported_at else { return Some(self.since.plus(GATHER_MS)) };
        if let Some(emptied_at) = self.emptied_at {
            return Some(emptied_at.plus(GATHER_MS));
        }
        let gathered = self.unreported_since.map(|since| since.plus(GATHER_MS));
        let reported = if self.has_end { 0 } else { self.minute.1 };
        match gathered {
            Some(at) if reported + self.members.len() <= few => Some(at),
            Some(at) => Some(reported_at.plus(EVERY_MS).max(at)),
            // When a group of occurrences is over.
            None => (!self.has_end).then(|| reported_at.plus(EVERY_MS)),
        }
    }

    fn reported(&mut self, now: UnixMillis) {
        (self.reported_at, self.unreported_since) = (Some(now), None);
        self.reported_members = self.members.len();
        if !self.has_end {
            if now.since(self.minute.0) >= EVERY_MS {
                self.minute = (now, 0);
            }
            self.minute.1 += self.members.len();
            self.members.clear();
            self.total = 0;
        }
    }
}

/// All groups that are open.
#[derive(Debug)]
pub struct Groups<T> {
    few: usize,
    groups: BTreeMap<Cause, Group<T>>,
    /// No group is due before.
    due: Option<UnixMillis>,
}

impl<T: Clone> Groups<T> {
    /// Changes of a group with up to `few` members are reported without waiting for the minute to
    /// end.
    pub fn new(few: usize) -> Self {
        Self { few, groups: BTreeMap::new(), due: None }
    }

    /// An object begins to suffer from a cause, until [`Groups::end`].
    pub fn begin(&mut self, at: UnixMillis, cause: Cause, member: Member, what: T) {
        self.add(at, cause, member, what, true);
    }

    /// Something happened to an object that has no end of its own.
    pub fn happen(&mut self, at: UnixMillis, cause: Cause, member: Member, what: T) {
        self.add(at, cause, member, what, false);
    }

    /// As [`Groups::happen`], where the caller reports the first one itself, at once. Returns whether
    /// this is the first.
    pub fn happen_again(&mut self, at: UnixMillis, cause: Cause, member: Member, what: T) -> bool {
        if self.groups.contains_key(&cause) {
            self.happen(at, cause, member, what);
            return false;
        }
        let mut group = Group::new(at, member, what, false);
        group.reported(at);
        self.no_later(group.due(self.few));
        self.groups.insert(cause, group);
        true
    }

    fn add(&mut self, at: UnixMillis, cause: Cause, member: Member, what: T, has_end: bool) {
        let group = self.groups.entry(cause);
        let group = group.or_insert_with(|| Group::new(at, member.clone(), what.clone(), has_end));
        group.add(at, member, what);
        let due = group.due(self.few);
        self.no_later(due);
    }

    /// An object no longer suffers from a cause. Returns what was kept of it.
    pub fn end(&mut self, at: UnixMillis, cause: &Cause, member: &Member) -> Option<T> {
        let group = self.groups.get_mut(cause)?;
        let what = group.members.remove(member)?;
        group.changed(at);
        group.emptied_at = group.members.is_empty().then_some(at);
        let due = group.due(self.few);
        self.no_later(due);
        Some(what)
    }

    /// Forgets a group without members, although its end was not reported.
    pub fn forget_empty(&mut self, cause: &Cause) {
        if self.groups.get(cause).is_some_and(|group| group.members.is_empty()) {
            self.groups.remove(cause);
        }
    }

    /// Forgets what only a report is waiting for: occurrences, and groups without members.
    pub fn forget_unneeded(&mut self) {
        self.groups.retain(|_, group| group.has_end && !group.members.is_empty());
    }

    /// A cluster left: its objects suffer from nothing any longer, and nothing is reported of that.
    pub fn forget(&mut self, cluster: &ClusterName) {
        self.groups.retain(|cause, group| {
            let members = group.members.len();
            // A project that was deleted is no cluster of this run, and hub objects may still name it.
            if !matches!(cause, Cause::ClusterGone { .. }) {
                group.members.retain(|(of, _), _| of != cluster);
            }
            members == group.members.len() || !group.members.is_empty()
        });
    }

    /// Whether anything is known of this cause.
    pub fn contains(&self, cause: &Cause) -> bool {
        self.groups.contains_key(cause)
    }

    /// What is kept of every object.
    pub fn entries_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.groups.values_mut().flat_map(|group| group.members.values_mut())
    }

    fn no_later(&mut self, due: Option<UnixMillis>) {
        self.due = self.due.into_iter().chain(due).min();
    }

    /// When to call [`Groups::poll`] next.
    pub fn due(&self) -> Option<UnixMillis> {
        self.due
    }

    /// Makes every group due that has members.
    pub fn make_due(&mut self, now: UnixMillis) {
        for group in self.groups.values_mut().filter(|group| !group.members.is_empty()) {
            group.unreported_since = Some(UnixMillis(0));
            group.reported_at = group.reported_at.map(|_| UnixMillis(0));
            self.due = Some(now);
        }
    }

    /// Reports the groups that are due.
    pub fn poll(&mut self, now: UnixMillis, mut report: impl FnMut(&Cause, Stage, &mut Group<T>)) {
        if self.due.is_none_or(|due| due > now) {
            return;
        }
        let few = self.few;
        self.groups.retain(|cause, group| {
            if group.due(few).is_none_or(|due| due > now) {
                return true;
            }
            if group.reported_at.is_none() {
                report(cause, Stage::Began, group);
            } else if group.has_end && group.emptied_at.is_none() {
                report(cause, Stage::Changed, group);
            } else if !group.has_end {
                if group.total == 0 {
                    return false;
                }
                report(cause, Stage::Changed, group);
            }
            let is_over = group.emptied_at.is_some();
            if is_over {
                report(cause, Stage::Ended, group);
            }
            group.reported(now);
            !is_over
        });
        let dues = self.groups.values().filter_map(|group| group.due(few));
        self.due = dues.min();
    }
}

#[cfg(test)]
mod tests;
