//! Unavailable clusters: killed, cut off, frozen, or down from the start.

use std::time::Duration;

use serde_json::json;
use throughline::core::contract::cause::Cause;

use crate::cluster::apiserver::THROUGHLINE;
use crate::cluster::faults::{Fault, Rule};
use crate::cluster::fleet::{Fleet, Mirrored, Spec};
use crate::cluster::objects::{UPSTREAM_STATUS, annotation};
use crate::cluster::proxy::FaultProxy;
use crate::cluster::rest::CONNECTORS;
use crate::cluster::testbed::{Testbed, Topology};
use crate::cluster::throughline::Setup;
use crate::cluster::{SOON, ensure, eventually, oracle, wait_until_idle};

/// A silent watch is noticed within the duration of a test. A cluster is unavailable in each of them.
fn short_timeouts(testbed: &Testbed) -> Setup {
    let watch =
        json!({ "watch": { "silentAfterMs": 75_000, "timeoutMs": 5_000, "backoffMaxMs": 2_000 } });
    let retry = json!({ "retry": { "firstMs": 500, "maxMs": 2_000 } });
    Setup::of(testbed).set(&watch).set(&retry).provokes(&[Cause::ClusterUnavailable])
}

async fn hub_says_offline(testbed: &Testbed, fleet: &Fleet, i: usize) {
    let (namespace, name) = fleet.hub_key(i);
    eventually("the hub says offline", SOON, async || {
        let hub_connector = testbed.hub().rest().read(CONNECTORS, namespace, &name).await.unwrap();
        let said = annotation(&hub_connector, UPSTREAM_STATUS).unwrap_or_default().to_owned();
        ensure(said.contains("ConnectorNotReady"), || said)
    })
    .await;
}

/// One that has just started refuses everybody for a moment.
const STARTED: &[Cause] = &[Cause::PermissionMissing];

/// Without proxies, over TLS. Each API server is killed in turn; the others are served, and what changed
/// meanwhile converges after the restart.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn a_killed_api_server_converges_after_its_restart() {
    let mut testbed = Testbed::start(Topology::Three).await;
    for cluster in &mut testbed.clusters {
        cluster.is_direct = true;
    }
    let fleet = Fleet::seed(&testbed, Spec::of(6)).await;
    let throughline = short_timeouts(&testbed).provokes(STARTED).ready().await;
    oracle::converges(&testbed).await;

    // The edge is down: the mirror is written nevertheless.
    testbed.edge().server.kill().await;
    fleet.flip(0).await.unwrap();
    hub_says_offline(&testbed, &fleet, 0).await;
    testbed.edge().server.restart().await;
    oracle::converges_within(&testbed, 2 * SOON).await;

    // The hub is down: the mirror waits for it.
    testbed.hub().server.kill().await;
    fleet.flip(1).await.unwrap();
    tokio::time::sleep(Duration::from_secs(2)).await;
    testbed.hub().server.restart().await;
    oracle::converges_within(&testbed, 2 * SOON).await;

    // Upstream is down: that says nothing about its connectors.
    let before = annotations(&testbed).await;
    testbed.upstream().server.kill().await;
    tokio::time::sleep(Duration::from_secs(8)).await;
    assert_eq!(
        annotations(&testbed).await,
        before,
        "an annotation changed while upstream was down"
    );
    testbed.upstream().server.restart().await;
    fleet.flip(2).await.unwrap();
    oracle::converges_within(&testbed, 2 * SOON).await;
    throughline.stop().await;
}

async fn annotations(testbed: &Testbed) -> Vec<Option<String>> {
    let hub_connectors = testbed.hub().rest().items(CONNECTORS).await.unwrap();
    hub_connectors.iter().map(|r| annotation(r, UPSTREAM_STATUS).map(str::to_owned)).collect()
}

/// 410 as a watch event, as an answer, and from an API server whose history is compacted.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn expired_history_is_listed_again() {
    let testbed = Testbed::start(Topology::Three).await;
    let fleet = Fleet::seed(&testbed, Spec { mirrored: Mirrored::Fresh, ..Spec::of(10) }).await;
    let page = json!({ "watch": { "pageSize": 3 } });
    let throughline = short_timeouts(&testbed).set(&page).provokes(STARTED).ready().await;
    oracle::converges(&testbed).await;
    wait_until_idle(&testbed).await;
    testbed.reset_counts();
    for (i, cluster) in testbed.clusters.iter().enumerate() {
        for (k, rule) in [Rule::new(Fault::Expire), Rule::status(410)].into_iter().enumerate() {
            // The cluster is down during the change, so only a list can find it.
            cluster.proxy.down();
            cluster.proxy.add(rule.watches(true).times(3));
            fleet.flip(2 * i + k).await.unwrap();
            cluster.proxy.up();
            oracle::converges(&testbed).await;
            // The hub may have converged before its watch is tried again.
            eventually(&format!("{} is listed again", cluster.name), SOON, async || {
                ensure(cluster.proxy.reads() > 0, || "no list".to_owned())
            })
            .await;
            testbed.reset_counts();
        }
    }
    for cluster in &testbed.clusters {
        cluster.proxy.down();
        fleet.flip(9).await.unwrap();
        cluster.server.compact().await;
        cluster.server.restart().await;
        cluster.proxy.up();
        oracle::converges_within(&testbed, 2 * SOON).await;
    }
    oracle::ends_well(&testbed, throughline).await;
}

/// A connection stays silent for good: the client's own timeout restarts the watch.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn a_silent_watch_is_restarted() {
    let testbed = Testbed::start(Topology::Two).await;
    let fleet = Fleet::seed(&testbed, Spec::of(2)).await;
    let soon = json!({ "watch": { "silentAfterMs": 3_000 } });
    let throughline = short_timeouts(&testbed).set(&soon).ready().await;
    oracle::converges(&testbed).await;
    let up = &testbed.upstream().proxy;
    let open = up.open_watches();
    // New watches get no answer, and open ones go silent.
    let rule = up.add(Rule::new(Fault::Freeze).watches(true));
    up.freeze();
    fleet.flip(0).await.unwrap();
    eventually("the silence is noticed", SOON, async || {
        ensure(throughline.logged("silent") || up.open_watches() < open, || "not yet".to_owned())
    })
    .await;
    up.remove(rule);
    up.thaw();
    up.cut();
    oracle::converges(&testbed).await;
    throughline.stop().await;
}

/// A control plane was moved: the kubeconfig names its new address, and the old one is dead or, worse,
/// swallows everything.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn moved_api_servers_are_found_by_their_kubeconfigs() {
    let testbed = Testbed::start(Topology::Three).await;
    let fleet = Fleet::seed(&testbed, Spec::of(6)).await;
    let throughline = short_timeouts(&testbed).ready().await;
    oracle::converges(&testbed).await;

    let mut moved = Vec::new();
    for (i, cluster) in testbed.clusters.iter().enumerate() {
        let new = FaultProxy::start(&cluster.server).await;
        if i % 2 == 0 {
            cluster.proxy.down()
        } else {
            cluster.proxy.freeze()
        }
        new.write_kubeconfig(&cluster.proxy.kubeconfig(THROUGHLINE), THROUGHLINE);
        moved.push(new);
    }
    fleet.flip(0).await.unwrap();
    oracle::converges_within(&testbed, 2 * SOON).await;
    for (cluster, new) in testbed.clusters.iter().zip(&moved) {
        eventually("its watches are at the new address", SOON, async || {
            ensure(new.open_watches() > 0, || cluster.name.to_owned())
        })
        .await;
    }
    assert!(throughline.logged("the kubeconfig names another address"));
    throughline.stop().await;
}
