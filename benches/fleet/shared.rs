//! Instances that share a fleet by shards, beside one that has it alone: `make bench-fleet` with
//! `-- shared`.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::cluster::process::{Folder, Signal};
use crate::cluster::throughline::Throughline;
use crate::control::{FleetSize, Latencies, Order, Serving};
use crate::run::{Join, Run, config, start};
use crate::{FLIPS_PER_SECOND, Plan, proc, row};

const INSTANCES: usize = 4;
const SHARDS: usize = 16;

/// The longest that anything may take here.
const PATIENCE: Duration = Duration::from_secs(300);

/// Resident memory and the number of live watches.
#[derive(Clone, Copy)]
struct Held {
    resident_mb: f64,
    watches: usize,
}

impl Held {
    async fn by(throughline: &Throughline) -> Self {
        let state = throughline.state().await;
        let clusters = state["clusters"].as_array().unwrap();
        let live = |watches: &Value| {
            let states = watches.as_object().into_iter().flat_map(|watches| watches.values());
            states.filter(|state| *state == "live").count()
        };
        let watches = clusters.iter().map(|cluster| live(&cluster["watches"])).sum();
        Self { resident_mb: proc::resident_mb(throughline.pid()), watches }
    }
}

/// A fleet with one instance, and with several.
pub(crate) async fn measure(plan: &Plan, size: FleetSize) {
    let mut one = Run::start(size, Join::Needed).await;
    one.until_followed(plan.projects).await;
    one.rest(plan.rest).await;
    let alone = Held::by(&one.throughline).await;
    one.stop().await;
    let Held { resident_mb, watches } = alone;
    row(
        "one instance: resident memory at rest; watches",
        "",
        &format!("{resident_mb:.1} MB; {watches}"),
    );

    let mut shared = Shared::start(size).await;
    let took = shared.until_even(plan.projects).await;
    row("4 instances, 16 shards: start until each follows its share", "", &seconds(took));
    tokio::time::sleep(Duration::from_secs(5)).await;
    let before = shared.serving.load().leases;
    let began = Instant::now();
    tokio::time::sleep(plan.rest).await;
    let leases = shared.serving.load().leases - before;
    let a_second = leases as f64 / began.elapsed().as_secs_f64();
    row(
        "requests about Leases at rest, of all",
        "≤ 12 a second",
        &format!("{a_second:.1} a second"),
    );
    for (n, throughline) in shared.instances.iter().enumerate() {
        let held = Held::by(throughline).await;
        let (memory, watches) = (held.resident_mb, held.watches);
        let ratios = [memory / resident_mb, watches as f64 / alone.watches as f64];
        row(
            &format!("instance {n}: resident memory at rest; watches; of one alone"),
            "≤ 0.33×",
            &format!("{memory:.1} MB; {watches}; {:.2}×, {:.2}×", ratios[0], ratios[1]),
        );
    }
    let killed = shared.instances.remove(0);
    let began = Instant::now();
    killed.signal(Signal::KILL);
    let seconds_flipped = plan.projects.div_ceil(FLIPS_PER_SECOND as usize) as u64;
    let order = Order::Flips { per_second: FLIPS_PER_SECOND, seconds: seconds_flipped };
    let flips: Latencies = shared.serving.order(&order);
    row(
        "one killed, a change in every project from then on: mirrored after: p99, most, never",
        "< 27 s",
        &format!(
            "{:.1} s, {:.1} s, {}",
            flips.quantile_ms(0.99) / 1e3,
            flips.quantile_ms(1.0) / 1e3,
            flips.missing
        ),
    );
    shared.until_even(plan.projects).await;
    row("until the others follow its share and hold as many", "", &seconds(began.elapsed()));
    killed.kill();
    for throughline in shared.instances {
        throughline.stop().await;
    }
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

struct Shared {
    serving: Serving,
    instances: Vec<Throughline>,
    _folder: Folder,
}

impl Shared {
    async fn start(size: FleetSize) -> Self {
        let serving = Serving::start(&size);
        let folder = Folder::new("bench-shared");
        let mut config = config(&serving, &size, Join::Needed, &folder);
        config["leaderElection"] = json!({ "shards": SHARDS, "leaseNamespace": "default" });
        let mut instances = Vec::new();
        for _ in 0..INSTANCES {
            instances.push(start(&config).await);
        }
        Self { serving, instances, _folder: folder }
    }

    /// Waits until every instance holds its share, and all projects are followed; the time that took.
    async fn until_even(&mut self, projects: usize) -> Duration {
        let began = Instant::now();
        loop {
            let mut held = Vec::new();
            for throughline in &self.instances {
                let state = throughline.state().await;
                let followed = |shard: &&Value| shard["followedSinceMs"].is_u64();
                let shards = state["shards"].as_array().into_iter().flatten();
                held.push(shards.filter(followed).count());
            }
            let (most, least) = (held.iter().max().unwrap(), held.iter().min().unwrap());
            let is_even = held.iter().sum::<usize>() == SHARDS && most - least <= 1;
            if is_even && self.serving.load().follows(projects) {
                return began.elapsed();
            }
            assert!(began.elapsed() < PATIENCE, "not even: {held:?}, {:?}", self.serving.load());
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }
}
