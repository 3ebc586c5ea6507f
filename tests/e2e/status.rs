//! `status` on real API servers: rights that are revoked, and an edge from which nothing is received.

use serde_json::json;
use throughline::core::contract::cause::Cause;

use crate::cluster::fleet::{Fleet, Spec};
use crate::cluster::testbed::{Testbed, Topology};
use crate::cluster::throughline::Setup;
use crate::cluster::{SOON, ensure, eventually, oracle, wait_until_idle};
use crate::tracing::{Sources, revoke, run, run_json, worst_hop};

/// The hub may not be listed: each connector is unknown, and one line says why. `status` is
/// asked as it is by somebody whose instance has just started.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn a_hub_that_may_not_be_listed_is_told_once() {
    let testbed = Testbed::start(Topology::Three).await;
    let fleet = Fleet::seed(&testbed, Spec::of(3)).await;
    let throughline = Setup::of(&testbed).ready().await;
    oracle::converges(&testbed).await;
    wait_until_idle(&testbed).await;
    throughline.stop().await;
    fleet.flip(0).await.unwrap();
    let list = ("networking.datumapis.com", "connectors", "list");
    revoke(testbed.hub(), Some(list)).await;

    let sources = Sources::of(&testbed, None);
    let args = sources.live_args();
    eventually("the hub may not be listed", SOON, async || {
        let (code, text) = run(&["status"], &args).await;
        ensure(code == 1 && text.contains("permission_missing"), || text)
    })
    .await;
    let (_, text) = run(&["status"], &args).await;
    if std::env::var_os("SHOW").is_some() {
        eprintln!("{text}");
    }
    assert!(text.contains("\n3 connectors: 3 unknown\n"), "{text}");
    let line = "\nhub: permission_missing, 3 connectors: hub does not allow throughline to list";
    assert!(text.contains(line) && text.matches("\nhub: ").count() == 1, "{text}");
    let (code, json) = run_json(&["status"], &args).await;
    let connectors = json["connectors"].as_array().unwrap();
    assert_eq!((code, connectors.len()), (1, 3), "{json:#}");
    assert!(connectors.iter().all(|connector| connector["state"] == "unknown"), "{json:#}");
    assert_eq!((&json["counts"]["unknown"], &json["counts"]["stuck"]), (&json!(3), &json!(0)));
    assert_eq!(json["problems"][0]["cause"], "permission_missing", "{json:#}");

    revoke(testbed.hub(), None).await;
    eventually("it may be listed again", SOON, async || {
        let (_, text) = run(&["status"], &args).await;
        ensure(!text.contains("unknown"), || text)
    })
    .await;
}

/// An edge that answers nothing any longer is unknown since something was last received from it. Neither the carrier
/// nor a Gateway is blamed for it, and nothing below it is ok.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn an_edge_that_hangs_is_unknown_and_blames_nobody() {
    let testbed = Testbed::start(Topology::Three).await;
    let fleet = Fleet::seed(&testbed, Spec::of(2)).await;
    let soon = json!({ "watch": { "silentAfterMs": 3_000, "timeoutMs": 30_000 },
        "executor": { "timeoutMs": 2_000 } });
    let throughline =
        Setup::of(&testbed).set(&soon).provokes(&[Cause::ClusterUnavailable]).ready().await;
    oracle::converges(&testbed).await;
    wait_until_idle(&testbed).await;

    testbed.edge().proxy.freeze();
    fleet.flip(0).await.unwrap();
    let sources = Sources::of(&testbed, Some(&throughline));
    let (namespace, name) = fleet.upstream_key(0);
    let name = format!("{namespace}/{name}");
    for (source, mut args) in sources.all() {
        if source == "live" {
            args.extend(["--timeout".into(), "2s".into()]);
        }
        eventually(&format!("{source}: the edge is unknown"), SOON, async || {
            let (code, json) = run_json(&["trace", "connector", &name], &args).await;
            let trace = &json["connectors"][0];
            let found = worst_hop(trace);
            let at_edge =
                trace["hops"].as_array().unwrap().iter().filter(|h| h["cluster"] == "edge");
            let is_unknown =
                at_edge.clone().count() > 0 && at_edge.clone().all(|h| h["state"] == "unknown");
            ensure(code == 1 && found[..3] == ["carried", "edge", "unknown"] && is_unknown, || {
                format!("{json:#}")
            })
        })
        .await;
        let (_, text) = run(&["trace", "connector", &name], &args).await;
        if std::env::var_os("SHOW").is_some() {
            eprintln!("==== {source}\n{text}{}", run(&["status"], &args).await.1);
        }
        assert!(!text.contains("not_carried"), "{source}: {text}");
        let (_, json) = run_json(&["status"], &args).await;
        let states = json["connectors"].as_array().unwrap().iter().map(|row| &row["state"]);
        assert!(states.clone().all(|state| state == "unknown"), "{source}: {json:#}");
    }
    let state = throughline.state().await;
    let problems = state["problems"].as_array().unwrap().iter();
    let causes: Vec<_> = problems.map(|problem| &problem["cause"]).collect();
    assert!(causes.iter().all(|cause| *cause == "cluster_unavailable"), "{state:#}");
    testbed.edge().proxy.thaw();
    oracle::converges_within(&testbed, 2 * SOON).await;
    throughline.stop().await;
}
