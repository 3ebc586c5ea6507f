//! The actions of a lane that may be sent, and which of them is next.

use std::collections::BTreeMap;
use std::iter::successors;
use std::ops::Bound::{Excluded, Unbounded};

use crate::core::contract::action::Urgency;
use crate::core::data::ids::ObjectKey;

/// Of this many starts for which both the most urgent class and another wait, the other gets one.
pub(super) const STARTS_FOR_A_LOWER_ONE: u32 = 16;

/// An action's turn: by urgency, then by when it began to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Turn {
    pub(super) urgency: Urgency,
    /// See [`PendingAction::since`](crate::executor::attempt::PendingAction::since).
    pub(super) since: u64,
}

impl Turn {
    /// After all turns of its class.
    fn after(urgency: Urgency) -> Self {
        Self { urgency, since: u64::MAX }
    }
}

/// Each operation costs O(log n).
#[derive(Debug, Default)]
pub(super) struct Ready {
    objects: BTreeMap<Turn, ObjectKey>,
    /// Starts of the most urgent class since one of another, while another waited.
    starts_in_a_row: u32,
}

impl Ready {
    pub(super) fn len(&self) -> usize {
        self.objects.len()
    }

    pub(super) fn insert(&mut self, turn: Turn, object: ObjectKey) {
        let other = self.objects.insert(turn, object);
        debug_assert!(other.is_none(), "two objects have the same turn");
    }

    pub(super) fn remove(&mut self, turn: Turn) {
        self.objects.remove(&turn);
    }

    pub(super) fn clear(&mut self) {
        self.objects.clear();
    }

    /// The most urgent, and now and then one that would wait behind these for ever.
    pub(super) fn pop_next(&mut self) -> Option<ObjectKey> {
        let first = self.objects.keys().next().copied()?;
        let lower = self.class_firsts().skip(1).min_by_key(|turn| turn.since);
        self.starts_in_a_row = if lower.is_some() { self.starts_in_a_row + 1 } else { 0 };
        match lower {
            Some(lower) if self.starts_in_a_row >= STARTS_FOR_A_LOWER_ONE => {
                self.starts_in_a_row = 0;
                self.objects.remove(&lower)
            }
            _ => self.objects.remove(&first),
        }
    }

    /// The newest of the most urgent class.
    pub(super) fn pop_newest(&mut self) -> Option<ObjectKey> {
        let first = self.objects.keys().next()?;
        let newest = self.objects.range(..=Turn::after(first.urgency)).next_back();
        let newest = newest.map(|(turn, _)| *turn)?;
        self.objects.remove(&newest)
    }

    /// The one that has waited longest, whatever its class.
    pub(super) fn pop_oldest(&mut self) -> Option<ObjectKey> {
        let oldest = self.class_firsts().min_by_key(|turn| turn.since)?;
        self.objects.remove(&oldest)
    }

    /// The first of each class that waits, the most urgent class first.
    fn class_firsts(&self) -> impl Iterator<Item = Turn> {
        let first = self.objects.keys().next().copied();
        successors(first, |turn| {
            let next_class = (Excluded(Turn::after(turn.urgency)), Unbounded);
            self.objects.range(next_class).next().map(|(turn, _)| *turn)
        })
    }
}
