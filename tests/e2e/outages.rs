//! Clusters that are not there: killed, cut off, frozen, down from the start.

use std::time::Duration;

use serde_json::json;

use crate::cluster::faults::{Fault, Rule};
use crate::cluster::fleet::{Fleet, Mirrored, Spec};
use crate::cluster::objects::{UPSTREAM_STATUS, annotation};
use crate::cluster::rest::CONNECTORS;
use crate::cluster::throughline::Setup;
use crate::cluster::world::{Topology, World};
use crate::cluster::{SOON, ensure, eventually, oracle, quiet};

/// So that what is silent is noticed within a test.
fn impatient(world: &World) -> Setup {
    let watch =
        json!({ "watch": { "silentAfterMs": 75_000, "timeoutMs": 5_000, "backoffMaxMs": 2_000 } });
    Setup::of(world).set(&watch).set(&json!({ "retry": { "firstMs": 500, "maxMs": 2_000 } }))
}

async fn hub_says_offline(world: &World, fleet: &Fleet, i: usize) {
    let (namespace, name) = fleet.replica(i);
    eventually("the hub says offline", SOON, async || {
        let replica = world.hub().rest().read(CONNECTORS, namespace, &name).await.unwrap();
        let said = annotation(&replica, UPSTREAM_STATUS).unwrap_or_default().to_owned();
        ensure(said.contains("ConnectorNotReady"), || said)
    })
    .await;
}

/// Straight to the API servers, over TLS: each is killed in turn, the others go on, and what happened
/// meanwhile is caught up with.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn a_killed_api_server_is_caught_up_with() {
    let mut world = World::start(Topology::Three).await;
    for cluster in &mut world.clusters {
        cluster.is_direct = true;
    }
    let fleet = Fleet::seed(&world, Spec::of(6)).await;
    let throughline = impatient(&world).ready().await;
    oracle::converges(&world).await;

    // The edge is gone: the mirror is written all the same.
    world.edge().server.kill().await;
    fleet.flip(0).await.unwrap();
    hub_says_offline(&world, &fleet, 0).await;
    world.edge().server.restart().await;
    oracle::converges_within(&world, 2 * SOON).await;

    // The hub is gone: the mirror waits for it.
    world.hub().server.kill().await;
    fleet.flip(1).await.unwrap();
    tokio::time::sleep(Duration::from_secs(2)).await;
    world.hub().server.restart().await;
    oracle::converges_within(&world, 2 * SOON).await;

    // The source is gone: that says nothing of its connectors.
    let before = annotations(&world).await;
    world.upstream().server.kill().await;
    tokio::time::sleep(Duration::from_secs(8)).await;
    assert_eq!(annotations(&world).await, before, "something was inferred from silence");
    world.upstream().server.restart().await;
    fleet.flip(2).await.unwrap();
    oracle::converges_within(&world, 2 * SOON).await;
    throughline.stop().await;
}

