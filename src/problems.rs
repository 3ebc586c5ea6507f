//! The open problems of a run, and the only module that reports them.
//!
//! One cause, one message: the problems of one cause in one cluster form a group. A group is reported a
//! second after it began, at most once a minute while it changes, and when it ends. If more than three
//! clusters have one cause at once, one message covers them all.
//!
//! Pure but for [`log`]: the caller passes the time, and polls again when [`Problems::due`] is reached.

mod outside;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::fmt::friendly::SpanPrinter;
use tracing::{debug, error, info, warn};

use crate::core::contract::cause::{About, Cause, Kubectl, Problem, ProblemId, Severity};
use crate::core::contract::error_cause::RequestFailure;
use crate::core::data::ids::ClusterName;
use crate::core::data::time::UnixMillis;
use crate::core::view::group::{GroupView, Place};
use crate::core::view::involved_object::InvolvedObject;
use crate::outside_text::{one_line, without_secrets};
use crate::report::count;

pub use outside::Outside;

/// How long a group gathers problems before its first report, and stays empty before it ends.
pub const GATHER_MS: u64 = 1_000;
/// The least time between two reports of a group that changes.
const CHANGED_EVERY_MS: u64 = 60_000;
/// The most objects or clusters that a message names; above that it gives a count.
pub const FEW: usize = 3;
/// After reports of one cause in a few clusters, further clusters wait for the rest of this time, so
/// that clusters lost one after another share a message.
const FEW_EVERY_MS: u64 = 10_000;

/// The third part separates problems that need different remedies.
type GroupKey = (Cause, ClusterName, Option<String>);

fn group_key(problem: &Problem) -> GroupKey {
    let Problem { cause, about, facts, .. } = problem;
    let part = match cause {
        Cause::PermissionMissing | Cause::KindNotServed => about.kind.map(|kind| kind.to_string()),
        Cause::WriteRefused => facts.error.as_ref().map(|error| format!("{:?}", error.cause)),
        Cause::ConfigRefused => facts.error.as_ref().map(|error| error.text.to_string()),
        Cause::Overwritten => facts.manager.as_deref().map(str::to_owned),
        _ => None,
    };
    (*cause, about.cluster.clone(), part)
}

/// Where a group is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    Began,
    Changed,
    Ended,
}

/// A report about one group, or about the groups of one cause in more than a few clusters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    pub stage: Stage,
    /// At least one. A group that ended is as last reported.
    pub groups: Vec<GroupView>,
}

#[derive(Clone, Debug)]
struct Member {
    problem: Problem,
    object: Option<InvolvedObject>,
}

#[derive(Clone, Debug)]
struct Group {
    members: BTreeMap<ProblemId, Member>,
    /// The member that the texts describe, while it exists.
    first: ProblemId,
    since: UnixMillis,
    opened_at: UnixMillis,
    /// The time and content of the last report.
    reported: Option<(UnixMillis, GroupView)>,
    has_changed: bool,
    emptied_at: Option<UnixMillis>,
}

impl Group {
    fn new(at: UnixMillis, first: ProblemId, since: UnixMillis) -> Self {
        Self {
            members: BTreeMap::new(),
            first,
            since,
            opened_at: at,
            reported: None,
            has_changed: false,
            emptied_at: None,
        }
    }

    fn add(&mut self, id: ProblemId, member: Member) {
        if self.members.is_empty() {
            self.first = id.clone();
        }
        self.since = self.since.min(member.problem.since);
        self.members.insert(id, member);
        self.has_changed = true;
        self.emptied_at = None;
    }

    fn remove(&mut self, at: UnixMillis, id: &ProblemId) {
        self.members.remove(id);
        self.has_changed = true;
        match self.members.keys().next() {
            Some(next) if self.first == *id => self.first = next.clone(),
            Some(_) => {}
            None => self.emptied_at = Some(at),
        }
    }

    /// The next report, and when.
    fn next(&self) -> Option<(Stage, UnixMillis)> {
        let Some((reported_at, _)) = self.reported else {
            return Some((Stage::Began, self.opened_at.plus(GATHER_MS)));
        };
        match self.emptied_at {
            Some(at) => Some((Stage::Ended, at.plus(GATHER_MS))),
            None => self.has_changed.then(|| (Stage::Changed, reported_at.plus(CHANGED_EVERY_MS))),
        }
    }

