//! The lane of one kind in one cluster: what waits to be written there, and how many writes may be
//! in flight.
//!
//! Lanes share nothing, so an API server that hangs, or an admission webhook that hangs for one
//! kind, holds up its own lane alone. A request that times out narrows its lane to one write at a
//! time, which is the probe; any answer widens it again. So a hung lane needs neither a timer nor
//! requests of its own: an action that waits, or the next one that comes, is the next probe. Probes
//! are in turn the newest of the most urgent class and the oldest of all, because a webhook may hang
//! for some objects only, and those may be the oldest.
//!
//! Actions leave by their urgency, and among equals in the order in which they came. So that no class
//! waits for ever, one of sixteen starts goes to the action that has waited longest for any but the
//! most urgent class. A newer action for an object has its own urgency, and the place in time of the
//! one that it replaces.
//!
//! A lane has no limit, because it can't grow without one: it holds at most one action in flight and
//! one that waits for each object that the machine knows.

mod ready;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use super::attempt::{Answer, PendingAction};
use crate::core::data::ids::ObjectKey;
use ready::{Ready, Turn};

#[derive(Debug, Default)]
pub(super) struct Lane {
    /// Objects whose waiting action may be sent.
    ready: Ready,
    slots: BTreeMap<ObjectKey, Slot>,
    in_flight: usize,
    /// Actions queued so far, which is how their order is known.
    queued: u64,
    health: Health,
    /// The last probe was the newest action that waited.
    probed_newest: bool,
}

/// The actions of one object: at most one attempt in flight, and the latest action that waits.
#[derive(Debug, Default)]
struct Slot {
    is_in_flight: bool,
    waiting: Option<PendingAction>,
}

fn turn(action: &PendingAction) -> Turn {
    Turn { urgency: action.decision.urgency, since: action.since }
}

/// Whether the API server answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Health {
    #[default]
    Answers,
    /// A request timed out.
    Doubted,
    /// So did the next one.
    Hangs,
}

/// A change that people should hear of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HealthChange {
    Hangs,
    Answers,
}

impl Lane {
    /// Objects whose action waits for its turn.
    pub(super) fn ready(&self) -> usize {
        self.ready.len()
    }

    /// Whether one write at a time is sent, because requests time out.
    pub(super) fn is_narrow(&self) -> bool {
        self.health != Health::Answers
    }

    /// Whether nothing waits or is in flight.
    pub(super) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Queues an action. Returns the one that it replaces.
    pub(super) fn queue(
        &mut self,
        object: ObjectKey,
        mut action: PendingAction,
    ) -> Option<PendingAction> {
        self.queued += 1;
        let slot = self.slots.entry(object.clone()).or_default();
        let older = slot.waiting.take();
        if let Some(older) = &older {
            self.ready.remove(turn(older));
        }
        action.since = older.as_ref().map_or(self.queued, |older| older.since);
        if !slot.is_in_flight {
            self.ready.insert(turn(&action), object);
        }
        slot.waiting = Some(action);
        older
    }

    /// The next action to send; `None` when none is ready or as many as may be are in flight.
    pub(super) fn start_next(&mut self, parallel: usize) -> Option<(ObjectKey, PendingAction)> {
        let most = if self.is_narrow() { 1 } else { parallel };
        if self.in_flight >= most {
            return None;
        }
        let object = self.pop_ready()?;
        let slot = self.slots.get_mut(&object)?;
        debug_assert!(!slot.is_in_flight, "two attempts at {object} at the same time");
        let action = slot.waiting.take()?;
        slot.is_in_flight = true;
        self.in_flight += 1;
        Some((object, action))
    }

    fn pop_ready(&mut self) -> Option<ObjectKey> {
        if self.health == Health::Hangs {
            self.probed_newest = !self.probed_newest;
            return match self.probed_newest {
                true => self.ready.pop_newest(),
                false => self.ready.pop_oldest(),
            };
        }
        self.ready.pop_next()
    }

    /// An attempt ended: a newer action for the object may be sent.
    pub(super) fn attempt_ended(&mut self, object: &ObjectKey) {
        debug_assert!(self.in_flight > 0, "more attempts ended than began");
        self.in_flight = self.in_flight.saturating_sub(1);
        let Some(slot) = self.slots.get_mut(object) else { return };
        slot.is_in_flight = false;
        match slot.waiting.as_ref().map(turn) {
            Some(turn) => self.ready.insert(turn, object.clone()),
            None => drop(self.slots.remove(object)),
        }
    }

    /// Draws conclusions from an attempt's answer.
    pub(super) fn observe(&mut self, answer: Answer) -> Option<HealthChange> {
        let before = self.health;
        self.health = match (answer, before) {
            (Answer::None, before) => before,
            (Answer::Came, _) => Health::Answers,
            (Answer::TimedOut, Health::Answers) => Health::Doubted,
            (Answer::TimedOut, _) => Health::Hangs,
        };
        match (before, self.health) {
            (Health::Doubted, Health::Hangs) => Some(HealthChange::Hangs),
            (Health::Hangs, Health::Answers) => Some(HealthChange::Answers),
            _ => None,
        }
    }

    /// Removes the actions that `is` picks, unless an attempt of them is in flight.
    pub(super) fn remove_waiting(
        &mut self,
        is: impl Fn(&PendingAction) -> bool,
    ) -> Vec<PendingAction> {
        let mut removed = Vec::new();
        for slot in self.slots.values_mut() {
            removed.extend(slot.waiting.take_if(|action| is(action)));
        }
        removed.iter().for_each(|action| self.ready.remove(turn(action)));
        self.slots.retain(|_, slot| slot.is_in_flight || slot.waiting.is_some());
        removed
    }

    /// Removes every action that waits.
    pub(super) fn drop_waiting(&mut self) {
        self.ready.clear();
        self.slots.values_mut().for_each(|slot| slot.waiting = None);
        self.slots.retain(|_, slot| slot.is_in_flight);
    }
}
