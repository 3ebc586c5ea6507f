//! The gate before leader-only work: open until a moment of the monotonic clock, and closed by
//! itself from then on. It is asked when work is queued and again before every try.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use crate::clock::millis;

/// Whether leader-only work may go to the wire. Clones are the same gate.
#[derive(Clone, Debug)]
pub struct Gate {
    anchor: Instant,
    /// In milliseconds since the anchor; 0 is closed.
    until_ms: Arc<AtomicU64>,
}

impl Gate {
    fn until_ms(until_ms: u64) -> Self {
        Self { anchor: Instant::now(), until_ms: Arc::new(AtomicU64::new(until_ms)) }
    }

    /// A gate for a process that always leads.
    pub fn always_open() -> Self {
        Self::until_ms(u64::MAX)
    }

    /// A gate that is closed, and who may open it.
    pub fn closed() -> (Self, GateKeeper) {
        let gate = Self::until_ms(0);
        (gate.clone(), GateKeeper(gate))
    }

    /// Whether it is open at this moment.
    pub fn is_open(&self) -> bool {
        self.now_ms() < self.until_ms.load(Ordering::Acquire)
    }

    fn now_ms(&self) -> u64 {
        millis(self.anchor.elapsed())
    }
}

/// Who opens and closes a gate; there is one of it.
#[derive(Debug)]
pub struct GateKeeper(Gate);

impl GateKeeper {
    /// The gate's clock, in milliseconds.
    pub fn now_ms(&self) -> u64 {
        self.0.now_ms()
    }

    /// The moment at which the gate's clock shows this.
    pub fn instant(&self, ms: u64) -> Instant {
        self.0.anchor + Duration::from_millis(ms)
    }

    /// Opens the gate until its clock shows this, or closes it.
    pub fn set(&self, until_ms: Option<u64>) {
        self.0.until_ms.store(until_ms.unwrap_or(0), Ordering::Release);
    }
}

impl Drop for GateKeeper {
    /// Nobody would ever open it again, nor close it early.
    fn drop(&mut self) {
        self.set(None);
    }
}
