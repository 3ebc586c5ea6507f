//! What a person does while a run goes on, on real API servers: an object is paused by annotation, and
//! what was refused is tried again once its permission is back.

use serde_json::Value;
use throughline::core::contract::cause::Cause;

use crate::cluster::fleet::{Fleet, Spec, app};
use crate::cluster::objects::{TRIGGER, UPSTREAM_STATUS, annotation};
use crate::cluster::rest::{CONNECTORS, GATEWAYS};
use crate::cluster::rights::{folders, without};
use crate::cluster::testbed::{Testbed, Topology};
use crate::cluster::throughline::{Setup, Throughline};
use crate::cluster::{SOON, ensure, eventually, oracle, wait_until_idle};

const PAUSED: &str = "throughline.datumapis.com/paused";

async fn started(provoked: &[Cause]) -> (Testbed, Fleet, Throughline) {
    let testbed = Testbed::start(Topology::Three).await;
    let fleet = Fleet::seed(&testbed, Spec::of(10)).await;
    // The pauses are those of a run that nobody tuned: five minutes after a refusal.
    let setup = Setup::of(&testbed).provokes(provoked);
    let throughline = setup.ready().await;
    oracle::converges(&testbed).await;
    wait_until_idle(&testbed).await;
    testbed.reset_counts();
    (testbed, fleet, throughline)
}

/// How many connectors are in each state.
async fn counts(throughline: &Throughline) -> Value {
    throughline.state().await["counts"].clone()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn paused_objects_are_left_alone_and_shown_and_converge_once_resumed() {
    let (testbed, fleet, throughline) = started(&[]).await;
    let (hub, edge) = (testbed.hub(), testbed.edge());
    let (hub_ns, connector) = fleet.hub_key(0);
    let (edge_ns, gateway) = (fleet.hub_key(1).0, app(1, 0));
    let hub_rest = hub.rest();
    hub_rest.annotate(CONNECTORS, (hub_ns, &connector), PAUSED, Some("true")).await.unwrap();
    edge.rest().annotate(GATEWAYS, (edge_ns, &gateway), PAUSED, Some("true")).await.unwrap();
    eventually("both are shown", SOON, async || {
        let counts = counts(&throughline).await;
        ensure(counts["held"] == 2, || counts.to_string())
    })
    .await;
    let said = async || {
        let connector = hub_rest.read(CONNECTORS, hub_ns, &connector).await.unwrap();
        let gateway = edge.rest().read(GATEWAYS, edge_ns, &gateway).await.unwrap();
        let of = |object: &Value, key| annotation(object, key).map(str::to_owned);
        (of(&connector, UPSTREAM_STATUS), of(&gateway, TRIGGER))
    };
    let before = said().await;
    fleet.flip_all(0..10).await.unwrap();
    // The other eight are mirrored and announced; of these two nothing is written.
    eventually("the others are done", SOON, async || {
        let counts = counts(&throughline).await;
        let done = counts["held"] == 2 && counts["ok"] == 8;
        ensure(done, || counts.to_string())
    })
    .await;
    wait_until_idle(&testbed).await;
    assert_eq!(said().await, before);
    let metrics = throughline.metrics().await;
    for cluster in ["hub", "edge"] {
        let series = format!(r#"throughline_causes_open{{cause="paused",cluster="{cluster}"}}"#);
        assert_eq!(metrics.get(&series), Some(&1.0), "{series}");
    }
    hub_rest.annotate(CONNECTORS, (hub_ns, &connector), PAUSED, None).await.unwrap();
    edge.rest().annotate(GATEWAYS, (edge_ns, &gateway), PAUSED, None).await.unwrap();
    oracle::converges(&testbed).await;
    oracle::ends_well(&testbed, throughline).await;
}

/// A 403 on writes is given back: without anybody's help it is used well before the five minutes that a
/// refused write waits for itself, and all that wait go. Meanwhile the hub is asked rarely.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn a_permission_to_write_that_comes_back_is_used_soon_by_all_that_wait_for_it() {
    let (testbed, fleet, throughline) = started(&[Cause::WriteRefused]).await;
    let hub = testbed.hub();
    let right = Some(("networking.datumapis.com", "connectors", "patch"));
    without(hub.rest(), &folders(hub.roles), right).await;
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
    without(hub.rest(), &folders(hub.roles), None).await;
    // `SOON` is a fifth of the pause of each write.
    oracle::converges(&testbed).await;
    assert!(refused() <= 10 + 5, "{} requests were refused", refused());
    throughline.stop().await;
}
