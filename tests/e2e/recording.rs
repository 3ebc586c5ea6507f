//! `throughline record` on real API servers: it needs only list and watch, and its event log replays.

use std::process::Command;

use serde_json::{Value, json};

use crate::cluster::constants;
use crate::cluster::fleet::{Fleet, Mirrored, Spec};
use crate::cluster::process::{Folder, Process, Signal};
use crate::cluster::rights::{folders, only};
use crate::cluster::testbed::{Testbed, Topology};
use crate::cluster::throughline::binary;
use crate::cluster::{SOON, ensure, eventually};

/// Leaves list and watch as the only permissions.
async fn allow_reads_only(testbed: &Testbed) {
    let rules = json!([{ "apiGroups": ["*"], "resources": ["*"], "verbs": ["list", "watch"] }]);
    for cluster in &testbed.clusters {
        let rest = cluster.rest();
        only(rest, &folders(cluster.roles), &rules).await;
    }
}

fn lines(folder: &Folder) -> Vec<Value> {
    let text = std::fs::read_to_string(folder.path().join("night.jsonl")).unwrap_or_default();
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// A flip that nobody repairs, and a cluster that is down for a while.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn a_recording_only_lists_and_watches_and_can_be_replayed() {
    let testbed = Testbed::start(Topology::Three).await;
    let fleet =
        Fleet::seed(&testbed, Spec { mirrored: Mirrored::Fresh, with_routes: true, ..Spec::of(3) })
            .await;
    allow_reads_only(&testbed).await;
    let edge = &testbed.edge().proxy;
    edge.down();
    testbed.reset_counts();
    let clusters: Vec<_> = testbed.clusters.iter().map(|c| c.config()).collect();
    let folder = Folder::new("record");
    let config = folder.path().join("config.yaml");
    let config_text = json!({ "clusters": clusters, "watch": { "backoffMaxMs": 500 } });
    constants::write(&config, &config_text);
    let mut command = Command::new(binary());
    command.arg("record").arg(folder.path().join("night.jsonl")).arg("--config").arg(&config);
    constants::give(&mut command, &config);
    command.env_remove("RUST_LOG").env_remove("KUBECONFIG");
    let mut process = Process::start("record", command, folder.path());

    let has = |what: &dyn Fn(&Value) -> bool| lines(&folder).iter().any(what);
    eventually("the edge's watches are recorded as lost", SOON, async || {
        let lost = |l: &Value| l["event"] == "watch_lost" && l["cluster"] == "edge";
        ensure(has(&lost), || "not yet".to_owned())
    })
    .await;
    assert!(process.log_tail().contains("watch lost; retrying"), "{}", process.log_tail());
    edge.up();
    eventually("everything is listed", SOON, async || {
        let finished = lines(&folder).iter().filter(|l| l["event"] == "list_finished").count();
        ensure(finished == 9, || format!("{finished} of 9"))
    })
    .await;
    fleet.flip(0).await.unwrap();
    eventually("the flip is recorded", SOON, async || {
        let flip = |l: &Value| {
            l["event"] == "applied" && l["cluster"] == "up" && l["object"]["kind"] == "Connector"
        };
        ensure(has(&flip), || "not yet".to_owned())
    })
    .await;
    // Nobody repairs it: the recording ends in the middle of the outage.
    let broken_for = std::time::Duration::from_millis(1_500);
    tokio::time::sleep(broken_for).await;
    process.signal(Signal::INT);
    let status = process.wait(SOON).await.expect("it stops at SIGINT");
    let said = process.log_tail();
    println!("{said}");
    assert!(status.success(), "{said}");
    assert!(said.contains("recorded ") && said.contains("replay it: throughline replay"), "{said}");

    assert!(said.contains(" events, 3 connectors, "), "each connector counts once: {said}");

    // It only listed and watched, and only the kinds that it records.
    assert_eq!(testbed.writes().len(), 0);
    let kinds = ["connectors", "gateways", "httpproxies", "httproutes", "namespaces"];
    for cluster in &testbed.clusters {
        for (count, n) in cluster.proxy.counts() {
            assert_eq!(count.method, "GET", "{count:?} {n}");
            assert!(kinds.contains(&&*count.resource), "{count:?} {n}");
        }
        for (verb, resource, code) in cluster.server.audited() {
            let reads = ["list", "watch"].contains(&&*verb);
            assert!(
                reads && kinds.contains(&&*resource) && code == 200,
                "{verb} {resource} {code}"
            );
        }
    }

    // Node ids and addresses are redacted.
    let text = std::fs::read_to_string(folder.path().join("night.jsonl")).unwrap();
    assert!(!text.contains("192.0.2."), "an address is not redacted");
    assert!(text.contains("redacted-"), "no node id is recorded");
    let kind = |name: &str| text.contains(&format!("\"kind\":\"{name}\""));
    assert!(kind("HTTPRoute") && kind("Namespace") && kind("HTTPProxy"));

    // throughline would have mirrored the flip.
    let output = Command::new(binary())
        .args(["replay", "--output", "json"])
        .arg(folder.path().join("night.jsonl"))
        .output()
        .unwrap();
    let complained = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{complained}");
    let replay: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (&replay["mode"], &replay["verdict"]["converged"]),
        (&json!("what-if"), &json!(true))
    );
    let (namespace, name) = fleet.hub_key(0);
    let outages = replay["outages"]["recorded"].as_array().unwrap();
    let open: Vec<_> = outages.iter().filter(|outage| outage["until_ms"].is_null()).collect();
    let [open] = open[..] else { panic!("{outages:#?}") };
    assert_eq!((&open["namespace"], &open["name"]), (&json!(namespace), &json!(name)));
    let lasted = replay["to_ms"].as_u64().unwrap() - open["from_ms"].as_u64().unwrap();
    assert!(u128::from(lasted) >= broken_for.as_millis(), "{lasted} ms");
    let lines = lines(&folder);
    let last = lines.last().unwrap();
    assert_eq!((&last["event"], &last["at_ms"]), (&json!("recording_ended"), &replay["to_ms"]));
    let mirrored = replay["actions"]
        .as_array()
        .unwrap()
        .iter()
        .any(|a| a["type"] == "mirror" && a["namespace"] == namespace && a["name"] == *name);
    assert!(mirrored, "{:#}", replay["actions"]);

    // A second recording does not overwrite the first.
    let again = Command::new(binary())
        .arg("record")
        .arg(folder.path().join("night.jsonl"))
        .arg("--config")
        .arg(&config)
        .output()
        .unwrap();
    assert_eq!(again.status.code(), Some(2));
    assert_eq!(std::fs::read_to_string(folder.path().join("night.jsonl")).unwrap(), text);
}
