//! Which of what the machine tells becomes an Event, and in what words.
//!
//! The words of an Event don't change from one occurrence to the next (no times, no counts where that can
//! be), so that the API server counts it instead of keeping it twice. Only a process that leads
//! reports: what a standby replica sees, the leader has seen, too.

use std::collections::{BTreeMap, BTreeSet};

use super::Recorder;
use super::object::{Reference, Report, Severity};
use crate::clock::wall;
use crate::core::action::{Anomaly, AnomalyKind, Hop, Note, Noted, Stall, Verb};
use crate::core::event::{Event, Happened, Outcome};
use crate::core::ids::{ClusterName, Kind, ObjectKey};
use crate::core::keep::Keep;
use crate::core::objects::UPSTREAM_STATUS;
use crate::core::settings::{OrphanMode, Settings};
use crate::core::subject::Subject;
use crate::core::time::UnixMillis;
use crate::event_log::redact::Redactor;
use crate::executor::Finished;
use crate::narrate::Listen;

/// A new leader has so long to repair what its predecessor left behind before it reports it.
const TAKE_OVER_MS: u64 = 10_000;

/// As many hexadecimal digits in a row are a key, and not a version or a digest.
const KEY_DIGITS: usize = 32;

/// What is the matter: its reason, and the cluster and object that it is about.
type Matter = (&'static str, ClusterName, ObjectKey);

/// Turns what a run tells into Events.
#[derive(Debug)]
pub struct Reporter {
    recorder: Recorder,
    settings: Settings,
    redactor: Redactor,
    leads: bool,
    /// What came up while somebody else led, or nobody, and is not over.
    missed: BTreeMap<Matter, (ClusterName, Report)>,
    /// From this moment on it is reported.
    report_missed_at: Option<UnixMillis>,
    /// Routes of which it was told that they are orphans.
    orphans: BTreeSet<(ClusterName, ObjectKey)>,
    /// By upstream cluster, the route on which it was told that deletes are held.
    held: BTreeMap<ClusterName, Subject>,
}

impl Reporter {
    /// Reports to `recorder` what a machine with these settings tells.
    pub fn new(recorder: Recorder, settings: Settings) -> Self {
        Self {
            recorder,
            settings,
            redactor: Redactor::new(),
            leads: false,
            missed: BTreeMap::new(),
            report_missed_at: None,
            orphans: BTreeSet::new(),
            held: BTreeMap::new(),
        }
    }

    /// Something is the matter. Who does not lead keeps it for when it does.
    fn warn(&mut self, at: UnixMillis, matter: Matter, subject: &Subject, message: &str) {
        let report = self.made(at, subject, Severity::Warning, matter.0, message);
        if self.leads {
            self.recorder.record(&subject.cluster, report);
        } else {
            self.missed.insert(matter, (subject.cluster.clone(), report));
        }
    }

    fn inform(&self, at: UnixMillis, subject: &Subject, reason: &'static str, message: &str) {
        if self.leads {
            let report = self.made(at, subject, Severity::Normal, reason, message);
            self.recorder.record(&subject.cluster, report);
        }
    }

    fn made(
        &self,
        at: UnixMillis,
        subject: &Subject,
        severity: Severity,
        reason: &'static str,
        message: &str,
    ) -> Report {
        let message = without_keys(&self.redactor.error(message));
        Report { at, about: Reference::from(subject.clone()), severity, reason, message }
    }

    fn stalled(&mut self, at: UnixMillis, stall: &Stall, subject: &Subject) {
        let (times, cluster) = (&self.settings.stall, &stall.cluster);
        let (what, ms) = match stall.hop {
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
        let message = format!("{what} within {} s: {}", ms / 1000, stall.reason);
        self.warn(at, matter(stall), subject, &message);
    }

    fn stall_ended(&self, at: UnixMillis, stall: &Stall, subject: &Subject) {
        let message = match stall.hop {
            Hop::Upstream | Hop::Mirrored => "upstream's status is mirrored again".to_owned(),
            Hop::Arrived => format!("the mirrored status has arrived at {} again", stall.cluster),
            Hop::Touched => format!("every Gateway at {} announces it again", stall.cluster),
        };
        self.inform(at, subject, "Recovered", &message);
    }

    fn anomaly(&mut self, at: UnixMillis, anomaly: &Anomaly, subject: &Subject) {
        let (reason, message) = match anomaly.anomaly {
            AnomalyKind::OversizedStatus => ("StatusTooLarge", anomaly.detail.clone()),
            AnomalyKind::Contention => {
                let key = match subject.kind {
                    Kind::Gateway => &*self.settings.touch.key,
                    _ => UPSTREAM_STATUS,
                };
                let message = format!(
                    "another writer keeps changing {key}; it is written again after growing pauses. \
                     Who it is stands in metadata.managedFields (kubectl get --show-managed-fields)"
                );
                ("Contention", message)
            }
            _ => return,
        };
        let matter = (reason, subject.cluster.clone(), subject.object.clone());
        self.warn(at, matter, subject, &message);
    }

    /// An orphan that is about to go is told of when it went; one that is held, by its cluster.
    fn orphan(&mut self, at: UnixMillis, kept: Option<Keep>, subject: &Subject) {
        let place = (subject.cluster.clone(), subject.object.clone());
        let matter = (ORPHANED, place.0.clone(), place.1.clone());
        match kept {
            None if self.settings.orphans.mode == OrphanMode::Report => {
                self.orphans.insert(place);
                let message = "an orphan: none of its parents exists upstream. It stays, because \
                               orphans.mode is report; with delete it would be deleted. See \
                               throughline orphans";
                self.warn(at, matter, subject, message);
            }
            Some(keep) if !keep.is_absent() && self.orphans.remove(&place) => {
                self.missed.remove(&matter);
                let message = format!("no longer taken for an orphan: {}", keep.text());
                self.inform(at, subject, "NotOrphaned", &message);
            }
            _ => {}
        }
    }

    fn deletes_held(
        &mut self,
        at: UnixMillis,
        cluster: &ClusterName,
        (orphans, routes): (u64, u64),
        subject: &Subject,
    ) {
        self.held.insert(cluster.clone(), subject.clone());
        let fate = match self.settings.orphans.mode {
            OrphanMode::Delete => "none of them is deleted",
            OrphanMode::Report | OrphanMode::Off => {
                "with orphans.mode delete none would be deleted"
            }
        };
        let message = format!(
            "{orphans} of the {routes} routes of upstream cluster {cluster} are orphans, which is \
             more than orphans.maxShare ({}): {fate}. If its Gateways were lost, bring them back; if \
             the routes shall go, raise orphans.maxShare or orphans.shareFrom",
            self.settings.orphans.max_share
        );
        self.warn(at, held(cluster), subject, &message);
    }

    fn deletes_not_held(&mut self, at: UnixMillis, cluster: &ClusterName) {
        self.missed.remove(&held(cluster));
        if let Some(subject) = self.held.remove(cluster) {
            let message = format!(
                "so few routes of upstream cluster {cluster} are orphans that deletes are no longer \
                 held"
            );
            self.inform(at, &subject, "DeletesNotHeld", &message);
        }
    }
}

impl Listen for Reporter {
    fn event(&mut self, event: &Event) {
        match event.what {
            Happened::LeadershipAcquired => {
                self.leads = true;
                self.report_missed_at = Some(event.at.plus(TAKE_OVER_MS));
            }
            Happened::LeadershipLost => self.leads = false,
            _ => {}
        }
        if self.leads && self.report_missed_at.is_some_and(|at| at <= event.at) {
            self.report_missed_at = None;
            for (cluster, report) in std::mem::take(&mut self.missed).into_values() {
                self.recorder.record(&cluster, report);
            }
        }
    }

    fn finished(&mut self, finished: &Finished) {
        let (action, because) = (&finished.decision.action, &finished.decision.because);
        if action.verb != Verb::Delete || !matches!(finished.outcome, Outcome::Applied { .. }) {
            return;
        }
        let subject = Subject {
            cluster: action.cluster.clone(),
            kind: action.kind,
            object: action.object.clone(),
            uid: action.precondition.uid.clone(),
            resource_version: action.precondition.resource_version.clone(),
        };
        self.inform(wall(), &subject, "OrphanDeleted", &format!("deleted: {because}"));
    }

    /// What is over is over, whether its object is still there or not.
    fn noted(&mut self, note: &Note) {
        match &note.what {
            Noted::StallEnded(stall) => drop(self.missed.remove(&matter(stall))),
            Noted::DeletesHeld { cluster, held: false, .. } => {
                self.deletes_not_held(note.at, cluster);
            }
            _ => {}
        }
    }

    fn noted_about(&mut self, note: &Note, subject: &Subject) {
        match &note.what {
            Noted::Stalled(stall) => self.stalled(note.at, stall, subject),
            Noted::StallEnded(stall) => self.stall_ended(note.at, stall, subject),
            Noted::Anomaly(anomaly) => self.anomaly(note.at, anomaly, subject),
            Noted::Orphan { kept, .. } => self.orphan(note.at, *kept, subject),
            Noted::DeletesHeld { cluster, held: true, orphans, routes } => {
                self.deletes_held(note.at, cluster, (*orphans, *routes), subject);
            }
            Noted::DeletesHeld { held: false, .. } | Noted::HopPassed { .. } => {}
        }
    }
}

const ORPHANED: &str = "Orphaned";

fn held(upstream: &ClusterName) -> Matter {
    ("DeletesHeld", upstream.clone(), ObjectKey::new("", ""))
}

fn matter(stall: &Stall) -> Matter {
    let reason = match stall.hop {
        Hop::Upstream | Hop::Mirrored => "StalledMirror",
        Hop::Arrived => "StalledArrival",
        Hop::Touched => "StalledTouch",
    };
    (reason, stall.cluster.clone(), stall.connector.clone())
}

/// A text in which keys and node ids, which are long hexadecimal numbers, are left out.
fn without_keys(text: &str) -> String {
    let is_word = |c: char| c.is_ascii_alphanumeric();
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !is_word(c)).unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        let is_key = word.len() >= KEY_DIGITS && word.bytes().all(|b| b.is_ascii_hexdigit());
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
    fn messages_keep_their_words_and_lose_keys() {
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
