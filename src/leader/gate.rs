//! The gate in front of leader-only writes: open until a moment of the monotonic clock, and closed
//! from then on. It is checked when a write is queued and again before every attempt.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use crate::clock::{millis, timer_at};
use crate::core::data::shard::{Shard, Shards};
use crate::environment;

/// Whether leader-only writes may be sent. Clones share one state.
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

    /// For a run without an election.
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

/// The gates of all shards. Clones share their states.
#[derive(Clone, Debug)]
pub struct Gates(Arc<[Gate]>);

impl Gates {
    /// For a run with one shard.
    pub fn one(gate: Gate) -> Self {
        Self(Arc::new([gate]))
    }

    /// For a run without an election.
    pub fn always_open(shards: Shards) -> Self {
        Self(shards.all().map(|_| Gate::always_open()).collect())
    }

    /// Closed gates, and each one's keeper, in the order of the shards.
    pub fn closed(shards: Shards) -> (Self, Vec<GateKeeper>) {
        let (gates, keepers): (Vec<_>, Vec<_>) = shards.all().map(|_| Gate::closed()).unzip();
        (Self(gates.into()), keepers)
    }

    /// Whether leader-only writes for upstreams of this shard may be sent. Never for one that this
    /// run does not have.
    pub fn is_open(&self, shard: Shard) -> bool {
        self.of(shard).is_some_and(Gate::is_open)
    }

    /// The gate of a shard; `None` for one that this run does not have.
    pub fn of(&self, shard: Shard) -> Option<&Gate> {
        self.0.get(usize::from(shard.0))
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
    /// Without a keeper nothing would close the gate early.
    fn drop(&mut self) {
        self.set(None);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn each_shard_has_its_own_gate_and_clones_share_it() {
        let (gates, keepers) = Gates::closed(Shards::try_from(3).unwrap());
        let clone = gates.clone();
        let open = |gates: &Gates| [0, 1, 2, 3].map(|shard| gates.is_open(Shard(shard)));
        assert_eq!(open(&gates), [false; 4]);
        keepers[1].set(Some(1_000));
        assert_eq!(open(&clone), [false, true, false, false]);
        keepers[2].set(Some(2_000));
        tokio::time::advance(Duration::from_millis(1_500)).await;
        assert_eq!(
            open(&clone),
            [false, false, true, false],
            "the gate of shard 1 closed by itself"
        );
        drop(keepers);
        assert_eq!(open(&gates), [false; 4], "without keepers, no gate is open");
    }

    #[test]
    fn without_an_election_all_gates_are_open_but_a_shard_that_is_not_there_has_none() {
        let gates = Gates::always_open(Shards::try_from(2).unwrap());
        assert_eq!([0, 1, 2].map(|shard| gates.is_open(Shard(shard))), [true, true, false]);
        let gates = Gates::one(Gate::always_open());
        assert_eq!([0, 1].map(|shard| gates.is_open(Shard(shard))), [true, false]);
    }
}
