//! What a seed decides, and what a run came to.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use crate::fault_kind::FaultKind;
use crate::random::Random;

/// A run that a seed decides.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) instances: usize,
    pub(crate) upstreams: usize,
    pub(crate) edges: usize,
    pub(crate) connectors: usize,
    /// How long things happen.
    pub(crate) lasts: Duration,
    pub(crate) faults: Vec<FaultKind>,
    /// The average time between two faults.
    pub(crate) fault_every_ms: u64,
    /// The average time between two changes by the platform.
    pub(crate) change_every_ms: u64,
}

impl Plan {
    pub(crate) fn from_seed(seed: u64) -> Self {
        let mut random = Random::new(seed);
        // A few kinds at a time find more than all at once: each fault has room to show.
        let kinds = random.between(1, 8);
        let faults = (0..kinds).map(|_| *random.pick(FaultKind::ALL)).collect();
        Self {
            seed,
            instances: 1 + random.below(3),
            upstreams: 1 + random.below(3),
            edges: 1 + random.below(2),
            connectors: 1 + random.below(8),
            lasts: Duration::from_secs(random.between(20, 90)),
            faults,
            fault_every_ms: random.between(300, 6_000),
            change_every_ms: random.between(100, 5_000),
        }
    }
}

/// What a run came to.
pub(crate) struct Report {
    pub(crate) plan: Plan,
    pub(crate) broken: Vec<String>,
    pub(crate) trace: String,
    pub(crate) writes: u64,
    pub(crate) simulated: Duration,
    pub(crate) injected: BTreeMap<FaultKind, u64>,
    /// The event log of each life of each instance.
    pub(crate) logs: Vec<Vec<u8>>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:?}", self.plan)?;
        writeln!(f, "{} s, {} writes", self.simulated.as_secs(), self.writes)?;
        self.broken.iter().try_for_each(|broken| writeln!(f, "  broken: {broken}"))
    }
}
