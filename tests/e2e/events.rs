//! What is the matter with an object is told on it, by Events: who posts, where, how often.

use serde_json::{Value, json};

use crate::cluster::faults::Rule;
use crate::cluster::fleet::{Fleet, Spec};
use crate::cluster::objects::{UPSTREAM_STATUS, node_id, status};
use crate::cluster::rest::{CONNECTORS, EVENTS, Rest};
use crate::cluster::rights::{folders, without};
use crate::cluster::throughline::Setup;
use crate::cluster::world::{Cluster, Topology, World};
use crate::cluster::{SOON, ensure, eventually, oracle, quiet};
use crate::leading::{Party, endless};

/// Stalls are told after a second, and what fails is tried again soon.
fn hasty() -> Value {
    json!({
        "stall": { "mirroredMs": 1_000, "arrivedMs": 1_000, "touchedMs": 1_000 },
        "retry": { "firstMs": 300, "maxMs": 1_000 },
        "executor": { "tries": 1 },
        "mirror": { "nudgeAfterMs": 2_000 },
    })
}

/// Writes of a resource fail at this cluster.
fn fails(cluster: &Cluster, resource: &'static str) -> usize {
    cluster.proxy.add(Rule::status(500).method("PATCH").resource(resource))
}

/// The Events of throughline's on objects of this name, oldest first.
pub(crate) async fn told(rest: &Rest, name: &str) -> Vec<Value> {
    let mut events = rest.items(EVENTS).await.unwrap();
    events.retain(|e| {
        e["involvedObject"]["name"] == name && e["source"]["component"] == "throughline"
    });
    let made = |event: &Value| event["metadata"]["name"].as_str().unwrap().to_owned();
    events.sort_by_key(made);
    events
}

fn counted(events: &[Value], reason: &str) -> u64 {
    let of_it = events.iter().filter(|event| event["reason"] == reason);
    of_it.map(|event| event["count"].as_u64().unwrap()).sum()
}

/// Waits for Events of this reason on an object, which together count so many; gives them.
pub(crate) async fn counts(rest: &Rest, name: &str, reason: &str, count: u64) -> Vec<Value> {
    eventually(&format!("{reason} on {name}, {count} times"), SOON, async || {
        let events = told(rest, name).await;
        ensure(counted(&events, reason) >= count, || format!("{events:?}"))
    })
    .await;
    let mut events = told(rest, name).await;
    events.retain(|event| event["reason"] == reason);
    assert_eq!(counted(&events, reason), count, "{events:#?}");
    events
}

