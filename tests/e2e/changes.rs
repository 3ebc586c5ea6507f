//! Changes of connectors, proxies and gateways in each of the three topologies: everything converges
//! with the least possible number of writes; only a removal reads first.

use std::time::Duration;

use throughline::core::status::trigger::Trigger;

use crate::cluster::faults::{Fault, Rule};
use crate::cluster::fleet::{Fleet, Mirrored, Spec, app};
use crate::cluster::objects::{TRIGGER, written_annotation};
use crate::cluster::testbed::{Testbed, Topology};
use crate::cluster::throughline::{Setup, Throughline};
use crate::cluster::{oracle, wait_until_idle};

/// Waits until throughline is idle, checks the clusters, resets the counts and returns (mirrors, touches)
/// since the last call.
async fn settled(testbed: &Testbed) -> (usize, usize) {
    settled_after_reads(testbed, 0).await
}

async fn settled_after_reads(testbed: &Testbed, reads: u64) -> (usize, usize) {
    oracle::converges(testbed).await;
    wait_until_idle(testbed).await;
    oracle::converged(testbed).await.unwrap();
    oracle::no_needless_write(testbed).unwrap();
    let writes = testbed.writes();
    let of = |resource: &str| {
        let done =
            |w: &&crate::cluster::proxy::Write| w.target.resource == resource && w.code == 200;
        writes.iter().filter(done).count()
    };
    let counts = (of("connectors"), of("gateways"));
    assert_eq!(counts.0 + counts.1, writes.len(), "other writes: {writes:#?}");
    assert_eq!(testbed.reads(), reads, "reads");
    testbed.reset_counts();
    counts
}

async fn changes_converge(topology: Topology) {
    let testbed = Testbed::start(topology).await;
    let spec = Spec { per_namespace: 3, gateways: 2, with_routes: true, ..Spec::of(6) };
    let fleet = Fleet::seed(&testbed, spec).await;
    let throughline = Setup::of(&testbed).ready().await;
    oracle::converges(&testbed).await;
    wait_until_idle(&testbed).await;
    let first: Vec<_> = testbed.writes();
    assert_eq!(first.iter().filter(|w| w.target.resource == "connectors").count(), 6, "{first:#?}");
    testbed.reset_counts();

    fleet.flip(0).await.unwrap();
    assert_eq!(settled(&testbed).await, (1, 2), "flipped to offline");
    fleet.flip(0).await.unwrap();
    assert_eq!(settled(&testbed).await, (1, 2), "flipped to online");
    fleet.move_node(1).await.unwrap();
    assert_eq!(settled(&testbed).await, (1, 2), "moved to another node");
    fleet.remove_status(2).await.unwrap();
    assert_eq!(settled(&testbed).await, (1, 2), "status removed");
    fleet.set(2, true, 2).await.unwrap();
    assert_eq!(settled(&testbed).await, (1, 2), "status written again");

    gateways_and_proxies(&testbed, &fleet).await;

    // The upstream Connector is deleted first and the hub Connector a little later, as the replicator
    // does it. After the second deletion there is nothing to announce.
    fleet.delete_upstream(3).await.unwrap();
    // Its Namespace and itself are read before the annotation goes.
    assert_eq!(settled_after_reads(&testbed, 2).await, (1, 2), "deleted upstream");
    fleet.delete_at_hub(3).await.unwrap();
    assert_eq!(settled(&testbed).await, (0, 0), "hub Connector deleted");

    at_rest(&testbed, &throughline).await;
    throughline.stop().await;
}

async fn gateways_and_proxies(testbed: &Testbed, fleet: &Fleet) {
    fleet.add_app(4, "late", &[4]).await.unwrap();
    assert_eq!(settled(testbed).await, (0, 1), "new proxy");
    fleet.repoint(4, "late", &[5]).await.unwrap();
    assert_eq!(settled(testbed).await, (0, 1), "repointed proxy");
    fleet.repoint(4, "late", &[4, 5]).await.unwrap();
    assert_eq!(settled(testbed).await, (0, 1), "proxy of two connectors");
    fleet.flip(4).await.unwrap();
    assert_eq!(settled(testbed).await, (1, 3), "one of two flipped");
    fleet.recreate_gateway(5, &app(5, 0)).await.unwrap();
    assert_eq!(settled(testbed).await, (0, 1), "gateway created again");
    fleet.add_app(4, "unconcerned", &[]).await.unwrap();
    assert_eq!(settled(testbed).await, (0, 0), "proxy without connectors");
}

