//! The shell's clock: monotonic, anchored to the wall clock once at start, so that time in the
//! event log never goes back.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::{Instant, sleep_until};

use crate::core::time::UnixMillis;

/// A clock that only goes forward.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    wall: UnixMillis,
    anchor: Instant,
}

impl Clock {
    /// A clock that shows the wall clock's time now.
    pub fn start() -> Self {
        Self { wall: wall(), anchor: Instant::now() }
    }

    /// The time.
    pub fn now(&self) -> UnixMillis {
        self.wall.plus(millis(self.anchor.elapsed()))
    }

    /// When it will be `at`, for timers.
    pub fn instant(&self, at: UnixMillis) -> Instant {
        self.anchor + Duration::from_millis(at.since(self.wall))
    }
}

/// The wall clock's time, which may go back.
pub fn wall() -> UnixMillis {
    UnixMillis(millis(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()))
}

/// Whole milliseconds.
pub fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Sleeps until `instant`, or for ever where there is none.
pub async fn until(instant: Option<Instant>) {
    match instant {
        Some(instant) => sleep_until(instant).await,
        None => std::future::pending().await,
    }
}
