//! The shell's clock: monotonic, anchored to the wall clock once at start, so that time in the
//! event log never goes back.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::Instant;

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
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let wall = UnixMillis(u64::try_from(since.as_millis()).unwrap_or(u64::MAX));
        Self { wall, anchor: Instant::now() }
    }

    /// The time.
    pub fn now(&self) -> UnixMillis {
        let ms = self.anchor.elapsed().as_millis();
        self.wall.plus(u64::try_from(ms).unwrap_or(u64::MAX))
    }

    /// When it will be `at`, for timers.
    pub fn instant(&self, at: UnixMillis) -> Instant {
        self.anchor + Duration::from_millis(at.since(self.wall))
    }
}
