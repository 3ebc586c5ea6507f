//! Decides which notes of the machine become Events, and words them.
//!
//! An Event's message stays the same from one occurrence to the next (no times, and no counts where
//! possible), so that the API server counts it instead of storing it again. Only the leader reports:
//! it has seen everything that a standby has.

use std::collections::{BTreeMap, BTreeSet};

use super::Recorder;
use super::object::{EventReport, ObjectReference, Severity};
use crate::clock::wall_clock_now;
use crate::core::contract::action::Verb;
use crate::core::contract::event::{Event, EventKind, Outcome};
use crate::core::contract::note::{Anomaly, AnomalyKind, Hop, Note, NoteKind, Stall};
use crate::core::contract::settings::{OrphanMode, Settings};
use crate::core::data::ids::{ClusterName, Kind, ObjectKey};
use crate::core::data::objects::UPSTREAM_STATUS;
use crate::core::data::time::UnixMillis;
use crate::core::orphans::keep_reason::KeepReason;
use crate::core::view::involved_object::InvolvedObject;
use crate::event_log::redact::Redactor;
use crate::executor::FinishedAction;
use crate::run_log::Observer;

/// How long a new leader may repair what its predecessor left before it reports it.
const TAKEOVER_GRACE_MS: u64 = 10_000;

/// This many hexadecimal digits in a row are a key, not a version or a digest.
const KEY_DIGITS_MIN: usize = 32;