    /// `None` for a group without members.
    fn view(&self, kubectl: Kubectl<'_>) -> Option<GroupView> {
        let member = self.members.get(&self.first)?;
        let first = &member.problem;
        let count = self.members.values().map(|member| 1 + member.problem.about.more).sum();
        let about = About { more: count - 1, ..first.about.clone() };
        let place = |of, about: &_| place(of, about, kubectl);
        let whole = place((&self.first, member), &about);
        let others = self.members.iter().filter(|(id, _)| **id != self.first);
        let all = std::iter::once(member).chain(others.map(|(_, other)| other));

        Some(GroupView {
            cause: first.cause,
            severity: first.cause.info().severity,
            cluster: first.about.cluster.clone(),
            since_ms: self.since,
            count,
            objects: all.filter_map(|of| of.problem.about.object.clone()).take(FEW).collect(),
            message: whole.message.clone(),
            error: first.facts.error.as_ref().map(|error| error.text.to_string()),
            remedy: whole.remedy.clone(),
            places: match self.members.len() {
                0..=FEW => self.members.iter().map(|of| place(of, &of.1.problem.about)).collect(),
                _ => vec![whole],
            },
            ended_at: None,
        })
    }
}

fn place((id, member): (&ProblemId, &Member), about: &About, kubectl: Kubectl<'_>) -> Place {
    let Problem { cause, facts, .. } = &member.problem;
    Place {
        id: id.clone(),
        object: member.object.clone(),
        message: one_line(&cause.sentence(about, facts)).into_owned(),
        remedy: one_line(&cause.remedy(about, facts, kubectl).unwrap_or_default()).into_owned(),
    }
}

/// The clusters reported with one cause within [`FEW_EVERY_MS`].
#[derive(Clone, Debug)]
struct Burst {
    since: UnixMillis,
    clusters: usize,
}

/// All open problems.
#[derive(Clone, Debug, Default)]
pub struct Problems {
    groups: BTreeMap<GroupKey, Group>,
    bursts: BTreeMap<(Stage, Cause), Burst>,
    /// No report is due earlier.
    due: Option<UnixMillis>,
}

impl Problems {
    /// Opens a problem, or updates the facts of an open one. `object` is the object it is about, if
    /// that exists.
    pub fn begin(&mut self, at: UnixMillis, mut problem: Problem, object: Option<InvolvedObject>) {
        if let Some(RequestFailure { text, .. }) = &mut problem.facts.error {
            *text = without_secrets(text).into();
        }
        let id = problem.id();
        let key = group_key(&problem);
        self.leave(at, &id, Some(&key));

        let new = || Group::new(at, id.clone(), problem.since);
        let group = self.groups.entry(key).or_insert_with(new);
        group.add(id, Member { problem, object });
        let next = group.next();
        self.report_by(next);
    }

    /// Closes a problem.
    pub fn end(&mut self, at: UnixMillis, problem: &Problem) {
        self.leave(at, &problem.id(), None);
    }

    /// Takes a problem out of its group: it ended, or its facts put it into the group `to`.
    fn leave(&mut self, at: UnixMillis, id: &ProblemId, to: Option<&GroupKey>) {
        let groups = self.groups.range_mut((id.cause, id.cluster.clone(), None)..);
        let mut groups = groups
            .take_while(|((cause, cluster, _), _)| (*cause, cluster) == (id.cause, &id.cluster));
        let Some((key, group)) = groups.find(|(_, group)| group.members.contains_key(id)) else {
            return;
        };
        if to == Some(key) {
            return;
        }
        group.remove(at, id);
        let is_news = to.is_none() && group.reported.is_some();
        if group.members.is_empty() && !is_news {
            let key = key.clone();
            self.groups.remove(&key);
            return;
        }
        let next = group.next();
        self.report_by(next);
    }

    fn report_by(&mut self, next: Option<(Stage, UnixMillis)>) {
        self.due = self.due.into_iter().chain(next.map(|(_, at)| at)).min();
    }

    /// When to call [`Problems::poll`] next.
    pub fn due(&self) -> Option<UnixMillis> {
        self.due
    }

    /// The reports that are due.
    pub fn poll(&mut self, now: UnixMillis) -> Vec<Report> {
        if self.due.is_none_or(|due| due > now) {
            return Vec::new();
        }
        let mut ready: BTreeMap<(Stage, Cause), Vec<GroupKey>> = BTreeMap::new();
        for (key, group) in &self.groups {
            if let Some((stage, at)) = self.next(key, group)
                && at <= now
            {
                ready.entry((stage, key.0)).or_default().push(key.clone());
            }
        }
        let mut reports = Vec::new();
        for ((stage, cause), keys) in ready {
            let groups = keys.iter().filter_map(|key| self.report(now, stage, key)).collect();
            let of_cause = reports_of(stage, groups);
            self.count(now, (stage, cause), of_cause.iter().map(Report::clusters).sum());
            reports.extend(of_cause);
        }
        let dues = self.groups.iter().filter_map(|(key, group)| self.next(key, group));
        self.due = dues.map(|(_, at)| at).min();
        reports
    }

