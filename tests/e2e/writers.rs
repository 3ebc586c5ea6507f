//! Somebody else writes, too: the platform's replicator, an extension server, a person.

use serde_json::json;

use crate::cluster::faults::{Fault, Gate, Rule};
use crate::cluster::fleet::{Fleet, Spec, app};
use crate::cluster::objects::{TRIGGER, UPSTREAM_STATUS, annotation, status};
use crate::cluster::rest::{CONNECTORS, GATEWAYS};
use crate::cluster::throughline::Setup;
use crate::cluster::world::{Topology, World};
use crate::cluster::{SOON, ensure, eventually, oracle, quiet};

const FOREIGN: &str = "example.com/foreign";

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn another_writer_is_let_be_when_it_means_the_same_and_put_right_when_not() {
    let world = World::start(Topology::Three).await;
    let fleet = Fleet::seed(&world, Spec::of(3)).await;
    let throughline = Setup::of(&world).ready().await;
    oracle::converges(&world).await;
    quiet(&world).await;
    world.forget();
    let (hub, edge) = (world.hub().rest(), world.edge().rest());
    let (namespace, name) = fleet.replica(0);
    let key = (namespace, name.as_str());

    // The same in another spelling, and things that are none of ours: nothing is written.
    let pretty = serde_json::to_string_pretty(&status(true, 0)).unwrap();
    hub.annotate(CONNECTORS, key, UPSTREAM_STATUS, Some(&pretty)).await.unwrap();
    hub.annotate(CONNECTORS, key, FOREIGN, Some("kept")).await.unwrap();
    edge.annotate(GATEWAYS, (namespace, &app(0, 0)), FOREIGN, Some("kept")).await.unwrap();
    quiet(&world).await;
    assert!(world.writes().is_empty(), "{:#?}", world.writes());

    // A stale value, a removed one, nonsense; a trigger that somebody removed or made up.
    for spoiled in [Some(status(false, 0).to_string()), None, Some("{".to_owned())] {
        hub.annotate(CONNECTORS, key, UPSTREAM_STATUS, spoiled.as_deref()).await.unwrap();
        oracle::converges(&world).await;
    }
    for spoiled in [None, Some("made-up"), Some("0000000000000000-0-0")] {
        edge.annotate(GATEWAYS, (namespace, &app(0, 0)), TRIGGER, spoiled).await.unwrap();
        oracle::converges(&world).await;
    }
    quiet(&world).await;
    oracle::converged(&world).await.unwrap();
    let replica = hub.read(CONNECTORS, namespace, &name).await.unwrap();
    assert_eq!(annotation(&replica, FOREIGN), Some("kept"));
    let gateway = edge.read(GATEWAYS, namespace, &app(0, 0)).await.unwrap();
    assert_eq!(annotation(&gateway, FOREIGN), Some("kept"));
    throughline.stop().await;
}

/// Two that never give in: the pauses grow, and when the other one stops, ours stands.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn a_writer_that_fights_is_not_fought_for_ever() {
    let world = World::start(Topology::Two).await;
    let fleet = Fleet::seed(&world, Spec::of(1)).await;
    let pauses =
        json!({ "mirror": { "contentionBackoffMs": 1_000, "contentionBackoffMaxMs": 4_000 } });
    let throughline = Setup::of(&world).set(&pauses).ready().await;
    oracle::converges(&world).await;
    quiet(&world).await;
    world.forget();
    let (hub, (namespace, name)) = (world.hub().rest(), fleet.replica(0));
    let stale = status(false, 0).to_string();
    let mut spoiled = 0;
    let until = std::time::Instant::now() + std::time::Duration::from_secs(10);
    while std::time::Instant::now() < until {
        let replica = hub.read(CONNECTORS, namespace, &name).await.unwrap();
        if annotation(&replica, UPSTREAM_STATUS) != Some(&stale) {
            hub.annotate(CONNECTORS, (namespace, &name), UPSTREAM_STATUS, Some(&stale))
                .await
                .unwrap();
            spoiled += 1;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    let ours = world.hub().proxy.count("PATCH", "connectors");
    assert!((3..20).contains(&ours), "{ours} writes of ours against {spoiled} of theirs in 10 s");
    oracle::converges(&world).await;
    throughline.stop().await;
}

/// A decision on an old view fails at the API server, by its preconditions, and is made anew.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn a_write_decided_on_an_old_view_does_not_land() {
    let world = World::start(Topology::Three).await;
    let fleet = Fleet::seed(&world, Spec::of(2)).await;
    let throughline = Setup::of(&world).ready().await;
    oracle::converges(&world).await;
    quiet(&world).await;
    world.forget();
    let (hub, edge) = (world.hub(), world.edge());
    let (namespace, name) = fleet.replica(0);

    // While the mirror's write is on its way, somebody else changes the replica.
    let gate = Gate::new();
    hub.proxy.add(Rule::new(Fault::Hold(gate.clone())).method("PATCH").times(1));
    fleet.flip(0).await.unwrap();
    held(&gate).await;
    hub.rest().annotate(CONNECTORS, (namespace, &name), FOREIGN, Some("1")).await.unwrap();
    gate.release();
    oracle::converges(&world).await;
    let codes: Vec<_> = hub.proxy.writes().iter().map(|write| write.code).collect();
    assert_eq!(codes, [409, 200]);
    quiet(&world).await;

    // While a touch is on its way, the gateway is deleted (404), or made anew (422: a merge
    // patch with another uid is one that changes what can't be changed).
    for (again, code) in [(false, 404), (true, 422)] {
        world.forget();
        let gate = Gate::new();
        edge.proxy.add(Rule::new(Fault::Hold(gate.clone())).method("PATCH").times(1));
        fleet.flip(1).await.unwrap();
        held(&gate).await;
        if again {
            fleet.recreate_gateway(1, &app(1, 0)).await.unwrap();
        } else {
            edge.rest().delete(GATEWAYS, namespace, &app(1, 0)).await.unwrap();
        }
        gate.release();
        oracle::converges(&world).await;
        quiet(&world).await;
        oracle::converged(&world).await.unwrap();
        let codes: Vec<_> = edge.proxy.writes().iter().map(|write| write.code).collect();
        let wanted: &[u16] = if again { &[code, 200] } else { &[code] };
        assert_eq!(codes, wanted);
        if !again {
            let gateway = crate::cluster::objects::gateway(namespace, &app(1, 0));
            edge.rest().create(GATEWAYS, gateway).await.unwrap();
            oracle::converges(&world).await;
            quiet(&world).await;
        }
    }
    throughline.stop().await;
}

async fn held(gate: &Gate) {
    eventually("a write is held", SOON, async || {
        ensure(gate.waiting() > 0, || "none came".to_owned())
    })
    .await;
}
