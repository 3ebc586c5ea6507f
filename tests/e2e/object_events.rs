//! `throughline events` on real API servers: the Events of all tiers, and the rights that it needs.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::cluster::apiserver::ADMIN;
use crate::cluster::faults::Rule;
use crate::cluster::fleet::{Fleet, Spec, app};
use crate::cluster::process::Folder;
use crate::cluster::rest::{EVENTS, Rest};
use crate::cluster::testbed::{Testbed, Topology};
use crate::cluster::throughline::{Setup, binary};
use crate::cluster::{SOON, ensure, eventually, oracle};

/// The exit code and the JSON.
async fn events(name: &str, config: &Path) -> (i32, Value) {
    let mut command = Command::new(binary());
    command.args(["events", name, "-o", "json", "--config"]).arg(config);
    command.env_remove("RUST_LOG").env_remove("KUBECONFIG");
    let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    let found = serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {error}"));
    (output.status.code().unwrap(), found)
}

async fn post(rest: &Rest, kind: &str, (namespace, name): (&str, &str), reason: &str) {
    let event = json!({
        "metadata": {"namespace": namespace, "name": format!("{name}.{}", reason.to_lowercase())},
        "involvedObject": {"kind": kind, "namespace": namespace, "name": name},
        "type": "Normal", "reason": reason, "message": "posted by the test",
        "action": "Test", "reportingComponent": "example.com/test", "reportingInstance": "test",
        "eventTime": "2026-11-21T09:20:00.000000Z",
    });
    rest.create(EVENTS, event).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn the_events_of_all_tiers_are_read_by_who_may_and_the_others_are_told() {
    let testbed = Testbed::start(Topology::Three).await;
    let fleet = Fleet::seed(&testbed, Spec { gateways: 1, ..Spec::of(1) }).await;
    let soon = json!({"stall": {"mirroredMs": 1_000}, "retry": {"firstMs": 300, "maxMs": 1_000},
        "executor": {"tries": 1}});
    let throughline = Setup::of(&testbed).set(&soon).ready().await;
    oracle::converges(&testbed).await;
    let rule = testbed.hub().proxy.add(Rule::status(500).method("PATCH").resource("connectors"));
    fleet.flip(0).await.unwrap();
    let (upstream, hub) = (fleet.upstream_key(0), fleet.hub_key(0));
    let connector = (upstream.0, &*upstream.1);
    post(testbed.upstream().rest(), "Connector", connector, "OfUpstream").await;
    post(testbed.edge().rest(), "Gateway", (hub.0, &app(0, 0)), "OfTheGateway").await;
    post(testbed.edge().rest(), "Gateway", (hub.0, "another"), "OfAnotherGateway").await;

    let folder = Folder::new("events");
    let config = |name: &str, clusters: Vec<Value>| {
        let path = folder.path().join(name);
        std::fs::write(&path, json!({ "clusters": clusters }).to_string()).unwrap();
        path
    };
    let clusters = testbed.clusters.iter().map(|cluster| {
        let mut entry = cluster.config();
        entry["kubeconfig"] = json!(cluster.proxy.kubeconfig(ADMIN));
        entry
    });
    let by_admin = config("admin.yaml", clusters.collect());
    let own = config("own.yaml", testbed.clusters.iter().map(|c| c.config()).collect());
    let name = format!("{}/{}", upstream.0, upstream.1);
    eventually("the Events of all tiers", SOON, async || {
        let (code, found) = events(&name, &by_admin).await;
        let all = found["events"].as_array().unwrap();
        let has = |reason: &str, tier: &str| {
            all.iter().any(|event| event["reason"] == reason && event["tier"] == tier)
        };
        let has_all = has("OfUpstream", "upstream")
            && has("StalledMirror", "hub")
            && has("OfTheGateway", "edge");
        assert!(all.iter().all(|event| event["reason"] != "OfAnotherGateway"), "{found:#}");
        assert!(all.is_sorted_by_key(|event| event["atMs"].as_u64()), "{found:#}");
        ensure(code == 0 && has_all && found["unread"] == json!([]), || format!("{found:#}"))
    })
    .await;
    // throughline's own account may post Events, and not read them.
    let (code, found) = events(&name, &own).await;
    assert_eq!((code, &found["events"], &found["read"]), (1, &json!([]), &json!([])), "{found:#}");
    let unread = found["unread"].as_array().unwrap();
    assert_eq!(unread.len(), 3, "{found:#}");
    for tier in unread {
        let error = tier["error"].as_str().unwrap();
        assert!(error.starts_with("403 Forbidden: events is forbidden: "), "{error}");
    }
    testbed.hub().proxy.remove(rule);
    oracle::converges(&testbed).await;
    throughline.stop().await;
}
