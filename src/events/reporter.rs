//! Decides which notes of the machine become Events.
//!
//! Few objects with a problem of one cause get an Event each; many get one together, with their number,
//! on the Lease or on their namespace. An Event's message stays the same from one occurrence to the
//! next (no times, and no counts where possible), so that the API server counts it instead of storing
//! it again. Only the leader reports: it has seen everything that a standby has. So a standby keeps what
//! still is wrong, which it reports once it leads, and nothing of what only happened. What is over is
//! reported only where the problem was, and nothing of an object that is gone.

use std::collections::BTreeMap;

use super::object::Severity;
use super::poster::{FEW_MAX, Poster};
use super::problem::{Problem, recovered};
use super::{Recorder, Scope};
use crate::core::contract::action::Verb;
use crate::core::contract::event::{Event, EventKind, Outcome};
use crate::core::contract::hold_reason::HoldReason;
use crate::core::contract::keep_reason::KeepReason;
use crate::core::contract::note::{Note, NoteKind};
use crate::core::contract::settings::{OrphanMode, Settings};
use crate::core::data::ids::{ClusterName, ObjectKey};
use crate::core::data::time::UnixMillis;
use crate::core::view::involved_object::InvolvedObject;
use crate::executor::FinishedAction;
use crate::grouping::{Cause, Groups, Member};
use crate::run_log::Observer;

/// How long a new leader may repair what its predecessor left before it reports it.
const TAKEOVER_GRACE_MS: u64 = 10_000;

/// Turns the notes of a run into Events.
#[derive(Debug)]
pub struct Reporter {
    settings: Settings,
    /// When this instance, as leader, begins to report; `None` while it does not lead.
    reports_from: Option<UnixMillis>,
    /// Whether it has reported what it found when it became leader.
    took_over: bool,
    groups: Groups<Problem>,
    /// The problem that the last note ended.
    ended: Option<Problem>,
    poster: Poster,
}

impl Reporter {
    /// `settings` are those of the machine whose notes it gets.
    pub fn new(recorder: Recorder, settings: Settings) -> Self {
        Self {
            settings,
            reports_from: None,
            took_over: false,
            groups: Groups::new(FEW_MAX),
            ended: None,
            poster: Poster { recorder, many: BTreeMap::new() },
        }
    }

    /// A problem is over. Without a report of it, a standby has nothing left to say.
    fn end(&mut self, at: UnixMillis, cause: &Cause, member: &Member) {
        self.ended = self.groups.end(at, cause, member);
        if self.reports_from.is_none() {
            self.groups.forget_empty(cause);
        }
    }

    /// Something happened that has no end. The leader of that time reports it.
    fn happen(&mut self, at: UnixMillis, cause: Cause, member: Member, problem: Problem) {
        if self.reports_from.is_some() {
            self.groups.happen(at, cause, member, problem);
        }
    }

    /// The problem that has just ended is over, which is news only where it was posted.
    fn report_over(&mut self, at: UnixMillis, scope: Scope, reason: &'static str, message: String) {
        let ended = self.ended.take().filter(|problem| problem.is_posted);
        if let Some(problem) = ended.filter(|_| self.reports_from.is_some()) {
            let severity = Severity::Normal;
            let over = Problem { severity, reason, message, ..problem };
            self.poster.post_on_object(at, scope, &over);
        }
    }

    /// Not for orphans that are about to be deleted, which are reported once deleted, nor for those
    /// that are held, which are reported once for their cluster.
    fn orphan(
        &mut self,
        at: UnixMillis,
        (hub, route): (&ClusterName, &ObjectKey),
        kept: Option<KeepReason>,
        subject: &InvolvedObject,
    ) {
        let cause = Cause::Orphan { hub: hub.clone(), kept: None };
        let member = (hub.clone(), route.clone());
        match kept {
            None if self.settings.orphans.mode == OrphanMode::Report => {
                self.groups.begin(at, cause, member, Problem::of_orphan(subject));
            }
            Some(keep) if !keep.is_absent() => {
                self.end(at, &cause, &member);
                let message = format!("no longer an orphan: {}", keep.text());
                self.report_over(at, Scope::Object, "NotOrphaned", message);
            }
            _ => {}
        }
    }
}

/// The one member of the group about an upstream cluster.
fn held(upstream: &ClusterName) -> (Cause, Member) {
    let cause = Cause::DeletesHeld { upstream: upstream.clone() };
    (cause, (upstream.clone(), ObjectKey::new("", "")))
}

/// The one member of the group about a project that was deleted.
fn gone(upstream: &ClusterName) -> (Cause, Member) {
    let cause = Cause::ClusterGone { upstream: upstream.clone() };
    (cause, (upstream.clone(), ObjectKey::new("", "")))
}

/// The one member of the group about an upstream cluster and a reason.
fn annotations_held(upstream: &ClusterName, reason: HoldReason) -> (Cause, Member) {
    let cause = Cause::AnnotationsHeld { upstream: upstream.clone(), reason };
    (cause, (upstream.clone(), ObjectKey::new("", "")))
}

impl Observer for Reporter {
    fn on_event(&mut self, event: &Event) {
        match &event.kind {
            EventKind::ClusterRemoved { cluster } => {
                let Self { groups, poster, .. } = self;
                groups.forget(cluster);
                poster
                    .many
                    .retain(|cause, posted| posted.cluster != *cluster && groups.contains(cause));
            }
            EventKind::LeadershipAcquired => {
                self.reports_from = Some(event.at.plus(TAKEOVER_GRACE_MS));
                self.took_over = false;
            }
            EventKind::LeadershipLost => {
                self.reports_from = None;
                // Whoever leads next reports what is still wrong, and what is over.
                self.poster.many.clear();
                self.groups.entries_mut().for_each(|problem| problem.is_posted = false);
                self.groups.forget_unneeded();
            }
            _ => {}
        }
    }

