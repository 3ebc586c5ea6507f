//! `status` on real API servers: rights that are revoked, and an edge from which nothing is received.

use serde_json::{Value, json};
use throughline::core::contract::cause::Cause;

use crate::cluster::fleet::{Fleet, Spec};
use crate::cluster::testbed::{Testbed, Topology};
use crate::cluster::throughline::Setup;
use crate::cluster::{SOON, ensure, eventually, oracle, wait_until_idle};
use crate::tracing::{Sources, first_hop, revoke, run, run_json};

/// The hub may not be listed: each connector is unknown, once, and one banner says why. `status` is
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
        ensure(code == 1 && text.contains("(403)"), || text)
    })
    .await;
    let (_, text) = run(&["status"], &args).await;
    if std::env::var_os("SHOW").is_some() {
        eprintln!("{text}");
    }
    assert!(text.contains("\n3 connectors, 0 stuck, 3 unknown, 0 pending  "), "{text}");
    let joined = text.replace("\n  ", " ");
    let banner = "\nhub: not allowed to list Connectors (403): 3 connectors unknown";
    assert!(joined.contains(banner) && text.matches("403").count() == 1, "{text}");
    let (code, json) = run_json(&["status"], &args).await;
    let rows = json["connectors"].as_array().unwrap();
    assert_eq!((code, rows.len()), (1, 3), "{json:#}");
    let is_unknown = |row: &Value| row["phase"] == "unknown" && row["stuck"].is_null();
    assert!(rows.iter().all(is_unknown), "{json:#}");
    let counts =
        json!([json["counts"]["connectors"], json["counts"]["stuck"], json["counts"]["unknown"]]);
    assert_eq!(counts, json!([3, 0, 3]), "{json:#}");
    assert_eq!(json["causes"][0]["connectors"], 3, "{json:#}");

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
            let trace = &json["traces"][0];
            let found = first_hop(trace);
            let at_edge =
                trace["hops"].as_array().unwrap().iter().filter(|h| h["cluster"] == "edge");
            let is_unknown =
                at_edge.clone().count() > 0 && at_edge.clone().all(|h| h["state"] == "unknown");
            ensure(
                code == 1 && found == ["arrived", "edge", "unknown", "unseen"] && is_unknown,
                || format!("{json:#}"),
            )
        })
        .await;
        let (_, text) = run(&["trace", "connector", &name], &args).await;
        if std::env::var_os("SHOW").is_some() {
            eprintln!("==== {source}\n{text}{}", run(&["status"], &args).await.1);
        }
        assert!(!text.contains("the carrier has not delivered"), "{source}: {text}");
        assert!(source == "live" || text.contains("; unknown since "), "{source}: {text}");
        let (_, json) = run_json(&["status"], &args).await;
        let phases = json["connectors"].as_array().unwrap().iter().map(|row| &row["phase"]);
        assert!(phases.clone().all(|phase| phase == "unknown"), "{source}: {json:#}");
    }
    let state = throughline.state().await;
    let stalls =
        state["connectors"].as_array().unwrap().iter().flat_map(|c| c["stalls"].as_array());
    let mut reasons = stalls.flatten().map(|stall| stall["reason"].as_str().unwrap().to_owned());
    assert!(reasons.all(|reason| reason.starts_with("unknown since ")), "{state:#}");
    testbed.edge().proxy.thaw();
    oracle::converges_within(&testbed, 2 * SOON).await;
    throughline.stop().await;
}
