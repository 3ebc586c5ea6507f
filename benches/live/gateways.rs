//! Thousands of gateways that are due at one edge at once, as at a first start: how they leave, and
//! how long a flip takes meanwhile. With the edge's limit and without it.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::announced::Announcements;
use crate::cluster::fleet::{Fleet, Mirrored, Spec, app};
use crate::cluster::objects::TRIGGER;
use crate::cluster::rest::{GATEWAYS, run_concurrently};
use crate::{bench_setup, bench_testbed, settle};

/// One flip each second: the object's own limit plays no part.
const FLIP_INTERVAL: Duration = Duration::from_secs(1);

pub(crate) async fn bench(gateways: usize) {
    let testbed = bench_testbed().await;
    let spec = Spec { mirrored: Mirrored::Fresh, ..Spec::of(gateways) };
    let fleet = Fleet::seed(&testbed, spec).await;
    println!(
        "\n{gateways} gateways due at one edge; flips one second apart meanwhile and after it, in ms"
    );
    println!(
        "touch.maxPerSecond   all after  most in 1 s   flips: median    max   at rest   ratio"
    );
    for limit in [50, 0] {
        let watch = Announcements::follow(&fleet).await;
        let setup = bench_setup(&testbed);
        let throughline = setup.set(&json!({ "touch": { "maxPerSecond": limit } })).start().await;
        let is_reached = |count: usize| watch.first_trigger_count() >= count;
        while !is_reached(1) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let until = Instant::now() + Duration::from_secs(600);
        let is_enough = |flips: usize| {
            assert!(Instant::now() < until, "{} are touched", watch.first_trigger_count());
            flips > 2 && is_reached(gateways)
        };
        let meanwhile = watch.drive(&fleet, FLIP_INTERVAL, |_| 0, is_enough).await;
        let times = watch.first_triggers();
        settle(&throughline, &fleet, None).await;
        let rest = watch.drive(&fleet, FLIP_INTERVAL, |_| 0, |flips| flips == 5).await;
        throughline.stop().await;
        let took = times[times.len() - 1] - times[0];
        println!(
            "{limit:>18}  {:>8.1} s  {:>11}  {:>13.0}  {:>5.0}  {:>8.0}  {:>5.2}x",
            took.as_secs_f64(),
            most_in_a_second(&times),
            meanwhile.ms(0.5),
            meanwhile.ms(1.0),
            rest.ms(0.5),
            meanwhile.ms(0.5) / rest.ms(0.5),
        );
        drop(watch);
        run_concurrently(gateways, async |i| {
            let (namespace, _) = fleet.hub_key(i);
            fleet.edge.annotate(GATEWAYS, (namespace, &app(i, 0)), TRIGGER, None).await
        })
        .await
        .unwrap();
    }
}

/// The most of these moments within any second; they are sorted.
fn most_in_a_second(times: &[Instant]) -> usize {
    let mut first = 0;
    let mut most = 0;
    for (last, at) in times.iter().enumerate() {
        while *at - times[first] >= Duration::from_secs(1) {
            first += 1;
        }
        most = most.max(last - first + 1);
    }
    most
}
