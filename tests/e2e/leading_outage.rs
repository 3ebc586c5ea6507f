//! The API server with the Lease is down, and then all API servers are.

use std::time::{Duration, Instant};

use crate::cluster::oracle;
use crate::cluster::testbed::Topology;
use crate::cluster::{SOON, ensure, eventually};
use crate::leading::{ElectionTest, print_elapsed, short};

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn instances_survive_outages_of_their_api_servers() {
    let election = ElectionTest::with(Topology::Three, 2, short()).await;
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
