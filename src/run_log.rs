//! The observer interface of a live run, and the observer that writes the log for people.

use tracing::{debug, error, info, warn};

use crate::clock::millis;
use crate::core::PROBE_MS;
use crate::core::contract::action::{Decision, Verb};
use crate::core::contract::event::{Event, Outcome};
use crate::core::contract::note::{AnomalyKind, Note, NoteKind};
use crate::core::contract::settings::Settings;
use crate::core::data::ids::ObjectKey;
use crate::core::orphans::keep_reason::KeepReason;
use crate::core::view::involved_object::InvolvedObject;
use crate::executor::FinishedAction;

/// Sees everything that enters and leaves the machine of a live run, in order. Its methods are
/// called in the loop and must not block.
pub trait Observer: Send {
    /// An event entered the machine.
    fn on_event(&mut self, _event: &Event) {}
    /// The machine decided on an action.
    fn on_decision(&mut self, _decision: &Decision) {}
    /// An action ended.
    fn on_finished(&mut self, _finished: &FinishedAction) {}
    /// The machine emitted a note.
    fn on_note(&mut self, _note: &Note) {}
    /// Called after [`Observer::on_note`] when the object that the note is about exists.
    fn on_object_note(&mut self, _note: &Note, _object: &InvolvedObject) {}
}

/// Writes a log line for each action and each note of interest; none while nothing changes.
#[derive(Debug)]
pub struct RunLog {
    /// How long a refused write waits at most until it, or another like it, is tried.
    refused_pause_s: u64,
}

impl RunLog {
    pub fn new(settings: &Settings) -> Self {
        Self { refused_pause_s: settings.retry.refused_ms.min(PROBE_MS) / 1000 }
    }
}

/// The hop that an action completes, as the log names it.
fn hop(verb: Verb) -> &'static str {
    match verb {
        Verb::Mirror => "mirrored",
        Verb::Nudge => "arrived",
        Verb::Touch => "touched",
        Verb::Delete => "none",
    }
}

fn names(connectors: &[ObjectKey]) -> String {
    let names: Vec<_> = connectors.iter().map(ToString::to_string).collect();
    names.join(",")
}

/// Logs an action with all its fields. A macro, because tracing needs level and message at compile
/// time.
macro_rules! action_line {
    ($level:ident, $finished:expr, $error:expr, $($text:tt)+) => {{
        let finished: &FinishedAction = $finished;
        let action = &finished.decision.action;
        $level!(
            action = action.id.0,
            verb = action.verb.as_str(),
            cluster = %action.cluster,
            kind = %action.kind,
            object = %action.object,
            connector = names(&action.connectors),
            hop = hop(action.verb),
            because = finished.decision.because,
            outcome = finished.outcome.name(),
            tries = finished.attempts,
            waited_ms = millis(finished.waited),
            duration_ms = millis(finished.took),
            error = $error,
            $($text)+
        )
    }};
}

impl Observer for RunLog {
    fn on_finished(&mut self, finished: &FinishedAction) {
        let error = finished.outcome.error();
        let error = error.map(|error| &*error.text);
        match &finished.outcome {
            Outcome::Applied { .. } => action_line!(info, finished, error, "written"),
            Outcome::Unchanged => {
                action_line!(info, finished, error, "not changed: it already had this value");
            }
            Outcome::DryRun => action_line!(info, finished, error, "dry run: would write"),
            Outcome::Superseded => {
                action_line!(info, finished, error, "not sent: superseded by a newer write");
            }
            Outcome::Dropped => {
                action_line!(info, finished, error, "not sent: this instance is not the leader");
            }
            Outcome::NotFound => action_line!(info, finished, error, "the object no longer exists"),
            Outcome::Conflict { .. } => action_line!(
                info,
                finished,
                error,
                "not written: the object has changed; waiting for the watch to show it"
            ),
            Outcome::Unanswered { .. } => action_line!(
                warn,
                finished,
                error,
                "delete sent, but no response came; the watch will show whether it was done"
            ),
            Outcome::Failed { .. } => {
                action_line!(warn, finished, error, "write failed; retrying later");
            }
            Outcome::Refused { .. } => action_line!(
                error,
                finished,
                error,
                "write refused; fix the permission or webhook; next attempt in {} s",
                self.refused_pause_s
            ),
        }
    }

    fn on_note(&mut self, note: &Note) {
        match &note.kind {
            NoteKind::HopPassed { cluster, connector, hop, online, after_ms } => {
                debug!(%cluster, %connector, hop = hop.as_str(), online, after_ms, "hop passed");
            }
            NoteKind::Stalled(stall) => {
                let since_ms = note.at.since(stall.since);
                warn!(cluster = %stall.cluster, connector = %stall.connector, hop = stall.hop.as_str(),
                    since_ms, reason = stall.reason, "stalled");
            }
            NoteKind::StallEnded(stall) => {
                let after_ms = note.at.since(stall.since);
                info!(cluster = %stall.cluster, connector = %stall.connector, hop = stall.hop.as_str(),
                    after_ms, "no longer stalled");
            }
            NoteKind::Anomaly(anomaly) if anomaly.anomaly == AnomalyKind::TooManyOrphans => {
                error!(cluster = %anomaly.cluster, detail = anomaly.detail,
                    "too many orphans: no route of this upstream cluster is deleted");
            }
            NoteKind::Anomaly(anomaly) => {
                let object = anomaly.object.as_ref().map(ToString::to_string);
                warn!(anomaly = anomaly.anomaly.as_str(), cluster = %anomaly.cluster, object,
                    detail = anomaly.detail, "anomaly");
            }
            NoteKind::Orphan { cluster, route, kept } => {
                let kept_because = kept.map(KeepReason::text);
                info!(%cluster, %route, kept = kept.map(KeepReason::as_str), kept_because,
                    "orphaned route");
            }
            NoteKind::Held { cluster, reason, held: 0, .. } => {
                info!(upstream = %cluster, reason = reason.as_str(), "annotations are no longer held");
            }
            NoteKind::Held { cluster, reason, held, named } => {
                warn!(upstream = %cluster, reason = reason.as_str(), held, of = named,
                    because = reason.text(), remedy = reason.remedy(),
                    "annotations are left as they are");
            }
            NoteKind::DeletesHeld { cluster, held, orphans, routes } => {
                info!(%cluster, held, orphans, routes, "orphaned routes of an upstream cluster");
            }
        }
    }
}
