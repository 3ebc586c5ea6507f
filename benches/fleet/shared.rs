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

const SHARD_LEADER: &str = "throughline_shard_leader{";

/// The longest that anything may take here.
const PATIENCE: Duration = Duration::from_secs(300);

/// Resident memory and the number of live watches.
#[derive(Clone, Copy)]
struct Held {
    resident_mb: f64,
    /// Without the pages of the program's file, which all processes of one image share.
    own_mb: f64,
    watches: usize,
}

impl Held {
    async fn by(throughline: &Throughline) -> Self {
        let pid = throughline.pid();
        let resident_mb = proc::resident_mb(pid);
        let own_mb = resident_mb - proc::status_mb(pid, "RssFile:");
        // Afterwards: the answer holds every connector, and takes memory.
        let state = throughline.state().await;
        let clusters = state["clusters"].as_array().unwrap();
        let live = |watches: &Value| {
            let states = watches.as_object().into_iter().flat_map(|watches| watches.values());
            states.filter(|state| *state == "live").count()
        };
        let watches = clusters.iter().map(|cluster| live(&cluster["watches"])).sum();
        Self { resident_mb, own_mb, watches }
    }
}

/// A fleet with one instance, and with several.
pub(crate) async fn measure(plan: &Plan, size: FleetSize) {
    let mut one = Run::start(size, Join::Needed).await;
    one.until_followed(plan.projects).await;
    one.rest(plan.rest).await;
    let alone = Held::by(&one.throughline).await;
    one.stop().await;
    let Held { resident_mb, own_mb, watches } = alone;
    row(
        "one instance: resident memory at rest; without the program's pages; watches",
        "",
        &format!("{resident_mb:.1} MB; {own_mb:.1} MB; {watches}"),
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
        let (memory, own) = (held.resident_mb, held.own_mb);
        row(
            &format!("instance {n}: the same, each with its share of one alone"),
            "≤ 0.33×",
            &format!(
                "{memory:.1} MB, {:.2}×; {own:.1} MB, {:.2}×; {}, {:.2}×",
                memory / resident_mb,
                own / own_mb,
                held.watches,
                held.watches as f64 / watches as f64
            ),
        );
    }
    let killed = shared.instances.remove(0);
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

    /// Waits until every instance leads its share, and all projects are followed; the time that took.
    async fn until_even(&mut self, projects: usize) -> Duration {
        let began = Instant::now();
        loop {
            let mut held = Vec::new();
            for throughline in &self.instances {
                let metrics = throughline.metrics().await;
                let leads = metrics.iter().filter(|(name, _)| name.starts_with(SHARD_LEADER));
                held.push(leads.filter(|(_, value)| **value == 1.0).count());
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
