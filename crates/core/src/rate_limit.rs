//! The rate limiter: GCRA, with the time as a parameter.
//!
//! A limiter stores one number: the time at which the next write would be due if all writes were
//! evenly spaced. The burst is how many intervals ahead of that time a write may be admitted. The
//! rate is passed with each call, so a limiter takes eight bytes, and a new setting applies to all
//! limiters.

use crate::data::time::UnixMillis;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    interval_us: u64,
    burst: u64,
}

impl Rate {
    pub const UNLIMITED: Self = Self { interval_us: 0, burst: 1 };

    pub const fn every_ms(interval_ms: u64, burst: u64) -> Self {
        Self { interval_us: interval_ms * 1_000, burst }
    }

    /// `n` a second with a burst of `burst`; 0 lifts the limit.
    pub fn per_second(n: u32, burst: u32) -> Self {
        if n == 0 {
            return Self::UNLIMITED;
        }
        Self { interval_us: 1_000_000_u64.div_ceil(n.into()), burst: burst.max(1).into() }
    }

    /// The time between two evenly spaced writes.
    pub fn interval_ms(self) -> u64 {
        self.interval_us / 1_000
    }

    /// At most `n` in *any* minute: a burst of half of them, then the other half spread over each
    /// minute. `None` for 0: never.
    pub fn at_most_per_minute(n: u32) -> Option<Self> {
        if n == 0 {
            return None;
        }
        let spread = u64::from(n / 2).max(1);
        let interval_us = 60_000_000_u64.div_ceil(spread);
        Some(Self { interval_us, burst: n.div_ceil(2).into() })
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RateLimiter {
    /// GCRA's theoretical arrival time.
    arrival_us: u64,
}

impl RateLimiter {
    /// When the next write is admitted.
    pub fn ready_at(self, rate: Rate) -> UnixMillis {
        let ahead_us = (rate.burst - 1).saturating_mul(rate.interval_us);
        UnixMillis(self.arrival_us.saturating_sub(ahead_us).div_ceil(1_000))
    }

    pub fn take(&mut self, rate: Rate, now: UnixMillis) {
        let now_us = now.0.saturating_mul(1_000);
        self.arrival_us = self.arrival_us.max(now_us).saturating_add(rate.interval_us);
    }

    /// Undoes a `take` for a write that changed nothing.
    pub fn give_back(&mut self, rate: Rate) {
        self.arrival_us = self.arrival_us.saturating_sub(rate.interval_us);
    }

    /// Forgets what was taken. With a burst of 1, the next write is admitted at `at`.
    pub fn restart_at(&mut self, at: UnixMillis) {
        self.arrival_us = at.0.saturating_mul(1_000);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: UnixMillis = UnixMillis(1_000_000);
    const MINUTE_MS: u64 = 60_000;

    /// When the writes are admitted that are all due at the start, in milliseconds after it.
    fn admitted(rate: Rate, until_ms: u64) -> Vec<u64> {
        let mut limiter = RateLimiter::default();
        let mut admitted = Vec::new();
        let mut now = START;

        while now.since(START) <= until_ms {
            admitted.push(now.since(START));
            limiter.take(rate, now);
            now = limiter.ready_at(rate).max(now);
        }
        admitted
    }

    #[test]
    fn a_burst_goes_at_once_and_the_rest_evenly() {
        assert_eq!(admitted(Rate::every_ms(200, 3), 700), [0, 0, 0, 200, 400, 600]);
        assert_eq!(admitted(Rate::per_second(3, 1), 1_000), [0, 334, 668]);
    }

    #[test]
    fn a_limit_per_minute_holds_in_every_minute() {
        for n in 1..40_u32 {
            let admitted = admitted(Rate::at_most_per_minute(n).unwrap(), 10 * MINUTE_MS);

            for start in &admitted {
                let window = *start..*start + MINUTE_MS;
                let within = admitted.iter().filter(|at| window.contains(at)).count();
                assert!(within <= n as usize, "{n}: {within} within a minute of {start}");
            }
        }
        assert_eq!(Rate::at_most_per_minute(0), None);
    }

    #[test]
    fn a_restarted_limiter_admits_its_next_write_at_the_given_time() {
        let rate = Rate::every_ms(10_000, 1);
        let mut limiter = RateLimiter::default();
        limiter.take(rate, START);

        limiter.restart_at(START.plus(3_000));

        assert_eq!(limiter.ready_at(rate), START.plus(3_000));
    }
}
