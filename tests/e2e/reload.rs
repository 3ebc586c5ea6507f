//! The configuration changes while connectors flip: clusters join and leave, credentials and settings
//! change, and no flip is lost.

use std::cell::Cell;
use std::collections::BTreeSet;

use tokio::time::MissedTickBehavior;

use crate::prelude::*;

const CONNECTORS: usize = 20;

/// Flips one connector after another, ten a second at most, and counts the flips: two edges take a touch
/// for each, which must not be more than the machine can do.
async fn flip_on(fleet: &Fleet, flips: &Cell<usize>) {
    let mut every = tokio::time::interval(Duration::from_millis(100));
    every.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for flip in 0_usize.. {
        every.tick().await;
        fleet.flip(flip % CONNECTORS).await.unwrap();
        flips.set(flip);
    }
}

fn clusters(config: &mut Value) -> &mut Vec<Value> {
    config["clusters"].as_array_mut().unwrap()
}

/// Waits until its log has had so many lines that contain the text, and no more.
async fn logged(throughline: &Throughline, text: &str, times: usize) {
    throughline.logs(text, times).await;
    assert_eq!(throughline.count_logged(text), times, "{text}");
}

/// The lists of a cluster that were begun, and of how many kinds.
fn lists(throughline: &Throughline, cluster: &str) -> (usize, usize) {
    let text = std::fs::read_to_string(throughline.event_log()).unwrap();
    let lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let lists = lines.filter(|line| line["event"] == "list_started" && line["cluster"] == cluster);
    let kinds: Vec<_> = lists.map(|line| line["kind"].to_string()).collect();
    (kinds.len(), kinds.iter().collect::<BTreeSet<_>>().len())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn no_flip_is_lost_while_clusters_join_and_leave_and_settings_change() {
    let spec = Spec { with_routes: true, ..Spec::of(CONNECTORS) };
    let (mut testbed, fleet) = seeded(Topology::Three, spec).await;
    let setup = Setup::of(&testbed);
    let carrier = testbed.add_edge("edge-2", &fleet).await;
    let throughline = setup.ready().await;
    oracle::converges(&testbed).await;
    let flips = Cell::new(0);
    tokio::select! {
        () = flip_on(&fleet, &flips) => {}
        () = change_all(&testbed, &throughline) => {}
    }
    assert!(flips.get() > 300, "{} flips", flips.get());
    // The second edge has left.
    testbed.clusters.pop();
    drop(carrier);
    oracle::converges(&testbed).await;
    wait_until_idle(&testbed).await;
    let (lists, kinds) = lists(&throughline, "up");
    // At the start and when it joined again, not for other credentials.
    assert_eq!(lists, 2 * kinds);
    let metrics = throughline.metrics().await;
    let reloads = |result: &str| {
        let name = format!("throughline_config_reloads_total{{result={result:?}}}");
        metrics.get(&name).copied()
    };
    assert_eq!((reloads("applied"), reloads("refused")), (Some(12.0), Some(4.0)), "{metrics:#?}");
    // Its event log verifies.
    throughline.stop().await;
}

async fn change_all(testbed: &Testbed, throughline: &Throughline) {
    let joining = testbed.clusters.last().unwrap().config();
    let mut config = throughline.config();
    let write = |config: &Value| throughline.write_config(&config.to_string());
    for round in 1..=3 {
        clusters(&mut config).push(joining.clone());
        write(&config);
        logged(throughline, "1 cluster joined (edge-2)", round).await;
        // 0 while all its watches are live; no series once it has left.
        let unavailable = async || throughline.open(Cause::ClusterUnavailable, "edge-2").await;
        until("edge-2 is followed", async || unavailable().await == Some(0.0)).await;
        config["touch"]["maxPerSecond"] = json!(50 + round);
        write(&config);
        let later = "these take effect at the next start: touch.maxPerSecond";
        logged(throughline, later, 3 * round - 2).await;
        throughline.write_config("clusters: [");
        logged(throughline, "is not used: ", round).await;
        clusters(&mut config).retain(|cluster| cluster["name"] != "edge-2");
        write(&config);
        logged(throughline, "1 cluster left (edge-2)", round).await;
        assert_eq!(unavailable().await, None, "edge-2 has left");
    }

    // The same server by another file; SIGHUP does not wait for the next look.
    let up = testbed.upstream().config();
    let other = throughline.folder().join("other-kubeconfig");
    std::fs::copy(up["kubeconfig"].as_str().unwrap(), &other).unwrap();
    let is_up = |cluster: &&mut Value| cluster["name"] == "up";
    clusters(&mut config).iter_mut().find(is_up).unwrap()["kubeconfig"] = json!(other);
    write(&config);
    throughline.signal(Signal::HUP);
    logged(throughline, "1 cluster reached in another way (up)", 1).await;
    tokio::time::sleep(Duration::from_secs(2)).await;

    // What a file alone may not do, and a person may.
    let mut alone = config.clone();
    clusters(&mut alone).retain(|cluster| cluster["name"] == "hub");
    write(&alone);
    logged(throughline, "it takes away 2 of 3 clusters, or roles of them: up, edge", 1).await;
    throughline.signal(Signal::HUP);
    logged(throughline, "2 clusters left (up, edge)", 1).await;
    write(&config);
    logged(throughline, "2 clusters joined (up, edge)", 1).await;
}
