//! The numbers of a live run, on real API servers: `make bench-live`.
//!
//! Each rate is driven twice over the same fleet: once with throughline between source and sink,
//! once with the *floor*, a plain watch on the source and a plain patch of the sink that knows
//! nothing else. Latency is from the source's watch event to the sink's, both seen by this process.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, reason = "a bench may panic")]

#[path = "../../tests/support/cluster/mod.rs"]
mod cluster;
mod floor;
mod load;
mod proc;
mod starts;

use std::time::Duration;

use cluster::fleet::{Fleet, Mirrored, Spec};
use cluster::throughline::Setup;
use cluster::world::{Topology, World};
use serde_json::json;

use crate::load::{Driven, drive};

/// Changes a second, and for how long.
const RATES: [(u32, u64); 3] = [(20, 20), (50, 20), (100, 120)];

fn main() {
    let quick = std::env::var_os("QUICK").is_some();
    // What to bench, e.g. `-- 1000 starts`; all of it when nothing is said.
    let args: Vec<_> = std::env::args().skip(1).filter(|a| !a.starts_with('-')).collect();
    let asked = |what: &str| args.is_empty() || args.iter().any(|a| a == what);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let sizes: &[usize] = if quick { &[200] } else { &[1_000, 5_000] };
    runtime.block_on(async {
        println!("mirror: the source's watch event to the sink's, in ms; requests per change");
        println!(
            "connectors  rate/s  for   floor median  p99    median  p99     ratio median  p99   \
             behind  CPU    resident  requests"
        );
        for &connectors in sizes {
            if asked(&connectors.to_string()) {
                rates(connectors, quick).await;
            }
        }
        if asked("starts") {
            starts::bench(if quick { 200 } else { 5_000 }).await;
        }
    });
}

async fn rates(connectors: usize, quick: bool) {
    let world = bench_world().await;
    let spec = Spec { gateways: 0, mirrored: Mirrored::Fresh, ..Spec::of(connectors) };
    let fleet = Fleet::seed(&world, spec).await;
    for (rate, seconds) in RATES {
        let seconds = if quick { 5 } else { seconds };
        let floor = floor::Floor::start(&fleet);
        let plain = drive(&fleet, rate, seconds.min(30)).await;
        drop(floor);
        let throughline = Setup::of(&world).set(&quiet_config()).ready().await;
        let pid = throughline.pid();
        let (cpu, requests) = (proc::cpu(pid), requests(&throughline).await);
        let driven = drive(&fleet, rate, seconds).await;
        let cpu = (proc::cpu(pid) - cpu) / driven.took.as_secs_f64();
        let after = self::requests(&throughline).await;
        let resident = proc::resident_mb(pid);
        let verbs: Vec<_> = after
            .iter()
            .map(|(verb, n)| {
                let n = n - requests.get(verb).copied().unwrap_or(0.0);
                format!("{verb} {:.2}", n / driven.changes as f64)
            })
            .collect();
        row(connectors, rate, seconds, &plain, &driven, cpu, resident, &verbs.join(", "));
        throughline.stop().await;
    }
}

/// Two clusters; throughline goes straight to them.
async fn bench_world() -> World {
    let mut world = World::start(Topology::Two).await;
    for cluster in &mut world.clusters {
        cluster.is_direct = true;
    }
    world
}

/// As it ships, but for lines that nobody reads here.
fn quiet_config() -> serde_json::Value {
    json!({ "log": { "level": "warn,throughline::run=info" } })
}

#[expect(clippy::too_many_arguments, reason = "one row of a table")]
fn row(
    connectors: usize,
    rate: u32,
    seconds: u64,
    floor: &Driven,
    ours: &Driven,
    cpu: f64,
    resident: f64,
    requests: &str,
) {
    let ms = |d: Duration| d.as_secs_f64() * 1e3;
    let (fm, fp) = (ms(floor.quantile(0.5)), ms(floor.quantile(0.99)));
    let (om, op) = (ms(ours.quantile(0.5)), ms(ours.quantile(0.99)));
    println!(
        "{connectors:>10}  {rate:>6}  {seconds:>3}s  {fm:>12.1}  {fp:>5.1}  {om:>6.1}  {op:>5.1}  \
         {:>11.2}x  {:>4.2}x  {:>5}  {:>4.1}%  {resident:>5.1} MB  {requests}",
        om / fm,
        op / fp,
        ours.behind,
        cpu * 100.0,
    );
}

/// Requests so far that are no watch's, by verb, as throughline counts them.
async fn requests(
    throughline: &cluster::throughline::Throughline,
) -> std::collections::BTreeMap<String, f64> {
    let mut verbs = std::collections::BTreeMap::new();
    for (name, value) in throughline.metrics().await {
        if let Some(labels) = name.strip_prefix("rest_client_requests_total")
            && let Some((_, rest)) = labels.split_once("method=\"")
            && let Some((verb, _)) = rest.split_once('"')
        {
            *verbs.entry(verb.to_owned()).or_default() += value;
        }
    }
    verbs
}
