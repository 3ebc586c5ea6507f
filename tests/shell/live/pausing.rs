//! What a person does to a run: an object is paused by annotation; and what a run tells a person at its
//! start.

use std::time::Duration;

use serde_json::json;
use throughline_sim::apiserver::ApiVerb;

use crate::live::events::UID;
use crate::live::fleet::{Bench, bench};
use crate::log::Log;

const PAUSED: &str = "throughline.datumapis.com/paused";

/// A person annotates the hub Connector.
async fn annotate(bench: &Bench, value: serde_json::Value) {
    let path =
        format!("/apis/networking.datumapis.com/v1alpha1/namespaces/ns-{UID}/connectors/lab");
    let patch = json!({"metadata": {"annotations": {PAUSED: value}}});
    assert_eq!(bench.hub.send("PATCH", &path, &patch).await.0, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_hub_connector_is_not_written_until_the_annotation_goes() {
    let bench = bench("paused").await;
    let running = bench.run(true);
    bench.until_mirrored("True").await;
    annotate(&bench, json!("true")).await;
    bench.until_logged(&format!(r#""{PAUSED}":"true""#)).await;
    let written = bench.count(&bench.hub, ApiVerb::Patch);
    for ready in ["False", "True", "False"] {
        bench.set_ready(ready);
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    assert_eq!(bench.count(&bench.hub, ApiVerb::Patch), written, "a paused object was written");
    assert!(bench.mirrored().contains(r#""status":"True""#));
    annotate(&bench, json!(null)).await;
    bench.until_mirrored("False").await;
    running.stop().await;
    // Whatever was decided is decided again from the log.
    let log = bench.verify();
    assert_eq!(log.matches(r#""type":"mirror""#).count(), 2);
}

/// The upstream is not configured, as after a typing error in its name: the run says so by itself.
#[tokio::test]
async fn a_run_says_what_it_is_and_that_an_upstream_is_not_configured_until_it_is() {
    let log = Log::default();
    let _guard = log.capture();
    let bench = bench("naming").await;
    let running = bench.run(false);
    log.until_contains("name upstream project, which is not followed").await;
    let text = log.text();
    let line = |part: &str| {
        let mut lines = text.lines().filter(|line| line.contains(part));
        let found = lines.next().unwrap().to_owned();
        assert_eq!(lines.next(), None, "once");
        found
    };
    let banner = line("throughline starts");
    for part in [
        concat!("version=\"", env!("CARGO_PKG_VERSION")),
        "commit=",
        "clusters=\"hub (hub, edge)\"",
        "leads=\"always, without an election\"",
        "orphans=\"report only\"",
        "event_log=",
        "dry_run=false",
    ] {
        assert!(banner.contains(part), "{part}: {banner}");
    }
    let warning = line("name upstream project, which is not followed");
    assert!(warning.contains("WARN") && warning.contains("Add project to `clusters`"), "{warning}");
    running.reload(bench.config(true)).await;
    log.until_contains("resolved cause=\"upstream_unknown\" cluster=project").await;
    running.stop().await;
    bench.verify();
}
