//! The queue of one kind in one cluster: its waiting writes, and how many may be in flight.
//!
//! Queues share nothing, so an API server that hangs, or an admission webhook that hangs for one kind,
//! delays only its own queue. A request that times out narrows its queue to one write at a time; any
//! answer widens it again. So a queue that hangs needs neither a timer nor probe requests: its next
//! write is the probe. Every second probe is the newest write of its namespace, because a webhook may
//! hang for only some objects, and those may be the oldest.
//!
//! Routing writes go first, except for one start in sixteen. Namespaces take turns, so that no tenant
//! waits for another tenant's thousand writes; in a namespace the oldest write goes first. A newer
//! action for an object takes the position of the one that it replaces.
//!
//! A queue needs no limit: it holds at most one action in flight and one waiting action for each object
//! that the machine knows.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Unbounded};

use super::attempt::{Answer, PendingAction};
use crate::core::contract::action::Urgency;
use crate::core::data::ids::NamespacedName;

/// One start in this many is of a write that does not route, while both kinds wait.
const STARTS_FOR_THE_REST: u32 = 16;

/// The number of consecutive time-outs from which the queue is reported as hanging.
const TIME_OUTS_REPORTED: u32 = 2;

#[derive(Debug, Default)]
pub(super) struct Queue {
    slots: BTreeMap<NamespacedName, Slot>,
    routing: Rotation,
    rest: Rotation,
    /// Starts of routing writes since the last start of another write, while both waited.
    routing_in_a_row: u32,
    in_flight: usize,
    /// Actions queued so far; orders them.
    queued: u64,
    /// Consecutive requests that timed out.
    time_outs: u32,
}

/// The actions of one object: at most one attempt in flight, and the latest waiting action.
#[derive(Debug, Default)]
struct Slot {
    is_in_flight: bool,
    waiting: Option<Waiting>,
}

#[derive(Debug)]
struct Waiting {
    action: PendingAction,
    /// Its position: when it, or the first action that it replaced, was queued.
    since: u64,
}

impl Queue {
    /// Objects with an action that may start.
    pub(super) fn ready(&self) -> usize {
        self.routing.len + self.rest.len
    }

    /// Whether only one write at a time is sent, because requests time out.
    pub(super) fn is_narrow(&self) -> bool {
        self.time_outs > 0
    }

    /// Whether it is to be reported as hanging.
    pub(super) fn is_hung(&self) -> bool {
        self.time_outs >= TIME_OUTS_REPORTED
    }

    /// Whether no action waits or is in flight.
    pub(super) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Queues an action. Returns the action that it replaces.
    pub(super) fn push(
        &mut self,
        object: NamespacedName,
        action: PendingAction,
    ) -> Option<PendingAction> {
        self.queued += 1;
        let slot = self.slots.entry(object.clone()).or_default();
        let is_ready = !slot.is_in_flight;
        let older = slot.waiting.take();
        let since = older.as_ref().map_or(self.queued, |older| older.since);
        if let Some(older) = &older {
            rotation(&mut self.routing, &mut self.rest, older).remove(&object, older.since);
        }
        let waiting = slot.waiting.insert(Waiting { action, since });
        if is_ready {
            rotation(&mut self.routing, &mut self.rest, waiting).insert(object, since);
        }
        older.map(|older| older.action)
    }

    /// The next action to send; `None` if none is ready or the most allowed are in flight.
    pub(super) fn start_next(&mut self, parallel: usize) -> Option<PendingAction> {
        let most = if self.is_narrow() { 1 } else { parallel };
        if self.in_flight >= most {
            return None;
        }
        let object = self.pop()?;
        let slot = self.slots.get_mut(&object)?;
        debug_assert!(!slot.is_in_flight, "two attempts at {object} at the same time");
        slot.is_in_flight = true;
        self.in_flight += 1;
        slot.waiting.take().map(|waiting| waiting.action)
    }

    fn pop(&mut self) -> Option<NamespacedName> {
        let hangs = self.is_narrow();
        let both_wait = self.routing.len > 0 && self.rest.len > 0;
        self.routing_in_a_row = if both_wait { self.routing_in_a_row + 1 } else { 0 };
        if self.routing.len == 0 || self.routing_in_a_row >= STARTS_FOR_THE_REST {
            self.routing_in_a_row = 0;
            return self.rest.pop(hangs);
        }
        self.routing.pop(hangs)
    }

