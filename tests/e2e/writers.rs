//! Other writers: the platform's replicator, an extension server, a person. A person also pauses an object by
//! annotation, and grants a permission again.

use crate::prelude::*;

const FOREIGN: &str = "example.com/foreign";
const PAUSED: &str = "throughline.datumapis.com/paused";

fn codes(proxy: &FaultProxy) -> Vec<u16> {
    proxy.writes().iter().map(|write| write.code).collect()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn other_writers() {
    let (testbed, fleet) = seeded(Topology::Three, Spec::of(10)).await;
    an_equal_value_of_another_writer_stays_and_a_wrong_one_is_corrected(&testbed, &fleet).await;
    a_hub_connector_that_never_stands_still_is_mirrored_all_the_same(&testbed, &fleet).await;
    a_write_decided_on_an_old_state_is_refused(&testbed, &fleet).await;
    writes_slow_down_against_a_writer_that_never_stops(&testbed, &fleet).await;
    paused_objects_are_left_alone_and_shown_and_converge_once_resumed(&testbed, &fleet).await;
    a_permission_to_write_that_comes_back_is_used_soon_by_all_that_wait_for_it(&testbed, &fleet)
        .await;
}

async fn an_equal_value_of_another_writer_stays_and_a_wrong_one_is_corrected(
    testbed: &Testbed,
    fleet: &Fleet,
) {
    let throughline = Setup::of(testbed).provokes(&[Cause::Overwritten]).settled(testbed).await;
    let (hub, edge) = (testbed.hub().rest(), testbed.edge().rest());
    let connector = (hub, fleet, 0);
    let (namespace, name) = fleet.hub_key(0);
    let app = app(0, 0);

    // The same JSON value in other bytes, and other annotations: nothing is written.
    let pretty = serde_json::to_string_pretty(&status(true, 0)).unwrap();
    annotate(connector, UPSTREAM_STATUS, Some(&pretty)).await;
    annotate(connector, FOREIGN, Some("kept")).await;
    edge.annotate(GATEWAYS, (namespace, &app), FOREIGN, Some("kept")).await.unwrap();
    wait_until_idle(testbed).await;
    assert!(testbed.writes().is_empty(), "{:#?}", testbed.writes());

    // A stale, a removed and an invalid value; a trigger that is removed or invalid.
    for wrong in [Some(status(false, 0).to_string()), None, Some("{".to_owned())] {
        annotate(connector, UPSTREAM_STATUS, wrong.as_deref()).await;
        oracle::converges(testbed).await;
    }
    for wrong in [None, Some("made-up"), Some("0000000000000000-0-0")] {
        edge.annotate(GATEWAYS, (namespace, &app), TRIGGER, wrong).await.unwrap();
        oracle::converges(testbed).await;
    }
    stays_converged(testbed).await;
    for (rest, resource, name) in [(hub, CONNECTORS, name), (edge, GATEWAYS, app)] {
        let object = rest.read(resource, namespace, &name).await.unwrap();
        assert_eq!(annotation(&object, FOREIGN), Some("kept"));
    }
    throughline.stop().await;
}

/// Against a writer that never stops, the pauses grow. Once it stops, throughline's value stays.
async fn writes_slow_down_against_a_writer_that_never_stops(testbed: &Testbed, fleet: &Fleet) {
    let pauses =
        json!({ "mirror": { "contentionBackoffMs": 1_000, "contentionBackoffMaxMs": 4_000 } });
    let setup = Setup::of(testbed).set(&pauses).provokes(&[Cause::Overwritten]);
    let throughline = setup.settled(testbed).await;
    let stale = status(false, 0).to_string();
    let mut overwritten = 0;
    let end = Instant::now() + Duration::from_secs(10);
    while Instant::now() < end {
        if fleet.status_at_hub(0).await.as_ref() != Some(&stale) {
            annotate((&fleet.hub, fleet, 0), UPSTREAM_STATUS, Some(&stale)).await;
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
    let busy = async {
        for n in 0_u64.. {
            annotate((&fleet.hub, fleet, 0), FOREIGN, Some(&n.to_string())).await;
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
    let flip_and_hold = async |proxy: &FaultProxy, i| {
        let gate = Gate::new();
        proxy.add(Rule::new(Fault::Hold(gate.clone())).method("PATCH").times(1));
        fleet.flip(i).await.unwrap();
        gate.holds_one().await;
        gate
    };

    // While the mirror's write is held, somebody else changes the hub Connector.
    let gate = flip_and_hold(hub, 0).await;
    annotate((&fleet.hub, fleet, 0), FOREIGN, Some("1")).await;
    gate.release();
    oracle::converges(testbed).await;
    assert_eq!(codes(hub), [409, 200]);
    wait_until_idle(testbed).await;

    // While a touch is held, the gateway is deleted (404), or deleted and created again (422, because
    // the patch's uid would change an immutable field).
    let (namespace, _) = fleet.hub_key(1);
    let create = async || fleet.edge.create(GATEWAYS, gateway(namespace, &app(1, 0))).await;
    for (recreate, expected) in [(false, &[404][..]), (true, &[422, 200])] {
        testbed.reset_counts();
        let gate = flip_and_hold(edge, 1).await;
        fleet.edge.delete(GATEWAYS, namespace, &app(1, 0)).await.unwrap();
        if recreate {
            create().await.unwrap();
        }
        gate.release();
        stays_converged(testbed).await;
        assert_eq!(codes(edge), expected);
        if !recreate {
            create().await.unwrap();
            oracle::settles(testbed).await;
        }
    }
    throughline.stop().await;
}

async fn paused_objects_are_left_alone_and_shown_and_converge_once_resumed(
    testbed: &Testbed,
    fleet: &Fleet,
) {
    let throughline = Setup::of(testbed).settled(testbed).await;
    let (paused, states) = ([json!(2), json!(8)], ["held", "ok"]);
    let counts = async || {
        let state = throughline.state().await;
        states.map(|name| state["counts"][name].clone())
    };
    let (edge_ns, gateway) = (fleet.hub_key(1).0, app(1, 0));
    let pause = async |value| {
        annotate((&fleet.hub, fleet, 0), PAUSED, value).await;
        fleet.edge.annotate(GATEWAYS, (edge_ns, &gateway), PAUSED, value).await.unwrap();
    };
    pause(Some("true")).await;
    becomes("two are held, eight ok", paused.clone(), counts).await;
    let said = async || (fleet.status_at_hub(0).await, fleet.trigger(&fleet.edge, 1).await);
    let before = said().await;
    fleet.flip_all(0..10).await.unwrap();
    // The other eight are mirrored and announced; of these two nothing is written.
    wait_until_idle(testbed).await;
    becomes("two are held, eight ok", paused, counts).await;
    assert_eq!(said().await, before);
    for cluster in ["hub", "edge"] {
        assert_eq!(throughline.open(Cause::Paused, cluster).await, Some(1.0), "{cluster}");
    }
    pause(None).await;
    oracle::ends_well(testbed, throughline).await;
}

/// A 403 on writes is given back: without anybody's help it is used well before the five minutes that a
/// refused write waits for itself, and all that wait go. Meanwhile the hub is asked rarely.
async fn a_permission_to_write_that_comes_back_is_used_soon_by_all_that_wait_for_it(
    testbed: &Testbed,
    fleet: &Fleet,
) {
    // The pauses are those of a run that nobody tuned: five minutes after a refusal.
    let throughline = Setup::of(testbed).provokes(&[Cause::WriteRefused]).settled(testbed).await;
    let hub = testbed.hub();
    hub.without(Some(("networking.datumapis.com", "connectors", "patch"))).await;
    testbed.reset_counts();
    fleet.flip_all(0..10).await.unwrap();
    let refused = || hub.proxy.writes().iter().filter(|write| write.code == 403).count();
    eventually("all are refused", SOON, async || ensure(refused() >= 10, || refused().to_string()))
        .await;
    // The state says when the next attempt is.
    let state = throughline.state().await;
    let hops = list(&state["connectors"]).flat_map(|connector| list(&connector["hops"]));
    let waits = hops.filter(|hop| hop["nextAttemptMs"].is_number()).count();
    assert_eq!(waits, 10, "{state}");
    hub.without(None).await;
    // `SOON` is a fifth of the pause of each write.
    oracle::converges(testbed).await;
    assert!(refused() <= 10 + 5, "{} requests were refused", refused());
    oracle::ends_well(testbed, throughline).await;
}
