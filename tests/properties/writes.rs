//! What becomes of a write that the machine asked for.

use throughline::core::action::Action;
use throughline::core::event::{Event, Happened, Outcome};

use crate::carry::Fate;
use crate::sim::{Due, SECOND, Sim};

impl Sim {
    pub(super) fn send(&mut self, action: &Action) {
        let key = (
            action.cluster.clone(),
            action.kind,
            action.object.clone(),
            action.precondition.uid.clone(),
        );
        let given_up = self.settings.retry.outcome_timeout_ms;
        let before = self.in_flight.insert(key, (action.id.0, self.now));
        if let Some((id, at)) = before {
            panic!("{} has action {id} in flight since {at} already", action.object);
        }
        let fate = match self.fates.as_slice() {
            [] => Fate::Fair,
            fates => fates[self.next_fate % fates.len()],
        };
        self.next_fate += 1;
        let (soon, late) = (self.write_ms, given_up + 10 * SECOND);
        let error = "as fate would have it".to_owned();
        let failed = |retry_after_ms| Outcome::Failed { error: error.clone(), retry_after_ms };
        let (land_ms, answer) = match fate {
            Fate::Fair | Fate::AnsweredTwice => (Some(soon), Some((1, None))),
            Fate::Failed => (None, Some((soon, Some(failed(None))))),
            Fate::Throttled => (None, Some((soon, Some(failed(Some(3 * SECOND)))))),
            Fate::FailedYetLanded => (Some(soon), Some((1, Some(failed(None))))),
            Fate::Conflict => (None, Some((soon, Some(Outcome::Conflict { error })))),
            Fate::Refused => (None, Some((soon, Some(Outcome::Refused { error })))),
            Fate::NotFound => (None, Some((soon, Some(Outcome::NotFound)))),
            Fate::Superseded => (None, Some((soon, Some(Outcome::Superseded)))),
            Fate::Lost => (None, None),
            Fate::LostYetLanded => (Some(soon), None),
            Fate::AnsweredLate => (Some(soon), Some((late, None))),
            Fate::LandedLate => (Some(late), Some((1, None))),
        };
        let action = Box::new(action.clone());
        let times = if fate == Fate::AnsweredTwice { 2 } else { 1 };
        match (land_ms, answer) {
            (Some(ms), answer) => self.due(ms, Due::Land(action, self.run, times, answer)),
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

    pub(super) fn landed_or_answered(&mut self, due: Due) {
        match due {
            Due::Land(action, run, times, answer) => {
                let gated = action.is_leader_only() && !self.leads && run == self.run;
                let outcome = if gated {
                    Outcome::Dropped
                } else {
                    crate::carry::carry_out(&mut self.world, &action)
                };
                if matches!(outcome, Outcome::Applied { .. }) && run == self.run {
                    let uid = action.precondition.uid.clone();
                    self.touched.insert((action.cluster.clone(), uid));
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
                let what =
                    Happened::ActionFinished { id: throughline::core::ids::ActionId(id), outcome };
                self.feed(Event { at: self.now, what });
            }
            Due::Answer(..) => {}
        }
    }
}
