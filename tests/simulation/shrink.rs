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
    let ends_at = Instant::now() + TIME_MAX;
    let mut best = failed.clone();
    // Takes a change over if the plan still fails.
    let takes = |best: &mut Report, change: &dyn Fn(&mut Plan)| {
        let mut plan = best.plan.clone();
        change(&mut plan);
        if plan != best.plan && Instant::now() < ends_at {
            let report = try_simulate(&plan);
            if !report.broken.is_empty() {
                *best = report;
            }
        }
    };
    // Fewer kinds of faults, and fewer of everything, as long as anything helps.
    let mut before = Plan::default();
    while before != best.plan {
        before = best.plan.clone();
        for n in (0..before.faults.len()).rev() {
            if best.plan.faults.len() > 1 {
                takes(&mut best, &|plan| _ = plan.faults.remove(n));
            }
        }
        SMALLER.iter().for_each(|smaller| takes(&mut best, smaller));
    }
    // Leaves out faults by their position: many at once, then single ones.
    let mut together = best.drawn.div_ceil(2);
    while together > 0 {
        let mut from = 1;
        while from <= best.drawn {
            takes(&mut best, &|plan| plan.without.extend(from..from + together));
            from += together;
        }
        together /= 2;
    }
    // Positions that were never drawn say nothing.
    let Report { plan, drawn, .. } = &mut best;
    plan.without.retain(|position| position <= drawn);
    best
}
