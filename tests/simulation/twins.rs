//! The event log of every life of every instance, through today's core and the new one.
//! `SIM_SEEDS=2000` (and `SIM_FIRST`) runs as many seeds, with the ignored test; `SIM_PLAN` repeats one.

use throughline::event_log::LogReader;

use crate::many::{Seeds, number, run_with, try_simulate};
use crate::plan::{Plan, Report};
use crate::two_cores::{Scope, compare, new_core};

/// Runs a plan. What differs is broken.
fn compared(plan: &Plan) -> Report {
    let mut report = try_simulate(plan);
    for (life, log) in report.logs.iter().enumerate().filter(|(_, log)| !log.is_empty()) {
        let name = format!("sim-{}-{life}", plan.seed);
        let scope = Scope::from_env().unwrap_or_else(Scope::actions);
        let mut reader = LogReader::new(&name, log.as_slice()).unwrap();
        if let Err(differs) = compare(&name, &mut reader, |_| {}, (new_core, scope)) {
            report.broken.push(differs.text);
        }
    }
    report
}

fn assert_same(seeds: Seeds) {
    let failed = match std::env::var("SIM_PLAN") {
        Ok(plan) if !plan.is_empty() => Some(compared(&plan.parse().unwrap())),
        _ => run_with(seeds, compared),
    };
    if let Some(failed) = failed.filter(|report| !report.broken.is_empty()) {
        panic!("{failed}");
    }
}

#[test]
fn two_cores_decide_the_same_in_a_few_simulations() {
    assert_same(Seeds { first: 7_000, count: Some(4), ..Seeds::from_env() });
}

#[test]
#[ignore = "takes minutes: by hand, with SIM_SEEDS=2000"]
fn two_cores_decide_the_same_in_many_simulations() {
    assert_same(Seeds { count: Some(number("SIM_SEEDS").unwrap_or(2_000)), ..Seeds::from_env() });
}
