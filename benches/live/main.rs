//! Measures a live run on real API servers: `make bench-live`.
//!
//! Each rate runs twice over the same fleet: with throughline, and with the *floor*, a plain watch
//! upstream that patches the hub and does nothing else. The latency is the time from upstream's watch
//! event to the hub's, both seen by this process. The other parts compare a rule with the same run
//! without it; where there are three tiers, the carrier between hub and edge is modelled.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, reason = "a bench may panic")]

mod announced;
#[path = "../../tests/support/cluster/mod.rs"]
mod cluster;
mod floor;
mod gateways;
mod load;
mod proc;
mod roaming;
mod starts;
mod touches;

use std::time::Duration;

use cluster::carrier::Carrier;
use cluster::fleet::{Fleet, Mirrored, Spec};
use cluster::testbed::{Testbed, Topology};
use cluster::throughline::{Setup, Throughline};
use serde_json::json;
use throughline::core::contract::cause::Cause;

use crate::load::{Driven, drive};

/// Changes a second, and for how long.
const RATES: [(u32, u64); 3] = [(20, 20), (50, 20), (100, 120)];

fn main() {
    let quick = std::env::var_os("QUICK").is_some();
    // What to measure, such as `-- 1000 starts`; everything by default.
    let args: Vec<_> = std::env::args().skip(1).filter(|a| !a.starts_with('-')).collect();
    let is_selected = |what: &str| args.is_empty() || args.iter().any(|a| a == what);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let sizes: &[usize] = if quick { &[200] } else { &[1_000, 5_000] };
    runtime.block_on(async {
        let sizes: Vec<_> = sizes.iter().filter(|size| is_selected(&size.to_string())).collect();
        if !sizes.is_empty() {
            println!("mirror: from upstream's watch event to the hub's, in ms; requests per change");
            println!(
                "connectors  rate/s  for   floor median  p99    median  p99     ratio median  p99   \
                 behind  CPU    resident  requests"
            );
        }
        for &connectors in sizes {
            rates(connectors, quick).await;
        }
        if is_selected("starts") {
            starts::bench(if quick { 200 } else { 5_000 }).await;
        }
        if is_selected("touches") {
            touches::bench(if quick { 200 } else { 1_000 }, quick).await;
        }
        if is_selected("roaming") {
            roaming::bench(quick).await;
        }
        if is_selected("gateways") {
            gateways::bench(if quick { 500 } else { 5_000 }).await;
        }
    });
}

async fn rates(connectors: usize, quick: bool) {
    let testbed = bench_testbed().await;
    let spec = Spec { gateways: 0, mirrored: Mirrored::Fresh, ..Spec::of(connectors) };
    let fleet = Fleet::seed(&testbed, spec).await;
    for (rate, seconds) in RATES {
        let seconds = if quick { 5 } else { seconds };
        // Repeated changes of a connector are limited to all connectors of its upstream in 30 s.
        let repeats = u64::from(rate) * seconds > connectors as u64;
        if repeats && u64::from(rate) * 30 > connectors as u64 {
            continue;
        }
        let floor = floor::Floor::start(&fleet);
        let plain = drive(&fleet, rate, seconds.min(30)).await;
        drop(floor);
        let throughline = bench_setup(&testbed).ready().await;
        let pid = throughline.pid();
        let (cpu, requests) = (proc::cpu_seconds(pid), requests(&throughline).await);
        let driven = drive(&fleet, rate, seconds).await;
        let cpu = (proc::cpu_seconds(pid) - cpu) / driven.took.as_secs_f64();
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

/// Two clusters, which throughline reaches without proxies.
async fn bench_testbed() -> Testbed {
    bench_testbed_of(Topology::Two).await
}

async fn bench_testbed_of(topology: Topology) -> Testbed {
    let mut testbed = Testbed::start(topology).await;
    for cluster in &mut testbed.clusters {
        cluster.is_direct = true;
    }
    testbed
}

/// The defaults, with fewer log lines. With so much to write, some of it is late.
fn bench_setup(testbed: &Testbed) -> Setup {
    Setup::of(testbed)
        .set(&json!({ "log": { "level": "warn,throughline::run=info" } }))
        .provokes(&[Cause::NotMirrored, Cause::NotCarried, Cause::NotAnnounced])
}

/// Waits until the hub says what upstream says, the carrier has nothing left, and throughline writes
/// nothing.
async fn settle(throughline: &Throughline, fleet: &Fleet, carrier: Option<&Carrier>) {
    const STILL: Duration = Duration::from_millis(2_500);
    let mut before = f64::NAN;
    loop {
        let patches = starts::patches(throughline).await;
        let is_carried = carrier.is_none_or(|carrier| carrier.waiting_count() == 0);
        if patches == before
            && is_carried
            && starts::count_right(fleet).await == fleet.spec.connectors
        {
            return;
        }
        before = patches;
        tokio::time::sleep(STILL).await;
    }
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

/// Requests so far except watches, by verb, as throughline counts them.
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
