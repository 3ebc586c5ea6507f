//! One tenant's many changes make no other tenant wait. The figures are printed; what is asserted holds on
//! a busy machine, too, and did not where the other tenant waited.

use crate::prelude::*;

/// One tenant has 1,000 Gateways behind one connector, which flips each second: five times what an edge
/// takes. Where the oldest touch went first, another tenant's waited for 19 s.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn another_tenants_touch_does_not_wait_for_a_thousand_gateways() {
    const GATEWAYS_OF_ONE: usize = 1_000;
    let spec = Spec { per_namespace: 1, mirrored: Mirrored::Fresh, ..Spec::of(2) };
    let (testbed, fleet, throughline) =
        in_sync(Topology::Two, spec, &json!({}), &[Cause::NotAnnounced]).await;
    run_concurrently(GATEWAYS_OF_ONE - 1, async |n| {
        fleet.add_app(0, &format!("more-{n:04}"), &[0]).await
    })
    .await
    .unwrap();
    wait_until_idle(&testbed).await;

    let busy = async {
        let mut ticks = tokio::time::interval(Duration::from_secs(1));
        for _ in 0_u64.. {
            ticks.tick().await;
            fleet.flip(0).await.unwrap();
        }
    };
    let (mut touched_before, times) = tokio::select! {
        () = busy => unreachable!(),
        measured = five_touches_of_the_other_tenant(&testbed, &fleet) => measured,
    };
    println!(
        "touches of another tenant, while 1,000 Gateways flip each second: {times:?}; \
         touches before it: {touched_before:?}"
    );
    // Where the oldest goes first, 19 s of them: 3,800.
    touched_before.sort_unstable();
    assert!(touched_before[2] < GATEWAYS_OF_ONE, "{touched_before:?}");
    oracle::converges(&testbed).await;
    throughline.stop().await;
}

/// How many other touches went before each of them, and how long it took.
async fn five_touches_of_the_other_tenant(
    testbed: &Testbed,
    fleet: &Fleet,
) -> (Vec<usize>, Vec<Duration>) {
    let edge = &testbed.edge().proxy;
    let (namespace, _) = fleet.hub_key(1);
    let touches = || {
        let mut writes = edge.writes();
        writes.retain(|write| write.target.resource == "gateways" && write.code == 200);
        writes
    };
    let is_theirs = |write: &Exchange| write.target.namespace == namespace;
    tokio::time::sleep(Duration::from_secs(10)).await;
    let (mut touched_before, mut times) = (Vec::new(), Vec::new());
    for _ in 0..5 {
        testbed.reset_counts();
        let began = Instant::now();
        fleet.flip(1).await.unwrap();
        until("the other tenant is touched", async || touches().iter().any(is_theirs)).await;
        let touches = touches();
        let before = touches.iter().take_while(|write| !is_theirs(write)).count();
        touched_before.push(before);
        times.push(touches[before].at - began);
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
    (touched_before, times)
}
