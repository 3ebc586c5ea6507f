//! Tests of the test harness itself, without throughline.

use std::time::Duration;

use crate::cluster::fleet::{Fleet, Mirrored, Spec, app};
use crate::cluster::objects::{TRIGGER, UPSTREAM_STATUS, annotation};
use crate::cluster::rest::{CONNECTORS, GATEWAYS};
use crate::cluster::testbed::{Testbed, Topology};
use crate::cluster::{SOON, ensure, eventually, oracle};

const ANNOTATION: &str = "example.com/value";

/// The test mirrors and touches itself; the oracle finds everything that it left out.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn the_carrier_carries_and_the_oracle_finds_what_is_missing() {
    let testbed = Testbed::start(Topology::Three).await;
    let spec = Spec { connectors: 4, per_namespace: 2, gateways: 2, ..Spec::of(4) };
    let fleet =
        Fleet::seed(&testbed, Spec { mirrored: Mirrored::Fresh, with_routes: true, ..spec }).await;
    let (namespace, name) = fleet.hub_key(3);
    let said = oracle::converged(&testbed).await.unwrap_err();
    assert!(said.contains("trigger of"), "{said}");
    for i in 0..4 {
        touch_by_hand(&testbed, &fleet, i).await;
    }
    oracle::converges(&testbed).await;

    // After a flip upstream, first the mirror is missing, then the touch.
    fleet.flip(3).await.unwrap();
    let said = oracle::converged(&testbed).await.unwrap_err();
    assert!(said.contains(&format!("annotation of {namespace}/{name} at hub")), "{said}");
    mirror_by_hand(&testbed, &fleet, 3).await;
    let edge = testbed.edge().rest();
    eventually("the flip is carried", SOON, async || {
        let copy = edge.read(CONNECTORS, namespace, &name).await.unwrap();
        let said = annotation(&copy, UPSTREAM_STATUS).unwrap_or_default().to_owned();
        ensure(said.contains("ConnectorNotReady"), || said)
    })
    .await;
    let copy = edge.read(CONNECTORS, namespace, &name).await.unwrap();
    assert!(copy.get("status").is_none(), "the status was carried: {copy}");
    let said = oracle::converged(&testbed).await.unwrap_err();
    assert!(said.contains(&format!("trigger of {namespace}/{}", app(3, 0))), "{said}");
    touch_by_hand(&testbed, &fleet, 3).await;
    oracle::converges(&testbed).await;

    // A trigger on a gateway without connectors is found.
    edge.annotate(GATEWAYS, (namespace, "plain"), TRIGGER, Some("0-0-0")).await.unwrap();
    assert!(oracle::converged(&testbed).await.unwrap_err().contains("plain"));
    edge.annotate(GATEWAYS, (namespace, "plain"), TRIGGER, None).await.unwrap();
    oracle::converges(&testbed).await;

    // An annotation removed at the hub is removed at the edge; one that somebody added there stays.
    edge.annotate(CONNECTORS, (namespace, &name), ANNOTATION, Some("edge")).await.unwrap();
    let carrier = testbed.carrier();
    carrier.set_stuck(true);
    let hub = testbed.hub().rest();
    hub.annotate(CONNECTORS, (namespace, &name), UPSTREAM_STATUS, None).await.unwrap();
    tokio::time::sleep(Duration::from_millis(500)).await;
    let copy = edge.read(CONNECTORS, namespace, &name).await.unwrap();
    assert!(annotation(&copy, UPSTREAM_STATUS).is_some(), "a stuck carrier carried");
    carrier.set_stuck(false);
    hub.annotate(CONNECTORS, (namespace, &name), "example.com/nudge", Some("1")).await.unwrap();
    eventually("the annotation is removed at the edge", SOON, async || {
        let copy = edge.read(CONNECTORS, namespace, &name).await.unwrap();
        let said = [UPSTREAM_STATUS, ANNOTATION].map(|key| annotation(&copy, key));
        ensure(said == [None, Some("edge")], || format!("{said:?}"))
    })
    .await;
    fleet.delete_upstream(3).await.unwrap();
    fleet.delete_at_hub(3).await.unwrap();
    eventually("deleted at the edge", SOON, async || {
        let gone = edge.read(CONNECTORS, namespace, &name).await;
        ensure(gone.is_err_and(|refused| refused.code == 404), || "still there".into())
    })
    .await;
}

async fn mirror_by_hand(testbed: &Testbed, fleet: &Fleet, i: usize) {
    let (namespace, name) = fleet.upstream_key(i);
    let source = testbed.upstream().rest().read(CONNECTORS, namespace, &name).await.unwrap();
    let (hub_namespace, said) = (fleet.hub_key(i).0, source["status"].to_string());
    let hub = testbed.hub().rest();
    hub.annotate(CONNECTORS, (hub_namespace, &name), UPSTREAM_STATUS, Some(&said)).await.unwrap();
}

async fn touch_by_hand(testbed: &Testbed, fleet: &Fleet, i: usize) {
    use throughline::core::status::{liveness, trigger};
    let ((namespace, name), edge) = (fleet.hub_key(i), testbed.edge().rest());
    let copy = edge.read(CONNECTORS, namespace, &name).await.unwrap();
    let now = liveness::read(annotation(&copy, UPSTREAM_STATUS), None);
    let digest = trigger::digest([trigger::connector_part(&name, now.online, &now.node_id)]);
    for g in 0..fleet.spec.gateways {
        let value = trigger::Trigger { digest, n: 1, c: 0 }.to_string();
        edge.annotate(GATEWAYS, (namespace, &app(i, g)), TRIGGER, Some(&value)).await.unwrap();
    }
}
