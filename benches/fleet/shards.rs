//! Shards that share a fleet, beside one instance that has it alone: `make bench-fleet` with `-- shards`.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use throughline::core::contract::cause::Cause;

use crate::cluster::process::{Folder, Signal};
use crate::cluster::throughline::{Setup, Throughline};
use crate::control::{FleetSize, Latencies, Order, Serving};
use crate::run::{Join, Run, config};
use crate::{FLIPS_PER_SECOND, Plan, proc, row};

const SHARDS: usize = 4;

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

/// A fleet with one instance, and with one for each shard.
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

    let mut sharded = Sharded::start(size).await;
    let took = sharded.until_led(plan.projects).await;
    let seconds = format!("{:.1} s", took.as_secs_f64());
    row("4 shards: start until each is led and all projects are followed", "", &seconds);
    tokio::time::sleep(plan.rest).await;
    for (n, throughline) in sharded.instances.iter().enumerate() {
        let held = Held::by(throughline).await;
        let (memory, own) = (held.resident_mb, held.own_mb);
        row(
            &format!("shard {n}: the same, each with its part of one alone"),
            "; ≤ 0.4×; ≤ 0.4×",
            &format!(
                "{memory:.1} MB, {:.2}×; {own:.1} MB, {:.2}×; {}, {:.2}×",
                memory / resident_mb,
                own / own_mb,
                held.watches,
                held.watches as f64 / watches as f64
            ),
        );
    }
    // The standby of shard 0.
    let standby = sharded.join(SHARDS).await;
    standby.wait_ready().await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    let killed = sharded.instances.remove(0);
    killed.signal(Signal::KILL);
    let seconds = plan.projects.div_ceil(FLIPS_PER_SECOND as usize) as u64;
    let order = Order::Flips { per_second: FLIPS_PER_SECOND, seconds };
    let flips: Latencies = sharded.serving.order(&order);
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
    killed.kill();
    sharded.instances.push(standby);
    for throughline in sharded.instances {
        throughline.stop().await;
    }
}

struct Sharded {
    serving: Serving,
    config: Value,
    instances: Vec<Throughline>,
    _folder: Folder,
}

impl Sharded {
    async fn start(size: FleetSize) -> Self {
        let serving = Serving::start(&size);
        let folder = Folder::new("bench-shards");
        let mut config = config(&serving, &size, Join::Needed, &folder);
        config["leaderElection"] = json!({ "shards": SHARDS, "leaseNamespace": "default" });
        let mut started = Self { serving, config, instances: Vec::new(), _folder: folder };
        for pod in 0..SHARDS {
            let instance = started.join(pod).await;
            started.instances.push(instance);
        }
        started
    }

    async fn join(&self, pod: usize) -> Throughline {
        let causes =
            [Cause::ClusterUnavailable, Cause::NoLeader, Cause::NotMirrored, Cause::ShardUnheld];
        let setup = Setup::new(&self.config).pod(&format!("throughline-{pod}"));
        setup.provokes(&causes).start().await
    }

    /// Waits until every shard is led, and all projects are followed; the time that took.
    async fn until_led(&mut self, projects: usize) -> Duration {
        let began = Instant::now();
        loop {
            let mut led = 0;
            for throughline in &self.instances {
                let metrics = throughline.metrics().await;
                let is_leader = |(name, value): (&String, &f64)| {
                    name.starts_with("leader_election_master_status") && *value == 1.0
                };
                led += usize::from(metrics.iter().any(is_leader));
            }
            if led == SHARDS && self.serving.load().follows(projects) {
                return began.elapsed();
            }
            let load = self.serving.load();
            assert!(began.elapsed() < PATIENCE, "{led} of {SHARDS} are led: {load:?}");
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }
}
