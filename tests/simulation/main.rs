//! The whole program under simulation: several instances of the real run, in one thread and in virtual
//! time, on API servers in memory, with faults at every point. A seed decides everything, so a run that
//! fails can be repeated: `SIM_SEED=… make sim`.

#![allow(unreachable_pub, reason = "a test crate has no callers")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test says so by failing")]

mod causes;
mod computer;
mod coverage;
mod crash;
mod crash_points;
mod discovery;
mod extension_server;
mod fault_kind;
mod faults;
mod histories;
mod instance;
mod keep;
mod ledger;
mod lives;
mod many;
mod mistakes;
mod network;
mod oracle;
mod oracle_tests;
mod orphans;
mod plan;
mod random;
mod rest;
mod shards;
mod shrink;
mod stage;
mod state_faults;
mod verdict;
mod world;
mod world_tests;

use many::Seeds;
use plan::{Plan, Report};
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
        let [one, two] = [(), ()].map(|()| simulate(&Plan::from_seed(seed)));
        let first = one.trace.lines().zip(two.trace.lines()).position(|(one, two)| one != two);
        if let Some(line) = first {
            let at =
                |report: &Report| report.trace.lines().nth(line).unwrap_or_default().to_owned();
            panic!("seed {seed}, line {line}:\n{}\n{}", at(&one), at(&two));
        }
        assert_eq!(one.trace.len(), two.trace.len());
    }
}

#[test]
fn a_few_seeds_with_all_faults_end_right() {
    (100..106).for_each(|seed| assert_right(&simulate(&Plan::from_seed(seed))));
}

/// Plans that found something once.
#[test]
fn kept_seeds_end_right() {
    for line in include_str!("seeds").lines().filter(|line| !line.starts_with('#')) {
        let (plan, found) = line.split_once(" # ").unwrap();
        assert!(!found.is_empty(), "{plan}");
        assert_right(&simulate(&plan.parse().unwrap()));
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
        keep::keep(&report);
        return assert_right(&report);
    }
    if let Some(failed) = many::run(Seeds::from_env()) {
        keep::show_failed(&failed);
        panic!("seed {} failed", failed.plan.seed);
    }
}

/// What `make mistakes` runs in a tree with a mistake.
#[test]
#[ignore = "for make mistakes"]
fn a_mistake_is_found() {
    let (took, found) = many::find(Seeds::from_env());
    let seconds = took.as_secs_f64();
    let found = found.unwrap_or_else(|| panic!("NOT FOUND within {seconds:.0} s"));
    let Report { plan, broken, .. } = found;
    println!("Found by seed {} after {seconds:.1} s: {}", plan.seed, broken[0]);
}
