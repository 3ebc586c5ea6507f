//! What a person does while a run goes on, on real API servers: an object is paused by annotation, and
//! what was refused is tried again once its permission is back.

use crate::prelude::*;

const PAUSED: &str = "throughline.datumapis.com/paused";

/// Waits until so many connectors are in these states.
async fn counts(throughline: &Throughline, held: usize, ok: usize) {
    eventually(&format!("{held} held, {ok} ok"), SOON, async || {
        let counts = throughline.state().await["counts"].clone();
        ensure(counts["held"] == held && counts["ok"] == ok, || counts.to_string())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn what_a_person_does() {
    // The pauses are those of a run that nobody tuned: five minutes after a refusal.
    let (testbed, fleet, throughline) =
        in_sync(Topology::Three, Spec::of(10), &json!({}), &[Cause::WriteRefused]).await;
    paused_objects_are_left_alone_and_shown_and_converge_once_resumed(
        &testbed,
        &fleet,
        &throughline,
    )
    .await;
    a_permission_to_write_that_comes_back_is_used_soon_by_all_that_wait_for_it(
        &testbed,
        &fleet,
        &throughline,
    )
    .await;
    oracle::ends_well(&testbed, throughline).await;
}

async fn paused_objects_are_left_alone_and_shown_and_converge_once_resumed(
    testbed: &Testbed,
    fleet: &Fleet,
    throughline: &Throughline,
) {
    let (hub_ns, connector) = fleet.hub_key(0);
    let (edge_ns, gateway) = (fleet.hub_key(1).0, app(1, 0));
    let pause = async |value| {
        fleet.hub.annotate(CONNECTORS, (hub_ns, &connector), PAUSED, value).await.unwrap();
        fleet.edge.annotate(GATEWAYS, (edge_ns, &gateway), PAUSED, value).await.unwrap();
    };
    pause(Some("true")).await;
    counts(throughline, 2, 8).await;
    let said = async || (fleet.status_at_hub(0).await, fleet.trigger(&fleet.edge, 1).await);
    let before = said().await;
    fleet.flip_all(0..10).await.unwrap();
    // The other eight are mirrored and announced; of these two nothing is written.
    wait_until_idle(testbed).await;
    counts(throughline, 2, 8).await;
    assert_eq!(said().await, before);
    for cluster in ["hub", "edge"] {
        assert_eq!(throughline.open(Cause::Paused, cluster).await, Some(1.0), "{cluster}");
    }
    pause(None).await;
    oracle::settles(testbed).await;
}

/// A 403 on writes is given back: without anybody's help it is used well before the five minutes that a
/// refused write waits for itself, and all that wait go. Meanwhile the hub is asked rarely.
async fn a_permission_to_write_that_comes_back_is_used_soon_by_all_that_wait_for_it(
    testbed: &Testbed,
    fleet: &Fleet,
    throughline: &Throughline,
) {
    let hub = testbed.hub();
    hub.without(Some(("networking.datumapis.com", "connectors", "patch"))).await;
    testbed.reset_counts();
    fleet.flip_all(0..10).await.unwrap();
    let refused = || hub.proxy.writes().iter().filter(|write| write.code == 403).count();
    eventually("all are refused", SOON, async || ensure(refused() >= 10, || refused().to_string()))
        .await;
    // The state says when the next attempt is.
    let state = throughline.state().await;
    let hops = |connector: &Value| connector["hops"].as_array().unwrap().clone();
    let hops = state["connectors"].as_array().unwrap().iter().flat_map(hops);
    let waits = hops.filter(|hop| hop["nextAttemptMs"].is_number()).count();
    assert_eq!(waits, 10, "{state}");
    hub.without(None).await;
    // `SOON` is a fifth of the pause of each write.
    oracle::converges(testbed).await;
    assert!(refused() <= 10 + 5, "{} requests were refused", refused());
}
