//! The outcomes of touches.

use crate::contract::action::Verb;
use crate::contract::event::Outcome;
use crate::data::ids::ActionId;
use crate::data::interner::Key;
use crate::edge::Edge;
use crate::edge::touch_state::{TouchTarget, TriggerWrite};
use crate::flight::{WriteResult, written_version};

impl Edge<'_> {
    pub(super) fn touch_finished(
        &mut self,
        target: TouchTarget,
        action: ActionId,
        outcome: &Outcome,
    ) {
        let now = self.ctx.now;
        let retry = self.ctx.settings.retry;
        // The Gateway may be gone, or another one may have its name.
        let Some(touch) = self.state.open_touch(target) else { return };
        // The watch was faster, or an earlier attempt got through, or another instance wrote the same.
        let is_shown = touch.flight.writing().is_some_and(|write| self.shows(write));
        let outcome = match outcome {
            Outcome::Conflict { .. } | Outcome::Failed { .. } | Outcome::Unanswered { .. }
                if is_shown =>
            {
                &Outcome::Unchanged
            }
            outcome => outcome,
        };
        let Some(touch) = self.state.open_touch_mut(target) else { return };
        let finished = touch.flight.finished(action, now, outcome, &retry);
        let Some((result, write)) = finished else { return };
        match result {
            WriteResult::Written => {
                let has_changed = touch.changed_since_write;
                touch.platform_digest = None;
                touch.trigger_written(write.trigger, &self.ctx.settings.touch);
                let is_latest = touch.pending.is_none();
                let announced = if is_latest { touch.take_waiting() } else { Vec::new() };
                if let Some(class) = self.state.class_mut(target) {
                    class.representative_written();
                }
                self.trigger_written(&write, outcome, has_changed);
                self.announced(announced);
            }
            WriteResult::NotWritten | WriteResult::Refused | WriteResult::RefusedAgain => {
                // The API server may have applied it all the same; the next value is new in any
                // case. A confirmation that failed is still due, as a confirmation.
                if let Some(cause) = write.cause.filter(|_| touch.is_adopted) {
                    touch.announce_again(now, cause);
                }
                let error = touch.flight.error().cloned().unwrap_or_default();
                let is_replaced =
                    is_about_object(outcome) && self.replace_representative(target, write.gateway);
                if result == WriteResult::Refused {
                    let next = match is_replaced {
                        true => "another Gateway of its class is written instead".to_owned(),
                        false => self.ctx.next_attempt() + ", or when a connector changes",
                    };
                    self.ctx.report_refused(
                        self.cluster,
                        write.gateway,
                        Verb::Touch,
                        &error,
                        &next,
                    );
                }
            }
        }
        self.evaluate_target(target);
    }

    /// Whether the Gateway is seen to carry this trigger.
    fn shows(&self, write: &TriggerWrite) -> bool {
        let gateway = self.state.gateways.get(&write.gateway);
        gateway.is_some_and(|gateway| gateway.observed.trigger == Some(write.trigger))
    }

    /// One Gateway of a class can't be written: another one is to carry the trigger. Returns whether
    /// it is written at once.
    fn replace_representative(&mut self, target: TouchTarget, gateway: Key) -> bool {
        let Some(class) = self.state.class_mut(target) else { return false };
        let is_replaced = class.representative_refused(gateway);
        if is_replaced && let Some(touch) = class.touch.open_mut() {
            touch.flight.end_failure_pause();
        }
        is_replaced
    }

    /// The API server has stored a trigger.
    fn trigger_written(&mut self, write: &TriggerWrite, outcome: &Outcome, has_changed: bool) {
        let version = written_version(outcome);
        if let Some(found) = self.state.gateways.get_mut(&write.gateway) {
            found.observed.trigger_written(write.trigger, version, has_changed);
        }
        // A Gateway that carries the trigger comes first in its class.
        self.state.update_class(&self.ctx.names, write.gateway);
    }
}

/// Whether a write failed in a way that may be about its object alone.
fn is_about_object(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Refused { .. } | Outcome::NotFound)
}
