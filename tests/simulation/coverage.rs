//! What many runs did not try: kinds of faults that few runs had, and pairs of kinds that no run had.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::fault_kind::FaultKind;

const RAREST: usize = 10;

#[derive(Debug, Default)]
pub(crate) struct Coverage {
    /// How many runs had faults of a kind.
    runs: BTreeMap<FaultKind, u64>,
    /// The pairs of kinds that met in a run, each in the order of the kinds.
    met: BTreeSet<(FaultKind, FaultKind)>,
}

impl Coverage {
    /// Adds a run by the faults that it had.
    pub(crate) fn add(&mut self, injected: &BTreeMap<FaultKind, u64>) {
        for (n, kind) in injected.keys().enumerate() {
            *self.runs.entry(*kind).or_default() += 1;
            self.met.extend(injected.keys().skip(n + 1).map(|later| (*kind, *later)));
        }
    }

    pub(crate) fn kinds(&self) -> usize {
        self.runs.len()
    }
}

impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = |kind: &FaultKind| (self.runs.get(kind).copied().unwrap_or_default(), *kind);
        let mut counts: Vec<_> = FaultKind::ALL.iter().map(count).collect();
        counts.sort_unstable();
        writeln!(f, "the rarest kinds of faults, by the number of seeds that had them:")?;
        for (runs, kind) in counts.iter().take(RAREST) {
            writeln!(f, "  {runs:>6} × {kind:?}")?;
        }
        let pairs = counts.len() * (counts.len() - 1) / 2;
        let never = pairs - self.met.len();
        write!(f, "{never} of {pairs} pairs of kinds never met in one seed")
    }
}
