//! What a seed decides, and the result of a run.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;
use std::sync::LazyLock;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use throughline::core::contract::cause::Cause;

use crate::discovery::Discovery;
use crate::fault_kind::FaultKind;
use crate::random::Random;

/// Kinds that often matter only together.
static TOGETHER: LazyLock<Vec<Vec<FaultKind>>> = LazyLock::new(|| {
    let kinds = |(kinds, _)| serde_json::from_str(kinds).unwrap();
    kept(include_str!("together")).map(kinds).collect()
});

/// The lines of a file of this folder, each with what is said of it.
pub(crate) fn kept(file: &str) -> impl Iterator<Item = (&str, &str)> {
    let lines = file.lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| line.split_once(" # ").unwrap())
}

/// A run that a seed decides. Its text, which is JSON, repeats it also where a seed means something else by
/// now.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) instances: usize,
    pub(crate) upstreams: usize,
    pub(crate) edges: usize,
    pub(crate) connectors: usize,
    /// The objects of a page of a list.
    pub(crate) page_size: u32,
    pub(crate) lasts_s: u64,
    pub(crate) fault_every_ms: u64,
    pub(crate) change_every_ms: u64,
    pub(crate) discovery: Discovery,
    pub(crate) faults: Vec<FaultKind>,
    /// Faults that are left out, by their position.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub(crate) without: BTreeSet<u64>,
}

impl Plan {
    pub(crate) fn from_seed(seed: u64) -> Self {
        let mut random = Random::new(seed);
        // A few kinds at a time find more than all at once: each fault has room to show.
        let faults = if random.one_in(4) {
            (0..random.between(1, 8)).map(|_| *random.pick(FaultKind::OF_CLUSTERS)).collect()
        } else {
            let among = random.pick(&TOGETHER);
            (0..random.between(2, 5)).map(|_| *random.pick(among)).collect()
        };
        // In a small world several faults meet at one object.
        let (upstreams, edges, connectors) = *random.pick(&[(1, 1, 2), (1, 1, 2), (3, 2, 8)]);
        let slowest_ms = *random.pick(&[800, 2_000, 6_000]);
        let slowest_change_ms = *random.pick(&[800, 5_000]);
        let mut plan = Self {
            seed,
            instances: 1 + random.below(3),
            upstreams: 1 + random.below(upstreams),
            edges: 1 + random.below(edges),
            connectors: 1 + random.below(connectors),
            page_size: *random.pick(&[1, 2, 500]),
            lasts_s: random.between(20, 90),
            faults,
            fault_every_ms: random.between(200, slowest_ms),
            change_every_ms: random.between(100, slowest_change_ms),
            discovery: Discovery::None,
            without: BTreeSet::new(),
        };
        if random.one_in(3) {
            plan.instances = 3;
        }
        if seed.is_multiple_of(4) {
            let is_milo = seed.is_multiple_of(8);
            plan.discovery = if is_milo { Discovery::Projects } else { Discovery::Secrets };
            // Half of its faults, at least, are of the source of its upstreams.
            plan.faults.truncate(2);
            let more = (0..random.between(2, 4)).map(|_| *random.pick(FaultKind::OF_DISCOVERY));
            plan.faults.extend(more);
        }
        plan
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&serde_json::to_string(self).unwrap())
    }
}

impl FromStr for Plan {
    type Err = serde_json::Error;

    /// Reads a plan, or a seed alone.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.trim().parse().map(Self::from_seed).or_else(|_| serde_json::from_str(text))
    }
}

#[derive(Clone, Default)]
pub(crate) struct Report {
    pub(crate) plan: Plan,
    pub(crate) broken: Vec<String>,
    pub(crate) trace: String,
    pub(crate) writes: u64,
    pub(crate) simulated: Duration,
    pub(crate) injected: BTreeMap<FaultKind, u64>,
    pub(crate) began: BTreeSet<Cause>,
    /// Faults drawn, with those that were left out.
    pub(crate) drawn: u64,
    /// The event log of each life of each instance.
    pub(crate) logs: Vec<Vec<u8>>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.plan)?;
        writeln!(f, "{} s, {} writes", self.simulated.as_secs(), self.writes)?;
        self.broken.iter().try_for_each(|broken| writeln!(f, "  broken: {broken}"))
    }
}
