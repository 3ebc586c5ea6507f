//! Other writers that change a value of ours: how often they did, and how long to wait before
//! writing it again, so that two controllers never fight at full speed.

use super::data::optional_millis::OptionalMillis;
use super::data::time::UnixMillis;
use super::flight::doubled;

/// When overwrites become a contention, and the pauses from then on.
pub(crate) struct ContentionLimits {
    /// The first overwrite that brings a pause, counted from 1.
    pub(crate) pause_from: u32,
    /// The first pause; each further overwrite doubles it.
    pub(crate) first_pause_ms: u64,
    pub(crate) max_pause_ms: u64,
    /// After this long without an overwrite the count starts again.
    pub(crate) quiet_ms: u64,
}

/// The overwrites of one value.
#[derive(Debug, Default)]
pub(crate) struct Contention {
    overwrites: u32,
    last_at: OptionalMillis,
    /// How much later than its own pause the value is written again, because others are before it.
    queued_ms: u32,
    /// The field manager of the writer that did it last, where it is known.
    manager: Option<Box<str>>,
}

impl Contention {
    /// Counts an overwrite. Returns the pause before the value may be written again, if any.
    pub(crate) fn record(&mut self, now: UnixMillis, limits: &ContentionLimits) -> Option<u64> {
        if !self.is_recent(now, limits.quiet_ms) {
            self.overwrites = 0;
        }
        self.queued_ms = 0;
        self.overwrites = self.overwrites.saturating_add(1);
        self.last_at = now.into();
        let doublings = self.overwrites.checked_sub(limits.pause_from)?;
        Some(doubled(limits.first_pause_ms, doublings, limits.max_pause_ms))
    }

    /// How often the value was overwritten without a quiet time in between.
    pub(crate) fn overwrites(&self) -> u32 {
        self.overwrites
    }

    pub(crate) fn set_manager(&mut self, manager: Option<&str>) {
        if self.manager.as_deref() != manager {
            self.manager = manager.map(Box::from);
        }
    }

    /// The field manager of the writer that did it last, where it is known.
    pub(crate) fn manager(&self) -> Option<&str> {
        self.manager.as_deref()
    }

    /// When it was last overwritten.
    pub(crate) fn last_at(&self) -> Option<UnixMillis> {
        self.last_at.get()
    }

    /// The value is written again so much later than its pause asks for. That time is not quiet.
    pub(crate) fn queued(&mut self, queued_ms: u64) {
        self.queued_ms = u32::try_from(queued_ms).unwrap_or(u32::MAX);
    }

    /// Whether the last overwrite is so recent that the pauses keep growing.
    pub(crate) fn is_recent(&self, now: UnixMillis, quiet_ms: u64) -> bool {
        let quiet_ms = quiet_ms.saturating_add(self.queued_ms.into());
        self.last_at().is_some_and(|at| now.since(at) <= quiet_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: UnixMillis = UnixMillis(1_000_000);
    const LIMITS: ContentionLimits = ContentionLimits {
        pause_from: 3,
        first_pause_ms: 1_000,
        max_pause_ms: 4_000,
        quiet_ms: 10_000,
    };

    #[test]
    fn pauses_grow_from_the_third_overwrite_until_it_is_quiet_again() {
        let mut contention = Contention::default();
        let pauses: Vec<_> = (0..6).map(|_| contention.record(NOW, &LIMITS)).collect();
        assert_eq!(pauses, [None, None, Some(1_000), Some(2_000), Some(4_000), Some(4_000)]);
        assert_eq!(contention.overwrites(), 6);
        let later = NOW.plus(LIMITS.quiet_ms);
        assert!(contention.is_recent(later, LIMITS.quiet_ms));
        assert_eq!(contention.record(later.plus(LIMITS.quiet_ms + 1), &LIMITS), None);
        assert_eq!(contention.overwrites(), 1);
    }
}
