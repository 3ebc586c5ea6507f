//! Deadlines: at most one for each thing that waits, earliest first.

use std::collections::BTreeSet;

use super::clusters::Place;
use super::data::ids::{ActionId, ClusterId};
use super::data::interner::{Key, Sym};
use super::data::map::Map;
use super::data::time::UnixMillis;
use super::data::used_names::{HoldsNames, UsedNames};
use super::write_queue::QueueKey;

/// What is due at a deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Due {
    /// A hub Connector: a retry, a grace period, a nudge or a stall.
    HubConnector(Place),
    /// The extra confirmation after an edge's outage. Ordered before `Bundle`, so that it is among
    /// the touches of its moment.
    Outage(ClusterId),
    /// Touches of an edge.
    Bundle(ClusterId),
    /// The stall of an edge Connector that is not announced.
    Announce(ClusterId, Key),
    /// A route: its age, its settling time, or a retry.
    Route(ClusterId, Key),
    /// The time-out of an action in flight.
    Outcome(ActionId),
    /// Removals of an upstream: they may be too many, or no longer. Ordered after `HubConnector`.
    Removals(Sym),
    /// The same of all upstreams together. Ordered after those of each.
    FleetRemovals,
    /// Mirrors of a hub whose last attempt failed. Ordered after `HubConnector`.
    Retries(ClusterId),
    /// A queue of writes to a hub may have room. Ordered after `HubConnector`, so that all that one
    /// moment brings is in the queue first.
    Queue(QueueKey),
    /// The report of why annotations of an upstream are held.
    Holds(Sym),
    /// The count of an upstream's orphans. Ordered after `Route`, so that everything that one
    /// moment brings is counted first.
    Share(Sym),
    /// The roster: what waits for its time to join, to leave or to be reported.
    Roster,
    /// The count of orphans of deleted projects. Ordered after `Share`, as that after `Route`.
    GoneShare,
    /// Deletes that their queue may have room for. Ordered after all that decides about them: every share
    /// is evaluated before.
    Deletes,
    /// Names of upstreams that may not fit those in hub labels.
    Naming,
}

impl Due {
    pub(crate) fn reason(self) -> &'static str {
        match self {
            Due::HubConnector(_) => "a hub Connector is due for evaluation",
            Due::Bundle(_) => "touches of an edge are due",
            Due::Announce(..) => "the announcement of a connector is late",
            Due::Outage(_) => "an edge is due for a confirmation after its outage",
            Due::Route(..) => "a route is due for evaluation",
            Due::Outcome(_) => "the outcome of an action is late",
            Due::Removals(_) => "the removals of an upstream are due for counting",
            Due::FleetRemovals => "the removals of the fleet are due for counting",
            Due::Retries(_) => "writes that failed are due for another attempt",
            Due::Queue(_) => "a queue of writes to a hub has room",
            Due::Holds(_) => "the report of held annotations is due",
            Due::Share(_) => "the orphans of an upstream are due for counting",
            Due::Roster => "the roster of clusters is due",
            Due::GoneShare => "the orphans of deleted projects are due for counting",
            Due::Deletes => "the queue has room for a delete",
            Due::Naming => "the names of upstreams are due for comparison",
        }
    }
}

impl HoldsNames for Due {
    fn mark(&self, used: &mut UsedNames) {
        match self {
            Due::HubConnector(at) => at.mark(used),
            Due::Announce(_, key) | Due::Route(_, key) => key.mark(used),
            Due::Removals(upstream) | Due::Holds(upstream) | Due::Share(upstream) => {
                upstream.mark(used);
            }
            Due::Bundle(_)
            | Due::Outage(_)
            | Due::Retries(_)
            | Due::Queue(_)
            | Due::Outcome(_)
            | Due::FleetRemovals
            | Due::Roster
            | Due::GoneShare
            | Due::Deletes
            | Due::Naming => {}
        }
    }
}

/// All deadlines, at most one for each [`Due`]. Setting and clearing cost O(log n).
#[derive(Default)]
pub(crate) struct Timers {
    at: Map<Due, UnixMillis>,
    queue: BTreeSet<(UnixMillis, Due)>,
}

impl HoldsNames for Timers {
    fn mark(&self, used: &mut UsedNames) {
        // The queue has the same entries.
        let Self { at, queue: _ } = self;
        at.keys().for_each(|due| due.mark(used));
    }
}

impl Timers {
    /// Makes sure that `due` runs no later than `at`. [`UnixMillis::NEVER`] sets no deadline: what
    /// became due at the end of time would set its next deadline there, too, without end.
    pub(crate) fn no_later(&mut self, due: Due, at: UnixMillis) {
        if at == UnixMillis::NEVER {
            return;
        }
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

    pub(crate) fn len(&self) -> usize {
        self.at.len()
    }

    pub(crate) fn first(&self) -> Option<(UnixMillis, Due)> {
        self.queue.first().copied()
    }

    /// Takes the earliest deadline that has come.
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
    fn the_earlier_of_two_deadlines_for_one_thing_holds() {
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

    #[test]
    fn at_the_end_of_time_nothing_is_due_for_ever() {
        let (mut timers, due, end) = (Timers::default(), Due::Deletes, UnixMillis::NEVER);
        timers.no_later(due, UnixMillis(10));
        timers.no_later(due, end.plus(5));
        let mut runs = 0;
        while let Some(due) = timers.pop(end) {
            timers.no_later(due, end.plus(1_000));
            runs += 1;
            assert!(runs < 10, "it is due again and again");
        }
        assert_eq!((runs, timers.first()), (1, None));
    }
}