fn says(event: &Value, kind: &str, text: &str) {
    let message = event["message"].as_str().unwrap();
    assert!(event["type"] == kind && message.contains(text), "{event}");
    assert!(!message.contains("127.0.0.1") && !message.contains(&node_id(0)), "{message}");
    assert_eq!(event["reportingComponent"], "throughline");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn stalls_are_told_and_counted_on_the_connector() {
    let world = World::start(Topology::Three).await;
    let fleet = Fleet::seed(&world, Spec::of(2)).await;
    let throughline = Setup::of(&world).set(&hasty()).ready().await;
    oracle::converges(&world).await;
    quiet(&world).await;
    let (namespace, name) = fleet.replica(0);
    // On a busy machine a start takes longer than a second.
    let (at_hub, at_edge) =
        (told(world.hub().rest(), &name).await, told(world.edge().rest(), &name).await);
    let stalls = counted(&at_hub, "StalledMirror");
    let ends = counted(&at_hub, "Recovered");

    // Twice the same: one Event, which is counted.
    for i in 1..=2 {
        let rule = fails(world.hub(), "connectors");
        fleet.flip(0).await.unwrap();
        let events = counts(world.hub().rest(), &name, "StalledMirror", stalls + i).await;
        assert_eq!(events.len(), 1, "{events:#?}");
        says(&events[0], "Warning", "is not mirrored to the hub within 1 s");
        world.hub().proxy.remove(rule);
        let events = counts(world.hub().rest(), &name, "Recovered", ends + i).await;
        let mirrored = |e: &&Value| e["message"] == "upstream's status is mirrored again";
        assert_eq!(events.iter().filter(mirrored).count(), 1, "{events:#?}");
        assert_eq!(events[0]["type"], "Normal");
        let connector = world.hub().rest().read(CONNECTORS, namespace, &name).await.unwrap();
        let involved = &events[0]["involvedObject"];
        assert_eq!(involved["uid"], connector["metadata"]["uid"]);
        assert_eq!(involved["apiVersion"], "networking.datumapis.com/v1alpha1");
        oracle::converges(&world).await;
    }

    // What is not carried is told at the hub, what is not touched at the edge.
    world.carrier().stuck(true);
    fleet.flip(0).await.unwrap();
    let arrivals = counted(&at_hub, "StalledArrival");
    let events = counts(world.hub().rest(), &name, "StalledArrival", arrivals + 1).await;
    says(&events[0], "Warning", "has not arrived at edge within 1 s");
    world.carrier().stuck(false);
    oracle::converges(&world).await;
    let rule = fails(world.edge(), "gateways");
    fleet.flip(0).await.unwrap();
    let touches = counted(&at_edge, "StalledTouch");
    let events = counts(world.edge().rest(), &name, "StalledTouch", touches + 1).await;
    says(&events[0], "Warning", "not every Gateway at edge announces it within 1 s");
    let copy = world.edge().rest().read(CONNECTORS, namespace, &name).await.unwrap();
    assert_eq!(events[0]["involvedObject"]["uid"], copy["metadata"]["uid"]);
    world.edge().proxy.remove(rule);
    let ends = counted(&at_edge, "Recovered");
    counts(world.edge().rest(), &name, "Recovered", ends + 1).await;
    oracle::converges(&world).await;

    assert!(world.upstream().proxy.events().is_empty(), "an Event upstream");
    let posted = throughline.metrics().await["throughline_events_posted_total"];
    let sent = u32::try_from(world.events().len()).unwrap();
    assert!((posted - f64::from(sent)).abs() < 0.5, "{posted} of {sent}");
    throughline.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn a_fight_and_a_status_that_is_too_large_are_told() {
    let world = World::start(Topology::Two).await;
    let fleet = Fleet::seed(&world, Spec::of(1)).await;
    let pauses =
        json!({ "mirror": { "contentionBackoffMs": 500, "contentionBackoffMaxMs": 1_000 } });
    let throughline = Setup::of(&world).set(&pauses).ready().await;
    oracle::converges(&world).await;
    let (hub, (namespace, name)) = (world.hub().rest(), fleet.replica(0));
    for n in 0..8 {
        let stale = status(false, n + 7).to_string();
        hub.annotate(CONNECTORS, (namespace, &name), UPSTREAM_STATUS, Some(&stale)).await.unwrap();
        oracle::converges(&world).await;
    }
    let mut events = told(hub, &name).await;
    events.retain(|event| event["reason"] == "Contention");
    assert_eq!(events.len(), 1, "{events:#?}");
    says(
        &events[0],
        "Warning",
        "another writer keeps changing networking.datumapis.com/upstream-s",
    );
    throughline.stop().await;

    let small = json!({ "mirror": { "annotationLimitBytes": 900 } });
    let throughline = Setup::of(&world).set(&small).ready().await;
    let events = counts(hub, &name, "StatusTooLarge", 1).await;
    says(&events[0], "Warning", "left of the limit of 900");
    throughline.stop().await;
}

/// Both see the stall; the leader tells. A dry run tells nobody.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn only_the_leader_tells_and_a_dry_run_does_not() {
    let mut more = hasty();
    more["leaderElection"] = endless()["leaderElection"].clone();
    let party = Party::with(Topology::Two, 2, more).await;
    let leader = party.somebody_leads().await;
    // It thinks that a status is too large.
    let dry = json!({ "dryRun": true, "mirror": { "annotationLimitBytes": 900 } });
    let watcher = Setup::of(&party.world).set(&dry).ready().await;
    for replica in &party.replicas {
        replica.hub().add(Rule::status(500).method("PATCH").resource("connectors"));
    }
    party.fleet.flip(0).await.unwrap();
    let (hub, (_, name)) = (party.world.hub().rest(), party.fleet.replica(0));
    eventually("it is told", SOON, async || {
        ensure(counted(&told(hub, &name).await, "StalledMirror") > 0, || "not yet".to_owned())
    })
    .await;
    let other = &party.replicas[1 - leader];
    eventually("all have seen it", SOON, async || {
        let seen = other.said("stalled") > 0 && watcher.logged("oversized_status");
        ensure(seen, || "not yet".to_owned())
    })
    .await;
    for replica in &party.replicas {
        replica.hub().clear();
    }
    oracle::converges(&party.world).await;
    assert!(!party.replicas[leader].hub().events().is_empty());
    let events = other.hub().events();
    assert!(events.is_empty(), "a standby replica told: {events:#?}");
    assert!(party.world.events().is_empty(), "a dry run told: {:#?}", party.world.events());
    party.end().await;
    watcher.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn events_that_are_forbidden_harm_nothing() {
    let world = World::start(Topology::Two).await;
    let fleet = Fleet::seed(&world, Spec::of(4)).await;
    let throughline = Setup::of(&world).set(&hasty()).ready().await;
    oracle::converges(&world).await;
    let hub = world.hub();
    without(hub.rest(), &folders(hub.roles), Some(("", "events", "create"))).await;
    let rule = fails(world.hub(), "connectors");
    fleet.flip_all(0..4).await.unwrap();
    eventually("they are not told", SOON, async || {
        let metrics = throughline.metrics().await;
        let [failed, dropped] =
            ["failed", "dropped"].map(|fate| metrics[&format!("throughline_events_{fate}_total")]);
        ensure(failed > 0.5 && failed + dropped > 3.5, || format!("{failed}, {dropped}"))
    })
    .await;
    world.hub().proxy.remove(rule);
    oracle::converges(&world).await;
    let said = throughline.log();
    let said = said.iter().filter(|line| line.contains("grant create and patch on events"));
    // A right that was just taken away may be there for a moment longer.
    assert_eq!(said.count(), 1);
    assert!(world.events().iter().filter(|write| write.code == 403).count() == 1);
    throughline.stop().await;
}
