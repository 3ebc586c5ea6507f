//! What happens to connectors, proxies and gateways, in each of the three topologies: it converges,
//! with the writes that it takes and not one more, and without a single read.

use std::time::Duration;

use throughline::core::trigger::Trigger;

use crate::cluster::faults::{Fault, Rule};
use crate::cluster::fleet::{Fleet, Mirrored, Spec, app};
use crate::cluster::objects::{TRIGGER, annotation};
use crate::cluster::throughline::{Setup, Throughline};
use crate::cluster::world::{Topology, World};
use crate::cluster::{oracle, quiet};

/// Waits for rest, judges it, and starts counting anew: (mirrors, touches) since the last time.
async fn settled(world: &World) -> (usize, usize) {
    oracle::converges(world).await;
    quiet(world).await;
    oracle::converged(world).await.unwrap();
    oracle::no_needless_write(world).unwrap();
    let writes = world.writes();
    let of = |resource: &str| {
        let done =
            |w: &&crate::cluster::proxy::Write| w.target.resource == resource && w.code == 200;
        writes.iter().filter(done).count()
    };
    let counts = (of("connectors"), of("gateways"));
    assert_eq!(counts.0 + counts.1, writes.len(), "other writes: {writes:#?}");
    assert_eq!(world.reads(), 0, "reads");
    world.forget();
    counts
}

async fn story(topology: Topology) {
    let world = World::start(topology).await;
    let spec = Spec { per_namespace: 3, gateways: 2, with_routes: true, ..Spec::of(6) };
    let fleet = Fleet::seed(&world, spec).await;
    let throughline = Setup::of(&world).ready().await;
    oracle::converges(&world).await;
    quiet(&world).await;
    let first: Vec<_> = world.writes();
    assert_eq!(first.iter().filter(|w| w.target.resource == "connectors").count(), 6, "{first:#?}");
    world.forget();

    fleet.flip(0).await.unwrap();
    assert_eq!(settled(&world).await, (1, 2), "flipped to offline");
    fleet.flip(0).await.unwrap();
    assert_eq!(settled(&world).await, (1, 2), "flipped to online");
    fleet.move_node(1).await.unwrap();
    assert_eq!(settled(&world).await, (1, 2), "moved to another node");
    fleet.remove_status(2).await.unwrap();
    assert_eq!(settled(&world).await, (1, 2), "status removed");
    fleet.set(2, true, 2).await.unwrap();
    assert_eq!(settled(&world).await, (1, 2), "status is back");

    gateways_and_proxies(&world, &fleet).await;

    // The source goes first, and the replica with it a little later: nothing is left to announce.
    fleet.delete_source(3).await.unwrap();
    assert_eq!(settled(&world).await, (1, 2), "deleted upstream");
    fleet.delete_replica(3).await.unwrap();
    assert_eq!(settled(&world).await, (0, 0), "replica deleted");

    at_rest(&world, &throughline).await;
    throughline.stop().await;
}

async fn gateways_and_proxies(world: &World, fleet: &Fleet) {
    fleet.add_app(4, "late", &[4]).await.unwrap();
    assert_eq!(settled(world).await, (0, 1), "late proxy");
    fleet.repoint(4, "late", &[5]).await.unwrap();
    assert_eq!(settled(world).await, (0, 1), "repointed proxy");
    fleet.repoint(4, "late", &[4, 5]).await.unwrap();
    assert_eq!(settled(world).await, (0, 1), "proxy of two connectors");
    fleet.flip(4).await.unwrap();
    assert_eq!(settled(world).await, (1, 3), "one of two flipped");
    fleet.recreate_gateway(5, &app(5, 0)).await.unwrap();
    assert_eq!(settled(world).await, (0, 1), "gateway made anew");
    fleet.add_app(4, "unconcerned", &[]).await.unwrap();
    assert_eq!(settled(world).await, (0, 0), "proxy without connectors");
}