async fn annotations(world: &World) -> Vec<Option<String>> {
    let replicas = world.hub().rest().items(CONNECTORS).await.unwrap();
    replicas.iter().map(|r| annotation(r, UPSTREAM_STATUS).map(str::to_owned)).collect()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn cut_watches_lose_nothing() {
    let world = World::start(Topology::Three).await;
    let fleet = Fleet::seed(&world, Spec::of(20)).await;
    let throughline = impatient(&world).ready().await;
    oracle::converges(&world).await;
    quiet(&world).await;
    world.forget();
    for round in 0..6 {
        let cut = &world.clusters[round % 3];
        let flipping = fleet.flip_all(0..20);
        let cutting = async {
            for _ in 0..5 {
                tokio::time::sleep(Duration::from_millis(20)).await;
                cut.proxy.cut();
            }
        };
        futures::join!(async { flipping.await.unwrap() }, cutting);
    }
    oracle::converges(&world).await;
    quiet(&world).await;
    oracle::converged(&world).await.unwrap();
    throughline.stop().await;
}

/// 410 as an event in the stream, as an answer, and from an API server whose history is compacted.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn history_that_is_gone_is_listed_anew() {
    let world = World::start(Topology::Three).await;
    let fleet = Fleet::seed(&world, Spec { mirrored: Mirrored::Fresh, ..Spec::of(10) }).await;
    let page = json!({ "watch": { "pageSize": 3 } });
    let throughline = impatient(&world).set(&page).ready().await;
    oracle::converges(&world).await;
    quiet(&world).await;
    world.forget();
    for (i, cluster) in world.clusters.iter().enumerate() {
        for (k, rule) in [Rule::new(Fault::Expire), Rule::status(410)].into_iter().enumerate() {
            // Down while it happens: the change is only to be found by listing.
            cluster.proxy.down();
            cluster.proxy.add(rule.watches(true).times(3));
            fleet.flip(2 * i + k).await.unwrap();
            cluster.proxy.up();
            oracle::converges(&world).await;
            // A hub may have been written to, and converged, before its watch is tried again.
            eventually(&format!("{} is listed anew", cluster.name), SOON, async || {
                ensure(cluster.proxy.reads() > 0, || "no list".to_owned())
            })
            .await;
            world.forget();
        }
    }
    for cluster in &world.clusters {
        cluster.proxy.down();
        fleet.flip(9).await.unwrap();
        cluster.server.compact().await;
        cluster.server.restart().await;
        cluster.proxy.up();
        oracle::converges_within(&world, 2 * SOON).await;
    }
    oracle::ends_well(&world, throughline).await;
}

/// SIGSTOP for a minute: connections stay, and not a byte comes. Nobody else is held up, and nothing
/// is lost.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn an_api_server_frozen_for_a_minute_is_caught_up_with() {
    let mut world = World::start(Topology::Three).await;
    for cluster in &mut world.clusters {
        cluster.is_direct = true;
    }
    let fleet = Fleet::seed(&world, Spec::of(4)).await;
    let throughline = impatient(&world).ready().await;
    oracle::converges(&world).await;
    let edge = &world.edge().server;
    edge.freeze();
    fleet.flip(0).await.unwrap();
    hub_says_offline(&world, &fleet, 0).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let (code, _) = throughline.get("/livez").await.unwrap();
    assert_eq!(code, 200, "one frozen cluster stops the loop");
    edge.thaw();
    oracle::converges_within(&world, 2 * SOON).await;
    fleet.flip(1).await.unwrap();
    oracle::converges(&world).await;
    throughline.stop().await;
}

/// A connection that went silent for good: the watch is taken up anew by the client's own clock.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn a_watch_that_went_silent_is_taken_up_anew() {
    let world = World::start(Topology::Two).await;
    let fleet = Fleet::seed(&world, Spec::of(2)).await;
    let soon = json!({ "watch": { "silentAfterMs": 3_000 } });
    let throughline = impatient(&world).set(&soon).ready().await;
    oracle::converges(&world).await;
    let up = &world.upstream().proxy;
    let open = up.open_watches();
    // Watches that are opened from now on are never answered; those there are go silent.
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
    oracle::converges(&world).await;
    throughline.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn one_of_three_clusters_is_down_from_the_start() {
    for down in 0..3 {
        let mut world = World::start(Topology::Three).await;
        world.clusters[down].is_direct = true;
        let fleet = Fleet::seed(&world, Spec::of(3)).await;
        world.clusters[down].server.kill().await;
        let throughline = impatient(&world).start().await;
        tokio::time::sleep(Duration::from_secs(3)).await;
        if down == 2 {
            // Hub and source are there: that is all that a mirror needs.
            fleet.flip(0).await.unwrap();
            hub_says_offline(&world, &fleet, 0).await;
        }
        let (code, _) = throughline.get("/livez").await.unwrap();
        assert_eq!(code, 200);
        world.clusters[down].server.restart().await;
        throughline.wait_ready().await;
        oracle::converges_within(&world, 2 * SOON).await;
        throughline.stop().await;
    }
}
