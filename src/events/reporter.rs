//! Decides which notes of the machine become Events.
//!
//! Few objects with a problem of one cause get an Event each; many get one together, with their number,
//! on the Lease or on their namespace. An Event's message stays the same from one occurrence to the
//! next (no times, and no counts where possible), so that the API server counts it instead of storing
//! it again. Only the leader reports: it has seen everything that a standby has. What is over is
//! reported only where the problem was.

use std::collections::BTreeMap;

use super::object::{EventReport, ObjectReference, Severity};
use super::problem::{Problem, namespace_reference, recovered};
use super::{Recorder, Scope};
use crate::core::contract::action::Verb;
use crate::core::contract::event::{Event, EventKind, Outcome};
use crate::core::contract::hold_reason::HoldReason;
use crate::core::contract::note::{Note, NoteKind, StallCause};
use crate::core::contract::settings::{OrphanMode, Settings};
use crate::core::data::ids::{ClusterName, ObjectKey};
use crate::core::data::time::UnixMillis;
use crate::core::orphans::keep_reason::KeepReason;
use crate::core::view::involved_object::InvolvedObject;
use crate::event_log::redact::Redactor;
use crate::executor::FinishedAction;
use crate::grouping::{Cause, Group, Groups, Member, Stage};
use crate::report::style;
use crate::run_log::Observer;

/// How long a new leader may repair what its predecessor left before it reports it.
const TAKEOVER_GRACE_MS: u64 = 10_000;

/// Up to this many objects of one cause get an Event each.
const FEW_MAX: usize = 5;

/// This many hexadecimal digits in a row are a key, not a version or a digest.
const KEY_DIGITS_MIN: usize = 32;

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

/// Posts Events, and remembers those about many objects.
#[derive(Debug)]
struct Poster {
    recorder: Recorder,
    redactor: Redactor,
    many: BTreeMap<Cause, ManyPosted>,
}

/// An Event about many objects that was posted.
#[derive(Debug)]
struct ManyPosted {
    cluster: ClusterName,
    object: ObjectReference,
    count: usize,
    /// How to say that it is over.
    over: Option<(&'static str, String)>,
}

impl Poster {
    fn post(
        &self,
        at: UnixMillis,
        (cluster, object): (&ClusterName, ObjectReference),
        scope: Scope,
        (severity, reason): (Severity, &'static str),
        message: &str,
    ) -> bool {
        let message = without_keys(&self.redactor.error(message));
        self.recorder.record(cluster, scope, EventReport { at, object, severity, reason, message })
    }

    fn post_on_object(&self, at: UnixMillis, scope: Scope, problem: &Problem) -> bool {
        let Problem { subject, severity, reason, message, .. } = problem;
        let object = ObjectReference::from(subject.clone());
        self.post(at, (&subject.cluster, object), scope, (*severity, reason), message)
    }

    fn report(&mut self, at: UnixMillis, cause: &Cause, stage: Stage, group: &mut Group<Problem>) {
        if stage == Stage::Ended {
            return self.report_end(at, cause, group);
        }
        if stage == Stage::Began {
            self.many.remove(cause);
        }
        // Those that are left of many have had their Event.
        let is_new = group.is_occurrences() || !self.many.contains_key(cause);
        if group.members.len() <= FEW_MAX && is_new {
            for problem in group.members.values_mut().filter(|problem| !problem.is_posted) {
                problem.is_posted = self.post_on_object(at, Scope::Object, problem);
            }
        } else {
            self.report_many(at, cause, group);
        }
    }

    fn report_many(&mut self, at: UnixMillis, cause: &Cause, group: &Group<Problem>) {
        let count = group.members.len();
        let posted = self.many.get(cause);
        // Each new number is another Event: of a problem that goes on, only when it has doubled.
        let is_news =
            posted.is_none_or(|posted| group.is_occurrences() || count >= 2 * posted.count);
        let Some(first) = group.members.values().next().filter(|_| is_news) else { return };
        let place = posted.map(|posted| (posted.cluster.clone(), posted.object.clone()));
        let (cluster, object) = place.unwrap_or_else(|| self.place_of_many(cause, group, first));
        let message = first.message_for_many(cause, count);
        let about = (first.severity, first.reason);
        if self.post(at, (&cluster, object.clone()), Scope::Many, about, &message) {
            let over = over_for_many(cause, first);
            self.many.insert(cause.clone(), ManyPosted { cluster, object, count, over });
        }
    }

    /// Where to post about many objects: their namespace, if they share one; else the Lease.
    fn place_of_many(
        &self,
        cause: &Cause,
        group: &Group<Problem>,
        first: &Problem,
    ) -> (ClusterName, ObjectReference) {
        let (cluster, namespace) = (&first.subject.cluster, &first.subject.object.namespace);
        let is_there = |problem: &Problem| {
            problem.subject.cluster == *cluster && problem.subject.object.namespace == *namespace
        };
        let is_leading = matches!(cause, Cause::Stall { cause: StallCause::NotLeading, .. });
        let shares_one = !is_leading && group.members.values().all(is_there);
        let lease = self.recorder.lease().filter(|_| !shares_one);
        lease.unwrap_or_else(|| (cluster.clone(), namespace_reference(namespace)))
    }

    fn report_end(&mut self, at: UnixMillis, cause: &Cause, group: &Group<Problem>) {
        let Some(ManyPosted { cluster, object, over, .. }) = self.many.remove(cause) else {
            return;
        };
        if let Some((reason, message)) = over {
            let total = usize::try_from(group.total).unwrap_or(usize::MAX);
            let message = format!("over for {}: {message}", style::count(total, "object"));
            self.post(at, (&cluster, object), Scope::Many, (Severity::Normal, reason), &message);
        }
    }
}

fn over_for_many(cause: &Cause, first: &Problem) -> Option<(&'static str, String)> {
    match (cause, first.reason) {
        (Cause::Stall { .. }, "StalledMirror") => {
            Some(("Recovered", "it is mirrored again".to_owned()))
        }
        (Cause::Stall { .. }, "StalledArrival") => Some(("Recovered", "it has arrived".to_owned())),
        (Cause::Stall { .. }, _) => Some(("Recovered", "their Gateways announce it".to_owned())),
        (Cause::Orphan { .. }, _) => Some(("NotOrphaned", "none is an orphan now".to_owned())),
        _ => None,
    }
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
            poster: Poster { recorder, redactor: Redactor::new(), many: BTreeMap::new() },
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
                self.ended = self.groups.end(at, &cause, &member);
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
            EventKind::SettingsChanged { settings } => self.settings = (**settings).clone(),
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
        self.groups.happen(at, cause, member, problem);
    }

