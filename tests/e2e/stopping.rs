//! Stopping: in the middle of a thousand writes, and at once when asked twice.

use std::time::Duration;

use crate::cluster::faults::{Fault, Gate, Rule};
use crate::cluster::fleet::{Fleet, Mirrored, Spec};
use crate::cluster::process::Signal;
use crate::cluster::throughline::Setup;
use crate::cluster::world::{Topology, World};
use crate::cluster::{SOON, ensure, eventually, oracle, quiet};

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn sigterm_in_the_middle_of_a_thousand_writes() {
    let world = World::start(Topology::Two).await;
    let spec = Spec { per_namespace: 100, mirrored: Mirrored::Stale(1_000), ..Spec::of(1_000) };
    let _fleet = Fleet::seed(&world, spec).await;
    // Slow enough to be met in the middle.
    let hub = &world.hub().proxy;
    hub.add(Rule::new(Fault::Delay(Duration::from_millis(30))).method("PATCH"));
    let mut throughline = Setup::of(&world).start().await;
    let mirrors = || {
        let writes = hub.writes();
        let mirrors = writes.iter().filter(|w| w.target.resource == "connectors" && w.code == 200);
        mirrors.count()
    };
    eventually("the first two hundred are written", SOON, async || {
        ensure(mirrors() >= 200, || format!("{} of 200", mirrors()))
    })
    .await;
    throughline.signal(Signal::TERM);
    let status = throughline.wait_exit().await;
    assert!(status.success(), "{status}");
    throughline.judge();
    // What was under way is finished, or was given up by then; nothing comes after the end.
    let at_the_end = mirrors();
    assert!((200..1_000).contains(&at_the_end), "{at_the_end}");
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(mirrors(), at_the_end);

    // The next one does the rest, and only the rest.
    hub.clear();
    let throughline = Setup::of(&world).ready().await;
    oracle::converges(&world).await;
    quiet(&world).await;
    assert_eq!(mirrors(), 1_000);
    oracle::no_needless_write(&world).unwrap();
    throughline.stop().await;
}

/// The first signal waits for writes under way; the second doesn't.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn a_second_signal_ends_at_once() {
    let world = World::start(Topology::Two).await;
    let _fleet = Fleet::seed(&world, Spec::of(3)).await;
    let gate = Gate::new();
    world.hub().proxy.add(Rule::new(Fault::Hold(gate.clone())).method("PATCH"));
    let patient = serde_json::json!({ "executor": { "timeoutMs": 50_000 }, "shutdown": { "graceMs": 50_000 } });
    let mut throughline = Setup::of(&world).set(&patient).start().await;
    eventually("a write is under way", SOON, async || {
        ensure(gate.waiting() > 0, || "none".to_owned())
    })
    .await;
    throughline.signal(Signal::TERM);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(throughline.runs(), "it did not wait for its writes");
    let asked = std::time::Instant::now();
    throughline.signal(Signal::INT);
    throughline.wait_exit().await;
    let took = asked.elapsed();
    assert!(took < Duration::from_secs(10), "asked twice, it took {took:?}");
    throughline.judge();
}
