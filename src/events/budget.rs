//! How many Events may be sent in a minute.

use std::collections::VecDeque;

const WINDOW_MS: u64 = 60_000;

/// Whom an Event concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// One object.
    Object,
    /// Many objects at once, or the leadership. A third of the budget is kept for these.
    Many,
}

/// Counts the Events of the last minute.
#[derive(Debug)]
pub(super) struct EventBudget {
    max_per_minute: usize,
    /// When they were sent, in milliseconds, oldest first.
    sent: VecDeque<u64>,
}

impl EventBudget {
    pub(super) fn new(max_per_minute: u32) -> Self {
        let max_per_minute = usize::try_from(max_per_minute).unwrap_or(usize::MAX);
        Self { max_per_minute, sent: VecDeque::new() }
    }

    /// Whether one more may be sent at `now_ms`; if so, it counts.
    pub(super) fn take(&mut self, now_ms: u64, scope: Scope) -> bool {
        while self.sent.front().is_some_and(|at| now_ms.saturating_sub(*at) >= WINDOW_MS) {
            self.sent.pop_front();
        }
        let kept = match scope {
            Scope::Object => self.max_per_minute / 3,
            Scope::Many => 0,
        };
        let is_free = self.sent.len() + kept < self.max_per_minute;
        if is_free {
            self.sent.push_back(now_ms);
        }
        is_free
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_minute_has_more_events_than_allowed_and_a_third_is_kept_for_those_about_many() {
        let mut budget = EventBudget::new(30);
        let mut taken = |now_ms, scope| (0..100).filter(|_| budget.take(now_ms, scope)).count();
        assert_eq!(taken(0, Scope::Object), 20);
        assert_eq!(taken(30_000, Scope::Many), 10);
        assert_eq!((taken(59_999, Scope::Object), taken(59_999, Scope::Many)), (0, 0));
        assert_eq!((taken(60_000, Scope::Object), taken(60_000, Scope::Many)), (10, 10));
    }

    #[test]
    fn a_budget_of_one_is_for_any_event() {
        let mut budget = EventBudget::new(1);
        assert!(budget.take(0, Scope::Object));
        assert!(!budget.take(59_999, Scope::Many));
    }
}