    /// Handles the end of an attempt: a newer action for the object may be sent.
    pub(super) fn attempt_ended(&mut self, object: &NamespacedName) {
        debug_assert!(self.in_flight > 0, "more attempts ended than began");
        self.in_flight = self.in_flight.saturating_sub(1);
        let Some(slot) = self.slots.get_mut(object) else { return };
        slot.is_in_flight = false;
        match &slot.waiting {
            Some(waiting) => {
                let rotation = rotation(&mut self.routing, &mut self.rest, waiting);
                rotation.insert(object.clone(), waiting.since);
            }
            None => drop(self.slots.remove(object)),
        }
    }

    /// Updates the count of time-outs after an attempt.
    pub(super) fn observe(&mut self, answer: Answer) {
        self.time_outs = match answer {
            Answer::None => self.time_outs,
            Answer::Came => 0,
            Answer::TimedOut => self.time_outs.saturating_add(1),
        };
    }

    /// Removes the waiting actions that `is` selects.
    pub(super) fn remove_waiting(
        &mut self,
        is: impl Fn(&PendingAction) -> bool,
    ) -> Vec<PendingAction> {
        let mut removed = Vec::new();
        for (object, slot) in &mut self.slots {
            if let Some(waiting) = slot.waiting.take_if(|waiting| is(&waiting.action)) {
                let rotation = rotation(&mut self.routing, &mut self.rest, &waiting);
                rotation.remove(object, waiting.since);
                removed.push(waiting.action);
            }
        }
        self.slots.retain(|_, slot| slot.is_in_flight || slot.waiting.is_some());
        removed
    }
}

/// The rotation that holds an action's object.
fn rotation<'a>(
    routing: &'a mut Rotation,
    rest: &'a mut Rotation,
    waiting: &Waiting,
) -> &'a mut Rotation {
    let routes = waiting.action.decision.urgency == Urgency::Routing;
    if routes { routing } else { rest }
}

/// Objects that may be written, with namespaces in rotation. Each operation costs O(log n).
#[derive(Debug, Default)]
struct Rotation {
    namespaces: BTreeMap<String, OfNamespace>,
    /// The last namespace that was served.
    served: Option<String>,
    len: usize,
}

/// The objects of one namespace.
#[derive(Debug, Default)]
struct OfNamespace {
    /// By their position in time.
    objects: BTreeMap<u64, NamespacedName>,
    took_newest: bool,
}

impl Rotation {
    fn insert(&mut self, object: NamespacedName, since: u64) {
        let of_namespace = self.namespaces.entry(object.namespace().to_owned()).or_default();
        let other = of_namespace.objects.insert(since, object);
        debug_assert!(other.is_none(), "two objects have the same place");
        self.len += 1;
    }

    /// Does nothing if the object does not wait here.
    fn remove(&mut self, object: &NamespacedName, since: u64) {
        let Some(of_namespace) = self.namespaces.get_mut(object.namespace()) else { return };
        self.len -= usize::from(of_namespace.objects.remove(&since).is_some());
        if of_namespace.objects.is_empty() {
            self.namespaces.remove(object.namespace());
        }
    }

    /// The oldest object of the next namespace; while writes hang, alternately the newest and the
    /// oldest.
    fn pop(&mut self, hangs: bool) -> Option<NamespacedName> {
        let after = self.served.as_deref().map_or(Unbounded, Excluded);
        let next = self.namespaces.range::<str, _>((after, Unbounded)).map(|(name, _)| name).next();
        let name = next.or_else(|| self.namespaces.keys().next())?.clone();
        let of_namespace = self.namespaces.get_mut(&name)?;
        of_namespace.took_newest = hangs && !of_namespace.took_newest;
        let first = of_namespace.objects.first_key_value();
        let last = of_namespace.objects.last_key_value();
        let (since, object) = if of_namespace.took_newest { last } else { first }?;
        let since = *since;
        let object = object.clone();
        self.remove(&object, since);
        self.served = Some(name);
        Some(object)
    }
}
