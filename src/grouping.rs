//! One cause, one message: groups what many objects suffer from for one reason, so that logs and
//! Kubernetes Events report it when it begins, while it changes, and when it is over.
//!
//! Pure: the caller brings the time, and asks again when [`Groups::due`] has come.

use std::collections::BTreeMap;

use crate::core::contract::action::Verb;
use crate::core::contract::error_cause::ErrorCause;
use crate::core::contract::note::{Anomaly, AnomalyKind, Hop, Stall, StallCause};
use crate::core::data::ids::{ClusterName, ObjectKey};
use crate::core::data::time::UnixMillis;
use crate::core::orphans::keep_reason::KeepReason;

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
    /// Too many routes of an upstream cluster are orphans.
    DeletesHeld {
        upstream: ClusterName,
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
mod tests {
    use super::*;

    const T0: UnixMillis = UnixMillis(1_000_000_000);

    fn at(s: u64) -> UnixMillis {
        T0.plus(s * 1_000)
    }

    fn no_leader() -> Cause {
        Cause::Stall { cause: StallCause::NotLeading, hop: Hop::Mirrored }
    }

    fn carrier_behind() -> Cause {
        let cause = StallCause::NotCarried { cluster: "edge".into() };
        Cause::Stall { cause, hop: Hop::Arrived }
    }

    fn overwritten_by(manager: &str) -> Cause {
        Cause::Anomaly {
            kind: AnomalyKind::Contention,
            cluster: "hub".into(),
            manager: Some(manager.into()),
        }
    }

    fn member(n: usize) -> Member {
        ("hub".into(), ObjectKey::new("ns", format!("c-{n}")))
    }

    struct Bench {
        groups: Groups<usize>,
        said: Vec<String>,
    }

    impl Bench {
        fn new() -> Self {
            Self { groups: Groups::new(0), said: Vec::new() }
        }

        fn begin(&mut self, s: u64, cause: &Cause, n: usize) {
            self.pass_to(s);
            self.groups.begin(at(s), cause.clone(), member(n), n);
        }

        fn end(&mut self, s: u64, cause: &Cause, n: usize) {
            self.pass_to(s);
            assert_eq!(self.groups.end(at(s), cause, &member(n)), Some(n));
        }

        /// Lets time pass as the loop does: it asks only when something is due.
        fn pass_to(&mut self, s: u64) {
            while let Some(due) = self.groups.due().filter(|due| *due <= at(s)) {
                let said = &mut self.said;
                self.groups.poll(due, |cause, stage, group| {
                    let cause = match cause {
                        Cause::Stall { cause, .. } => cause.as_str().to_owned(),
                        Cause::Anomaly { manager, .. } => {
                            manager.clone().unwrap_or_default().into()
                        }
                        _ => String::new(),
                    };
                    let (after_s, n) = (due.since(T0) / 1_000, group.members.len());
                    let total = group.total;
                    said.push(format!("{after_s} s: {cause} {stage:?}, {n} now, {total} in all"));
                });
                assert!(self.groups.due().is_none_or(|next| next > due), "a timer, not a poll");
            }
        }

        /// What was said until then, and not returned before.
        fn until(&mut self, s: u64) -> Vec<String> {
            self.pass_to(s);
            std::mem::take(&mut self.said)
        }
    }

    #[test]
    fn one_object_is_one_line_at_its_begin_and_one_at_its_end() {
        let mut bench = Bench::new();
        bench.begin(0, &carrier_behind(), 7);
        assert_eq!(bench.until(0), [""; 0]);
        assert_eq!(bench.until(900), ["1 s: not_carried Began, 1 now, 1 in all"]);
        bench.end(1_000, &carrier_behind(), 7);
        assert_eq!(bench.until(9_000), ["1001 s: not_carried Ended, 0 now, 1 in all"]);
        assert_eq!(bench.groups.due(), None);
    }

    #[test]
    fn a_thousand_objects_of_one_cause_are_one_line_with_their_number() {
        let mut bench = Bench::new();
        for n in 0..1_000 {
            bench.begin(0, &no_leader(), n);
        }
        assert_eq!(bench.until(50), ["1 s: not_leading Began, 1000 now, 1000 in all"]);
        for n in 0..1_000 {
            bench.end(90, &no_leader(), n);
        }
        assert_eq!(bench.until(999), ["91 s: not_leading Ended, 0 now, 1000 in all"]);
    }

    #[test]
    fn a_count_that_changes_is_one_line_a_minute() {
        let mut bench = Bench::new();
        for n in 0..150 {
            bench.begin(n as u64, &carrier_behind(), n);
        }
        assert_eq!(
            bench.until(9_000),
            [
                "1 s: not_carried Began, 1 now, 1 in all",
                "61 s: not_carried Changed, 61 now, 61 in all",
                "121 s: not_carried Changed, 121 now, 121 in all",
                "181 s: not_carried Changed, 150 now, 150 in all",
            ]
        );
    }

    #[test]
    fn two_causes_at_once_are_told_apart() {
        let mut bench = Bench::new();
        for n in 0..3 {
            bench.begin(0, &no_leader(), n);
        }
        for n in 0..5 {
            bench.begin(0, &carrier_behind(), n);
        }
        bench.end(5, &no_leader(), 0);
        let said = bench.until(30);
        assert_eq!(said.len(), 2);
        assert!(said.contains(&"1 s: not_leading Began, 3 now, 3 in all".to_owned()), "{said:?}");
        assert!(said.contains(&"1 s: not_carried Began, 5 now, 5 in all".to_owned()), "{said:?}");
    }

    #[test]
    fn what_begins_again_at_once_has_not_ended() {
        let mut bench = Bench::new();
        bench.begin(0, &carrier_behind(), 1);
        bench.until(9);
        bench.groups.end(at(10), &carrier_behind(), &member(1));
        bench.groups.begin(at(10).plus(999), carrier_behind(), member(1), 1);
        assert_eq!(bench.until(60), [""; 0]);
    }

    #[test]
    fn a_problem_shorter_than_the_gathering_has_both_its_lines() {
        let mut bench = Bench::new();
        bench.begin(0, &carrier_behind(), 1);
        bench.end(0, &carrier_behind(), 1);
        assert_eq!(
            bench.until(60),
            ["1 s: not_carried Began, 0 now, 1 in all", "1 s: not_carried Ended, 0 now, 1 in all"]
        );
    }

    #[test]
    fn occurrences_are_counted_by_the_minute_and_have_no_end() {
        let mut bench = Bench::new();
        for s in 0..100 {
            bench.pass_to(s);
            bench.groups.happen(at(s), overwritten_by("kubectl"), member(s as usize % 4), 0);
        }
        assert_eq!(
            bench.until(9_000),
            [
                "1 s: kubectl Began, 1 now, 1 in all",
                "61 s: kubectl Changed, 4 now, 60 in all",
                "121 s: kubectl Changed, 4 now, 39 in all",
            ]
        );
        assert_eq!(bench.groups.due(), None);
    }

    /// As Events about single objects need it.
    #[test]
    fn while_they_are_few_each_is_reported_soon() {
        let mut bench = Bench { groups: Groups::new(5), said: Vec::new() };
        for n in 0..7 {
            bench.begin(10 * n as u64, &carrier_behind(), n);
        }
        assert_eq!(
            bench.until(9_000),
            [
                "1 s: not_carried Began, 1 now, 1 in all",
                "11 s: not_carried Changed, 2 now, 2 in all",
                "21 s: not_carried Changed, 3 now, 3 in all",
                "31 s: not_carried Changed, 4 now, 4 in all",
                "41 s: not_carried Changed, 5 now, 5 in all",
                "101 s: not_carried Changed, 7 now, 7 in all",
            ]
        );
    }

    #[test]
    fn a_write_that_fails_is_reported_at_once_and_its_like_once_a_minute() {
        let mut groups = Groups::new(0);
        let refused = || Cause::Write {
            cluster: "hub".into(),
            verb: Verb::Mirror,
            error: ErrorCause::Forbidden,
            is_refused: true,
        };
        assert!(groups.happen_again(at(0), refused(), member(0), 0));
        for n in 1..500 {
            assert!(!groups.happen_again(at(0), refused(), member(n), n));
        }
        assert_eq!(groups.due(), Some(at(60)));
        let mut counts = Vec::new();
        groups.poll(at(60), |_, stage, group| counts.push((stage, group.total)));
        assert_eq!(counts, [(Stage::Changed, 499)]);
        groups.poll(at(120), |_, stage, group| counts.push((stage, group.total)));
        assert_eq!((counts.len(), groups.due()), (1, None));
    }
}
