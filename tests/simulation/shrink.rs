//! Makes a plan that fails smaller, as long as it fails.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use crate::plan::Plan;

/// How much to spend on a smaller plan.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    pub(crate) runs: usize,
    pub(crate) time: Duration,
}

/// A run that failed drew so many faults.
pub(crate) struct Failed {
    pub(crate) drawn: u64,
}

/// The smallest plan found that still fails, and the number of runs that it took. `run` tells whether a
/// plan fails.
pub(crate) fn shrink(
    plan: &Plan,
    budget: Budget,
    run: impl FnMut(&Plan) -> Option<Failed>,
) -> (Plan, usize) {
    let ends_at = Instant::now() + budget.time;
    let mut shrinking = Shrinking { best: plan.clone(), drawn: 0, left: budget.runs, ends_at, run };
    while shrinking.world() {}
    shrinking.single_faults();
    (shrinking.best, budget.runs - shrinking.left)
}

struct Shrinking<F> {
    best: Plan,
    /// The faults that the best plan draws.
    drawn: u64,
    left: usize,
    ends_at: Instant,
    run: F,
}

impl<F: FnMut(&Plan) -> Option<Failed>> Shrinking<F> {
    fn is_over(&self) -> bool {
        self.left == 0 || Instant::now() >= self.ends_at
    }

    /// Takes a plan over if it fails, too.
    fn takes(&mut self, plan: Plan) -> bool {
        if self.is_over() || plan == self.best {
            return false;
        }
        self.left -= 1;
        let Some(Failed { drawn }) = (self.run)(&plan) else { return false };
        (self.best, self.drawn) = (plan, drawn);
        true
    }

    /// Fewer kinds of faults, a shorter run, fewer of everything. Returns whether anything helped.
    fn world(&mut self) -> bool {
        let mut has_helped = false;
        for n in (0..self.best.faults.len()).rev() {
            let mut plan = self.best.clone();
            if plan.faults.len() > 1 {
                plan.faults.remove(n);
                has_helped |= self.takes(plan);
            }
        }
        for times in [2, 3] {
            let lasts = Duration::from_secs((self.best.lasts.as_secs() * times / 4).max(1));
            has_helped |= self.takes(Plan { lasts, ..self.best.clone() });
        }
        let counts: [fn(&mut Plan) -> &mut usize; 4] = [
            |plan| &mut plan.connectors,
            |plan| &mut plan.instances,
            |plan| &mut plan.upstreams,
            |plan| &mut plan.edges,
        ];
        for count in counts {
            let now = *count(&mut self.best);
            for fewer in [1, now / 2, now - 1] {
                let mut plan = self.best.clone();
                *count(&mut plan) = fewer;
                if (1..now).contains(&fewer) && self.takes(plan) {
                    has_helped = true;
                    break;
                }
            }
        }
        let change_every_ms = 2 * self.best.change_every_ms;
        if change_every_ms < 20_000 {
            has_helped |= self.takes(Plan { change_every_ms, ..self.best.clone() });
        }
        has_helped |= self.takes(Plan { page_size: 500, ..self.best.clone() });
        has_helped && !self.is_over()
    }

    /// Leaves out faults by their position: many at once, then single ones.
    fn single_faults(&mut self) {
        let best = self.best.clone();
        let Some(Failed { drawn }) = (self.run)(&best) else { return };
        self.drawn = drawn;
        let mut together = drawn.div_ceil(2);
        while together > 0 && !self.is_over() {
            let mut from = 1;
            while from <= self.drawn {
                let without: BTreeSet<_> = (from..from + together).collect();
                let without = &self.best.without | &without;
                self.takes(Plan { without, ..self.best.clone() });
                from += together;
            }
            together /= 2;
        }
        // Positions that were never drawn say nothing.
        self.best.without.retain(|position| *position <= self.drawn);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fault_kind::FaultKind;

    const BUDGET: Budget = Budget { runs: 500, time: Duration::from_secs(60) };

    fn plan() -> Plan {
        let faults = FaultKind::ALL[..8].to_vec();
        Plan { instances: 3, edges: 2, connectors: 8, faults, ..Plan::from_seed(7) }
    }

    #[test]
    fn what_the_failure_does_not_need_is_left_out() {
        let needed = FaultKind::ALL[5];
        let fails = |plan: &Plan| {
            let has_faults = [4, 11].iter().all(|position| !plan.without.contains(position));
            let is_needed = plan.faults.contains(&needed) && plan.connectors >= 3 && has_faults;
            (is_needed && plan.lasts >= Duration::from_secs(10)).then_some(Failed { drawn: 20 })
        };
        let (small, runs) = shrink(&plan(), BUDGET, fails);
        assert_eq!((small.faults, small.connectors), (vec![needed], 3));
        assert_eq!((small.instances, small.upstreams, small.edges), (1, 1, 1));
        assert!((10..20).contains(&small.lasts.as_secs()), "{:?}", small.lasts);
        let without: BTreeSet<_> = (1..=20).filter(|n| ![4, 11].contains(n)).collect();
        assert_eq!(small.without, without);
        assert!(runs < 200, "{runs}");
    }

    #[test]
    fn a_plan_that_needs_all_of_it_stays_and_the_budget_is_kept() {
        let whole = plan();
        let mut runs = 0;
        let (same, counted) = shrink(&whole, BUDGET, |plan| {
            runs += 1;
            (*plan == whole).then_some(Failed { drawn: 3 })
        });
        assert_eq!((same, runs), (whole.clone(), counted + 1));
        let fails = |_: &Plan| Some(Failed { drawn: 1_000 });
        assert_eq!(shrink(&whole, Budget { runs: 5, ..BUDGET }, fails).1, 5);
    }
}
