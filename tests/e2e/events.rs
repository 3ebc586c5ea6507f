//! Kubernetes Events: who posts them, on which object, how often.

use serde_json::{Value, json};

use crate::cluster::faults::Rule;
use crate::cluster::fleet::{Fleet, Spec};
use crate::cluster::objects::{UPSTREAM_STATUS, node_id, status};
use crate::cluster::rest::{CONNECTORS, EVENTS, Rest};
use crate::cluster::rights::{folders, without};
use crate::cluster::testbed::{Cluster, Testbed, Topology};
use crate::cluster::throughline::Setup;
use crate::cluster::{SOON, ensure, eventually, oracle, wait_until_idle};
use crate::leading::{ElectionTest, endless};

/// Stalls are reported after a second, and failed writes are retried soon.
fn short_limits() -> Value {
    json!({
        "stall": { "mirroredMs": 1_000, "arrivedMs": 1_000, "touchedMs": 1_000 },
        "retry": { "firstMs": 300, "maxMs": 1_000 },
        "mirror": { "nudgeAfterMs": 2_000 },
    })
}

/// Makes writes of a resource fail in this cluster; returns the rule.
fn fail_writes(cluster: &Cluster, resource: &'static str) -> usize {
    cluster.proxy.add(Rule::status(500).method("PATCH").resource(resource))
}

/// throughline's Events on objects of this name, oldest first.
pub(crate) async fn events_about(rest: &Rest, name: &str) -> Vec<Value> {
    let mut events = rest.items(EVENTS).await.unwrap();
    events.retain(|e| {
        e["involvedObject"]["name"] == name && e["source"]["component"] == "throughline"
    });
    let made = |event: &Value| event["metadata"]["name"].as_str().unwrap().to_owned();
    events.sort_by_key(made);
    events
}

fn count_events(events: &[Value], reason: &str) -> u64 {
    let of_it = events.iter().filter(|event| event["reason"] == reason);
    of_it.map(|event| event["count"].as_u64().unwrap()).sum()
}

