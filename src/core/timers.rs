//! Deadlines: one per thing that waits, the earliest first.

use std::collections::BTreeSet;

use super::ids::{ActionId, ClusterId, Key, Map, Sym};
use super::time::UnixMillis;

/// What waits for a moment to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Due {
    /// A replica: retry, grace, nudge or stall.
    Replica(ClusterId, Key),
    /// The touches of an edge that fall due.
    Bundle(ClusterId),
    /// A connector at an edge that waits to be announced.
    Announce(ClusterId, Key),
    /// The extra confirmation after an edge's outage.
    Outage(ClusterId),
    /// A route: age, settling, retry.
    Route(ClusterId, Key),
    /// An action whose outcome has not come.
    Flight(ActionId),
    /// The share of an upstream cluster's routes that are orphans changed. After `Route`: all that
    /// a moment brings is counted first.
    Share(Sym),
    /// Deletes that the budget may have room for. Last: no share may be looked at later.
    Deletes,
}

impl Due {
    /// What is waited for, for a person.
    pub(crate) fn reason(self) -> &'static str {
        match self {
            Due::Replica(..) => "a replica is to be looked at again",
            Due::Bundle(_) => "touches of an edge fall due",
            Due::Announce(..) => "a connector should have been announced by now",
            Due::Outage(_) => "an edge is confirmed once more after its outage",
            Due::Route(..) => "a route is to be looked at again",
            Due::Flight(_) => "an action's outcome should have come by now",
            Due::Share(_) => "the orphans of a cluster are to be counted",
            Due::Deletes => "the budget has room for a delete",
        }
    }
}

/// All deadlines, at most one for each [`Due`]. Setting and clearing cost O(log n).
#[derive(Default)]
pub(crate) struct Timers {
    at: Map<Due, UnixMillis>,
    queue: BTreeSet<(UnixMillis, Due)>,
}

impl Timers {
    /// Makes sure that `due` is looked at no later than `at`.
    pub(crate) fn no_later(&mut self, due: Due, at: UnixMillis) {
        if let Some(&old) = self.at.get(&due) {
            if old <= at {
                return;
            }
            self.queue.remove(&(old, due));
        }
        self.at.insert(due, at);
        self.queue.insert((at, due));
    }

    pub(crate) fn clear(&mut self, due: Due) {
        if let Some(old) = self.at.remove(&due) {
            self.queue.remove(&(old, due));
        }
    }

    pub(crate) fn first(&self) -> Option<(UnixMillis, Due)> {
        self.queue.first().copied()
    }

    /// Takes the earliest that is due at `now`.
    pub(crate) fn pop(&mut self, now: UnixMillis) -> Option<Due> {
        let &(at, due) = self.queue.first()?;
        if at > now {
            return None;
        }
        self.queue.pop_first();
        self.at.remove(&due);
        Some(due)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_earlier_wish_for_the_same_thing_wins() {
        let (mut timers, due) = (Timers::default(), Due::Bundle(ClusterId(0)));
        timers.no_later(due, UnixMillis(20));
        timers.no_later(due, UnixMillis(10));
        timers.no_later(due, UnixMillis(30));
        timers.no_later(Due::Bundle(ClusterId(1)), UnixMillis(10));
        assert_eq!(timers.first(), Some((UnixMillis(10), due)));
        assert_eq!(timers.pop(UnixMillis(9)), None);
        assert_eq!(timers.pop(UnixMillis(10)), Some(due));
        timers.clear(Due::Bundle(ClusterId(1)));
        assert_eq!(timers.first(), None);
    }
}