    fn on_finished(&mut self, at: UnixMillis, finished: &FinishedAction) {
        let (action, because) = (&finished.decision.action, &finished.decision.because);
        if action.verb != Verb::Delete || !matches!(finished.outcome, Outcome::Applied { .. }) {
            return;
        }
        let subject = InvolvedObject {
            cluster: action.cluster.clone(),
            kind: action.kind,
            object: action.object.clone(),
            uid: action.precondition.uid.clone(),
            resource_version: action.precondition.resource_version.clone(),
        };
        let problem = Problem::new("OrphanDeleted", &subject, format!("deleted: {because}"));
        let problem = Problem { severity: Severity::Normal, ..problem };
        let cause = Cause::OrphanDeleted { hub: action.cluster.clone() };
        let member = (action.cluster.clone(), action.object.clone());
        self.happen(at, cause, member, problem);
    }

    /// A problem is over even if its object no longer exists.
    fn on_note(&mut self, note: &Note) {
        self.ended = None;
        match &note.kind {
            NoteKind::StallEnded(stall) => {
                let member = (stall.cluster.clone(), stall.connector.clone());
                self.end(note.at, &Cause::of_stall(stall), &member);
            }
            NoteKind::OrphanGone { cluster, route } => {
                let cause = Cause::Orphan { hub: cluster.clone(), kept: None };
                self.end(note.at, &cause, &(cluster.clone(), route.clone()));
            }
            NoteKind::Held { cluster, reason, held: 0, .. } => {
                let (cause, member) = annotations_held(cluster, *reason);
                self.end(note.at, &cause, &member);
            }
            NoteKind::ClusterGone { cluster, connectors: 0, routes: 0 } => {
                let (cause, member) = gone(cluster);
                self.end(note.at, &cause, &member);
            }
            NoteKind::DeletesHeld { cluster, held: false, .. } => {
                let (cause, member) = held(cluster);
                self.end(note.at, &cause, &member);
                let message = format!(
                    "few enough routes of upstream cluster {cluster} are orphans: deletes are no \
                     longer held"
                );
                self.report_over(note.at, Scope::Many, "DeletesNotHeld", message);
            }
            _ => {}
        }
    }

    fn on_object_note(&mut self, note: &Note, subject: &InvolvedObject) {
        let (at, settings) = (note.at, &self.settings);
        match &note.kind {
            NoteKind::Stalled(stall) => {
                let member = (stall.cluster.clone(), stall.connector.clone());
                let problem = Problem::of_stall(stall, subject, settings);
                self.groups.begin(at, Cause::of_stall(stall), member, problem);
            }
            NoteKind::StallEnded(stall) => {
                let (reason, message) = recovered(stall);
                self.report_over(at, Scope::Object, reason, message);
            }
            NoteKind::Anomaly(anomaly) => {
                if let Some(problem) = Problem::of_anomaly(anomaly, subject, settings) {
                    let member = (subject.cluster.clone(), subject.object.clone());
                    self.happen(at, Cause::of_anomaly(anomaly), member, problem);
                }
            }
            NoteKind::Orphan { cluster, route, kept } => {
                self.orphan(at, (cluster, route), *kept, subject);
            }
            NoteKind::DeletesHeld { cluster, held: true, orphans, routes } => {
                let (cause, member) = held(cluster);
                let counts = (*orphans, *routes);
                let mut problem = Problem::of_held_deletes(cluster, counts, subject, settings);
                // It is about many routes already: nothing is left to gather.
                problem.is_posted = self.reports_from.is_some()
                    && self.poster.post_on_object(at, Scope::Many, &problem);
                self.groups.begin(at, cause, member, problem);
            }
            NoteKind::Held { cluster, reason, held, named } if *held > 0 => {
                let (cause, member) = annotations_held(cluster, *reason);
                let problem =
                    Problem::of_held_annotations(cluster, *reason, (*held, *named), subject);
                self.groups.begin(at, cause, member, problem);
            }
            NoteKind::ClusterGone { cluster, connectors, routes } if connectors + routes > 0 => {
                let (cause, member) = gone(cluster);
                let problem = Problem::of_gone_cluster(cluster, (*connectors, *routes), subject);
                self.groups.begin(at, cause, member, problem);
            }
            NoteKind::Began(_)
            | NoteKind::Ended(_)
            | NoteKind::Held { .. }
            | NoteKind::ClusterGone { .. }
            | NoteKind::Discovery { .. }
            | NoteKind::OrphanGone { .. }
            | NoteKind::DeletesHeld { held: false, .. }
            | NoteKind::Deferred { .. }
            | NoteKind::Naming { .. }
            | NoteKind::TouchesWaiting { .. }
            | NoteKind::HopPassed { .. } => {}
        }
    }

    fn due(&self) -> Option<UnixMillis> {
        let from = self.reports_from?;
        if self.took_over { self.groups.due().map(|due| due.max(from)) } else { Some(from) }
    }

    fn on_due(&mut self, now: UnixMillis) {
        if self.reports_from.is_none_or(|from| from > now) {
            return;
        }
        if !std::mem::replace(&mut self.took_over, true) {
            self.groups.make_due(now);
        }
        let Self { groups, poster, .. } = self;
        groups.poll(now, |cause, stage, group| poster.report(now, cause, stage, group));
    }
}
