//! Stopping: in the middle of a thousand writes, and at once after a second signal.

use crate::prelude::*;

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn sigterm_in_the_middle_of_a_thousand_writes() {
    let spec = Spec { per_namespace: 100, mirrored: Mirrored::Stale(1_000), ..Spec::of(1_000) };
    let (testbed, fleet) = seeded(Topology::Two, spec).await;
    // Slow enough that the signal comes in the middle.
    let hub = &testbed.hub().proxy;
    hub.add(Rule::new(Fault::Delay(Duration::from_millis(30))).method("PATCH"));
    let setup = || Setup::of(&testbed).provokes(&[Cause::NotMirrored, Cause::NotAnnounced]);
    let mut throughline = setup().start().await;
    let mirrors = || done(&hub.writes(), "connectors").len();
    eventually("the first two hundred are written", SOON, async || {
        ensure(mirrors() >= 200, || format!("{} of 200", mirrors()))
    })
    .await;
    throughline.signal(Signal::TERM);
    let status = throughline.wait_exit().await;
    assert!(status.success(), "{status}");
    throughline.check_logs();
    // Writes in flight are finished or abandoned, and nothing is written after the end.
    let at_the_end = mirrors();
    assert!((200..1_000).contains(&at_the_end), "{at_the_end}");
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(mirrors(), at_the_end);

    // The next run writes the rest, and only the rest.
    hub.clear();
    let patient = json!({ "executor": { "timeoutMs": 50_000 }, "shutdownGraceMs": 50_000 });
    let mut throughline = setup().set(&patient).ready().await;
    oracle::converges(&testbed).await;
    wait_until_idle(&testbed).await;
    assert_eq!(mirrors(), 1_000);
    oracle::no_needless_write(&testbed).unwrap();

    // The first signal waits for a write in flight; the second does not.
    let gate = Gate::new();
    hub.add(Rule::new(Fault::Hold(gate.clone())).method("PATCH"));
    fleet.flip(0).await.unwrap();
    gate.holds_one().await;
    throughline.signal(Signal::TERM);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(throughline.runs(), "it did not wait for its writes");
    let asked = Instant::now();
    throughline.signal(Signal::INT);
    throughline.wait_exit().await;
    let took = asked.elapsed();
    assert!(took < Duration::from_secs(10), "it took {took:?} after the second signal");
    throughline.check_logs();
}
