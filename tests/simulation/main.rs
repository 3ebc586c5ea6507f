//! The whole program under simulation: several instances of the real run, in one thread and in virtual
//! time, on API servers in memory, with faults at every point. A seed decides everything, so a run that
//! fails can be repeated: `SIM_SEED=… make sim`.

#![allow(unreachable_pub, reason = "a test crate has no callers")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test says so by failing")]

mod computer;
mod crash_points;
mod discovery;
mod extension_server;
mod fault_kind;
mod faults;
mod instance;
mod ledger;
mod many;
mod mistakes;
mod network;
mod oracle;
mod oracle_tests;
mod orphans;
mod plan;
mod random;
mod shards;
mod shrink;
mod stage;
mod verdict;
mod world;

use std::collections::BTreeSet;

use plan::{Plan, Report, kept};
use stage::simulate;

#[track_caller]
fn assert_right(report: &Report) {
    let Report { plan, broken, .. } = report;
    assert!(
        broken.is_empty(),
        "{plan}: {} things are broken; SIM_PLAN='{plan}' make sim repeats it\n{}",
        broken.len(),
        broken.join("\n")
    );
}

#[test]
fn without_faults_everything_is_right_in_the_end() {
    let report = simulate(&Plan { faults: Vec::new(), ..Plan::from_seed(1) });
    assert_right(&report);
    assert!(report.writes > 10, "{} writes", report.writes);
}

#[test]
fn one_seed_gives_one_run() {
    for seed in [3, 4] {
        let [one, two] = [(), ()].map(|()| simulate(&Plan::from_seed(seed)).trace);
        for (line, (one, two)) in one.lines().zip(two.lines()).enumerate() {
            assert_eq!(one, two, "seed {seed}, line {line}");
        }
        assert_eq!(one.len(), two.len());
    }
}

#[test]
fn a_few_seeds_with_all_faults_end_right() {
    let mut began = BTreeSet::new();
    for seed in 100..106 {
        let report = simulate(&Plan::from_seed(seed));
        assert_right(&report);
        began.extend(report.began);
    }
    assert!(began.len() >= 6, "the faults opened only {began:?}");
}

/// Plans that found something once.
#[test]
fn kept_seeds_end_right() {
    for (plan, found) in kept(include_str!("seeds")) {
        assert!(!found.is_empty(), "{plan}");
        let plan: Plan = plan.parse().unwrap();
        assert_eq!(plan.to_string().parse::<Plan>().unwrap(), plan);
        assert_right(&simulate(&plan));
    }
}

/// `make sim`: many seeds, or the one that SIM_SEED or SIM_PLAN names.
#[test]
#[ignore = "takes minutes: make sim"]
fn many_seeds_end_right() {
    let text = std::env::var("SIM_PLAN").or_else(|_| std::env::var("SIM_SEED"));
    if let Some(text) = text.ok().filter(|text| !text.is_empty()) {
        let report = many::try_simulate(&text.parse().unwrap());
        println!("{report}");
        many::keep(&report, &format!("sim-{}", report.plan.seed));
        return assert_right(&report);
    }
    if let Some(failed) = many::run() {
        many::show_failed(&failed);
        panic!("seed {} failed", failed.plan.seed);
    }
}

/// What `make mistakes` runs in a tree with a mistake.
#[test]
#[ignore = "for make mistakes"]
fn a_mistake_is_found() {
    let Report { plan, broken, .. } = many::run().expect("NOT FOUND");
    println!("Found by seed {}: {}", plan.seed, broken[0]);
}
