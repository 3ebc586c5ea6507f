//! Other writers: the platform's replicator, an extension server, a person.

use crate::cluster::objects::{gateway, status};
use crate::cluster::proxy::FaultProxy;
use crate::prelude::*;

const FOREIGN: &str = "example.com/foreign";

fn codes(proxy: &FaultProxy) -> Vec<u16> {
    proxy.writes().iter().map(|write| write.code).collect()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn other_writers() {
    let testbed = Testbed::start(Topology::Three).await;
    let fleet = Fleet::seed(&testbed, Spec::of(3)).await;
    an_equal_value_of_another_writer_stays_and_a_wrong_one_is_corrected(&testbed, &fleet).await;
    a_hub_connector_that_never_stands_still_is_mirrored_all_the_same(&testbed, &fleet).await;
    a_write_decided_on_an_old_state_is_refused(&testbed, &fleet).await;
    writes_slow_down_against_a_writer_that_never_stops(&testbed, &fleet).await;
}

async fn an_equal_value_of_another_writer_stays_and_a_wrong_one_is_corrected(
    testbed: &Testbed,
    fleet: &Fleet,
) {
    let throughline = Setup::of(testbed).provokes(&[Cause::Overwritten]).settled(testbed).await;
    let (hub, edge) = (testbed.hub().rest(), testbed.edge().rest());
    let (namespace, name) = fleet.hub_key(0);
    let (key, app) = ((namespace, name.as_str()), app(0, 0));

    // The same JSON value in other bytes, and other annotations: nothing is written.
    let pretty = serde_json::to_string_pretty(&status(true, 0)).unwrap();
    hub.annotate(CONNECTORS, key, UPSTREAM_STATUS, Some(&pretty)).await.unwrap();
    hub.annotate(CONNECTORS, key, FOREIGN, Some("kept")).await.unwrap();
    edge.annotate(GATEWAYS, (namespace, &app), FOREIGN, Some("kept")).await.unwrap();
    wait_until_idle(testbed).await;
    assert!(testbed.writes().is_empty(), "{:#?}", testbed.writes());

    // A stale, a removed and an invalid value; a trigger that is removed or invalid.
    for wrong in [Some(status(false, 0).to_string()), None, Some("{".to_owned())] {
        hub.annotate(CONNECTORS, key, UPSTREAM_STATUS, wrong.as_deref()).await.unwrap();
        oracle::converges(testbed).await;
    }
    for wrong in [None, Some("made-up"), Some("0000000000000000-0-0")] {
        edge.annotate(GATEWAYS, (namespace, &app), TRIGGER, wrong).await.unwrap();
        oracle::converges(testbed).await;
    }
    wait_until_idle(testbed).await;
    oracle::converged(testbed).await.unwrap();
    let hub_connector = hub.read(CONNECTORS, namespace, &name).await.unwrap();
    assert_eq!(annotation(&hub_connector, FOREIGN), Some("kept"));
    let gateway = edge.read(GATEWAYS, namespace, &app).await.unwrap();
    assert_eq!(annotation(&gateway, FOREIGN), Some("kept"));
    throughline.stop().await;
}

/// Against a writer that never stops, the pauses grow. Once it stops, throughline's value stays.
async fn writes_slow_down_against_a_writer_that_never_stops(testbed: &Testbed, fleet: &Fleet) {
    let pauses =
        json!({ "mirror": { "contentionBackoffMs": 1_000, "contentionBackoffMaxMs": 4_000 } });
    let setup = Setup::of(testbed).set(&pauses).provokes(&[Cause::Overwritten]);
    let throughline = setup.settled(testbed).await;
    let (namespace, name) = fleet.hub_key(0);
    let stale = status(false, 0).to_string();
    let mut overwritten = 0;
    let end = Instant::now() + Duration::from_secs(10);
    while Instant::now() < end {
        if fleet.status_at_hub(0).await.as_ref() != Some(&stale) {
            let key = (namespace, &*name);
            fleet.hub.annotate(CONNECTORS, key, UPSTREAM_STATUS, Some(&stale)).await.unwrap();
            overwritten += 1;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let ours = testbed.hub().proxy.count("PATCH", "connectors");
    assert!((3..20).contains(&ours), "{ours} writes against {overwritten} of theirs in 10 s");
    oracle::converges(testbed).await;
    throughline.stop().await;
}

/// A PATCH takes 100 ms, and somebody changes another annotation of the hub Connector every 50 ms: the
/// object is never in the version that a write was decided on.
async fn a_hub_connector_that_never_stands_still_is_mirrored_all_the_same(
    testbed: &Testbed,
    fleet: &Fleet,
) {
    const FLIPS: usize = 5;
    let throughline = Setup::of(testbed).settled(testbed).await;
    let hub = &testbed.hub().proxy;
    let slow = Fault::Delay(Duration::from_millis(100));
    hub.add(Rule::new(slow).method("PATCH").resource("connectors"));
    let (namespace, name) = fleet.hub_key(0);
    let busy = async {
        for n in 0_u64.. {
            let (key, value) = ((namespace, name.as_str()), n.to_string());
            fleet.hub.annotate(CONNECTORS, key, FOREIGN, Some(&value)).await.unwrap();
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let flips = async {
        for _ in 0..FLIPS {
            fleet.flip(0).await.unwrap();
            oracle::converges(testbed).await;
        }
    };
    tokio::select! {
        () = busy => {}
        () = flips => {}
    }
    let codes = codes(hub);
    assert!(codes.contains(&409), "nothing was in the way: {codes:?}");
    assert!(codes.len() <= 8 * FLIPS, "{codes:?}");
    throughline.stop().await;
    hub.clear();
}

/// A write that was decided on an old state fails by its preconditions, and the decision is repeated.
async fn a_write_decided_on_an_old_state_is_refused(testbed: &Testbed, fleet: &Fleet) {
    let throughline = Setup::of(testbed).settled(testbed).await;
    let (hub, edge) = (&testbed.hub().proxy, &testbed.edge().proxy);
    let (namespace, name) = fleet.hub_key(0);
    let flip_and_hold = async |proxy: &FaultProxy, i| {
        let gate = Gate::new();
        proxy.add(Rule::new(Fault::Hold(gate.clone())).method("PATCH").times(1));
        fleet.flip(i).await.unwrap();
        gate.holds_one().await;
        gate
    };

    // While the mirror's write is held, somebody else changes the hub Connector.
    let gate = flip_and_hold(hub, 0).await;
    fleet.hub.annotate(CONNECTORS, (namespace, &name), FOREIGN, Some("1")).await.unwrap();
    gate.release();
    oracle::converges(testbed).await;
    assert_eq!(codes(hub), [409, 200]);
    wait_until_idle(testbed).await;

    // While a touch is held, the gateway is deleted (404), or deleted and created again (422, because
    // the patch's uid would change an immutable field).
    for (recreate, expected) in [(false, &[404][..]), (true, &[422, 200])] {
        testbed.reset_counts();
        let gate = flip_and_hold(edge, 1).await;
        fleet.edge.delete(GATEWAYS, namespace, &app(1, 0)).await.unwrap();
        let create = async || {
            let made = gateway(namespace, &app(1, 0));
            fleet.edge.create(GATEWAYS, made).await.unwrap();
        };
        if recreate {
            create().await;
        }
        gate.release();
        oracle::converges(testbed).await;
        wait_until_idle(testbed).await;
        oracle::converged(testbed).await.unwrap();
        assert_eq!(codes(edge), expected);
        if !recreate {
            create().await;
            oracle::converges(testbed).await;
            wait_until_idle(testbed).await;
        }
    }
    throughline.stop().await;
}
