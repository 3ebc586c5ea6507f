//! One tenant's many changes make no other tenant wait. The figures are printed; what is asserted holds on
//! a busy machine, too, and did not where the other tenant waited.

use std::sync::{Arc, Mutex};

use crate::cluster::follow::{Task, WatchUpdate, follow};
use crate::cluster::objects::key;
use crate::cluster::proxy::Write;
use crate::cluster::rest::run_concurrently;
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
    let fleet = Arc::new(fleet);
    run_concurrently(GATEWAYS_OF_ONE - 1, async |n| {
        fleet.add_app(0, &format!("more-{n:04}"), &[0]).await
    })
    .await
    .unwrap();
    wait_until_idle(&testbed).await;

    // Each trigger of the other tenant's Gateway, and when it was seen.
    let namespace = fleet.hub_key(1).0.to_owned();
    let gateway = (namespace.clone(), app(1, 0));
    let touches: Arc<Mutex<Vec<Instant>>> = Arc::default();
    let to = touches.clone();
    let _watch = follow(fleet.edge.clone(), GATEWAYS, move |update| {
        let WatchUpdate::Applied(object) = update else { return };
        if key(&object) == gateway && annotation(&object, TRIGGER).is_some() {
            to.lock().unwrap().push(Instant::now());
        }
    });
    let flipping = fleet.clone();
    let busy = Task::spawn(async move {
        let mut ticks = tokio::time::interval(Duration::from_secs(1));
        loop {
            ticks.tick().await;
            flipping.flip(0).await.unwrap();
        }
    });
    tokio::time::sleep(Duration::from_secs(10)).await;
    let mut times = Vec::new();
    let mut touched_before = Vec::new();
    for _ in 0..5 {
        let at = Instant::now();
        fleet.flip(1).await.unwrap();
        let touch = || touches.lock().unwrap().iter().copied().find(|seen| *seen >= at);
        until("the other tenant is touched", async || touch().is_some()).await;
        let end = touch().unwrap();
        let is_before =
            |write: &&Write| write.target.namespace != namespace && (at..end).contains(&write.at);
        touched_before.push(testbed.edge().proxy.writes().iter().filter(is_before).count());
        times.push(end - at);
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
    drop(busy);

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
