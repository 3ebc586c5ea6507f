//! The outcomes of writes to hub Connectors.

use super::HubWrite;
use super::connector::Intent;
use super::limits::REPEAT_MS;
use super::mirror::Mirror;
use crate::clusters::Place;
use crate::contract::event::Outcome;
use crate::data::ids::{ActionId, ResourceVersion};
use crate::flight::{WriteResult, written_version};
use crate::machine::Machine;

impl Mirror<'_> {
    /// An action ended. An outcome for an action that was given up changes nothing.
    fn finished(&mut self, action: ActionId, outcome: &Outcome) {
        let (now, retry) = (self.ctx.now, self.ctx.settings.retry);
        let Some(repair) = self.connector.repair.as_deref_mut() else { return };
        let Some((result, write)) = repair.flight.finished(action, now, outcome, &retry) else {
            return;
        };
        // The annotation itself is not what the watch showed: that is more than a busy object.
        let is_overwritten = matches!(outcome, Outcome::Conflict { .. })
            && repair.guards_annotation
            && !self.connector.is_paused;
        match result {
            WriteResult::Written => self.written(write, outcome),
            WriteResult::Refused => {
                let error = repair.flight.error().cloned().unwrap_or_default();
                let verb = write.verb();
                let next = self.ctx.next_attempt() + ", or when upstream changes";
                self.ctx.report_refused(self.hub, self.at.key, verb, &error, &next);
            }
            WriteResult::RefusedAgain => {}
            // The change that it conflicts with was seen before the outcome: nothing to wait for.
            WriteResult::NotWritten if repair.changed_since_write => repair.flight.object_changed(),
            WriteResult::NotWritten => {}
        }
        if is_overwritten {
            let repair = self.connector.repair.as_ref();
            let manager = repair.and_then(|repair| repair.contention.manager()).map(str::to_owned);
            self.overwritten(manager.as_deref());
        }
        self.evaluate();
    }

    /// A write succeeded. The watch may have shown it, and even a later one, before its outcome.
    fn written(&mut self, write: HubWrite, outcome: &Outcome) {
        let HubWrite::Status(digest, routing, intent) = write else { return self.nudged(outcome) };
        if intent == Intent::Mirror {
            self.connector.repeats_until = self.ctx.now.plus(REPEAT_MS);
        }
        if let Some(repair) =
            self.connector.repair.as_mut().filter(|r| r.deferred_since.get().is_some())
        {
            // What upstream says by now is another difference.
            repair.deferred_since = self.ctx.now.into();
            self.connector.mirrored_at = Some(self.ctx.now);
        }
        if self.is_newest(outcome) {
            self.set_digest(digest);
            self.connector.routing = routing;
        } else if written_version(outcome) == ResourceVersion::Absent
            && digest != self.connector.digest
        {
            // Which of the two came first is not known: let the watch catch up.
            let at = self.ctx.now.plus(self.ctx.settings.retry.first_ms);
            self.repair().flight.pause_until(at);
        }
    }

    /// Whether a write is newer than all that the watch has shown. Takes over its version.
    pub(super) fn is_newest(&mut self, outcome: &Outcome) -> bool {
        let written = written_version(outcome);
        if self.connector.rv.is_older_than(&written) {
            self.connector.rv = written;
            return true;
        }
        written == ResourceVersion::Absent && !self.repair().changed_since_write
    }
}

impl Machine {
    pub(crate) fn hub_write_finished(&mut self, at: Place, action: ActionId, outcome: &Outcome) {
        if let Some(mut mirror) = self.mirror(at) {
            mirror.finished(action, outcome);
        }
    }
}
