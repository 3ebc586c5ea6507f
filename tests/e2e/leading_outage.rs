//! The API server with the Lease is down, and then all API servers are.

use std::time::{Duration, Instant};

use throughline::core::contract::cause::Cause;

use crate::cluster::oracle;
use crate::cluster::testbed::Topology;
use crate::cluster::{SOON, ensure, eventually};
use crate::leading::{ElectionTest, print_elapsed, short};

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn instances_survive_outages_of_their_api_servers() {
    let election = ElectionTest::with(Topology::Three, 2, short()).await;
    // An API server that has just started refuses everybody for a moment.
    let election = election.provokes(&[
        Cause::ClusterUnavailable,
        Cause::LeaseUnusable,
        Cause::NotMirrored,
        Cause::PermissionMissing,
    ]);
    election.somebody_leads().await;

    // Without the hub, the edge is served nevertheless.
    let hub = &election.testbed.hub().server;
    hub.kill().await;
    election.touches_without_leader(0).await;
    election.fleet.flip_all(1..4).await.unwrap();
    tokio::time::sleep(Duration::from_secs(8)).await;
    election.touches_without_leader(5).await;
    let began = Instant::now();
    hub.restart().await;
    print_elapsed("the hub's API server is back", began);
    election.somebody_leads().await;
    print_elapsed("led again", began);
    oracle::converges_within(&election.testbed, 2 * SOON).await;
    print_elapsed("converged", began);

    // Without any: the next change comes once upstream is back.
    for cluster in &election.testbed.clusters {
        cluster.server.kill().await;
    }
    election.nobody_leads().await;
    tokio::time::sleep(Duration::from_secs(8)).await;
    let began = Instant::now();
    let starting = election.testbed.clusters.iter().map(|cluster| cluster.server.restart());
    futures::future::join_all(starting).await;
    print_elapsed("all API servers are back", began);
    eventually("upstream accepts writes", SOON, async || {
        let flipped = election.fleet.flip(1).await;
        ensure(flipped.is_ok(), || format!("{flipped:?}"))
    })
    .await;
    election.somebody_leads().await;
    print_elapsed("led again", began);
    oracle::converges_within(&election.testbed, 2 * SOON).await;
    print_elapsed("converged", began);
    election.only_holders_wrote();
    election.end().await;
}

/// The leader is cut from the upstream, which the other instance sees. Both are healthy otherwise, so
/// the Lease alone would stay where it is.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn a_leader_that_is_blind_hands_over_to_one_that_sees() {
    let mut election = ElectionTest::with(Topology::Two, 2, short()).await;
    election = election.provokes(&[Cause::ClusterUnavailable, Cause::NotMirrored]);
    let blind = election.somebody_leads().await;
    let began = Instant::now();
    let upstream = election.testbed.clusters.iter().position(|cluster| cluster.name == "up");
    let upstream = upstream.expect("the topology has an upstream");
    election.instances[blind].proxies[upstream].down();
    election.fleet.flip_all(0..6).await.unwrap();
    eventually("the blind leader hands over", 4 * SOON, async || {
        let leaders = election.leaders().await;
        ensure(leaders.iter().any(|leader| *leader != blind), || format!("{leaders:?} lead"))
    })
    .await;
    print_elapsed("another instance led after the leader lost sight of the upstream", began);
    oracle::converges(&election.testbed).await;
    print_elapsed("converged", began);
    assert_eq!(election.instances[blind].count_log_lines("standing down"), 1);

    // It sees again, and that is no reason to take the Lease back.
    election.instances[blind].proxies[upstream].up();
    tokio::time::sleep(Duration::from_secs(5)).await;
    let leader = election.somebody_leads().await;
    assert_ne!(leader, blind);
    election.stop(leader).await;
    assert_eq!(election.somebody_leads().await, blind, "it takes part again");
    election.fleet.flip_all(0..3).await.unwrap();
    oracle::converges(&election.testbed).await;
    election.only_holders_wrote();
    election.end().await;
}