/// Identifies an open problem: the Event's reason, the cluster and the object.
type ProblemKey = (&'static str, ClusterName, ObjectKey);

/// Turns the notes of a run into Events.
#[derive(Debug)]
pub struct Reporter {
    recorder: Recorder,
    settings: Settings,
    redactor: Redactor,
    is_leader: bool,
    /// Problems that began while this instance was not leader, and are not over.
    unreported: BTreeMap<ProblemKey, (ClusterName, EventReport)>,
    /// When to report them.
    report_unreported_at: Option<UnixMillis>,
    /// Routes that were reported as orphans.
    orphans: BTreeSet<(ClusterName, ObjectKey)>,
    /// By upstream cluster: the route on which held deletes were reported.
    held: BTreeMap<ClusterName, InvolvedObject>,
}

impl Reporter {
    /// `settings` are those of the machine whose notes it gets.
    pub fn new(recorder: Recorder, settings: Settings) -> Self {
        Self {
            recorder,
            settings,
            redactor: Redactor::new(),
            is_leader: false,
            unreported: BTreeMap::new(),
            report_unreported_at: None,
            orphans: BTreeSet::new(),
            held: BTreeMap::new(),
        }
    }

    /// Reports a problem; an instance that is not leader keeps it until it is.
    fn report_problem(
        &mut self,
        at: UnixMillis,
        key: ProblemKey,
        subject: &InvolvedObject,
        message: &str,
    ) {
        let report = self.report(at, subject, Severity::Warning, key.0, message);
        if self.is_leader {
            self.recorder.record(&subject.cluster, report);
        } else {
            self.unreported.insert(key, (subject.cluster.clone(), report));
        }
    }

    fn report_normal(
        &self,
        at: UnixMillis,
        subject: &InvolvedObject,
        reason: &'static str,
        message: &str,
    ) {
        if self.is_leader {
            let report = self.report(at, subject, Severity::Normal, reason, message);
            self.recorder.record(&subject.cluster, report);
        }
    }

    fn report(
        &self,
        at: UnixMillis,
        subject: &InvolvedObject,
        severity: Severity,
        reason: &'static str,
        message: &str,
    ) -> EventReport {
        let message = without_keys(&self.redactor.error(message));
        EventReport {
            at,
            object: ObjectReference::from(subject.clone()),
            severity,
            reason,
            message,
        }
    }

    fn stalled(&mut self, at: UnixMillis, stall: &Stall, subject: &InvolvedObject) {
        let (times, cluster) = (&self.settings.stall, &stall.cluster);
        let (late, ms) = match stall.hop {
            Hop::Upstream | Hop::Mirrored => {
                ("upstream's status is not mirrored to the hub".to_owned(), times.mirrored_ms)
            }
            Hop::Arrived => {
                (format!("the mirrored status has not arrived at {cluster}"), times.arrived_ms)
            }
            Hop::Touched => {
                (format!("not every Gateway at {cluster} announces it"), times.touched_ms)
            }
        };
        let message = format!("{late} within {} s: {}", ms / 1000, stall.reason);
        self.report_problem(at, stall_key(stall), subject, &message);
    }

    fn stall_ended(&self, at: UnixMillis, stall: &Stall, subject: &InvolvedObject) {
        let message = match stall.hop {
            Hop::Upstream | Hop::Mirrored => "upstream's status is mirrored again".to_owned(),
            Hop::Arrived => format!("the mirrored status has arrived at {} again", stall.cluster),
            Hop::Touched => format!("every Gateway at {} announces it again", stall.cluster),
        };
        self.report_normal(at, subject, "Recovered", &message);
    }

    fn anomaly(&mut self, at: UnixMillis, anomaly: &Anomaly, subject: &InvolvedObject) {
        let (reason, message) = match anomaly.anomaly {
            AnomalyKind::OversizedStatus => ("StatusTooLarge", anomaly.detail.clone()),
            AnomalyKind::Contention => {
                let key = match subject.kind {
                    Kind::Gateway => &*self.settings.touch.key,
                    _ => UPSTREAM_STATUS,
                };
                let message = format!(
                    "another writer keeps changing {key}; throughline writes it again after growing \
                     pauses. metadata.managedFields names the writer (kubectl get \
                     --show-managed-fields)"
                );
                ("Contention", message)
            }
            _ => return,
        };
        let key = (reason, subject.cluster.clone(), subject.object.clone());
        self.report_problem(at, key, subject, &message);
    }

    /// Not for orphans that are about to be deleted, which are reported once deleted, nor for those
    /// that are held, which are reported once for their cluster.
    fn orphan(&mut self, at: UnixMillis, kept: Option<KeepReason>, subject: &InvolvedObject) {
        let place = (subject.cluster.clone(), subject.object.clone());
        let key = (ORPHANED, place.0.clone(), place.1.clone());
        match kept {
            None if self.settings.orphans.mode == OrphanMode::Report => {
                self.orphans.insert(place);
                let message = "orphaned: none of its parents exists upstream. It stays, because \
                               orphans.mode is report; with delete it would be deleted. See \
                               throughline orphans";
                self.report_problem(at, key, subject, message);
            }
            Some(keep) if !keep.is_absent() && self.orphans.remove(&place) => {
                self.unreported.remove(&key);
                let message = format!("no longer an orphan: {}", keep.text());
                self.report_normal(at, subject, "NotOrphaned", &message);
            }
            _ => {}
        }
    }

    fn deletes_held(
        &mut self,
        at: UnixMillis,
        cluster: &ClusterName,
        (orphans, routes): (u64, u64),
        subject: &InvolvedObject,
    ) {
        self.held.insert(cluster.clone(), subject.clone());
        let effect = match self.settings.orphans.mode {
            OrphanMode::Delete => "none of them is deleted",
            OrphanMode::Report | OrphanMode::Off => {
                "with orphans.mode delete none would be deleted"
            }
        };
        let message = format!(
            "{orphans} of the {routes} routes of upstream cluster {cluster} are orphans, which is \
             more than orphans.maxShare ({}): {effect}. If its Gateways were lost, restore them; if \
             the routes should go, raise orphans.maxShare or orphans.shareFrom",
            self.settings.orphans.max_share
        );
        self.report_problem(at, held_key(cluster), subject, &message);
    }

    fn deletes_not_held(&mut self, at: UnixMillis, cluster: &ClusterName) {
        self.unreported.remove(&held_key(cluster));
        if let Some(subject) = self.held.remove(cluster) {
            let message = format!(
                "few enough routes of upstream cluster {cluster} are orphans: deletes are no longer \
                 held"
            );
            self.report_normal(at, &subject, "DeletesNotHeld", &message);
        }
    }
}

impl Observer for Reporter {
    fn on_event(&mut self, event: &Event) {
        match event.kind {
            EventKind::LeadershipAcquired => {
                self.is_leader = true;
                self.report_unreported_at = Some(event.at.plus(TAKEOVER_GRACE_MS));
            }
            EventKind::LeadershipLost => self.is_leader = false,
            _ => {}
        }
        if self.is_leader && self.report_unreported_at.is_some_and(|at| at <= event.at) {
            self.report_unreported_at = None;
            for (cluster, report) in std::mem::take(&mut self.unreported).into_values() {
                self.recorder.record(&cluster, report);
            }
        }
    }

    fn on_finished(&mut self, finished: &FinishedAction) {
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
        self.report_normal(
            wall_clock_now(),
            &subject,
            "OrphanDeleted",
            &format!("deleted: {because}"),
        );
    }

    /// A problem is over even if its object no longer exists.
    fn on_note(&mut self, note: &Note) {
        match &note.kind {
            NoteKind::StallEnded(stall) => drop(self.unreported.remove(&stall_key(stall))),
            NoteKind::Held { cluster, reason, held: 0, .. } => {
                let key = (ANNOTATIONS_HELD, cluster.clone(), ObjectKey::new("", reason.as_str()));
                self.unreported.remove(&key);
            }
            NoteKind::DeletesHeld { cluster, held: false, .. } => {
                self.deletes_not_held(note.at, cluster);
            }
            _ => {}
        }
    }

    fn on_object_note(&mut self, note: &Note, subject: &InvolvedObject) {
        match &note.kind {
            NoteKind::Stalled(stall) => self.stalled(note.at, stall, subject),
            NoteKind::StallEnded(stall) => self.stall_ended(note.at, stall, subject),
            NoteKind::Anomaly(anomaly) => self.anomaly(note.at, anomaly, subject),
            NoteKind::Orphan { kept, .. } => self.orphan(note.at, *kept, subject),
            NoteKind::DeletesHeld { cluster, held: true, orphans, routes } => {
                self.deletes_held(note.at, cluster, (*orphans, *routes), subject);
            }
            NoteKind::Held { cluster, reason, held, named } if *held > 0 => {
                let key = (ANNOTATIONS_HELD, cluster.clone(), ObjectKey::new("", reason.as_str()));
                let message = format!(
                    "{held} of the {named} hub Connectors of {cluster} keep their status annotation: \
                     {}; {}",
                    reason.text(),
                    reason.remedy()
                );
                self.report_problem(note.at, key, subject, &message);
            }
            NoteKind::Held { .. }
            | NoteKind::DeletesHeld { held: false, .. }
            | NoteKind::HopPassed { .. } => {}
        }
    }
}

const ORPHANED: &str = "Orphaned";
const ANNOTATIONS_HELD: &str = "AnnotationsHeld";

fn held_key(upstream: &ClusterName) -> ProblemKey {
    ("DeletesHeld", upstream.clone(), ObjectKey::new("", ""))
}

fn stall_key(stall: &Stall) -> ProblemKey {
    let reason = match stall.hop {
        Hop::Upstream | Hop::Mirrored => "StalledMirror",
        Hop::Arrived => "StalledArrival",
        Hop::Touched => "StalledTouch",
    };
    (reason, stall.cluster.clone(), stall.connector.clone())
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
