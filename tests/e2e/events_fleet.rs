//! How many Kubernetes Events and log lines a large fleet brings.

use std::time::Duration;

use serde_json::json;
use throughline::core::contract::cause::Cause;

use crate::cluster::fleet::{Fleet, Mirrored, Spec};
use crate::cluster::rest::EVENTS;
use crate::cluster::testbed::{Testbed, Topology};
use crate::cluster::throughline::{Setup, Throughline};
use crate::cluster::{SOON, oracle};

const EVENTS_MAX: usize = 10;

/// More than an API server takes before the last ones are late.
const MANY: &[Cause] = &[Cause::NotMirrored];

/// Long enough for what a new leader found to be reported, and that it is over.
const AFTERWARDS: Duration = Duration::from_secs(15);

/// Prints what was posted and logged, and returns how many POSTs of Events there were.
async fn posts(what: &str, testbed: &Testbed, throughline: &Throughline) -> usize {
    let posts = testbed.events().len();
    println!("{what}: {posts} Events posted");
    for cluster in &testbed.clusters {
        for event in cluster.rest().items(EVENTS).await.unwrap() {
            if event["source"]["component"] == "throughline" {
                let object = &event["involvedObject"];
                println!(
                    "  {} {} on {}: {}",
                    event["count"], event["reason"], object["kind"], event["message"]
                );
            }
        }
    }
    for line in throughline.log() {
        if !line.contains("\"written\"") {
            println!("  {line}");
        }
    }
    posts
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn a_first_install_of_a_thousand_connectors_posts_a_handful() {
    let testbed = Testbed::start(Topology::Two).await;
    let _fleet = Fleet::seed(&testbed, Spec { gateways: 0, ..Spec::of(1_000) }).await;
    let election = json!({ "leaderElection": { "enabled": true, "leaseNamespace": "default" } });
    let setup = Setup::of(&testbed).set(&election).provokes(MANY);
    let throughline = setup.ready().await;
    oracle::converges_within(&testbed, 3 * SOON).await;
    tokio::time::sleep(AFTERWARDS).await;
    let count = posts("first install, 1,000 connectors", &testbed, &throughline).await;
    assert!(count <= EVENTS_MAX, "{count}");
    let waits = throughline.log().iter().filter(|l| l.contains("Lease that was not there")).count();
    assert_eq!(waits, 1);
    throughline.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn a_start_with_five_thousand_stale_annotations_posts_a_handful() {
    let testbed = Testbed::start(Topology::Two).await;
    let mirrored = Mirrored::Stale(5_000);
    let spec = Spec { per_namespace: 100, gateways: 0, mirrored, ..Spec::of(5_000) };
    let _fleet = Fleet::seed(&testbed, spec).await;
    let throughline = Setup::of(&testbed).provokes(MANY).ready().await;
    oracle::converges_within(&testbed, 5 * SOON).await;
    tokio::time::sleep(AFTERWARDS).await;
    let count = posts("start, 5,000 stale annotations", &testbed, &throughline).await;
    assert!(count <= EVENTS_MAX, "{count}");
    throughline.stop().await;
}