    /// A problem is over even if its object no longer exists.
    fn on_note(&mut self, note: &Note) {
        self.ended = None;
        match &note.kind {
            NoteKind::StallEnded(stall) => {
                let member = (stall.cluster.clone(), stall.connector.clone());
                self.ended = self.groups.end(note.at, &Cause::of_stall(stall), &member);
            }
            NoteKind::Held { cluster, reason, held: 0, .. } => {
                let (cause, member) = annotations_held(cluster, *reason);
                self.ended = self.groups.end(note.at, &cause, &member);
            }
            NoteKind::ClusterGone { cluster, connectors: 0, routes: 0 } => {
                let (cause, member) = gone(cluster);
                self.ended = self.groups.end(note.at, &cause, &member);
            }
            NoteKind::DeletesHeld { cluster, held: false, .. } => {
                let (cause, member) = held(cluster);
                self.ended = self.groups.end(note.at, &cause, &member);
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
                    self.groups.happen(at, Cause::of_anomaly(anomaly), member, problem);
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
            NoteKind::Held { .. }
            | NoteKind::ClusterGone { .. }
            | NoteKind::Discovery { .. }
            | NoteKind::DeletesHeld { held: false, .. }
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

/// Replaces keys and node ids, which are long hexadecimal numbers.
fn without_keys(text: &str) -> String {
    let is_word = |c: char| c.is_ascii_alphanumeric();
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !is_word(c)).unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        let is_key = word.len() >= KEY_DIGITS_MIN && word.bytes().all(|b| b.is_ascii_hexdigit());
        out.push_str(if is_key { "…" } else { word });
        let gap = after.find(is_word).unwrap_or(after.len());
        out.push_str(&after[..gap]);
        rest = &after[gap..];
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_removed_from_messages_and_words_stay() {
        let key = "0123456789abcdef".repeat(4);
        let text =
            format!("a webhook: {key:?} is no node; uid 7a0f3b4a-dbd4-4c7d-91a3-d1688bc3926c");
        let expected = text.replace(&key, "…");
        assert_eq!(without_keys(&text), expected);
        for kept in ["", "größer", "0123456789abcdef-3-1", " a.b ", &"z".repeat(64)] {
            assert_eq!(without_keys(kept), kept);
        }
    }
}
