//! Many seeds, on as many threads as there are cores.

use std::env;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use crate::coverage::Coverage;
use crate::plan::{Plan, Report};
use crate::stage::simulate;

const PROGRESS_EVERY: Duration = Duration::from_secs(15);

/// Which seeds to run: so many from the first one on, or as many as the time allows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seeds {
    pub(crate) first: u64,
    pub(crate) count: Option<u64>,
    pub(crate) lasts: Duration,
}

pub(crate) fn number(name: &str) -> Option<u64> {
    env::var(name).ok()?.parse().ok()
}

impl Seeds {
    /// SIM_FIRST, SIM_SEEDS and SIM_SECONDS.
    pub(crate) fn from_env() -> Self {
        Self {
            first: number("SIM_FIRST").unwrap_or(1),
            count: number("SIM_SEEDS"),
            lasts: Duration::from_secs(number("SIM_SECONDS").unwrap_or(300)),
        }
    }

    fn is_over(&self, seed: u64, elapsed: Duration) -> bool {
        self.count.map_or(elapsed >= self.lasts, |count| seed >= self.first + count)
    }
}

/// Runs a plan. A panic is something that is broken, too.
pub(crate) fn try_simulate(plan: &Plan) -> Report {
    catch_unwind(AssertUnwindSafe(|| simulate(plan))).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        let broken = vec![format!("a panic: {}", text.unwrap_or_default())];
        Report { plan: plan.clone(), broken, ..Report::default() }
    })
}

/// The result of many runs.
#[derive(Debug, Default)]
struct Sum {
    runs: u64,
    simulated: Duration,
    writes: u64,
    faults: u64,
    coverage: Coverage,
}

impl Sum {
    fn add(&mut self, report: &Report) {
        self.runs += 1;
        self.simulated += report.simulated;
        self.writes += report.writes;
        self.faults += report.injected.values().sum::<u64>();
        self.coverage.add(&report.injected);
    }

    fn print(&self, elapsed: Duration) {
        let Self { runs, simulated, writes, faults, coverage } = self;
        let seconds = simulated.as_secs_f64();
        println!(
            "{runs} seeds in {} s: {:.1} simulated hours, {:.0} simulated seconds a second, {faults} \
             faults of {} kinds, {writes} writes",
            elapsed.as_secs(),
            seconds / 3_600.0,
            seconds / elapsed.as_secs_f64(),
            coverage.kinds()
        );
    }
}

/// Runs seeds until one fails, and returns that one: the lowest, however many threads there are.
pub(crate) fn run(seeds: Seeds) -> Option<Report> {
    let began = Instant::now();
    let next = AtomicU64::new(seeds.first);
    // No seed above this is of interest any more.
    let most = AtomicU64::new(u64::MAX);
    let (done, finished) = mpsc::channel();
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let (mut sum, mut failed, mut shown_at) = (Sum::default(), None::<Report>, Instant::now());
    thread::scope(|scope| {
        for _ in 0..threads {
            let (done, next, most) = (done.clone(), &next, &most);
            scope.spawn(move || {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seeds.is_over(seed, began.elapsed()) || seed > most.load(Ordering::Relaxed) {
                        return;
                    }
                    let report = try_simulate(&Plan::from_seed(seed));
                    if !report.broken.is_empty() {
                        most.fetch_min(seed, Ordering::Relaxed);
                    }
                    let _ = done.send(report);
                }
            });
        }
        drop(done);
        for report in finished {
            sum.add(&report);
            if !report.broken.is_empty()
                && failed.as_ref().is_none_or(|failed| report.plan.seed < failed.plan.seed)
            {
                failed = Some(report);
            }
            if shown_at.elapsed() > PROGRESS_EVERY {
                shown_at = Instant::now();
                sum.print(began.elapsed());
            }
        }
    });
    println!("from seed {}:", seeds.first);
    sum.print(began.elapsed());
    println!("{}", sum.coverage);
    failed
}

/// The time that this thread has computed; where the system does not tell, the time since `began`.
fn computed(began: Instant) -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanos = text.split(' ').next().and_then(|nanos| nanos.parse().ok());
    nanos.map_or_else(|| began.elapsed(), Duration::from_nanos)
}

/// Runs seeds on one core until one fails. Returns the time that took.
pub(crate) fn find(seeds: Seeds) -> (Duration, Option<Report>) {
    let (began, before) = (Instant::now(), computed(Instant::now()));
    let took = || computed(began).saturating_sub(before);
    for seed in seeds.first.. {
        if seeds.is_over(seed, took()) {
            break;
        }
        let report = try_simulate(&Plan::from_seed(seed));
        if !report.broken.is_empty() {
            return (took(), Some(report));
        }
    }
    (took(), None)
}
