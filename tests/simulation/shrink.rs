//! Makes a plan that fails smaller, as long as it fails.

use std::time::{Duration, Instant};

use crate::many::try_simulate;
use crate::plan::{Plan, Report};

/// How much to spend on a smaller plan.
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

/// The smallest run found that still fails.
pub(crate) fn shrink(failed: &Report) -> Report {
    let failed = failed.clone();
    let mut shrinking = Shrinking { best: failed, ends_at: Instant::now() + TIME_MAX };
    while shrinking.shrinks_world() {}
    shrinking.leave_out_faults();
    shrinking.best
}

struct Shrinking {
    best: Report,
    ends_at: Instant,
}

impl Shrinking {
    /// Takes a change over if the plan still fails.
    fn takes(&mut self, change: impl FnOnce(&mut Plan)) -> bool {
        let mut plan = self.best.plan.clone();
        change(&mut plan);
        if plan == self.best.plan || Instant::now() >= self.ends_at {
            return false;
        }
        let report = try_simulate(&plan);
        let fails = !report.broken.is_empty();
        if fails {
            self.best = report;
        }
        fails
    }

    /// Fewer kinds of faults, and fewer of everything. Returns whether anything helped.
    fn shrinks_world(&mut self) -> bool {
        let mut has_helped = false;
        for n in (0..self.best.plan.faults.len()).rev() {
            let is_last = self.best.plan.faults.len() == 1;
            has_helped |= !is_last && self.takes(|plan| _ = plan.faults.remove(n));
        }
        SMALLER.into_iter().for_each(|smaller| has_helped |= self.takes(smaller));
        has_helped
    }

    /// Leaves out faults by their position: many at once, then single ones.
    fn leave_out_faults(&mut self) {
        let mut together = self.best.drawn.div_ceil(2);
        while together > 0 {
            let mut from = 1;
            while from <= self.best.drawn {
                self.takes(|plan| plan.without.extend(from..from + together));
                from += together;
            }
            together /= 2;
        }
        // Positions that were never drawn say nothing.
        let Report { plan, drawn, .. } = &mut self.best;
        plan.without.retain(|position| position <= drawn);
    }
}
