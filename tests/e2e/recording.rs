//! `throughline record` on real API servers: it needs only list and watch, and its event log replays.

use std::fs;
use std::process::Command;

use crate::cluster::constants;
use crate::cluster::process::{Folder, Process};
use crate::cluster::rights::{folders, only};
use crate::cluster::throughline::binary;
use crate::prelude::*;

/// A flip that nobody repairs, and a cluster that is down for a while.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn a_recording_only_lists_and_watches_and_can_be_replayed() {
    let spec = Spec { mirrored: Mirrored::Fresh, with_routes: true, ..Spec::of(3) };
    let (testbed, fleet) = seeded(Topology::Three, spec).await;
    let rules = json!([{ "apiGroups": ["*"], "resources": ["*"], "verbs": ["list", "watch"] }]);
    for cluster in &testbed.clusters {
        only(cluster.rest(), &folders(cluster.roles), &rules).await;
    }
    let edge = &testbed.edge().proxy;
    edge.down();
    testbed.reset_counts();
    let clusters: Vec<_> = testbed.clusters.iter().map(Cluster::config).collect();
    let folder = Folder::new("record");
    let [config, log] = ["config.yaml", "night.jsonl"].map(|name| folder.path().join(name));
    constants::write(&config, &json!({ "clusters": clusters, "watch": { "backoffMaxMs": 500 } }));
    let words = ["record", log.to_str().unwrap(), "--config", config.to_str().unwrap()];
    let mut record = Command::new(binary());
    record.args(words).env_remove("RUST_LOG").env_remove("KUBECONFIG");
    constants::give(&mut record, &config);
    let mut process = Process::start("record", record, folder.path());

    let has = async |what: &str, parts: &[&str]| {
        until(what, async || {
            let text = fs::read_to_string(&log).unwrap_or_default();
            text.lines().any(|line| parts.iter().all(|part| line.contains(part)))
        })
        .await;
    };
    has("a lost watch", &[r#""event":"watch_lost""#, r#""cluster":"edge""#]).await;
    edge.up();
    becomes("everything is listed", 9, async || {
        fs::read_to_string(&log).unwrap().matches(r#""event":"list_finished""#).count()
    })
    .await;
    fleet.flip(0).await.unwrap();
    let flip = [r#""event":"applied""#, r#""cluster":"up""#, r#""kind":"Connector""#];
    has("the flip", &flip).await;
    // Nobody repairs it: the recording ends in the middle of the outage.
    let broken_for = Duration::from_millis(1_500);
    tokio::time::sleep(broken_for).await;
    process.signal(Signal::INT);
    let status = process.wait(SOON).await.expect("it stops at SIGINT");
    assert!(status.success(), "{}", process.log_tail());

    // It only listed and watched, and only the kinds that it records.
    assert_eq!(testbed.writes().len(), 0);
    let kinds = ["connectors", "gateways", "httpproxies", "httproutes", "namespaces"];
    for cluster in &testbed.clusters {
        for exchange in cluster.proxy.exchanges() {
            let is_fine = exchange.target.method == "GET" && exchange.code != 403;
            assert!(is_fine && kinds.contains(&&*exchange.target.resource), "{exchange:?}");
        }
    }

    // Node ids and addresses are redacted.
    let text = fs::read_to_string(&log).unwrap();
    assert!(!text.contains("192.0.2."), "an address is not redacted");
    assert!(text.contains("redacted-"), "no node id is recorded");
    let kind = |name: &str| text.contains(&format!("\"kind\":\"{name}\""));
    assert!(kind("HTTPRoute") && kind("Namespace") && kind("HTTPProxy"));

    // throughline would have mirrored the flip.
    let (code, replay, complained) =
        command(&["replay", "--output", "json", log.to_str().unwrap()]).await;
    assert_eq!(code, 0, "{complained}");
    let replay: Value = serde_json::from_str(&replay).unwrap();
    assert_eq!(replay["mode"], "what-if");
    assert_eq!(replay["verdict"]["converged"], true);
    let (namespace, name) = fleet.hub_key(0);
    let outages = list(&replay["outages"]["recorded"]);
    let open: Vec<_> = outages.filter(|outage| outage["until_ms"].is_null()).collect();
    let [open] = open[..] else { panic!("{open:#?}") };
    assert_eq!((&open["namespace"], &open["name"]), (&json!(namespace), &json!(name)));
    let lasted = replay["to_ms"].as_u64().unwrap() - open["from_ms"].as_u64().unwrap();
    assert!(u128::from(lasted) >= broken_for.as_millis(), "{lasted} ms");
    let last: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    assert_eq!((&last["event"], &last["at_ms"]), (&json!("recording_ended"), &replay["to_ms"]));
    let mut actions = list(&replay["actions"]);
    let is_of = |a: &Value| a["namespace"] == namespace && a["name"] == *name;
    assert!(actions.any(|a| a["type"] == "mirror" && is_of(a)), "{:#}", replay["actions"]);
}
