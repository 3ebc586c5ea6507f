//! An edge whose API server takes watches and hangs on writes: nobody else notices.

use crate::prelude::*;

/// Takes connector `i` offline, and waits until the hub says so and its Gateway is touched.
async fn flip_is_prompt(fleet: &Fleet, edge: &Rest, i: usize) {
    let before = fleet.trigger(edge, i).await;
    fleet.flip(i).await.unwrap();
    // Far above what a flip takes, and far below what one write after the other takes where each times out.
    let prompt = Duration::from_secs(15);
    eventually("the flip is mirrored and touched", prompt, async || {
        let said = fleet.status_at_hub(i).await.unwrap_or_default();
        ensure(said.contains("ConnectorNotReady"), || format!("at the hub: {said}"))?;
        let now = fleet.trigger(edge, i).await;
        ensure(now != before, || format!("the trigger is still {now:?}"))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn an_edge_that_hangs_on_writes_delays_nobody_else() {
    const CONNECTORS_HUNG: usize = 150;
    let spec = Spec { mirrored: Mirrored::Fresh, ..Spec::of(CONNECTORS_HUNG + 5) };
    let (mut testbed, fleet) = seeded(Topology::Three, spec).await;
    let _carrier = testbed.add_edge("edge-2", &fleet).await;
    let edge_2 = testbed.clusters.last().unwrap();
    let soon = json!({ "retry": { "firstMs": 500, "maxMs": 2_000 } });
    let setup = Setup::of(&testbed).set(&soon);
    let provoked = [Cause::NotAnnounced, Cause::WriteFailing];
    let throughline = setup.provokes(&provoked).settled(&testbed).await;

    let edge = &testbed.edge().proxy;
    let rule = edge.add(Rule::new(Fault::Freeze).method("PATCH").resource("gateways"));
    fleet.flip_all(0..CONNECTORS_HUNG).await.unwrap();
    eventually("writes are waiting for the hung edge", SOON, async || {
        ensure(edge.applied(rule) >= 16, || edge.applied(rule).to_string())
    })
    .await;
    flip_is_prompt(&fleet, edge_2.rest(), CONNECTORS_HUNG).await;
    let hangs = async || throughline.open(Cause::WriteFailing, "edge").await.is_some();
    until("the edge is known to hang", hangs).await;
    for i in 1..5 {
        flip_is_prompt(&fleet, edge_2.rest(), CONNECTORS_HUNG + i).await;
    }
    assert!(throughline.logged("requests time out: writing one object at a time"));

    // It answers: all that waited is written.
    edge.clear();
    oracle::converges(&testbed).await;
    assert!(!hangs().await);
    assert!(throughline.logged("the API server answers writes again"));
    throughline.stop().await;
}
