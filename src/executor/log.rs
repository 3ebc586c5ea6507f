//! The log line of an action that ended. The cause of failed writes is reported as one problem for all
//! of them.

use tracing::{debug, info};

use super::FinishedAction;
use crate::clock::millis;
use crate::core::contract::event::Outcome;

pub(super) fn finished(finished: &FinishedAction) {
    let action = &finished.decision.action;
    let connectors: Vec<_> = action.connectors.iter().map(ToString::to_string).collect();
    // tracing needs the level at compile time.
    macro_rules! line {
        ($level:ident, $text:literal) => {
            $level!(
                action = action.id.0,
                verb = action.verb.as_str(),
                cluster = %action.cluster,
                kind = %action.kind,
                object = %action.object,
                connector = connectors.join(","),
                because = finished.decision.because,
                outcome = finished.outcome.name(),
                waited_ms = millis(finished.waited),
                duration_ms = millis(finished.took),
                error = finished.outcome.error().map(|error| &*error.text),
                $text
            )
        };
    }
    match &finished.outcome {
        Outcome::Applied { .. } => line!(info, "write applied"),
        Outcome::DryRun => line!(info, "dry run: would write"),
        Outcome::Unchanged => line!(info, "write unchanged"),
        Outcome::Superseded => line!(info, "write superseded"),
        Outcome::Dropped => line!(info, "write dropped"),
        Outcome::NotFound
        | Outcome::Conflict { .. }
        | Outcome::Unanswered { .. }
        | Outcome::Failed { .. }
        | Outcome::Refused { .. } => line!(debug, "write failed"),
    }
}
