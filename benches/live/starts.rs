//! Starts on fleets that are settled, all stale, or a little stale; and rest.

use std::time::{Duration, Instant};

use crate::cluster::fleet::{Fleet, Mirrored, Spec};
use crate::cluster::objects::{UPSTREAM_STATUS, annotation};
use crate::cluster::oracle;
use crate::cluster::rest::{CONNECTORS, GATEWAYS, PROXIES};
use crate::cluster::throughline::{Setup, Throughline};
use crate::cluster::world::World;
use crate::{bench_world, proc, quiet_config, requests};

async fn start(world: &World) -> Throughline {
    Setup::of(world).set(&quiet_config()).start().await
}

/// Patches so far.
async fn patches(throughline: &Throughline) -> f64 {
    requests(throughline).await.get("PATCH").copied().unwrap_or(0.0)
}

pub(crate) async fn bench(connectors: usize) {
    let world = bench_world().await;
    let spec = Spec { mirrored: Mirrored::Stale(connectors), ..Spec::of(connectors) };
    let fleet = Fleet::seed(&world, spec).await;

    println!("\nstarts, {connectors} connectors with a proxy and a gateway each");
    let began = Instant::now();
    let throughline = start(&world).await;
    let repaired = until(&world, &fleet, began, connectors).await;
    println!("{connectors} stale annotations repaired in {:.1} s", repaired.as_secs_f64());
    oracle::converges_within(&world, Duration::from_secs(300)).await;
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
    let throughline = start(&world).await;
    throughline.wait_ready().await;
    let ready = began.elapsed();
    let cpu = proc::cpu(throughline.pid());
    tokio::time::sleep(Duration::from_secs(30)).await;
    let rest = proc::cpu(throughline.pid()) - cpu;
    let writes = patches(&throughline).await;
    println!(
        "settled: ready after {:.2} s (listing the same one after the other: {:.2} s), {writes} \
         writes in 30 s, {:.2} s CPU in those, {:.1} MB resident ({peak:.1} MB after the repair)",
        ready.as_secs_f64(),
        listing.as_secs_f64(),
        rest,
        proc::resident_mb(throughline.pid()),
    );
    let before = requests(&throughline).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let after = requests(&throughline).await;
    let cpu = proc::cpu(throughline.pid());
    println!("at rest for 60 s: requests {before:?} → {after:?}; {cpu:.2} s CPU since the start");
    throughline.stop().await;

    let few = 100.min(connectors);
    fleet.flip_all(0..few).await.unwrap();
    let began = Instant::now();
    let throughline = start(&world).await;
    let repaired = until(&world, &fleet, began, few).await;
    let writes = patches(&throughline).await;
    println!(
        "{few} stale among {connectors}: repaired in {:.2} s from the start, {writes} writes",
        repaired.as_secs_f64()
    );
    throughline.stop().await;
}

/// Waits until the first `count` of the hub's annotations mean what upstream says.
async fn until(world: &World, fleet: &Fleet, began: Instant, count: usize) -> Duration {
    loop {
        let (mut right, took) = (0, began.elapsed());
        let at_hub = fleet.hub.items(CONNECTORS).await.unwrap();
        let at_hub: std::collections::HashMap<_, _> =
            at_hub.iter().map(|o| (o["metadata"]["name"].as_str().unwrap(), o)).collect();
        for object in fleet.up.items(CONNECTORS).await.unwrap() {
            let text = at_hub
                .get(object["metadata"]["name"].as_str().unwrap())
                .and_then(|o| annotation(o, UPSTREAM_STATUS));
            let said = text.and_then(|t| serde_json::from_str::<serde_json::Value>(t).ok());
            right += usize::from(said.as_ref() == Some(&object["status"]));
        }
        if right >= fleet.spec.connectors.max(count) {
            return took;
        }
        assert!(began.elapsed() < Duration::from_secs(120), "{right} right after two minutes");
        tokio::time::sleep(Duration::from_millis(100)).await;
        let _ = world;
    }
}
