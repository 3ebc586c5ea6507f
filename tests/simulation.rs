//! The whole program under simulation: several instances of the real run, in one thread and in virtual
//! time, on API servers in memory, with faults at every point. A seed decides everything, so a run that
//! fails can be repeated: `SIM_SEED=… make sim`.

#![allow(missing_docs, unreachable_pub, reason = "a test crate has no callers")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test says so by failing")]

#[path = "simulation/computer.rs"]
mod computer;
#[path = "simulation/crash.rs"]
mod crash;
#[path = "simulation/crash_points.rs"]
mod crash_points;
#[path = "simulation/extension_server.rs"]
mod extension_server;
#[path = "simulation/fault_kind.rs"]
mod fault_kind;
#[path = "simulation/faults.rs"]
mod faults;
#[path = "simulation/histories.rs"]
mod histories;
#[path = "simulation/instance.rs"]
mod instance;
#[path = "simulation/ledger.rs"]
mod ledger;
#[path = "simulation/lives.rs"]
mod lives;
#[path = "simulation/network.rs"]
mod network;
#[path = "simulation/oracle.rs"]
mod oracle;
#[path = "simulation/orphans.rs"]
mod orphans;
#[path = "simulation/plan.rs"]
mod plan;
#[path = "simulation/random.rs"]
mod random;
#[path = "simulation/stage.rs"]
mod stage;
#[path = "simulation/state_faults.rs"]
mod state_faults;
#[path = "simulation/verdict.rs"]
mod verdict;
#[path = "simulation/world.rs"]
mod world;

use std::path::Path;
use std::time::{Duration, Instant};

use fault_kind::FaultKind;
use plan::{Plan, Report};
use stage::simulate;

fn seeds(first: u64, count: u64) -> impl Iterator<Item = Report> {
    (first..first + count).map(|seed| simulate(&Plan::from_seed(seed)))
}

fn assert_right(report: &Report) {
    let Report { plan, broken, .. } = report;
    assert!(
        broken.is_empty(),
        "seed {}: {} things are broken; SIM_SEED={} make sim repeats it\n{}",
        plan.seed,
        broken.len(),
        plan.seed,
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
    seeds(100, 6).for_each(|report| assert_right(&report));
}

/// Writes what a run leaves, for a closer look.
fn keep(report: &Report) {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("sim-{}", report.plan.seed));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("requests.log"), &report.trace).unwrap();
    for (n, log) in report.logs.iter().enumerate() {
        std::fs::write(folder.join(format!("instance-{n}.jsonl")), log).unwrap();
    }
    let folder = folder.display();
    println!("in {folder}: every request and fault in requests.log, and each instance's event log");
    println!(
        "a picture: throughline replay --output html {folder}/instance-0.jsonl > picture.html"
    );
}

/// `make sim`: seeds for SIM_SECONDS, from SIM_FIRST on; or SIM_SEED alone.
#[test]
#[ignore = "takes minutes: make sim"]
fn many_seeds_end_right() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    if let Some(seed) = number("SIM_SEED") {
        let report = simulate(&Plan::from_seed(seed));
        println!("{report}");
        keep(&report);
        return assert_right(&report);
    }
    let began = Instant::now();
    let lasts = Duration::from_secs(number("SIM_SECONDS").unwrap_or(300));
    let first = number("SIM_FIRST").unwrap_or(1_000);
    let (mut runs, mut simulated, mut failed) = (0, Duration::ZERO, Vec::new());
    let mut injected = std::collections::BTreeMap::<FaultKind, u64>::new();
    while began.elapsed() < lasts {
        let report = simulate(&Plan::from_seed(first + runs));
        runs += 1;
        simulated += report.simulated;
        for (kind, count) in &report.injected {
            *injected.entry(*kind).or_default() += count;
        }
        if !report.broken.is_empty() {
            println!("{report}");
            failed.push(report.plan.seed);
        }
    }
    let wall = began.elapsed().as_secs_f64();
    let hours = simulated.as_secs_f64() / 3_600.0;
    println!("{runs} seeds from {first}: {hours:.1} simulated hours in {wall:.0} s");
    println!("{:.0} simulated seconds per second", simulated.as_secs_f64() / wall);
    for (kind, count) in &injected {
        println!("  {count:>6} × {kind:?}");
    }
    assert!(failed.is_empty(), "seeds that failed: {failed:?}");
}
