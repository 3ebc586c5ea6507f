//! Makes a plan that fails smaller, as long as it fails.

use std::time::{Duration, Instant};

use crate::plan::{Plan, Report};

/// How much to spend on a smaller plan.
const RUNS_MAX: usize = 200;
const TIME_MAX: Duration = Duration::from_secs(90);

/// A shorter run, fewer of everything.
const SMALLER: [fn(&mut Plan); 12] = [
    |plan| plan.lasts_s = (plan.lasts_s / 2).max(1),
    |plan| plan.lasts_s = (plan.lasts_s * 3 / 4).max(1),
    |plan| plan.connectors = 1,
    |plan| plan.connectors = (plan.connectors / 2).max(1),
    |plan| plan.connectors = (plan.connectors - 1).max(1),
    |plan| plan.instances = 1,
    |plan| plan.instances = (plan.instances - 1).max(1),
    |plan| plan.upstreams = 1,
    |plan| plan.upstreams = (plan.upstreams - 1).max(1),
    |plan| plan.edges = 1,
    |plan| plan.change_every_ms = (2 * plan.change_every_ms).min(20_000),
    |plan| plan.page_size = 500,
];

/// The smallest plan found that still fails, and the number of runs that it took. `run` returns how many
/// faults a plan that fails draws, and nothing of one that does not fail.
pub(crate) fn shrink(failed: &Report, run: impl FnMut(&Plan) -> Option<u64>) -> (Plan, usize) {
    let (best, ends_at) = (failed.plan.clone(), Instant::now() + TIME_MAX);
    let mut shrinking = Shrinking { best, drawn: failed.drawn, runs: 0, ends_at, run };
    while shrinking.shrinks_world() {}
    shrinking.leave_out_faults();
    (shrinking.best, shrinking.runs)
}

struct Shrinking<F> {
    best: Plan,
    /// The faults that the best plan draws.
    drawn: u64,
    runs: usize,
    ends_at: Instant,
    run: F,
}

impl<F: FnMut(&Plan) -> Option<u64>> Shrinking<F> {
    /// Takes a change over if the plan still fails.
    fn takes(&mut self, change: impl FnOnce(&mut Plan)) -> bool {
        let mut plan = self.best.clone();
        change(&mut plan);
        if plan == self.best || self.runs == RUNS_MAX || Instant::now() >= self.ends_at {
            return false;
        }
        self.runs += 1;
        let Some(drawn) = (self.run)(&plan) else { return false };
        self.best = plan;
        self.drawn = drawn;
        true
    }

    /// Fewer kinds of faults, and fewer of everything. Returns whether anything helped.
    fn shrinks_world(&mut self) -> bool {
        let mut has_helped = false;
        for n in (0..self.best.faults.len()).rev() {
            let is_last = self.best.faults.len() == 1;
            has_helped |= !is_last && self.takes(|plan| _ = plan.faults.remove(n));
        }
        SMALLER.into_iter().for_each(|smaller| has_helped |= self.takes(smaller));
        has_helped
    }

    /// Leaves out faults by their position: many at once, then single ones.
    fn leave_out_faults(&mut self) {
        let mut together = self.drawn.div_ceil(2);
        while together > 0 {
            let mut from = 1;
            while from <= self.drawn {
                self.takes(|plan| plan.without.extend(from..from + together));
                from += together;
            }
            together /= 2;
        }
        // Positions that were never drawn say nothing.
        self.best.without.retain(|position| *position <= self.drawn);
    }
}
