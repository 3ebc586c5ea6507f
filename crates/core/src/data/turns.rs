//! Turns: how fast one thing may be done again.

use crate::data::time::UnixMillis;

/// Turns that follow one another evenly, some of them ahead of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Turns {
    /// When the next turn is if none is ahead.
    pub(crate) even_at: UnixMillis,
}

impl Turns {
    /// When the next turn is, where so many may be taken at once.
    pub(crate) fn next(self, now: UnixMillis, every_ms: u64, at_once: u64) -> UnixMillis {
        self.ready_at(every_ms, at_once).max(now)
    }

    /// Since when a turn may be taken.
    pub(crate) fn ready_at(self, every_ms: u64, at_once: u64) -> UnixMillis {
        let ahead_ms = at_once.saturating_sub(1).saturating_mul(every_ms);
        UnixMillis(self.even_at.0.saturating_sub(ahead_ms))
    }

    pub(crate) fn take(&mut self, now: UnixMillis, every_ms: u64) {
        self.even_at = self.even_at.max(now).plus(every_ms);
    }
}
