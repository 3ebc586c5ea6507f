//! The clock of a live run: monotonic, set from the wall clock once at start, so that times in the
//! event log never run backwards.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::{Instant, sleep_until};

use crate::core::data::time::UnixMillis;

/// A clock that never runs backwards.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    started_at: UnixMillis,
    started: Instant,
}

impl Clock {
    /// A clock set to the wall clock's time.
    pub fn start() -> Self {
        Self { started_at: wall_clock_now(), started: Instant::now() }
    }

    pub fn now(&self) -> UnixMillis {
        self.started_at.plus(millis(self.started.elapsed()))
    }

    /// The instant at which this clock shows `at`.
    pub fn instant(&self, at: UnixMillis) -> Instant {
        self.started + Duration::from_millis(at.since(self.started_at))
    }
}

/// The wall clock's time, which may run backwards.
pub fn wall_clock_now() -> UnixMillis {
    UnixMillis(millis(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()))
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