/// Nothing but watches, all of them open.
async fn at_rest(world: &World, throughline: &Throughline) {
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(world.requests(), 0, "requests at rest");
    for cluster in &world.clusters {
        assert!(cluster.proxy.open_watches() > 0, "no watch at {}", cluster.name);
    }
    throughline.wait_ready().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn one_cluster_with_every_role() {
    story(Topology::One).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn two_clusters() {
    story(Topology::Two).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn three_tiers() {
    story(Topology::Three).await;
}

/// Started on a fleet that is as it should be, it writes nothing; also when it is killed and started
/// again.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn a_restart_on_a_settled_fleet_writes_nothing() {
    let world = World::start(Topology::Three).await;
    let fleet = Fleet::seed(&world, Spec { mirrored: Mirrored::Fresh, ..Spec::of(20) }).await;
    let throughline = Setup::of(&world).ready().await;
    let (mirrors, touches) = {
        oracle::converges(&world).await;
        quiet(&world).await;
        let writes = world.writes();
        let mirrors = writes.iter().filter(|w| w.target.resource == "connectors").count();
        (mirrors, writes.len() - mirrors)
    };
    assert_eq!((mirrors, touches), (0, 20));
    throughline.kill();
    for _ in 0..2 {
        world.forget();
        let throughline = Setup::of(&world).ready().await;
        quiet(&world).await;
        assert!(world.writes().is_empty(), "{:#?}", world.writes());
        throughline.stop().await;
    }
    // What changed while nobody looked is found.
    fleet.flip(7).await.unwrap();
    world.forget();
    let throughline = Setup::of(&world).ready().await;
    oracle::converges(&world).await;
    quiet(&world).await;
    assert_eq!(world.writes().len(), 2, "{:#?}", world.writes());
    throughline.stop().await;
}

/// While the carrier is stuck the edge has an old value: nothing is touched; a nudge gets it going.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn a_stuck_carrier_is_nudged() {
    let world = World::start(Topology::Three).await;
    let fleet = Fleet::seed(&world, Spec::of(2)).await;
    let nudge = serde_json::json!({ "mirror": { "nudgeAfterMs": 2_000 } });
    let throughline = Setup::of(&world).set(&nudge).ready().await;
    oracle::converges(&world).await;
    quiet(&world).await;
    world.forget();
    // The mirror's write is held, so that the carrier is stuck for certain when it comes.
    let carrier = world.carrier();
    carrier.stuck(true);
    let slow = Rule::new(Fault::Delay(Duration::from_millis(200))).method("PATCH").times(1);
    world.hub().proxy.add(slow);
    fleet.flip(0).await.unwrap();
    crate::cluster::eventually("the mirror is written", crate::cluster::SOON, async || {
        let written = world.hub().proxy.writes().len();
        crate::cluster::ensure(written > 0, || "not yet".into())
    })
    .await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    carrier.stuck(false);
    oracle::converges(&world).await;
    let hub = world.hub().proxy.writes();
    assert_eq!(hub.len(), 2, "a mirror and a nudge: {hub:#?}");
    throughline.stop().await;
}

/// Decides, and tells; writes nothing.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn a_dry_run_writes_nothing() {
    let world = World::start(Topology::Two).await;
    let fleet = Fleet::seed(&world, Spec::of(3)).await;
    let dry = serde_json::json!({ "dryRun": true });
    let throughline = Setup::of(&world).set(&dry).ready().await;
    fleet.flip(0).await.unwrap();
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert!(world.writes().is_empty(), "{:#?}", world.writes());
    assert!(throughline.logged("c-00000"), "{:#?}", throughline.log());
    throughline.stop().await;
}

/// With confirmations, every touch is followed by as many new values, also when the process that made
/// it is not the one that confirms it.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn a_touch_is_confirmed_also_after_a_restart() {
    let world = World::start(Topology::Two).await;
    let fleet = Fleet::seed(&world, Spec { mirrored: Mirrored::Fresh, ..Spec::of(1) }).await;
    let confirmed = |after_ms: &[u64]| {
        Setup::of(&world).set(&serde_json::json!({ "touch": { "confirmAfterMs": after_ms } }))
    };
    let throughline = confirmed(&[1_500]).ready().await;
    oracle::converges(&world).await;
    quiet(&world).await;
    assert_eq!(triggers(&world), [(1, 0), (2, 1)]);
    world.forget();
    fleet.flip(0).await.unwrap();
    oracle::converges(&world).await;
    throughline.kill();
    let throughline = confirmed(&[1_500]).ready().await;
    quiet(&world).await;
    assert_eq!(triggers(&world), [(3, 0), (4, 1)]);
    oracle::no_needless_write(&world).unwrap();
    throughline.stop().await;
}

/// The number and the confirmations of each trigger value written, in their order.
fn triggers(world: &World) -> Vec<(u32, u32)> {
    let writes = world.edge().proxy.writes();
    let value = |write: &crate::cluster::proxy::Write| {
        let value = annotation(&write.body, TRIGGER).and_then(Trigger::parse)?;
        Some((value.n, value.c))
    };
    writes.iter().filter_map(value).collect()
}
