//! From a change upstream to the gateway's trigger at 20 and 50 changes a second, against a floor that
//! waits for the edge's caches as long as throughline does, and touches.

use std::collections::HashMap;
use std::time::Duration;

use serde_json::{Value, json};
use throughline::core::status::trigger::Trigger;

use crate::announced::{Announcements, announced_digest};
use crate::cluster::fleet::{Fleet, Mirrored, Spec, app};
use crate::cluster::follow::{Task, WatchUpdate, follow};
use crate::cluster::objects::{TRIGGER, UPSTREAM_STATUS, annotation};
use crate::cluster::rest::{CONNECTORS, GATEWAYS};
use crate::floor::Floor;
use crate::{bench_setup, bench_testbed, proc, settle};

/// `touch.windowMs`, which the floor waits, too.
const WINDOW: Duration = Duration::from_millis(100);

pub(crate) async fn bench(connectors: usize, quick: bool) {
    let testbed = bench_testbed().await;
    let spec = Spec { mirrored: Mirrored::Fresh, ..Spec::of(connectors) };
    let fleet = Fleet::seed(&testbed, spec).await;
    let watch = Announcements::follow(&fleet).await;
    println!(
        "\ntouches: from upstream's watch event to the gateway's trigger, in ms; both wait {} ms for \
         the edge's caches; {connectors} connectors",
        WINDOW.as_millis()
    );
    println!(
        "rate/s   floor median  p99    median  p99     ratio median  p99   without the wait  CPU"
    );
    // Each connector changes once: repeated changes are limited.
    for rate in [20_u32, 50] {
        let moves = if quick { rate as usize * 4 } else { rate as usize * 20 };
        let drive = async || {
            let interval = Duration::from_secs(1) / rate;
            watch.drive(&fleet, interval, |i| i % connectors, |made| made == moves).await
        };
        let floor = TouchFloor::start(&fleet);
        let plain = drive().await;
        drop(floor);
        // The edge's limit would be measured instead of the program.
        let unlimited = json!({ "touch": { "maxPerSecond": 0 } });
        let throughline = bench_setup(&testbed).set(&unlimited).ready().await;
        settle(&throughline, &fleet, None).await;
        let cpu = proc::cpu_seconds(throughline.pid());
        let ours = drive().await;
        let cpu = (proc::cpu_seconds(throughline.pid()) - cpu) * f64::from(rate) / moves as f64;
        throughline.stop().await;
        let (fm, fp, om, op) = (plain.ms(0.5), plain.ms(0.99), ours.ms(0.5), ours.ms(0.99));
        let window = WINDOW.as_secs_f64() * 1e3;
        println!(
            "{rate:>6}  {fm:>13.1}  {fp:>5.1}  {om:>6.1}  {op:>5.1}  {:>11.2}x  {:>4.2}x  {:>7.2}x  \
             {:>4.2}x  {:>4.1}%",
            om / fm,
            op / fp,
            (om - window) / (fm - window),
            (op - window) / (fp - window),
            cpu * 100.0,
        );
    }
}

/// The plainest client that does the whole job: the floor of mirrors, and for each change at the edge
/// one patch of its gateway, a window later.
struct TouchFloor {
    _mirrors: Floor,
    _watch: Task,
}

impl TouchFloor {
    fn start(fleet: &Fleet) -> Self {
        let gateways: HashMap<_, _> = (0..fleet.spec.connectors)
            .map(|i| {
                let (namespace, name) = fleet.hub_key(i);
                (name, (namespace.to_owned(), app(i, 0)))
            })
            .collect();
        let edge = fleet.edge.clone();
        let mut numbers: HashMap<String, u32> = HashMap::new();
        let watch = follow(fleet.edge.clone(), CONNECTORS, move |update| {
            let WatchUpdate::Applied(object) = update else { return };
            let name = object["metadata"]["name"].as_str().unwrap().to_owned();
            let status = annotation(&object, UPSTREAM_STATUS);
            let status: Value = serde_json::from_str(status.unwrap_or("null")).unwrap();
            let node = status["connectionDetails"]["publicKey"]["id"].as_str();
            let (Some(node), Some(gateway)) = (node, gateways.get(&name).cloned()) else { return };
            let digest = announced_digest(&name, node);
            let n = numbers.entry(name).or_default();
            *n += 1;
            let (edge, trigger) = (edge.clone(), Trigger { digest, n: *n, c: 0 });
            tokio::spawn(async move {
                tokio::time::sleep(WINDOW).await;
                let key = (&*gateway.0, &*gateway.1);
                edge.annotate(GATEWAYS, key, TRIGGER, Some(&trigger.to_string())).await.unwrap();
            });
        });
        Self { _mirrors: Floor::start(fleet), _watch: watch }
    }
}
