//! Many seeds, on as many threads as there are cores, and what is kept of a run that fails.

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::fmt;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use strum::VariantArray;

use crate::fault_kind::FaultKind;
use crate::plan::{Plan, Report};
use crate::shrink::shrink;
use crate::stage::simulate;

const PROGRESS_EVERY: Duration = Duration::from_secs(15);
const RAREST: usize = 10;

/// Runs a plan. A panic is something that is broken, too.
pub(crate) fn try_simulate(plan: &Plan) -> Report {
    catch_unwind(AssertUnwindSafe(|| simulate(plan))).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        let broken = vec![format!("a panic: {}", text.unwrap_or_default())];
        Report { plan: plan.clone(), broken, ..Report::default() }
    })
}

#[derive(Default)]
struct Sum {
    runs: u64,
    simulated: Duration,
    writes: u64,
    faults: u64,
    runs_with: BTreeMap<FaultKind, u64>,
    /// The pairs of kinds that met in a run, each in the order of the kinds.
    met: BTreeSet<(FaultKind, FaultKind)>,
}

impl Sum {
    fn add(&mut self, report: &Report) {
        self.runs += 1;
        self.simulated += report.simulated;
        self.writes += report.writes;
        self.faults += report.injected.values().sum::<u64>();
        let kinds = report.injected.keys();
        for (n, kind) in kinds.clone().enumerate() {
            *self.runs_with.entry(*kind).or_default() += 1;
            self.met.extend(kinds.clone().skip(n + 1).map(|later| (*kind, *later)));
        }
    }

    /// What many runs did not try: kinds of faults that few had, and pairs of kinds that none had.
    fn print_rarest(&self) {
        let runs_with = |kind| self.runs_with.get(kind).copied().unwrap_or_default();
        let mut kinds: Vec<_> = FaultKind::VARIANTS.iter().collect();
        kinds.sort_by_key(|kind| runs_with(kind));
        println!("the rarest kinds of faults, by the number of seeds that had them:");
        kinds.iter().take(RAREST).for_each(|kind| println!("  {:>6} × {kind:?}", runs_with(kind)));
        let pairs = kinds.len() * (kinds.len() - 1) / 2;
        println!("{} of {pairs} pairs of kinds never met in one seed", pairs - self.met.len());
    }
}

impl fmt::Display for Sum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { runs, simulated, writes, faults, runs_with, .. } = self;
        let (hours, kinds) = (simulated.as_secs_f64() / 3_600.0, runs_with.len());
        write!(f, "{runs} seeds, {hours:.1} simulated hours, {faults} faults of {kinds} kinds, ")?;
        write!(f, "{writes} writes")
    }
}

struct Progress {
    sum: Sum,
    /// The lowest seed that failed so far.
    failed: Option<Report>,
    shown_at: Instant,
}

fn number(name: &str) -> Option<u64> {
    env::var(name).ok()?.parse().ok()
}

/// Runs seeds from SIM_FIRST on, SIM_SEEDS of them or as many as SIM_SECONDS allow, until one fails.
/// Returns that one: the lowest, however many threads there are.
pub(crate) fn run() -> Option<Report> {
    let first = number("SIM_FIRST").unwrap_or(1);
    let ends = number("SIM_SEEDS").map(|count| first + count);
    let lasts = Duration::from_secs(number("SIM_SECONDS").unwrap_or(300));
    let began = Instant::now();
    let is_over = |seed| ends.map_or(began.elapsed() >= lasts, |ends| seed >= ends);
    let next = AtomicU64::new(first);
    let progress = Progress { sum: Sum::default(), failed: None, shown_at: began };
    let progress = Mutex::new(progress);
    let works = || loop {
        let seed = next.fetch_add(1, Ordering::Relaxed);
        // No seed above one that failed is of interest any more.
        let is_below = |failed: &Report| failed.plan.seed < seed;
        if is_over(seed) || progress.lock().unwrap().failed.as_ref().is_some_and(is_below) {
            return;
        }
        let report = try_simulate(&Plan::from_seed(seed));
        let Progress { sum, failed, shown_at } = &mut *progress.lock().unwrap();
        sum.add(&report);
        if !report.broken.is_empty() && !failed.as_ref().is_some_and(is_below) {
            *failed = Some(report);
        }
        if shown_at.elapsed() > PROGRESS_EVERY {
            *shown_at = Instant::now();
            println!("{sum}");
        }
    };
    let threads = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| (0..threads).for_each(|_| _ = scope.spawn(works)));
    let Progress { sum, failed, .. } = progress.into_inner().unwrap();
    println!("from seed {first}, in {} s: {sum}", began.elapsed().as_secs());
    sum.print_rarest();
    failed
}

/// Writes the requests and faults, and each instance's event log, into a folder for a closer look.
pub(crate) fn keep(report: &Report, name: &str) {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("plan"), format!("{}\n", report.plan)).unwrap();
    fs::write(folder.join("broken"), report.broken.join("\n")).unwrap();
    fs::write(folder.join("requests.log"), &report.trace).unwrap();
    for (n, log) in report.logs.iter().enumerate() {
        fs::write(folder.join(format!("instance-{n}.jsonl")), log).unwrap();
    }
    println!(
        "in {}: requests.log has every request and fault, instance-N.jsonl is the event log of each \
         life of an instance (a picture of it: throughline replay -o html instance-N.jsonl)",
        folder.display()
    );
}

/// Shows a run that failed, and a smaller one that fails, too.
pub(crate) fn show_failed(report: &Report) {
    let seed = report.plan.seed;
    println!("{report}\nSIM_SEED={seed} make sim repeats it; looking for a smaller plan …");
    let small = shrink(report);
    println!("{small}\nSIM_PLAN='{}' make sim repeats it", small.plan);
    keep(&small, &format!("sim-{seed}"));
}
