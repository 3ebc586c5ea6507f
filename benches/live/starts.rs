//! Starts on fleets that are settled, completely stale or slightly stale, and the cost of being idle.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::cluster::fleet::{Fleet, Mirrored, Spec};
use crate::cluster::objects::{UPSTREAM_STATUS, annotation};
use crate::cluster::oracle;
use crate::cluster::rest::{CONNECTORS, GATEWAYS, PROXIES};
use crate::cluster::testbed::Testbed;
use crate::cluster::throughline::Throughline;
use crate::{bench_setup, bench_testbed, proc, requests, settle};

async fn start(testbed: &Testbed) -> Throughline {
    bench_setup(testbed).start().await
}

/// Patches so far.
pub(crate) async fn patches(throughline: &Throughline) -> f64 {
    requests(throughline).await.get("PATCH").copied().unwrap_or(0.0)
}

pub(crate) async fn bench(connectors: usize) {
    let testbed = bench_testbed().await;
    let spec = Spec { mirrored: Mirrored::Stale(connectors), ..Spec::of(connectors) };
    let fleet = Fleet::seed(&testbed, spec).await;

    println!("\nstarts, {connectors} connectors with a proxy and a gateway each");
    let began = Instant::now();
    let throughline = start(&testbed).await;
    let repaired = until(&throughline, &fleet, began, connectors as f64).await;
    println!("{connectors} stale annotations repaired in {:.1} s", repaired.as_secs_f64());
    oracle::converges_within(&testbed, Duration::from_secs(300)).await;
    // Touches are confirmed once.
    settle(&throughline, &fleet, None).await;
    let peak = proc::resident_mb(throughline.pid());
    throughline.stop().await;

    let began = Instant::now();
    for (rest, resource) in [
        (&fleet.up, CONNECTORS),
        (&fleet.hub, CONNECTORS),
        (&fleet.edge, PROXIES),
        (&fleet.edge, GATEWAYS),
    ] {
        rest.items(resource).await.unwrap();
    }
    let listing = began.elapsed();
    let began = Instant::now();
    let throughline = start(&testbed).await;
    throughline.wait_ready().await;
    let ready = began.elapsed();
    let cpu = proc::cpu_seconds(throughline.pid());
    tokio::time::sleep(Duration::from_secs(30)).await;
    let rest = proc::cpu_seconds(throughline.pid()) - cpu;
    let writes = patches(&throughline).await;
    println!(
        "settled: ready after {:.2} s (listing the same kinds in sequence: {:.2} s), {writes} \
         writes in 30 s, {:.2} s CPU in those, {:.1} MB resident ({peak:.1} MB after the repair)",
        ready.as_secs_f64(),
        listing.as_secs_f64(),
        rest,
        proc::resident_mb(throughline.pid()),
    );
    let before = requests(&throughline).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let after = requests(&throughline).await;
    let cpu = proc::cpu_seconds(throughline.pid());
    println!("idle for 60 s: requests {before:?} → {after:?}; {cpu:.2} s CPU since the start");
    throughline.stop().await;

    let few = 100.min(connectors);
    fleet.flip_all(0..few).await.unwrap();
    let began = Instant::now();
    let throughline = start(&testbed).await;
    let repaired = until(&throughline, &fleet, began, few as f64).await;
    let writes = patches(&throughline).await;
    println!(
        "{few} stale among {connectors}: repaired in {:.2} s from the start, {writes} writes",
        repaired.as_secs_f64()
    );
    throughline.stop().await;
}

/// Applied mirrors so far.
pub(crate) async fn mirrored(throughline: &Throughline) -> f64 {
    let is_mirror = |name: &str| {
        name.starts_with("throughline_actions_total{")
            && name.contains("verb=\"mirror\"")
            && name.contains("outcome=\"applied\"")
    };
    throughline.metrics().await.into_iter().filter(|(name, _)| is_mirror(name)).map(|m| m.1).sum()
}

/// Waits until `count` mirrors are applied, and checks the hub then. To list all objects meanwhile would
/// slow down the API servers.
async fn until(throughline: &Throughline, fleet: &Fleet, began: Instant, count: f64) -> Duration {
    loop {
        let (applied, took) = (mirrored(throughline).await, began.elapsed());
        if applied >= count {
            let right = count_right(fleet).await;
            assert_eq!(right, fleet.spec.connectors, "right at the hub after {applied} mirrors");
            return took;
        }
        assert!(took < Duration::from_secs(120), "{applied} mirrors after two minutes");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// The number of hub annotations that equal the upstream status.
pub(crate) async fn count_right(fleet: &Fleet) -> usize {
    let hub = fleet.hub.items(CONNECTORS).await.unwrap();
    let name = |object: &Value| object["metadata"]["name"].as_str().unwrap().to_owned();
    let hub: HashMap<_, _> = hub.iter().map(|object| (name(object), object)).collect();
    let is_right = |object: &Value| {
        let text = hub.get(&name(object)).and_then(|o| annotation(o, UPSTREAM_STATUS));
        let said = text.and_then(|text| serde_json::from_str::<Value>(text).ok());
        said.as_ref() == Some(&object["status"])
    };
    fleet.up.items(CONNECTORS).await.unwrap().iter().filter(|object| is_right(object)).count()
}
