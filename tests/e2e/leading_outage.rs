//! The API server that has the Lease is gone, and then all of them are.

use std::time::{Duration, Instant};

use crate::cluster::oracle;
use crate::cluster::world::Topology;
use crate::cluster::{SOON, ensure, eventually};
use crate::leading::{Party, short, took};

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn replicas_outlive_their_api_servers() {
    let party = Party::with(Topology::Three, 2, short()).await;
    party.somebody_leads().await;

    // The hub's: the edge is served all the same.
    let hub = &party.world.hub().server;
    hub.kill().await;
    party.touches_without_leader(0).await;
    party.fleet.flip_all(1..4).await.unwrap();
    tokio::time::sleep(Duration::from_secs(8)).await;
    party.touches_without_leader(5).await;
    let began = Instant::now();
    hub.restart().await;
    took("the hub's API server is back", began);
    party.somebody_leads().await;
    took("led again", began);
    oracle::converges_within(&party.world, 2 * SOON).await;
    took("converged", began);

    // All of them; what changes is what the source says first when it is back.
    for cluster in &party.world.clusters {
        cluster.server.kill().await;
    }
    party.nobody_leads().await;
    tokio::time::sleep(Duration::from_secs(8)).await;
    let began = Instant::now();
    let starting = party.world.clusters.iter().map(|cluster| cluster.server.restart());
    futures::future::join_all(starting).await;
    took("all API servers are back", began);
    eventually("upstream takes writes", SOON, async || {
        let flipped = party.fleet.flip(1).await;
        ensure(flipped.is_ok(), || format!("{flipped:?}"))
    })
    .await;
    party.somebody_leads().await;
    took("led again", began);
    oracle::converges_within(&party.world, 2 * SOON).await;
    took("converged", began);
    party.only_holders_wrote();
    party.end().await;
}
