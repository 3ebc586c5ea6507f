//! Makes a plan that fails smaller, as long as it fails.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use crate::plan::Plan;

/// How much to spend on a smaller plan.
const RUNS_MAX: usize = 200;
const TIME_MAX: Duration = Duration::from_secs(90);

/// The smallest plan found that still fails, and the number of runs that it took. `run` returns how many
/// faults a plan that fails draws, and nothing of one that does not fail.
pub(crate) fn shrink(plan: &Plan, run: impl FnMut(&Plan) -> Option<u64>) -> (Plan, usize) {
    let ends_at = Instant::now() + TIME_MAX;
    let mut shrinking = Shrinking { best: plan.clone(), drawn: 0, left: RUNS_MAX, ends_at, run };
    while shrinking.world() {}
    shrinking.single_faults();
    (shrinking.best, RUNS_MAX - shrinking.left)
}

struct Shrinking<F> {
    best: Plan,
    /// The faults that the best plan draws.
    drawn: u64,
    left: usize,
    ends_at: Instant,
    run: F,
}

impl<F: FnMut(&Plan) -> Option<u64>> Shrinking<F> {
    fn is_over(&self) -> bool {
        self.left == 0 || Instant::now() >= self.ends_at
    }

    /// Takes a plan over if it fails, too.
    fn takes(&mut self, plan: Plan) -> bool {
        if self.is_over() || plan == self.best {
            return false;
        }
        self.left -= 1;
        let Some(drawn) = (self.run)(&plan) else { return false };
        self.best = plan;
        self.drawn = drawn;
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
            let lasts_s = (self.best.lasts_s * times / 4).max(1);
            has_helped |= self.takes(Plan { lasts_s, ..self.best.clone() });
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
        let Some(drawn) = (self.run)(&self.best) else { return };
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
