//! Kubernetes Events: who posts them, on which object, how often, and how many for a large fleet.

use crate::cluster::objects::node_id;
use crate::leading::{ElectionTest, endless};
use crate::prelude::*;

/// Makes writes of a resource fail here; returns the rule.
fn fail_writes(proxy: &FaultProxy, resource: &'static str) -> usize {
    proxy.add(Rule::status(500).method("PATCH").resource(resource))
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

/// Waits until the Events of this reason on an object have this count in sum; returns them.
pub(crate) async fn wait_for_events(
    rest: &Rest,
    name: &str,
    reason: &str,
    count: u64,
) -> Vec<Value> {
    let found = async || {
        let mut events = events_about(rest, name).await;
        events.retain(|event| event["reason"] == reason);
        let count: u64 = events.iter().filter_map(|event| event["count"].as_u64()).sum();
        (count, events)
    };
    let what = format!("{reason} on {name}, {count} times");
    until(&what, async || found().await.0 >= count).await;
    let (counted, events) = found().await;
    assert_eq!(counted, count, "{events:#?}");
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
async fn a_problem_and_its_end_are_posted_on_the_object_concerned() {
    let retry = json!({ "firstMs": 300, "maxMs": 1_000 });
    let limits = json!({ "stall": { "arrivedMs": 3_000 }, "retry": retry });
    let provoked = [Cause::WriteFailing, Cause::NotCarried];
    let (testbed, fleet, throughline) =
        in_sync(Topology::Three, Spec::of(2), &limits, &provoked).await;
    let (namespace, name) = fleet.hub_key(0);
    let (hub, edge) = (testbed.hub(), testbed.edge());

    for i in 1..=2 {
        let rule = fail_writes(&hub.proxy, "connectors");
        fleet.flip(0).await.unwrap();
        let events = wait_for_events(hub.rest(), &name, "WriteFailing", i).await;
        says(&events[0], "Warning", "Writes of Connector to hub fail: 500");
        hub.proxy.remove(rule);
        let events = wait_for_events(hub.rest(), &name, "Resolved", i).await;
        says(&events[0], "Normal", "WriteFailing");
        let connector = hub.rest().read(CONNECTORS, namespace, &name).await.unwrap();
        let involved = &events[0]["involvedObject"];
        assert_eq!(involved["uid"], connector["metadata"]["uid"]);
        assert_eq!(involved["apiVersion"], "networking.datumapis.com/v1alpha1");
        oracle::converges(&testbed).await;
    }

    // What is not carried is posted on the edge's Connector, a touch that fails on its Gateway.
    testbed.carrier().set_stuck(true);
    fleet.flip(0).await.unwrap();
    let events = wait_for_events(edge.rest(), &name, "NotCarried", 1).await;
    says(&events[0], "Warning", "edge does not have the hub annotation of");
    let connector = edge.rest().read(CONNECTORS, namespace, &name).await.unwrap();
    assert_eq!(events[0]["involvedObject"]["uid"], connector["metadata"]["uid"]);
    testbed.carrier().set_stuck(false);
    oracle::converges(&testbed).await;
    wait_for_events(edge.rest(), &name, "Resolved", 1).await;
    let rule = fail_writes(&edge.proxy, "gateways");
    fleet.flip(0).await.unwrap();
    let gateway = app(0, 0);
    let events = wait_for_events(edge.rest(), &gateway, "WriteFailing", 1).await;
    says(&events[0], "Warning", "Writes of Gateway to edge fail: 500");
    edge.proxy.remove(rule);
    wait_for_events(edge.rest(), &gateway, "Resolved", 1).await;
    oracle::converges(&testbed).await;

    assert!(testbed.upstream().proxy.events().is_empty(), "an Event upstream");
    throughline.stop().await;
}

/// Every instance sees the problem, and only the leader posts an Event. A dry run posts none.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn only_the_leader_posts_and_a_dry_run_does_not() {
    let mut more = endless();
    more["retry"] = json!({ "firstMs": 300, "maxMs": 1_000 });
    more["stall"] = json!({ "mirroredMs": 1_000 });
    let mut election = ElectionTest::with(Topology::Two, 2, more).await;
    election.provoked = &[Cause::NotMirrored, Cause::WriteFailing];
    let leader = election.somebody_leads().await;
    // With this limit, the status is too large for it.
    let dry = json!({ "dryRun": true, "mirror": { "annotationLimitBytes": 900 } });
    let setup = Setup::of(&election.testbed).set(&dry).provokes(&[Cause::NotMirrored]);
    let watcher = setup.ready().await;
    for instance in &election.instances {
        fail_writes(instance.hub(), "connectors");
    }
    election.fleet.flip(0).await.unwrap();
    let (hub, (_, name)) = (election.testbed.hub().rest(), election.fleet.hub_key(0));
    wait_for_events(hub, &name, "WriteFailing", 1).await;
    let other = &election.instances[1 - leader];
    until("all instances have seen it", async || {
        other.throughline().logged("not_mirrored") && watcher.logged("status_too_large")
    })
    .await;

    // Another instance names the leader.
    let state = other.throughline().state().await;
    let holder = &election.instances[leader].identity;
    assert_eq!(state["leader"]["holder"], json!(holder), "{state}");
    assert_eq!(state["leader"]["leads"], false, "{state}");
    for instance in &election.instances {
        instance.hub().clear();
    }
    oracle::converges(&election.testbed).await;
    assert!(!election.instances[leader].hub().events().is_empty());
    let others = [other.hub().events(), election.testbed.events()];
    assert!(others.concat().is_empty(), "a standby instance, or a dry run: {others:#?}");
    watcher.stop().await;
    election.end().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn a_first_install_of_a_thousand_connectors_posts_a_handful() {
    let (testbed, _fleet) = seeded(Topology::Two, Spec { gateways: 0, ..Spec::of(1_000) }).await;
    let election = json!({ "leaderElection": { "enabled": true, "leaseNamespace": "default" } });
    // More than an API server takes before the last ones are late.
    let setup = Setup::of(&testbed).set(&election).provokes(&[Cause::NotMirrored]);
    let throughline = setup.ready().await;
    oracle::converges_within(&testbed, 3 * SOON).await;
    // Long enough for what a new leader found to be reported, and that it is over.
    tokio::time::sleep(Duration::from_secs(15)).await;
    let events = testbed.events();
    assert!(events.len() <= 10, "{events:#?}");
    assert_eq!(throughline.count_logged("Lease that was not there"), 1);
    throughline.stop().await;
}
