//! Flips while others roam, behind a carrier that takes 20 changes a second, as Karmada does with its
//! default limits; and flips in quick succession. Each with the rule and with it off.
//!
//! A flip is a move to another node, which routes like going on- or offline and gives each flip a
//! trigger of its own.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::announced::{Announcements, Latencies};
use crate::cluster::fleet::{Fleet, Mirrored, Spec};
use crate::cluster::follow::Task;
use crate::cluster::rest::{Answer, CONNECTORS, run_concurrently};
use crate::cluster::testbed::{Testbed, Topology};
use crate::cluster::throughline::Throughline;
use crate::starts::mirrored;
use crate::{bench_setup, bench_testbed_of, settle};

/// Connectors that change their addresses, and how often all of them together do in a second.
const ROAMERS: usize = 60;
const ROAMING_PER_SECOND: u32 = 20;
/// The changes that Karmada's default limits allow in a second.
const CARRIER_RATE: u32 = 20;
/// As measured on an idle Karmada.
const CARRIER_DELAY: Duration = Duration::from_millis(50);

/// What one phase measured.
struct Phase {
    flips: Latencies,
    hub_writes: f64,
    seconds: f64,
}

struct World {
    testbed: Testbed,
    fleet: Arc<Fleet>,
    watch: Announcements,
}

/// Connector 0 flips, the others may roam.
async fn world() -> World {
    let testbed = bench_testbed_of(Topology::Three).await;
    let spec = Spec { mirrored: Mirrored::Fresh, ..Spec::of(1 + ROAMERS) };
    let fleet = Fleet::seed(&testbed, spec).await;
    testbed.carrier().delay(CARRIER_DELAY);
    testbed.carrier().set_rate(CARRIER_RATE);
    let watch = Announcements::follow(&fleet).await;
    World { testbed, fleet: fleet.into(), watch }
}

impl World {
    async fn start(&self, settings: &Value) -> Throughline {
        let throughline = bench_setup(&self.testbed).set(settings).ready().await;
        settle(&throughline, &self.fleet, Some(self.testbed.carrier())).await;
        throughline
    }

    async fn phase(&self, settings: &Value, roams: bool, flips: usize) -> Phase {
        let throughline = self.start(settings).await;
        let before = mirrored(&throughline).await;
        let began = Instant::now();
        let mut roaming = None;
        if roams {
            // All at once: with the flips, the changes are a few more than the carrier takes, so without
            // the rule each roamer comes to wait there. That would take minutes.
            run_concurrently(ROAMERS, async |i| roam_once(&self.fleet, 1 + i, 1).await)
                .await
                .unwrap();
            roaming = Some(roam(self.fleet.clone()));
            tokio::time::sleep(Duration::from_secs(10)).await;
        }
        let interval = Duration::from_millis(2_500);
        let flips = self.watch.drive(&self.fleet, interval, |_| 0, |made| made == flips).await;
        drop(roaming);
        let hub_writes = mirrored(&throughline).await - before;
        let seconds = began.elapsed().as_secs_f64();
        settle(&throughline, &self.fleet, Some(self.testbed.carrier())).await;
        throughline.stop().await;
        Phase { flips, hub_writes, seconds }
    }
}

/// Changes a connector's addresses and nothing else, as when an agent roams.
async fn roam_once(fleet: &Fleet, i: usize, step: u32) -> Answer<()> {
    let (namespace, name) = fleet.upstream_key(i);
    let addresses = json!([
        { "address": format!("198.51.100.{}", step % 250 + 1), "port": 20_000 + step % 40_000 },
    ]);
    let change = json!({ "connectionDetails": { "publicKey": { "addresses": addresses } } });
    fleet.up.merge_status(CONNECTORS, (namespace, &name), &change).await.map(drop)
}

/// Has the roamers change their addresses, one after the other, until dropped.
fn roam(fleet: Arc<Fleet>) -> Task {
    Task::from_iter([async move {
        let mut ticks = tokio::time::interval(Duration::from_secs(1) / ROAMING_PER_SECOND);
        for step in 2_u32.. {
            ticks.tick().await;
            roam_once(&fleet, 1 + step as usize % ROAMERS, step).await.unwrap();
        }
    }])
}

pub(crate) async fn bench(quick: bool) {
    let world = world().await;
    let flips = if quick { 6 } else { 40 };
    println!(
        "\nroaming: flips 2.5 s apart from upstream's watch event to the gateway's trigger, in ms, \
         behind a carrier that takes {CARRIER_RATE} changes a second"
    );
    println!(
        "                                          median    p95    max   hub writes a second"
    );
    let row = |name: &str, phase: &Phase| {
        let (flips, writes) = (&phase.flips, phase.hub_writes / phase.seconds);
        println!(
            "{name:<40}  {:>6.0}  {:>5.0}  {:>5.0}  {writes:>5.1}",
            flips.ms(0.5),
            flips.ms(0.95),
            flips.ms(1.0)
        );
    };
    let rest = world.phase(&json!({}), false, flips).await;
    row("at rest", &rest);
    let with = world.phase(&json!({}), true, flips).await;
    row(&format!("{ROAMERS} others roam, {ROAMING_PER_SECOND} changes a second"), &with);
    println!("flips against rest (median): {:.2}x", with.flips.ms(0.5) / rest.flips.ms(0.5));
    succession(&world, quick).await;
}

/// Flips 0.7 s apart, in bouts.
async fn succession(world: &World, quick: bool) {
    const BOUT: usize = 6;
    let bouts = if quick { 2 } else { 8 };
    println!(
        "\nflips 0.7 s apart, {bouts} bouts of {BOUT}, from upstream's watch event to the trigger, in ms"
    );
    let throughline = world.start(&json!({})).await;
    let mut all = Vec::new();
    for _ in 0..bouts {
        let interval = Duration::from_millis(700);
        let flips = world.watch.drive(&world.fleet, interval, |_| 0, |made| made == BOUT).await;
        all.push(flips);
        // The bucket fills up.
        tokio::time::sleep(Duration::from_secs(5)).await;
    }
    throughline.stop().await;
    let flips = Latencies::merge(all);
    println!(
        "median {:>4.0}  p95 {:>4.0}  max {:>4.0}",
        flips.ms(0.5),
        flips.ms(0.95),
        flips.ms(1.0)
    );
}