/// Only watches are open, and nothing is requested.
async fn at_rest(testbed: &Testbed, throughline: &Throughline) {
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(testbed.requests(), 0, "requests at rest");
    for cluster in &testbed.clusters {
        assert!(cluster.proxy.open_watches() > 0, "no watch at {}", cluster.name);
    }
    throughline.wait_ready().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn one_cluster_with_every_role() {
    changes_converge(Topology::One).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn two_clusters() {
    changes_converge(Topology::Two).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn three_tiers() {
    changes_converge(Topology::Three).await;
}

/// A start on a settled fleet writes nothing, also after a SIGKILL.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn a_restart_on_a_settled_fleet_writes_nothing() {
    let testbed = Testbed::start(Topology::Three).await;
    let fleet = Fleet::seed(&testbed, Spec { mirrored: Mirrored::Fresh, ..Spec::of(20) }).await;
    let throughline = Setup::of(&testbed).ready().await;
    let (mirrors, touches) = {
        oracle::converges(&testbed).await;
        wait_until_idle(&testbed).await;
        let writes = testbed.writes();
        let mirrors = writes.iter().filter(|w| w.target.resource == "connectors").count();
        (mirrors, writes.len() - mirrors)
    };
    assert_eq!((mirrors, touches), (0, 20));
    throughline.kill();
    for _ in 0..2 {
        testbed.reset_counts();
        let throughline = Setup::of(&testbed).ready().await;
        wait_until_idle(&testbed).await;
        assert!(testbed.writes().is_empty(), "{:#?}", testbed.writes());
        throughline.stop().await;
    }
    // A change made while throughline was down is found.
    fleet.flip(7).await.unwrap();
    testbed.reset_counts();
    let throughline = Setup::of(&testbed).ready().await;
    oracle::converges(&testbed).await;
    wait_until_idle(&testbed).await;
    assert_eq!(testbed.writes().len(), 2, "{:#?}", testbed.writes());
    throughline.stop().await;
}

/// While the carrier is stuck, the edge has an old value and nothing is touched. A nudge frees it.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn a_stuck_carrier_is_nudged() {
    let testbed = Testbed::start(Topology::Three).await;
    let fleet = Fleet::seed(&testbed, Spec::of(2)).await;
    let nudge = serde_json::json!({ "mirror": { "nudgeAfterMs": 2_000 } });
    let throughline = Setup::of(&testbed).set(&nudge).ready().await;
    oracle::converges(&testbed).await;
    wait_until_idle(&testbed).await;
    testbed.reset_counts();
    // The mirror's write is delayed, so that the carrier is stuck before it arrives.
    let carrier = testbed.carrier();
    carrier.set_stuck(true);
    let slow = Rule::new(Fault::Delay(Duration::from_millis(200))).method("PATCH").times(1);
    testbed.hub().proxy.add(slow);
    fleet.flip(0).await.unwrap();
    crate::cluster::eventually("the mirror is written", crate::cluster::SOON, async || {
        let written = testbed.hub().proxy.writes().len();
        crate::cluster::ensure(written > 0, || "not yet".into())
    })
    .await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    carrier.set_stuck(false);
    oracle::converges(&testbed).await;
    let hub = testbed.hub().proxy.writes();
    assert_eq!(hub.len(), 2, "a mirror and a nudge: {hub:#?}");
    throughline.stop().await;
}

/// A dry run decides and logs, and writes nothing.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn a_dry_run_writes_nothing() {
    let testbed = Testbed::start(Topology::Two).await;
    let fleet = Fleet::seed(&testbed, Spec::of(3)).await;
    let dry = serde_json::json!({ "dryRun": true });
    let throughline = Setup::of(&testbed).set(&dry).ready().await;
    fleet.flip(0).await.unwrap();
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert!(testbed.writes().is_empty(), "{:#?}", testbed.writes());
    assert!(throughline.logged("c-00000"), "{:#?}", throughline.log());
    throughline.stop().await;
}

/// Every touch is followed by its confirmations, even if another process makes them.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn a_touch_is_confirmed_even_after_a_restart() {
    let testbed = Testbed::start(Topology::Two).await;
    let fleet = Fleet::seed(&testbed, Spec { mirrored: Mirrored::Fresh, ..Spec::of(1) }).await;
    let confirmed = |after_ms: &[u64]| {
        Setup::of(&testbed).set(&serde_json::json!({ "touch": { "confirmAfterMs": after_ms } }))
    };
    let throughline = confirmed(&[1_500]).ready().await;
    oracle::converges(&testbed).await;
    wait_until_idle(&testbed).await;
    assert_eq!(triggers(&testbed), [(1, 0), (2, 1)]);
    testbed.reset_counts();
    fleet.flip(0).await.unwrap();
    oracle::converges(&testbed).await;
    throughline.kill();
    let throughline = confirmed(&[1_500]).ready().await;
    wait_until_idle(&testbed).await;
    assert_eq!(triggers(&testbed), [(3, 0), (4, 1)]);
    oracle::no_needless_write(&testbed).unwrap();
    throughline.stop().await;
}

/// The counter and the confirmations of each trigger value written, in order.
fn triggers(testbed: &Testbed) -> Vec<(u32, u32)> {
    let writes = testbed.edge().proxy.writes();
    let value = |write: &crate::cluster::proxy::Write| {
        let value = written_annotation(&write.body, TRIGGER).and_then(Trigger::parse)?;
        Some((value.n, value.c))
    };
    writes.iter().filter_map(value).collect()
}
