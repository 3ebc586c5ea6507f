//! Applies and answers the machine's writes, with injected faults.

use throughline::core::contract::action::Action;
use throughline::core::contract::error_cause::RequestFailure;
use throughline::core::contract::event::{Event, EventKind, Outcome};

use crate::carry::WriteFault;
use crate::sim::{Due, SECOND, Sim};

impl Sim {
    pub(super) fn send(&mut self, action: &Action) {
        let key = (
            action.cluster.clone(),
            action.kind,
            action.object.clone(),
            action.precondition.uid.clone(),
        );
        let before = self.in_flight.insert(key, (action.id.0, self.now));
        if let Some((id, at)) = before {
            panic!("{} has action {id} in flight since {at} already", action.object);
        }
        let write_fault = match self.write_faults.as_slice() {
            [] => WriteFault::None,
            write_faults => write_faults[self.next_write_fault % write_faults.len()],
        };
        self.next_write_fault += 1;
        let (soon, late) = (self.write_ms, 70 * SECOND);
        let error = RequestFailure::from("injected by the test");
        let failed = |retry_after_ms| Outcome::Failed { error: error.clone(), retry_after_ms };
        let (apply_ms, answer) = match write_fault {
            WriteFault::None | WriteFault::AnsweredTwice => (Some(soon), Some((1, None))),
            WriteFault::Failed => (None, Some((soon, Some(failed(None))))),
            WriteFault::Throttled => (None, Some((soon, Some(failed(Some(3 * SECOND)))))),
            WriteFault::FailedButApplied => (Some(soon), Some((1, Some(failed(None))))),
            WriteFault::Conflict => (None, Some((soon, Some(Outcome::Conflict { error })))),
            WriteFault::Refused => (None, Some((soon, Some(Outcome::Refused { error })))),
            WriteFault::NotFound => (None, Some((soon, Some(Outcome::NotFound)))),
            WriteFault::Superseded => (None, Some((soon, Some(Outcome::Superseded)))),
            WriteFault::AnsweredLate => (Some(soon), Some((late, None))),
            WriteFault::AppliedLate => (Some(late), Some((1, None))),
        };
        let action = Box::new(action.clone());
        let times = if write_fault == WriteFault::AnsweredTwice { 2 } else { 1 };
        match (apply_ms, answer) {
            (Some(ms), answer) => self.due(ms, Due::Apply(action, self.run, times, answer)),
            (None, Some((ms, Some(outcome)))) => {
                self.due(ms, Due::Answer(action.id.0, self.run, outcome));
            }
            (None, _) => {}
        }
    }

    fn due(&mut self, ms: u64, due: Due) {
        self.sequence += 1;
        self.writes.insert((self.now.plus(ms), self.sequence), due);
    }

    pub(super) fn apply_or_answer(&mut self, due: Due) {
        match due {
            Due::Apply(action, run, times, answer) => {
                let gated = action.is_leader_only() && !self.leads && run == self.run;
                let outcome = if gated {
                    Outcome::Dropped
                } else {
                    crate::carry::carry_out(&mut self.clusters, &action)
                };
                if matches!(outcome, Outcome::Applied { .. }) && run == self.run {
                    self.was_applied(&action);
                }
                self.collect();
                if let Some((ms, forged)) = answer {
                    let outcome = forged.unwrap_or(outcome);
                    for time in 0..times {
                        let answer = Due::Answer(action.id.0, run, outcome.clone());
                        self.due(ms + 7 * time, answer);
                    }
                }
            }
            Due::Answer(id, run, outcome) if run == self.run => {
                self.in_flight.retain(|_, (flying, _)| *flying != id);
                let kind = EventKind::ActionFinished {
                    id: throughline::core::data::ids::ActionId(id),
                    outcome,
                };
                self.feed(Event { at: self.now, kind });
            }
            Due::Answer(..) => {}
        }
    }
}
