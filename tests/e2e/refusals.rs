//! An API server that refuses, is slow, or whose answers are lost; and rights that are not there yet.

use std::time::Duration;

use serde_json::{Value, json};

use crate::cluster::apiserver::THROUGHLINE;
use crate::cluster::faults::{Fault, Rule};
use crate::cluster::fleet::{Fleet, Spec};
use crate::cluster::objects::install;
use crate::cluster::rights::{folders, grant, revoke};
use crate::cluster::throughline::{Setup, Throughline};
use crate::cluster::world::{Topology, World};
use crate::cluster::{SOON, ensure, eventually, oracle, quiet};

/// Soon enough for a test; the defaults are minutes.
fn soon_again() -> Value {
    json!({ "retry": { "firstMs": 500, "maxMs": 2_000, "refusedMs": 2_000 } })
}

async fn started() -> (World, Fleet, Throughline) {
    let world = World::start(Topology::Three).await;
    let fleet = Fleet::seed(&world, Spec::of(10)).await;
    // What is refused for good is somebody's to mend: an error, and the only one.
    let setup = Setup::of(&world).set(&soon_again()).allow("refused: mend the permission");
    let throughline = setup.ready().await;
    oracle::converges(&world).await;
    quiet(&world).await;
    world.forget();
    (world, fleet, throughline)
}

/// Each for the mirror at the hub and for the touch at the edge: told, tried again, and it converges.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn refused_writes_are_made_in_the_end() {
    let (world, fleet, throughline) = started().await;
    for (i, code) in [409, 404, 403, 422, 500, 503, 504].into_iter().enumerate() {
        for cluster in [world.hub(), world.edge()] {
            let rule = cluster.proxy.add(Rule::status(code).method("PATCH").times(2));
            fleet.flip(i).await.unwrap();
            eventually(&format!("{code} at {}", cluster.name), SOON, async || {
                let applied = cluster.proxy.applied(rule);
                ensure(applied == 2, || format!("{applied} of 2"))
            })
            .await;
            oracle::converges(&world).await;
        }
    }
    oracle::ends_well(&world, throughline).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn retry_after_is_waited_for() {
    let (world, fleet, throughline) = started().await;
    let hub = &world.hub().proxy;
    hub.add(Rule::too_many(2).method("PATCH").times(1));
    fleet.flip(0).await.unwrap();
    oracle::converges(&world).await;
    let writes = hub.writes();
    let codes: Vec<_> = writes.iter().map(|write| write.code).collect();
    assert_eq!(codes, [429, 200]);
    let waited = writes[1].at - writes[0].at;
    assert!(waited >= Duration::from_secs(2), "tried again after {waited:?}");
    throughline.stop().await;
}

/// One object whose writes are slow holds up no other; a try that takes too long is given up.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn slow_answers_hold_up_nobody_else() {
    let (world, fleet, throughline) = started().await;
    let (_, slow) = fleet.replica(0);
    let hub = &world.hub().proxy;
    let rule = hub.add(Rule::new(Fault::Freeze).method("PATCH").name(&slow));
    fleet.flip_all(0..10).await.unwrap();
    eventually("the other nine are written", SOON, async || {
        let done = hub.writes().iter().filter(|write| write.code == 200).count();
        ensure(done == 9, || format!("{done} of 9"))
    })
    .await;
    // Given up by its client: the proxy sees the connection end.
    eventually("the slow one is given up", SOON, async || {
        let given_up = hub.writes().iter().filter(|write| write.code == 0).count();
        ensure(given_up > 0, || "not yet".to_owned())
    })
    .await;
    hub.remove(rule);
    oracle::converges(&world).await;

    // Slow, but not too slow: all at once take about as long as one.
    world.forget();
    hub.add(Rule::new(Fault::Delay(Duration::from_secs(1))).method("PATCH"));
    fleet.flip_all(0..10).await.unwrap();
    oracle::converges(&world).await;
    quiet(&world).await;
    assert_eq!(hub.writes().iter().filter(|write| write.code == 200).count(), 10);
    oracle::no_needless_write(&world).unwrap();
    throughline.stop().await;
}

