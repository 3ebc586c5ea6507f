//! Other writers: the platform's replicator, an extension server, a person.

use serde_json::json;
use throughline::core::contract::cause::Cause;

use crate::cluster::faults::{Fault, Gate, Rule};
use crate::cluster::fleet::{Fleet, Spec, app};
use crate::cluster::objects::{TRIGGER, UPSTREAM_STATUS, annotation, status};
use crate::cluster::rest::{CONNECTORS, GATEWAYS};
use crate::cluster::testbed::{Testbed, Topology};
use crate::cluster::throughline::Setup;
use crate::cluster::{SOON, ensure, eventually, oracle, wait_until_idle};

const FOREIGN: &str = "example.com/foreign";

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn an_equal_value_of_another_writer_stays_and_a_wrong_one_is_corrected() {
    let testbed = Testbed::start(Topology::Three).await;
    let fleet = Fleet::seed(&testbed, Spec::of(3)).await;
    let throughline = Setup::of(&testbed).provokes(&[Cause::Overwritten]).ready().await;
    oracle::converges(&testbed).await;
    wait_until_idle(&testbed).await;
    testbed.reset_counts();
    let (hub, edge) = (testbed.hub().rest(), testbed.edge().rest());
    let (namespace, name) = fleet.hub_key(0);
    let key = (namespace, name.as_str());

    // The same JSON value in other bytes, and other annotations: nothing is written.
    let pretty = serde_json::to_string_pretty(&status(true, 0)).unwrap();
    hub.annotate(CONNECTORS, key, UPSTREAM_STATUS, Some(&pretty)).await.unwrap();
    hub.annotate(CONNECTORS, key, FOREIGN, Some("kept")).await.unwrap();
    edge.annotate(GATEWAYS, (namespace, &app(0, 0)), FOREIGN, Some("kept")).await.unwrap();
    wait_until_idle(&testbed).await;
    assert!(testbed.writes().is_empty(), "{:#?}", testbed.writes());

    // A stale, a removed and an invalid value; a trigger that is removed or invalid.
    for wrong in [Some(status(false, 0).to_string()), None, Some("{".to_owned())] {
        hub.annotate(CONNECTORS, key, UPSTREAM_STATUS, wrong.as_deref()).await.unwrap();
        oracle::converges(&testbed).await;
    }
    for wrong in [None, Some("made-up"), Some("0000000000000000-0-0")] {
        edge.annotate(GATEWAYS, (namespace, &app(0, 0)), TRIGGER, wrong).await.unwrap();
        oracle::converges(&testbed).await;
    }
    wait_until_idle(&testbed).await;
    oracle::converged(&testbed).await.unwrap();
    let hub_connector = hub.read(CONNECTORS, namespace, &name).await.unwrap();
    assert_eq!(annotation(&hub_connector, FOREIGN), Some("kept"));
    let gateway = edge.read(GATEWAYS, namespace, &app(0, 0)).await.unwrap();
    assert_eq!(annotation(&gateway, FOREIGN), Some("kept"));
    throughline.stop().await;
}