/// Waits until the Events of this reason on an object have this count in sum; returns them.
pub(crate) async fn wait_for_events(
    rest: &Rest,
    name: &str,
    reason: &str,
    count: u64,
) -> Vec<Value> {
    eventually(&format!("{reason} on {name}, {count} times"), SOON, async || {
        let events = events_about(rest, name).await;
        ensure(count_events(&events, reason) >= count, || format!("{events:?}"))
    })
    .await;
    let mut events = events_about(rest, name).await;
    events.retain(|event| event["reason"] == reason);
    assert_eq!(count_events(&events, reason), count, "{events:#?}");
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
async fn stalls_are_posted_and_counted_on_the_connector() {
    let testbed = Testbed::start(Topology::Three).await;
    let fleet = Fleet::seed(&testbed, Spec::of(2)).await;
    let throughline = Setup::of(&testbed).set(&short_limits()).ready().await;
    oracle::converges(&testbed).await;
    wait_until_idle(&testbed).await;
    let (namespace, name) = fleet.hub_key(0);
    // On a busy machine the start may have taken longer than a second, with Events of its own.
    let (at_hub, at_edge) = (
        events_about(testbed.hub().rest(), &name).await,
        events_about(testbed.edge().rest(), &name).await,
    );
    let stalls = count_events(&at_hub, "StalledMirror");
    let ends = count_events(&at_hub, "Recovered");

    // A second stall of the same kind raises the count of the first Event.
    for i in 1..=2 {
        let rule = fail_writes(testbed.hub(), "connectors");
        fleet.flip(0).await.unwrap();
        let events =
            wait_for_events(testbed.hub().rest(), &name, "StalledMirror", stalls + i).await;
        assert_eq!(events.len(), 1, "{events:#?}");
        says(&events[0], "Warning", "is not mirrored to the hub within 1 s");
        testbed.hub().proxy.remove(rule);
        let events = wait_for_events(testbed.hub().rest(), &name, "Recovered", ends + i).await;
        let mirrored = |e: &&Value| e["message"] == "upstream's status is mirrored again";
        assert_eq!(events.iter().filter(mirrored).count(), 1, "{events:#?}");
        assert_eq!(events[0]["type"], "Normal");
        let connector = testbed.hub().rest().read(CONNECTORS, namespace, &name).await.unwrap();
        let involved = &events[0]["involvedObject"];
        assert_eq!(involved["uid"], connector["metadata"]["uid"]);
        assert_eq!(involved["apiVersion"], "networking.datumapis.com/v1alpha1");
        oracle::converges(&testbed).await;
    }

    // A value that is not carried is reported at the hub, a gateway that is not touched at the edge.
    testbed.carrier().set_stuck(true);
    fleet.flip(0).await.unwrap();
    let arrivals = count_events(&at_hub, "StalledArrival");
    let events = wait_for_events(testbed.hub().rest(), &name, "StalledArrival", arrivals + 1).await;
    says(&events[0], "Warning", "has not arrived at edge within 1 s");
    testbed.carrier().set_stuck(false);
    oracle::converges(&testbed).await;
    let rule = fail_writes(testbed.edge(), "gateways");
    fleet.flip(0).await.unwrap();
    let touches = count_events(&at_edge, "StalledTouch");
    let events = wait_for_events(testbed.edge().rest(), &name, "StalledTouch", touches + 1).await;
    says(&events[0], "Warning", "not every Gateway at edge announces it within 1 s");
    let copy = testbed.edge().rest().read(CONNECTORS, namespace, &name).await.unwrap();
    assert_eq!(events[0]["involvedObject"]["uid"], copy["metadata"]["uid"]);
    testbed.edge().proxy.remove(rule);
    let ends = count_events(&at_edge, "Recovered");
    wait_for_events(testbed.edge().rest(), &name, "Recovered", ends + 1).await;
    oracle::converges(&testbed).await;

    assert!(testbed.upstream().proxy.events().is_empty(), "an Event upstream");
    let posted = throughline.metrics().await[r#"throughline_events_total{result="posted"}"#];
    let sent = u32::try_from(testbed.events().len()).unwrap();
    assert!((posted - f64::from(sent)).abs() < 0.5, "{posted} of {sent}");
    throughline.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn contention_and_an_oversized_status_are_posted() {
    let testbed = Testbed::start(Topology::Two).await;
    let fleet = Fleet::seed(&testbed, Spec::of(1)).await;
    let pauses =
        json!({ "mirror": { "contentionBackoffMs": 500, "contentionBackoffMaxMs": 1_000 } });
    let throughline = Setup::of(&testbed).set(&pauses).ready().await;
    oracle::converges(&testbed).await;
    let (hub, (namespace, name)) = (testbed.hub().rest(), fleet.hub_key(0));
    for n in 0..8 {
        let stale = status(false, n + 7).to_string();
        hub.annotate(CONNECTORS, (namespace, &name), UPSTREAM_STATUS, Some(&stale)).await.unwrap();
        oracle::converges(&testbed).await;
    }
    let events = wait_for_events(hub, &name, "Contention", 1).await;
    assert_eq!(events.len(), 1, "{events:#?}");
    says(
        &events[0],
        "Warning",
        "another writer keeps changing networking.datumapis.com/upstream-s",
    );
    throughline.stop().await;

    let small = json!({ "mirror": { "annotationLimitBytes": 900 } });
    let throughline = Setup::of(&testbed).set(&small).ready().await;
    let events = wait_for_events(hub, &name, "StatusTooLarge", 1).await;
    says(&events[0], "Warning", "left of the annotation limit of 900 bytes");
    throughline.stop().await;
}

/// Every instance sees the stall, and only the leader posts an Event. A dry run posts none.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn only_the_leader_posts_and_a_dry_run_does_not() {
    let mut more = short_limits();
    more["leaderElection"] = endless()["leaderElection"].clone();
    let election = ElectionTest::with(Topology::Two, 2, more).await;
    let leader = election.somebody_leads().await;
    // With this limit, the status is too large for it.
    let dry = json!({ "dryRun": true, "mirror": { "annotationLimitBytes": 900 } });
    let watcher = Setup::of(&election.testbed).set(&dry).ready().await;
    for instance in &election.instances {
        instance.hub().add(Rule::status(500).method("PATCH").resource("connectors"));
    }
    election.fleet.flip(0).await.unwrap();
    let (hub, (_, name)) = (election.testbed.hub().rest(), election.fleet.hub_key(0));
    eventually("the Event is posted", SOON, async || {
        ensure(count_events(&events_about(hub, &name).await, "StalledMirror") > 0, || {
            "not yet".to_owned()
        })
    })
    .await;
    let other = &election.instances[1 - leader];
    eventually("all instances have seen it", SOON, async || {
        let seen = other.count_log_lines("stalled") > 0 && watcher.logged("oversized_status");
        ensure(seen, || "not yet".to_owned())
    })
    .await;
    for instance in &election.instances {
        instance.hub().clear();
    }
    oracle::converges(&election.testbed).await;
    assert!(!election.instances[leader].hub().events().is_empty());
    let events = other.hub().events();
    assert!(events.is_empty(), "a standby instance posted: {events:#?}");
    assert!(
        election.testbed.events().is_empty(),
        "a dry run posted: {:#?}",
        election.testbed.events()
    );
    election.end().await;
    watcher.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn forbidden_events_do_no_harm() {
    let testbed = Testbed::start(Topology::Two).await;
    let fleet = Fleet::seed(&testbed, Spec::of(4)).await;
    let throughline = Setup::of(&testbed).set(&short_limits()).ready().await;
    oracle::converges(&testbed).await;
    let hub = testbed.hub();
    without(hub.rest(), &folders(hub.roles), Some(("", "events", "create"))).await;
    let rule = fail_writes(testbed.hub(), "connectors");
    fleet.flip_all(0..4).await.unwrap();
    eventually("the Events fail", SOON, async || {
        let metrics = throughline.metrics().await;
        let [failed, dropped] = ["failed", "dropped"]
            .map(|result| metrics[&format!("throughline_events_total{{result={result:?}}}")]);
        ensure(failed > 0.5 && failed + dropped > 3.5, || format!("{failed}, {dropped}"))
    })
    .await;
    testbed.hub().proxy.remove(rule);
    oracle::converges(&testbed).await;
    let said = throughline.log();
    let said = said.iter().filter(|line| line.contains("grant create and patch on events"));
    // The first Event after the permission was revoked may still succeed.
    assert_eq!(said.count(), 1);
    assert!(testbed.events().iter().filter(|write| write.code == 403).count() == 1);
    throughline.stop().await;
}
