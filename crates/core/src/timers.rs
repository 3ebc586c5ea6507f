//! Timers: at most one for each key, earliest first.

use std::collections::BTreeSet;
use std::hash::Hash;

use crate::data::map::Map;
use crate::data::time::UnixMillis;

#[derive(Debug)]
pub(crate) struct Timers<K> {
    at: Map<K, UnixMillis>,
    in_order: BTreeSet<(UnixMillis, K)>,
}

impl<K> Default for Timers<K> {
    fn default() -> Self {
        Self { at: Map::default(), in_order: BTreeSet::new() }
    }
}

impl<K: Clone + Hash + Ord> Timers<K> {
    pub(crate) fn set(&mut self, key: K, at: Option<UnixMillis>) {
        // A saturated time is never reached.
        let at = at.filter(|at| *at < UnixMillis::NEVER);
        let old = match at {
            Some(at) => self.at.insert(key.clone(), at),
            None => self.at.remove(&key),
        };
        if at == old {
            return;
        }

        if let Some(old) = old {
            self.in_order.remove(&(old, key.clone()));
        }
        self.in_order.extend(at.map(|at| (at, key)));
    }

    /// Sets the timer unless it is due earlier.
    pub(crate) fn set_no_later(&mut self, key: K, at: UnixMillis) {
        let at = self.at.get(&key).map_or(at, |before| at.min(*before));
        self.set(key, Some(at));
    }

    /// When the earliest timer is due.
    pub(crate) fn next_at(&self) -> Option<UnixMillis> {
        self.in_order.first().map(|(at, _)| *at)
    }

    /// Takes out the earliest timer that is due.
    pub(crate) fn pop(&mut self, now: UnixMillis) -> Option<K> {
        if self.next_at()? > now {
            return None;
        }
        let (_, key) = self.in_order.pop_first()?;
        self.at.remove(&key);
        Some(key)
    }

    pub(crate) fn retain(&mut self, is_kept: impl Fn(&K) -> bool) {
        self.at.retain(|key, _| is_kept(key));
        self.in_order.retain(|(_, key)| is_kept(key));
    }

    pub(crate) fn len(&self) -> usize {
        self.at.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timer_is_moved_and_expires_once() {
        let now = UnixMillis(1_000);
        let mut timers = Timers::default();
        timers.set("a", Some(now));
        timers.set("a", Some(now.plus(5)));
        timers.set("b", Some(UnixMillis::NEVER));

        assert_eq!(timers.pop(now), None);
        assert_eq!(timers.next_at(), Some(now.plus(5)));
        assert_eq!(timers.pop(now.plus(5)), Some("a"));
        assert_eq!((timers.pop(now.plus(5)), timers.len()), (None, 0));
    }
}
