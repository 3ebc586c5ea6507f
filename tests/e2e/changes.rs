//! Changes of connectors, proxies and gateways: everything converges with the least possible number of writes;
//! only a removal reads first.

use throughline::core::status::trigger::Trigger;

use crate::cluster::objects::{rules, written_annotation};
use crate::prelude::*;

/// Waits until throughline is idle, checks the clusters, and returns (mirrors, touches, reads) since the last
/// call.
async fn settled(testbed: &Testbed) -> (usize, usize, usize) {
    stays_converged(testbed).await;
    oracle::no_needless_write(testbed).unwrap();
    let writes = testbed.writes();
    let [mirrors, touches] = ["connectors", "gateways"].map(|of| done(&writes, of).len());
    let reads = testbed.reads();
    assert_eq!(mirrors + touches, writes.len(), "other writes: {writes:#?}");
    testbed.reset_counts();
    (mirrors, touches, reads)
}

/// Three connectors in a namespace, each with two Gateways and a route.
fn spec() -> Spec {
    Spec { per_namespace: 3, gateways: 2, with_routes: true, ..Spec::of(6) }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn two_clusters() {
    let (testbed, fleet) = seeded(Topology::Two, spec()).await;
    changes_converge(&testbed, &fleet).await;
    a_dry_run_writes_nothing(&testbed, &fleet).await;
    a_touch_is_confirmed_even_after_a_restart(&testbed, &fleet).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn three_tiers() {
    let (testbed, fleet) = seeded(Topology::Three, spec()).await;
    changes_converge(&testbed, &fleet).await;
    a_restart_on_a_settled_fleet_writes_nothing(&testbed, &fleet).await;
    a_stuck_carrier_is_nudged(&testbed, &fleet).await;
}

async fn changes_converge(testbed: &Testbed, fleet: &Fleet) {
    let throughline = Setup::of(testbed).ready().await;
    assert_eq!(settled(testbed).await.0, 6, "at the start");

    fleet.flip(0).await.unwrap();
    assert_eq!(settled(testbed).await, (1, 2, 0), "flipped to offline");
    fleet.flip(0).await.unwrap();
    assert_eq!(settled(testbed).await, (1, 2, 0), "flipped to online");
    fleet.move_node(1).await.unwrap();
    assert_eq!(settled(testbed).await, (1, 2, 0), "moved to another node");
    let (namespace, name) = fleet.upstream_key(2);
    let key = (namespace, &*name);
    fleet.up.merge_status(CONNECTORS, key, &Value::Null).await.unwrap();
    assert_eq!(settled(testbed).await, (1, 2, 0), "status removed");
    fleet.set(2, true, 2).await.unwrap();
    assert_eq!(settled(testbed).await, (1, 2, 0), "status written again");

    let (namespace, _) = fleet.hub_key(4);
    let repoint = async |to: &[usize]| {
        let names: Vec<_> = to.iter().map(|i| fleet.hub_key(*i).1).collect();
        let change = json!({ "spec": { "rules": rules(&names) } });
        fleet.edge.merge(PROXIES, (namespace, "late"), &change).await.unwrap();
    };
    fleet.add_app(4, "late", &[4]).await.unwrap();
    assert_eq!(settled(testbed).await, (0, 1, 0), "new proxy");
    repoint(&[5]).await;
    assert_eq!(settled(testbed).await, (0, 1, 0), "repointed proxy");
    repoint(&[4, 5]).await;
    assert_eq!(settled(testbed).await, (0, 1, 0), "proxy of two connectors");
    fleet.flip(4).await.unwrap();
    assert_eq!(settled(testbed).await, (1, 3, 0), "one of two flipped");
    fleet.edge.delete(GATEWAYS, namespace, &app(5, 0)).await.unwrap();
    fleet.edge.create(GATEWAYS, gateway(namespace, &app(5, 0))).await.unwrap();
    assert_eq!(settled(testbed).await, (0, 1, 0), "gateway created again");
    fleet.add_app(4, "unconcerned", &[]).await.unwrap();
    assert_eq!(settled(testbed).await, (0, 0, 0), "proxy without connectors");

    // The upstream Connector is deleted first and the hub Connector a little later, as the replicator does it.
    // The Connector and its Namespace are read before the annotation goes.
    fleet.delete_upstream(3).await.unwrap();
    assert_eq!(settled(testbed).await, (1, 2, 2), "deleted upstream");
    let (namespace, name) = fleet.hub_key(3);
    fleet.hub.delete(CONNECTORS, namespace, &name).await.unwrap();
    assert_eq!(settled(testbed).await, (0, 0, 0), "hub Connector deleted");

    // At rest only watches are open, and nothing is requested.
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(testbed.requests(), 0, "requests at rest");
    for cluster in &testbed.clusters {
        assert!(cluster.proxy.open_watches() > 0, "no watch at {}", cluster.name);
    }
    throughline.wait_ready().await;
    throughline.stop().await;
}

/// A start on a settled fleet writes nothing, also after a SIGKILL.
async fn a_restart_on_a_settled_fleet_writes_nothing(testbed: &Testbed, fleet: &Fleet) {
    testbed.reset_counts();
    Setup::of(testbed).ready().await.kill();
    let throughline = Setup::of(testbed).ready().await;
    wait_until_idle(testbed).await;
    assert!(testbed.writes().is_empty(), "{:#?}", testbed.writes());
    throughline.stop().await;
    // A change made while throughline was down is found.
    fleet.flip(0).await.unwrap();
    let throughline = Setup::of(testbed).ready().await;
    let (mirrors, touches, _) = settled(testbed).await;
    assert_eq!((mirrors, touches), (1, 2));
    throughline.stop().await;
}

/// While the carrier is stuck, the edge has an old value and nothing is touched. A nudge frees it.
async fn a_stuck_carrier_is_nudged(testbed: &Testbed, fleet: &Fleet) {
    let nudge = json!({ "mirror": { "nudgeAfterMs": 2_000 } });
    let throughline = Setup::of(testbed).set(&nudge).settled(testbed).await;
    // The mirror's write is delayed, so that the carrier is stuck before it arrives.
    let (carrier, hub) = (testbed.carrier(), &testbed.hub().proxy);
    carrier.set_stuck(true);
    hub.add(Rule::new(Fault::Delay(Duration::from_millis(200))).method("PATCH").times(1));
    fleet.flip(0).await.unwrap();
    until("the mirror is written", async || !hub.writes().is_empty()).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    carrier.set_stuck(false);
    oracle::converges(testbed).await;
    assert_eq!(hub.writes().len(), 2, "a mirror and a nudge: {:#?}", hub.writes());
    throughline.stop().await;
}

/// A dry run decides and logs, and writes nothing. So what it leaves is wrong, and the oracle of these tests
/// must find each of it: an oracle that finds nothing would let them all pass.
async fn a_dry_run_writes_nothing(testbed: &Testbed, fleet: &Fleet) {
    let throughline = Setup::of(testbed).set(&json!({ "dryRun": true })).ready().await;
    testbed.reset_counts();
    fleet.set(0, false, 0).await.unwrap();
    throughline.logs("c-00000", 1).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(testbed.writes().is_empty(), "{:#?}", testbed.writes());
    throughline.stop().await;

    let finds = async |expected: &str| {
        let found = oracle::converged(testbed).await.unwrap_err();
        assert!(found.contains(expected), "{found}");
    };
    let (namespace, name) = fleet.hub_key(0);
    finds(&format!("annotation of {namespace}/{name} at down")).await;
    let right = status(false, 0).to_string();
    annotate((&fleet.hub, fleet, 0), UPSTREAM_STATUS, Some(&right)).await;
    finds(&format!("trigger of {namespace}/{}", app(0, 0))).await;
    Setup::of(testbed).settled(testbed).await.stop().await;
    let plain = async |trigger| {
        fleet.edge.annotate(GATEWAYS, (namespace, "plain"), TRIGGER, trigger).await.unwrap();
    };
    plain(Some("0-0-0")).await;
    finds("plain").await;
    plain(None).await;
}

/// Every touch is followed by its confirmations, even if another process makes them.
async fn a_touch_is_confirmed_even_after_a_restart(testbed: &Testbed, fleet: &Fleet) {
    let confirmed =
        || Setup::of(testbed).set(&json!({ "touch": { "confirmAfterMs": [1_500_u64] } }));
    let throughline = confirmed().settled(testbed).await;
    fleet.flip(0).await.unwrap();
    oracle::converges(testbed).await;
    wait_until_idle(testbed).await;
    let [(n, 0), (_, 1)] = triggers(testbed)[..] else { panic!("{:?}", triggers(testbed)) };
    fleet.flip(0).await.unwrap();
    oracle::converges(testbed).await;
    throughline.kill();
    let throughline = confirmed().ready().await;
    wait_until_idle(testbed).await;
    assert_eq!(triggers(testbed), [(n, 0), (n + 1, 1), (n + 2, 0), (n + 3, 1)]);
    oracle::no_needless_write(testbed).unwrap();
    throughline.stop().await;
}

/// The counter and the confirmations of each trigger value written to one Gateway, in order.
fn triggers(testbed: &Testbed) -> Vec<(u32, u32)> {
    let writes = testbed.edge().proxy.writes();
    let of_it = writes.iter().filter(|write| write.target.name == app(0, 0));
    let values = of_it.filter_map(|write| written_annotation(&write.body, TRIGGER));
    values.filter_map(Trigger::parse).map(|trigger| (trigger.n, trigger.c)).collect()
}
