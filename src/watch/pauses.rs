//! The pauses between attempts to list or watch.

use std::ops::RangeInclusive;
use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};
use tokio::time::Instant;

use crate::config::WatchConstants;
use crate::environment;

/// Jitter makes a pause up to twice as long as the builder's delay, so the longest delay is halved.
fn pauses(config: &WatchConstants) -> ExponentialBackoff {
    let max_ms = (config.backoff_max_ms / 2).max(1);
    ExponentialBuilder::default()
        .with_min_delay(Duration::from_millis(config.backoff_first_ms.min(max_ms)))
        .with_max_delay(Duration::from_millis(max_ms))
        .with_jitter()
        .with_jitter_seed(environment::random())
        .without_max_times()
        .build()
}

/// After this long without a pause, pauses start again from the shortest.
const HEALTHY_AFTER: Duration = Duration::from_secs(10);

/// The pauses of one watch: they grow until none has occurred for a while.
#[derive(Debug)]
pub(crate) struct Pauses {
    left: Option<Box<ExponentialBackoff>>,
    last_ended_at: Instant,
}

impl Pauses {
    pub(crate) fn new() -> Self {
        Self { left: None, last_ended_at: Instant::now() }
    }

    pub(crate) fn next(&mut self, config: &WatchConstants) -> Duration {
        self.start_again_if_healthy();
        let left = self.left.get_or_insert_with(|| Box::new(pauses(config)));
        left.next().unwrap_or(Duration::from_millis(config.backoff_max_ms))
    }

    /// Whether the last pause is long ago.
    pub(super) fn was_healthy(&self) -> bool {
        self.last_ended_at.elapsed() > HEALTHY_AFTER
    }

    /// Marks the end of a pause, or of an attempt without one.
    pub(crate) fn ended(&mut self) {
        self.start_again_if_healthy();
        self.last_ended_at = Instant::now();
    }

    fn start_again_if_healthy(&mut self) {
        if self.was_healthy() {
            self.left = None;
        }
    }
}

/// A random time in the range.
pub(super) fn between(range: RangeInclusive<Duration>) -> Duration {
    let share = (environment::random() >> 11) as f64 / (1_u64 << 53) as f64;
    let (start, end) = range.into_inner();
    start + end.saturating_sub(start).mul_f64(share)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_pause_is_longer_than_configured() {
        let config = WatchConstants { backoff_first_ms: 200, ..WatchConstants::default() };
        let pauses: Vec<_> = pauses(&config).take(50).collect();
        let last = Duration::from_millis(config.backoff_max_ms);
        assert!(pauses[0] < Duration::from_millis(400), "{pauses:?}");
        assert!(pauses.iter().all(|pause| *pause <= last), "{pauses:?}");
        assert!(last <= Duration::from_secs(10));
        assert!(pauses.iter().skip(10).any(|pause| *pause > last / 2), "{pauses:?}");
    }
}
