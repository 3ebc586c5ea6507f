//! What a live run tells: of each event, action, fate and note, to whoever wants to hear it; and
//! the log lines that people read.

use tracing::{debug, error, info, warn};

use crate::clock::millis;
use crate::core::action::{AnomalyKind, Decision, Note, Noted, Verb};
use crate::core::event::{Event, Outcome};
use crate::core::ids::ObjectKey;
use crate::core::keep::Keep;
use crate::core::subject::Subject;
use crate::executor::Finished;

/// Hears everything that enters and leaves the machine of a live run, in order. It is called in
/// the loop and must not wait.
pub trait Listen: Send {
    /// Something entered the machine.
    fn event(&mut self, _event: &Event) {}
    /// The machine decided something.
    fn decided(&mut self, _decision: &Decision) {}
    /// An action came to its end.
    fn finished(&mut self, _finished: &Finished) {}
    /// The machine told something.
    fn noted(&mut self, _note: &Note) {}
    /// The same, again, of an object that is there.
    fn noted_about(&mut self, _note: &Note, _subject: &Subject) {}
}

/// Writes one log line for each action and each note that a person may want; nothing at rest.
#[derive(Debug, Default)]
pub struct Narrator {}

/// The hop that an action is to bring about, as the log names it.
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

/// One line with everything there is to know of an action; the level is the macro's.
macro_rules! action_line {
    ($level:ident, $finished:expr, $error:expr, $text:expr) => {{
        let finished: &Finished = $finished;
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
            tries = finished.tries,
            waited_ms = millis(finished.waited),
            duration_ms = millis(finished.took),
            error = $error,
            $text
        )
    }};
}

impl Listen for Narrator {
    fn finished(&mut self, finished: &Finished) {
        let none = None::<&str>;
        match &finished.outcome {
            Outcome::Applied { .. } => action_line!(info, finished, none, "written"),
            Outcome::Unchanged => action_line!(info, finished, none, "was so already"),
            Outcome::DryRun => action_line!(info, finished, none, "would be written (dry run)"),
            Outcome::Superseded => action_line!(info, finished, none, "not sent: superseded"),
            Outcome::Dropped => action_line!(info, finished, none, "not sent: not the leader"),
            Outcome::NotFound => action_line!(info, finished, none, "the object is gone"),
            Outcome::Conflict { error } => {
                action_line!(info, finished, Some(error), "conflict, decided anew");
            }
            Outcome::Unanswered { error, .. } => {
                action_line!(warn, finished, Some(error), "sent, and not answered");
            }
            Outcome::Failed { error, .. } => {
                action_line!(warn, finished, Some(error), "failed, tried again later");
            }
            Outcome::Refused { error } => action_line!(
                error,
                finished,
                Some(error),
                "refused: mend the permission or what refuses it; tried again rarely"
            ),
        }
    }

    fn noted(&mut self, note: &Note) {
        match &note.what {
            Noted::HopPassed { cluster, connector, hop, online, after_ms } => {
                debug!(%cluster, %connector, hop = hop.as_str(), online, after_ms, "hop passed");
            }
            Noted::Stalled(stall) => {
                let since_ms = note.at.since(stall.since);
                warn!(cluster = %stall.cluster, connector = %stall.connector, hop = stall.hop.as_str(),
                    since_ms, reason = stall.reason, "stalled");
            }
            Noted::StallEnded(stall) => {
                let after_ms = note.at.since(stall.since);
                info!(cluster = %stall.cluster, connector = %stall.connector, hop = stall.hop.as_str(),
                    after_ms, "no longer stalled");
            }
            Noted::Anomaly(anomaly) if anomaly.anomaly == AnomalyKind::TooManyOrphans => {
                error!(cluster = %anomaly.cluster, detail = anomaly.detail,
                    "too many orphans: nothing of this upstream cluster is deleted");
            }
            Noted::Anomaly(anomaly) => {
                let object = anomaly.object.as_ref().map(ToString::to_string);
                warn!(anomaly = anomaly.anomaly.as_str(), cluster = %anomaly.cluster, object,
                    detail = anomaly.detail, "anomaly");
            }
            Noted::Orphan { cluster, route, kept } => {
                let kept_because = kept.map(Keep::text);
                info!(%cluster, %route, kept = kept.map(Keep::as_str), kept_because,
                    "orphaned route");
            }
            Noted::DeletesHeld { cluster, held, orphans, routes } => {
                info!(%cluster, held, orphans, routes, "orphans of an upstream cluster");
            }
        }
    }
}
