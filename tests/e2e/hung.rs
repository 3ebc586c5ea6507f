//! An edge whose API server takes watches and hangs on writes: nobody else notices.

use std::time::Duration;

use serde_json::json;
use throughline::core::contract::cause::Cause;

use crate::cluster::faults::{Fault, Rule};
use crate::cluster::fleet::{Fleet, Mirrored, Spec, app};
use crate::cluster::objects::{TRIGGER, UPSTREAM_STATUS, annotation};
use crate::cluster::rest::{CONNECTORS, GATEWAYS, Rest};
use crate::cluster::testbed::{Testbed, Topology};
use crate::cluster::throughline::{Setup, Throughline};
use crate::cluster::{SOON, ensure, eventually, oracle, wait_until_idle};

/// Far above what a flip takes, and far below what one write after the other takes where each times
/// out.
const PROMPT: Duration = Duration::from_secs(15);

async fn trigger(edge: &Rest, fleet: &Fleet, i: usize) -> Option<String> {
    let gateway = edge.read(GATEWAYS, fleet.hub_key(i).0, &app(i, 0)).await.unwrap();
    annotation(&gateway, TRIGGER).map(str::to_owned)
}

/// Takes connector `i` offline, and waits until the hub says so and its Gateway is touched.
async fn flip_is_prompt(testbed: &Testbed, fleet: &Fleet, edge: &Rest, i: usize) {
    let before = trigger(edge, fleet, i).await;
    fleet.flip(i).await.unwrap();
    eventually("the flip is mirrored and touched", PROMPT, async || {
        let (namespace, name) = fleet.hub_key(i);
        let hub_connector = testbed.hub().rest().read(CONNECTORS, namespace, &name).await.unwrap();
        let said = annotation(&hub_connector, UPSTREAM_STATUS).unwrap_or_default();
        ensure(said.contains("ConnectorNotReady"), || format!("at the hub: {said}"))?;
        let now = trigger(edge, fleet, i).await;
        ensure(now != before, || format!("the trigger is still {now:?}"))
    })
    .await;
}

async fn hangs(throughline: &Throughline) -> bool {
    let open = r#"throughline_causes_open{cause="write_failing",cluster="edge"}"#;
    throughline.metrics().await.contains_key(open)
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn an_edge_that_hangs_on_writes_delays_nobody_else() {
    const CONNECTORS_HUNG: usize = 150;
    let mut testbed = Testbed::start(Topology::Three).await;
    let spec = Spec { mirrored: Mirrored::Fresh, ..Spec::of(CONNECTORS_HUNG + 5) };
    let fleet = Fleet::seed(&testbed, spec).await;
    let carrier = testbed.add_edge("edge-2").await;
    let edge_2 = testbed.clusters.last().unwrap();
    fleet.seed_edge(edge_2, &carrier).await;
    let throughline = Setup::of(&testbed)
        .set(&json!({ "retry": { "firstMs": 500, "maxMs": 2_000 } }))
        .provokes(&[Cause::NotAnnounced, Cause::WriteFailing])
        .ready()
        .await;
    oracle::converges(&testbed).await;
    wait_until_idle(&testbed).await;

    let edge = &testbed.edge().proxy;
    let rule = edge.add(Rule::new(Fault::Freeze).method("PATCH").resource("gateways"));
    fleet.flip_all(0..CONNECTORS_HUNG).await.unwrap();
    eventually("writes are waiting for the hung edge", SOON, async || {
        ensure(edge.applied(rule) >= 16, || edge.applied(rule).to_string())
    })
    .await;
    flip_is_prompt(&testbed, &fleet, edge_2.rest(), CONNECTORS_HUNG).await;
    eventually("the edge is known to hang", SOON, async || {
        ensure(hangs(&throughline).await, || "it is not".into())
    })
    .await;
    for i in 1..5 {
        flip_is_prompt(&testbed, &fleet, edge_2.rest(), CONNECTORS_HUNG + i).await;
    }
    assert!(throughline.logged("requests time out: writing one object at a time"));

    // It answers: all that waited is written.
    edge.clear();
    oracle::converges(&testbed).await;
    assert!(!hangs(&throughline).await);
    assert!(throughline.logged("the API server answers writes again"));
    throughline.stop().await;
}