    fn next(&self, key: &GroupKey, group: &Group) -> Option<(Stage, UnixMillis)> {
        let (stage, at) = group.next()?;
        let burst = self.bursts.get(&(stage, key.0)).filter(|burst| burst.clusters >= FEW);
        Some((stage, burst.map_or(at, |burst| at.max(burst.since.plus(FEW_EVERY_MS)))))
    }

    fn count(&mut self, now: UnixMillis, of: (Stage, Cause), clusters: usize) {
        let burst = self.bursts.entry(of).or_insert(Burst { since: now, clusters: 0 });
        if now.since(burst.since) >= FEW_EVERY_MS {
            *burst = Burst { since: now, clusters: 0 };
        }
        burst.clusters += clusters;
    }

    /// `None` if the content has not changed since the last report.
    fn report(&mut self, now: UnixMillis, stage: Stage, key: &GroupKey) -> Option<GroupView> {
        if stage == Stage::Ended {
            let Group { emptied_at: ended_at, reported, .. } = self.groups.remove(key)?;
            return Some(GroupView { ended_at, ..reported?.1 });
        }
        let group = self.groups.get_mut(key)?;
        group.has_changed = false;
        let view = group.view(&|_| None)?;
        let before = group.reported.replace((now, view.clone())).map(|(_, before)| before);
        let says = |view: &GroupView| (view.count, view.message.clone());
        before.is_none_or(|before| says(&before) != says(&view)).then_some(view)
    }

    /// Every open group, ordered by cause.
    pub fn open(&self, kubectl: Kubectl<'_>) -> Vec<GroupView> {
        self.groups.values().filter_map(|group| group.view(kubectl)).collect()
    }

    /// Every open group, as if it had just begun.
    pub fn all(&self) -> Vec<Report> {
        let open = self.open(&|_| None);
        let of_cause = open.chunk_by(|a, b| a.cause == b.cause);
        of_cause.flat_map(|groups| reports_of(Stage::Began, groups.to_vec())).collect()
    }
}

/// One report for all groups of a cause in more than a few clusters, else one for each group.
fn reports_of(stage: Stage, groups: Vec<GroupView>) -> Vec<Report> {
    let whole = Report { stage, groups };
    if whole.clusters() > FEW {
        return vec![whole];
    }
    whole.groups.into_iter().map(|group| Report { stage, groups: vec![group] }).collect()
}

impl Report {
    fn names(&self) -> BTreeSet<&ClusterName> {
        self.groups.iter().map(|group| &group.cluster).collect()
    }

    fn clusters(&self) -> usize {
        self.names().len()
    }

    /// `The API server of a does not answer: timed out. The same in 299 more clusters: b, c, …`
    pub fn text(&self) -> String {
        let Some(first) = self.groups.first() else { return String::new() };
        let mut others = self.names();
        others.remove(&first.cluster);
        if others.is_empty() {
            return first.message.clone();
        }
        let more = count(others.len(), "more cluster");
        let named: Vec<_> = others.iter().take(FEW - 1).map(ToString::to_string).collect();
        format!("{} The same in {more}: {}, …", first.message, named.join(", "))
    }
}

/// Writes the line of a report.
pub fn log(now: UnixMillis, report: &Report) {
    let Some(first) = report.groups.first() else { return };
    let GroupView { cause, cluster, error, remedy, .. } = first;
    let cause = cause.as_str();
    let until = first.ended_at.unwrap_or(now);
    // A problem of this instance has no cluster.
    let cluster = Some(cluster).filter(|name| !name.as_str().is_empty());
    let cluster = cluster.map(tracing::field::display);
    let age = age(until.since(first.since_ms));
    let clusters = Some(report.clusters()).filter(|clusters| *clusters > 1);
    let remedy = Some(remedy).filter(|remedy| !remedy.is_empty());
    match (report.stage, first.severity) {
        (Stage::Ended, Severity::Info) => {
            return debug!(cause, cluster, clusters, after = age, "resolved");
        }
        (Stage::Ended, _) => return info!(cause, cluster, clusters, after = age, "resolved"),
        _ => {}
    }

    let text = report.text();
    let total = report.groups.iter().map(|group| group.count).sum::<usize>();
    macro_rules! line {
        ($level:ident) => {
            $level!(cause, cluster, clusters, count = total, since = age, error, remedy, "{text}")
        };
    }
    match first.severity {
        Severity::Error => line!(error),
        Severity::Warning => line!(warn),
        Severity::Info => line!(debug),
    }
}

/// `1m 15s`
fn age(ms: u64) -> String {
    SpanPrinter::new().unsigned_duration_to_string(&Duration::from_secs(ms / 1_000))
}

#[cfg(test)]
mod tests;
