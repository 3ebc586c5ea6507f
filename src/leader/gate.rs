//! The gate for leader-only writes: open until a time of the monotonic clock, then closed. It is
//! checked when a write is queued and again before every attempt.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use crate::clock::{millis, timer_at};
use crate::environment;

/// Whether leader-only writes may be sent. Clones share one state.
#[derive(Clone, Debug)]
pub struct Gate {
    anchor: Instant,
    /// In milliseconds since the anchor; 0 means closed.
    until_ms: Arc<AtomicU64>,
}

impl Gate {
    fn until_ms(until_ms: u64) -> Self {
        Self { anchor: Instant::now(), until_ms: Arc::new(AtomicU64::new(until_ms)) }
    }

    /// The gate of a run without an election.
    pub fn always_open() -> Self {
        Self::until_ms(u64::MAX)
    }

    /// A closed gate, and the keeper that can open it.
    pub fn closed() -> (Self, GateKeeper) {
        let gate = Self::until_ms(0);
        (gate.clone(), GateKeeper(gate))
    }

    pub fn is_open(&self) -> bool {
        self.now_ms() < self.until_ms.load(Ordering::Acquire)
    }

    fn now_ms(&self) -> u64 {
        millis(environment::elapsed(self.anchor))
    }
}

/// Opens and closes a gate. Each gate has one keeper.
#[derive(Debug)]
pub struct GateKeeper(Gate);

impl GateKeeper {
    /// The gate's clock, in milliseconds.
    pub fn now_ms(&self) -> u64 {
        self.0.now_ms()
    }

    /// The instant at which the gate's clock shows `ms`.
    pub fn instant(&self, ms: u64) -> Instant {
        timer_at(self.0.anchor, Duration::from_millis(ms))
    }

    /// Opens the gate until its clock shows `until_ms`; closes it for `None`.
    pub fn set(&self, until_ms: Option<u64>) {
        self.0.until_ms.store(until_ms.unwrap_or(0), Ordering::Release);
    }
}

impl Drop for GateKeeper {
    /// Without a keeper nothing could close the gate early.
    fn drop(&mut self) {
        self.set(None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_gate_closes_by_itself_and_without_its_keeper_and_clones_share_it() {
        let (gate, keeper) = Gate::closed();
        let clone = gate.clone();
        assert!(!gate.is_open() && Gate::always_open().is_open());
        keeper.set(Some(1_000));
        assert!(clone.is_open());
        tokio::time::advance(Duration::from_millis(1_500)).await;
        assert!(!clone.is_open(), "the gate closes by itself");
        keeper.set(Some(3_000));
        assert!(clone.is_open());
        drop(keeper);
        assert!(!gate.is_open(), "without a keeper it is closed");
    }
}