/// A write whose answer is lost was done all the same: it is not undone, and not done wrong.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn lost_answers_do_no_harm() {
    let (world, fleet, throughline) = started().await;
    for cluster in [world.hub(), world.edge()] {
        let lost = Rule::new(Fault::LoseAnswer).method("PATCH").times(5);
        let cut = Rule::new(Fault::Cut).method("PATCH").times(5);
        let rules = [cluster.proxy.add(lost), cluster.proxy.add(cut)];
        fleet.flip_all(0..10).await.unwrap();
        eventually("all ten were lost", SOON, async || {
            let applied = rules.map(|rule| cluster.proxy.applied(rule));
            ensure(applied == [5, 5], || format!("{applied:?}"))
        })
        .await;
        oracle::converges(&world).await;
    }
    quiet(&world).await;
    oracle::converged(&world).await.unwrap();
    throughline.stop().await;
}

/// Rights that are taken away and given back, at the API server itself: no restart is needed.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn rights_that_come_back_are_used() {
    let (world, fleet, throughline) = started().await;
    let hub = world.hub();
    revoke(hub.rest(), &folders(hub.roles)).await.unwrap();
    hub.proxy.cut();
    fleet.flip(0).await.unwrap();
    eventually("a 403 is told", SOON, async || {
        ensure(throughline.logged("403"), || "not yet".to_owned())
    })
    .await;
    grant(hub.rest(), &folders(hub.roles)).await.unwrap();
    oracle::converges(&world).await;
    throughline.stop().await;
}

/// An edge without CRDs, and without rights for us: the other clusters are served meanwhile; what is
/// installed later is found.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn a_crd_that_comes_late_is_found() {
    let world = World::start_with(Topology::Three, |cluster| cluster != "edge").await;
    let throughline = Setup::of(&world).set(&soon_again()).start().await;
    let (code, _) = throughline.get("/readyz").await.unwrap();
    assert_ne!(code, 200, "ready without having seen the edge");
    let edge = world.edge();
    grant(edge.rest(), &folders(edge.roles)).await.unwrap();
    eventually("the missing CRD is told", SOON, async || {
        ensure(throughline.logged("404"), || "not yet".to_owned())
    })
    .await;
    revoke(edge.rest(), &folders(edge.roles)).await.unwrap();
    install(edge.rest(), edge.roles).await;
    let fleet = Fleet::seed(&world, Spec::of(3)).await;
    throughline.wait_ready().await;
    oracle::converges(&world).await;
    fleet.flip(0).await.unwrap();
    oracle::converges(&world).await;
    throughline.stop().await;
}

/// A token that is not known, renewed in the kubeconfig where it came from: no restart is needed,
/// neither at the start nor in the middle.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn credentials_that_are_renewed_are_read_again() {
    let world = World::start(Topology::Two).await;
    let fleet = Fleet::seed(&world, Spec::of(3)).await;
    let hub = world.hub();
    let kubeconfig = hub.proxy.kubeconfig(THROUGHLINE);
    let setup = Setup::of(&world).set(&soon_again());
    hub.proxy.write_kubeconfig(&kubeconfig, "whoever");
    let throughline = setup.start().await;
    eventually("the 401 is told, and what to do", SOON, async || {
        ensure(throughline.logged("401") && throughline.logged("renew the token"), || {
            "not yet".to_owned()
        })
    })
    .await;
    hub.proxy.write_kubeconfig(&kubeconfig, THROUGHLINE);
    throughline.wait_ready().await;
    oracle::converges(&world).await;
    fleet.flip(0).await.unwrap();
    oracle::converges(&world).await;
    throughline.stop().await;
}
