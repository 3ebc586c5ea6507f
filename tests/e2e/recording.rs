//! `throughline record` on real API servers: what it may do is little, what it writes replays.

use std::process::Command;

use serde_json::{Value, json};

use crate::cluster::fleet::{Fleet, Mirrored, Spec};
use crate::cluster::process::{Folder, Process, Signal};
use crate::cluster::rights::{folders, only};
use crate::cluster::throughline::binary;
use crate::cluster::world::{Topology, World};
use crate::cluster::{SOON, ensure, eventually};

/// List and watch of everything, and nothing else.
async fn reader_only(world: &World) {
    let rules = json!([{ "apiGroups": ["*"], "resources": ["*"], "verbs": ["list", "watch"] }]);
    for cluster in &world.clusters {
        let rest = cluster.rest();
        only(rest, &folders(cluster.roles), &rules).await;
    }
}

fn lines(folder: &Folder) -> Vec<Value> {
    let text = std::fs::read_to_string(folder.path().join("night.jsonl")).unwrap_or_default();
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// A flip while nobody acts, and a cluster that is away for a while.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn a_recording_asks_for_lists_and_watches_alone_and_replays() {
    let world = World::start(Topology::Three).await;
    let fleet =
        Fleet::seed(&world, Spec { mirrored: Mirrored::Fresh, with_routes: true, ..Spec::of(3) })
            .await;
    reader_only(&world).await;
    let edge = &world.edge().proxy;
    edge.down();
    world.forget();
    let clusters: Vec<_> = world.clusters.iter().map(|c| c.config()).collect();
    let folder = Folder::new("record");
    let config = folder.path().join("config.yaml");
    let config_text = json!({ "clusters": clusters, "watch": { "backoffMaxMs": 500 } });
    std::fs::write(&config, config_text.to_string()).unwrap();
    let mut command = Command::new(binary());
    command.arg("record").arg(folder.path().join("night.jsonl")).arg("--config").arg(&config);
    command.env_remove("RUST_LOG").env_remove("KUBECONFIG");
    let mut process = Process::start("record", command, folder.path());

    let has = |what: &dyn Fn(&Value) -> bool| lines(&folder).iter().any(what);
    eventually("the edge is told to be away", SOON, async || {
        let lost = |l: &Value| l["event"] == "watch_lost" && l["cluster"] == "edge";
        ensure(has(&lost), || "not yet".to_owned())
    })
    .await;
    assert!(process.last_words().contains("watch lost, trying again"), "{}", process.last_words());
    edge.up();
    eventually("everything is listed", SOON, async || {
        let finished = lines(&folder).iter().filter(|l| l["event"] == "list_finished").count();
        ensure(finished == 8, || format!("{finished} of 8"))
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
    process.signal(Signal::INT);
    let status = process.wait(SOON).await.expect("it stops at SIGINT");
    let said = process.last_words();
    println!("{said}");
    assert!(status.success(), "{said}");
    assert!(said.contains("recorded ") && said.contains("replay it: throughline replay"), "{said}");

    // It asked for lists and watches of the kinds alone.
    assert_eq!(world.writes().len(), 0);
    let kinds = ["connectors", "gateways", "httpproxies", "httproutes", "namespaces"];
    for cluster in &world.clusters {
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

    // No node id and no address is in it.
    let text = std::fs::read_to_string(folder.path().join("night.jsonl")).unwrap();
    assert!(!text.contains("192.0.2."), "an address");
    assert!(text.contains("redacted-"), "no node id at all");
    let kind = |name: &str| text.contains(&format!("\"kind\":\"{name}\""));
    assert!(kind("HTTPRoute") && kind("Namespace") && kind("HTTPProxy"));

    // What throughline would have done: mirror the flip, and touch its gateway.
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
    let (namespace, name) = fleet.replica(0);
    let mirrored = replay["actions"]
        .as_array()
        .unwrap()
        .iter()
        .any(|a| a["type"] == "mirror" && a["namespace"] == namespace && a["name"] == *name);
    assert!(mirrored, "{:#}", replay["actions"]);

    // A second one never overwrites the first.
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
