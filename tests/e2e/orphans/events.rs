//! Orphans are told on the routes themselves.

use serde_json::json;

use super::Site;
use crate::events::{counts, told};

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn an_orphan_is_told_on_its_route_and_so_is_its_end() {
    let site = Site::start().await;
    let hub = site.world.hub().rest();
    for name in ["site", "blog"] {
        site.gateway(name).await;
        site.route(name, &[name]).await;
    }
    let report = json!({ "orphans": { "mode": "report" } });
    let throughline = site.setup().set(&report).ready().await;
    site.remove_gateway("site").await;
    let events = counts(hub, "site", "Orphaned", 1).await;
    assert!(events[0]["message"].as_str().unwrap().contains("with delete it would be deleted"));
    assert_eq!((&events[0]["type"], events.len()), (&json!("Warning"), 1));
    site.gateway("site").await;
    let events = counts(hub, "site", "NotOrphaned", 1).await;
    assert!(events[0]["message"].as_str().unwrap().ends_with("a parent exists"), "{events:?}");
    throughline.stop().await;

    let throughline = site.setup().ready().await;
    site.remove_gateway("site").await;
    site.goes("site").await;
    let events = counts(hub, "site", "OrphanDeleted", 1).await;
    assert_eq!((&events[0]["type"], events.len()), (&json!("Normal"), 1));
    assert!(events[0]["involvedObject"]["uid"].is_string());
    assert!(told(hub, "blog").await.is_empty());
    assert!(site.world.upstream().proxy.events().is_empty());
    throughline.stop().await;
}