/// Against a writer that never stops, the pauses grow. Once it stops, throughline's value stays.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn writes_slow_down_against_a_writer_that_never_stops() {
    let testbed = Testbed::start(Topology::Two).await;
    let fleet = Fleet::seed(&testbed, Spec::of(1)).await;
    let pauses =
        json!({ "mirror": { "contentionBackoffMs": 1_000, "contentionBackoffMaxMs": 4_000 } });
    let throughline =
        Setup::of(&testbed).set(&pauses).provokes(&[Cause::Overwritten]).ready().await;
    oracle::converges(&testbed).await;
    wait_until_idle(&testbed).await;
    testbed.reset_counts();
    let (hub, (namespace, name)) = (testbed.hub().rest(), fleet.hub_key(0));
    let stale = status(false, 0).to_string();
    let mut overwritten = 0;
    let until = std::time::Instant::now() + std::time::Duration::from_secs(10);
    while std::time::Instant::now() < until {
        let hub_connector = hub.read(CONNECTORS, namespace, &name).await.unwrap();
        if annotation(&hub_connector, UPSTREAM_STATUS) != Some(&stale) {
            hub.annotate(CONNECTORS, (namespace, &name), UPSTREAM_STATUS, Some(&stale))
                .await
                .unwrap();
            overwritten += 1;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    let ours = testbed.hub().proxy.count("PATCH", "connectors");
    assert!(
        (3..20).contains(&ours),
        "{ours} of our writes against {overwritten} of theirs in 10 s"
    );
    oracle::converges(&testbed).await;
    throughline.stop().await;
}

/// A PATCH takes 100 ms, and somebody changes another annotation of the hub Connector every 50 ms: the
/// object is never in the version that a write was decided on.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn a_hub_connector_that_never_stands_still_is_mirrored_all_the_same() {
    const FLIPS: usize = 5;
    let testbed = Testbed::start(Topology::Three).await;
    let fleet = Fleet::seed(&testbed, Spec::of(1)).await;
    let throughline = Setup::of(&testbed).ready().await;
    oracle::converges(&testbed).await;
    wait_until_idle(&testbed).await;
    testbed.reset_counts();
    let hub = testbed.hub();
    let slow = Fault::Delay(std::time::Duration::from_millis(100));
    hub.proxy.add(Rule::new(slow).method("PATCH").resource("connectors"));
    let (namespace, name) = fleet.hub_key(0);
    let busy = async {
        for n in 0_u64.. {
            let value = n.to_string();
            let key = (namespace, name.as_str());
            hub.rest().annotate(CONNECTORS, key, FOREIGN, Some(&value)).await.unwrap();
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    };
    let flips = async {
        for _ in 0..FLIPS {
            fleet.flip(0).await.unwrap();
            oracle::converges(&testbed).await;
        }
    };
    tokio::select! {
        () = busy => {}
        () = flips => {}
    }
    let codes: Vec<_> = hub.proxy.writes().iter().map(|write| write.code).collect();
    assert!(codes.contains(&409), "nothing was in the way: {codes:?}");
    assert!(codes.len() <= 8 * FLIPS, "{codes:?}");
    throughline.stop().await;
}

/// A write that was decided on an old state fails by its preconditions, and the decision is repeated.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn a_write_decided_on_an_old_state_is_refused() {
    let testbed = Testbed::start(Topology::Three).await;
    let fleet = Fleet::seed(&testbed, Spec::of(2)).await;
    let throughline = Setup::of(&testbed).ready().await;
    oracle::converges(&testbed).await;
    wait_until_idle(&testbed).await;
    testbed.reset_counts();
    let (hub, edge) = (testbed.hub(), testbed.edge());
    let (namespace, name) = fleet.hub_key(0);

    // While the mirror's write is held, somebody else changes the hub Connector.
    let gate = Gate::new();
    hub.proxy.add(Rule::new(Fault::Hold(gate.clone())).method("PATCH").times(1));
    fleet.flip(0).await.unwrap();
    wait_until_held(&gate).await;
    hub.rest().annotate(CONNECTORS, (namespace, &name), FOREIGN, Some("1")).await.unwrap();
    gate.release();
    oracle::converges(&testbed).await;
    let codes: Vec<_> = hub.proxy.writes().iter().map(|write| write.code).collect();
    assert_eq!(codes, [409, 200]);
    wait_until_idle(&testbed).await;

    // While a touch is held, the gateway is deleted (404), or deleted and created again (422, because
    // the patch's uid would change an immutable field).
    for (recreate, code) in [(false, 404), (true, 422)] {
        testbed.reset_counts();
        let gate = Gate::new();
        edge.proxy.add(Rule::new(Fault::Hold(gate.clone())).method("PATCH").times(1));
        fleet.flip(1).await.unwrap();
        wait_until_held(&gate).await;
        if recreate {
            fleet.recreate_gateway(1, &app(1, 0)).await.unwrap();
        } else {
            edge.rest().delete(GATEWAYS, namespace, &app(1, 0)).await.unwrap();
        }
        gate.release();
        oracle::converges(&testbed).await;
        wait_until_idle(&testbed).await;
        oracle::converged(&testbed).await.unwrap();
        let codes: Vec<_> = edge.proxy.writes().iter().map(|write| write.code).collect();
        let wanted: &[u16] = if recreate { &[code, 200] } else { &[code] };
        assert_eq!(codes, wanted);
        if !recreate {
            let gateway = crate::cluster::objects::gateway(namespace, &app(1, 0));
            edge.rest().create(GATEWAYS, gateway).await.unwrap();
            oracle::converges(&testbed).await;
            wait_until_idle(&testbed).await;
        }
    }
    throughline.stop().await;
}

async fn wait_until_held(gate: &Gate) {
    eventually("a write is held", SOON, async || {
        ensure(gate.waiting() > 0, || "none came".to_owned())
    })
    .await;
}
