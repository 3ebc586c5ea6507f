//! The Events that are posted about orphaned routes.

use serde_json::json;

use super::Site;
use crate::events::{events_about, wait_for_events};

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn a_route_gets_events_when_it_is_an_orphan_and_when_it_no_longer_is() {
    let site = Site::start().await;
    let hub = site.testbed.hub().rest();
    for name in ["site", "blog"] {
        site.gateway(name).await;
        site.route(name, &[name]).await;
    }
    let report = json!({ "orphans": { "mode": "report" } });
    let throughline = site.setup().set(&report).ready().await;
    site.remove_gateway("site").await;
    let events = wait_for_events(hub, "site", "Orphaned", 1).await;
    let message = events[0]["message"].as_str().unwrap();
    assert!(message.starts_with("All parent Gateways of route "), "{message}");
    assert!(message.contains("with `orphans.mode: delete` it is deleted"), "{message}");
    assert_eq!((&events[0]["type"], events.len()), (&json!("Warning"), 1));
    assert!(events[0]["involvedObject"]["uid"].is_string());
    site.gateway("site").await;
    let events = wait_for_events(hub, "site", "Resolved", 1).await;
    assert_eq!(events[0]["message"], "Orphaned");
    throughline.stop().await;

    let throughline = site.setup().ready().await;
    site.remove_gateway("site").await;
    site.wait_until_deleted("site").await;
    assert_eq!(events_about(hub, "site").await.len(), 2, "none about what is deleted");
    assert!(events_about(hub, "blog").await.is_empty());
    assert!(site.testbed.upstream().proxy.events().is_empty());
    throughline.stop().await;
}
