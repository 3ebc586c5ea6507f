//! The election's timings, and the times derived from them.

/// The election's timings, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Timings {
    /// A Lease unchanged for this long has expired.
    pub lease_ms: u64,
    /// A tenure not renewed for this long is over.
    pub renew_deadline_ms: u64,
    /// From the start of one attempt to the start of the next.
    pub retry_ms: u64,
    /// The longest that one write may take after its last check of the gate.
    pub write_ms: u64,
}

/// The number of attempts that fit between a renewal and the closing of the gate.
const ATTEMPTS_PER_GATE: u64 = 4;

impl Timings {
    /// The timings for a Lease of this duration: an attempt every two fifteenths of it, and a renew
    /// deadline after two thirds.
    pub fn of(lease_ms: u64, write_ms: u64) -> Self {
        Self {
            lease_ms,
            renew_deadline_ms: lease_ms * 2 / 3,
            retry_ms: lease_ms * 2 / 15,
            write_ms,
        }
    }

    /// Whether a failed attempt leaves time for another before the gate closes.
    pub fn are_usable(&self) -> bool {
        self.gate_ms() >= 2 * self.retry_ms
    }

    /// How long after a renewal was sent the gate stays open. Another instance's clock may run up to a
    /// tenth faster, so that our lease expires there after ten elevenths of its duration; a write that
    /// passed the gate must have ended by then. Zero if the timings leave no room.
    pub fn gate_ms(&self) -> u64 {
        (self.lease_ms * 10 / 11).saturating_sub(self.write_ms).min(self.renew_deadline_ms)
    }

    /// The longest time for one request. Several fit between a renewal and the closing of the gate, so
    /// that one request that hangs does not lose the Lease.
    pub fn request_ms(&self) -> u64 {
        (self.gate_ms() / ATTEMPTS_PER_GATE).max(1)
    }

    /// When the next attempt is due, after one that began at `began` and ended at `ended`.
    pub fn next_attempt(&self, began: u64, ended: u64) -> u64 {
        // An attempt that hung has used up its pause: the next follows almost at once.
        (began + self.retry_ms).max(ended + self.retry_ms / 10)
    }
}
