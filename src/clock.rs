//! The clock of a live run: monotonic, set from the wall clock once at the start, so that times in the
//! event log never run backwards.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use crate::core::data::time::UnixMillis;
use crate::environment;

const YEAR: Duration = Duration::from_secs(365 * 86_400);

/// A clock that never runs backwards.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    started_at: UnixMillis,
    started: Instant,
}

impl Clock {
    /// A clock set to the wall clock's time. Later changes of the wall clock do not affect it.
    pub fn start() -> Self {
        Self::start_at(wall_clock_now())
    }

    /// Clamps an absurd time, as of a machine whose clock was never set, to the range of an event log.
    fn start_at(wall_clock: UnixMillis) -> Self {
        // Ten years less, so that the run itself does not pass the latest time.
        let latest = UnixMillis(UnixMillis::LATEST.0 - 3_653 * 86_400_000);
        let started_at = wall_clock.clamp(UnixMillis::EARLIEST, latest);
        if started_at != wall_clock {
            tracing::error!(
                wall_clock_ms = wall_clock.0,
                "this machine's clock is wrong: going on as if it were {started_at}; set the clock \
                 and restart throughline"
            );
        }
        Self { started_at, started: Instant::now() }
    }

    pub fn now(&self) -> UnixMillis {
        self.started_at.plus(millis(environment::elapsed(self.started)))
    }

    /// The instant at which this clock shows `at`, at most a year from now: no timer needs longer.
    pub fn instant(&self, at: UnixMillis) -> Instant {
        timer_at(self.started, Duration::from_millis(at.since(self.started_at)))
    }
}

/// The instant `after` from `from`, at most a year from now.
pub(crate) fn timer_at(from: Instant, after: Duration) -> Instant {
    let farthest = Instant::now() + YEAR;
    environment::instant_after(from, after).map_or(farthest, |at| at.min(farthest))
}

/// The wall clock's time, which may run backwards.
pub fn wall_clock_now() -> UnixMillis {
    UnixMillis(millis(environment::wall_clock()))
}

/// Whole milliseconds, at most `u64::MAX`.
pub fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Sleeps until `instant`; forever for `None`.
pub async fn sleep_until_opt(instant: Option<Instant>) {
    match instant {
        Some(instant) => sleep_until(instant).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn no_wall_clock_and_no_deadline_makes_it_overflow() {
        let absurd = [UnixMillis(0), UnixMillis(u64::MAX), UnixMillis(u64::MAX - 1)];
        for wall_clock in absurd {
            let clock = Clock::start_at(wall_clock);
            let now = clock.now();
            assert!((UnixMillis::EARLIEST..=UnixMillis::LATEST).contains(&now), "{now}");
            for at in absurd {
                let wait = clock.instant(at).saturating_duration_since(Instant::now());
                assert!(wait <= YEAR, "{at:?}");
            }
            assert_eq!(clock.instant(now.plus(250)), Instant::now() + Duration::from_millis(250));
            tokio::time::advance(Duration::from_secs(3)).await;
            assert_eq!(clock.now().since(now), 3_000);
        }
    }
}
