//! Which routes are orphans, and each reason to keep a route.

use super::{SHOP, Site, wait_for_kept};
use crate::cluster::objects::gateway;
use crate::cluster::rest::ROUTES;
use crate::events::{events_about, wait_for_events};
use crate::prelude::*;

const PROTECTED: &str = "resourcetemplate.karmada.io/deletion-protected";

fn protect(route: &mut Value) {
    route["metadata"]["labels"][PROTECTED] = "Always".into();
}

fn finalizer(object: &mut Value) {
    object["metadata"]["finalizers"] = json!(["example.com/mine"]);
}

/// Routes that must stay and orphans exist side by side; only the orphans are deleted.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn orphans_are_deleted_and_other_routes_stay() {
    let site = Site::start().await;
    let (up, hub) = (site.testbed.upstream().rest(), site.testbed.hub().rest());
    site.gateway("site").await;
    site.route("alive", &["site"]).await;
    events_tell_when_a_route_is_an_orphan(&site).await;

    // A Gateway that is being deleted still exists.
    let mut leaving = gateway(SHOP, "leaving");
    finalizer(&mut leaving);
    up.create(GATEWAYS, leaving).await.unwrap();
    site.remove_gateway("leaving").await;

    site.route("half-alive", &["gone", "site"]).await;
    site.route("leaving", &["leaving"]).await;
    site.route("parentless", &[]).await;
    site.route_with("protected", &["gone"], protect).await;
    site.route_with("finalized", &["gone"], finalizer).await;
    site.route_with("deleting", &["gone"], finalizer).await;
    hub.delete(ROUTES, &site.hub_ns, "deleting").await.unwrap();
    site.route_with("foreign", &["gone"], |route| {
        route["spec"]["parentRefs"] =
            json!([{ "name": "gone" }, { "kind": "Service", "group": "", "name": "gone" }]);
    })
    .await;
    site.route_with("elsewhere", &["gone"], |route| {
        route["spec"]["parentRefs"][0]["namespace"] = "another".into();
    })
    .await;
    let label = |key: &'static str, value: Value| {
        move |route: &mut Value| {
            route["metadata"]["labels"][format!("meta.datumapis.com/{key}")] = value;
        }
    };
    site.route_with("other-kind", &["gone"], label("upstream-kind", "GRPCRoute".into())).await;
    site.route_with("unlabelled", &["gone"], |r| r["metadata"]["labels"] = json!({})).await;
    let cluster = label("upstream-cluster-name", "cluster-elsewhere".into());
    site.route_with("unknown-cluster", &["gone"], cluster).await;
    let namespace = label("upstream-namespace", "default".into());
    site.route_with("other-namespace", &["gone"], namespace).await;
    let stay = "alive half-alive leaving parentless protected finalized deleting foreign elsewhere \
                other-kind unlabelled unknown-cluster other-namespace";
    site.route("orphan", &["gone", "also-gone"]).await;

    let throughline = site.setup().ready().await;
    site.wait_until_deleted("orphan").await;
    for (cause, routes) in [
        // One without parents and two with a foreign one.
        (Some(Cause::RouteNotOrphaned), 3),
        // By its label, by a finalizer, and one that is being deleted.
        (Some(Cause::RouteProtected), 3),
        (Some(Cause::UpstreamUnknown), 1),
        (Some(Cause::NamespaceMismatch), 1),
        (None, 0),
    ] {
        wait_for_kept(&throughline, cause, routes).await;
    }
    // Once a later orphan is deleted, every route has been judged again.
    site.route("later", &["gone"]).await;
    site.wait_until_deleted("later").await;
    for name in stay.split_whitespace() {
        assert!(site.exists(name).await, "{name} is gone");
    }

    // The last existing parent is deleted, and the protection is removed.
    site.remove_gateway("site").await;
    let unprotected = json!({ PROTECTED: null });
    site.merge("protected", &json!({ "metadata": { "labels": unprotected } })).await;
    site.merge("finalized", &json!({ "metadata": { "finalizers": null } })).await;
    for name in ["alive", "half-alive", "protected", "finalized"] {
        site.wait_until_deleted(name).await;
    }
    let mut deleted = site.delete_requests();
    deleted.sort_unstable();
    assert_eq!(deleted, ["alive", "finalized", "half-alive", "later", "orphan", "protected"]);
    assert_eq!(events_about(hub, "alive").await.len(), 2, "one about what is deleted");
    assert!(site.testbed.upstream().proxy.events().is_empty());

    // The log holds the deleted routes in full.
    let log = throughline.event_log().to_str().unwrap();
    let (code, text, complained) = command(&["orphans", "restore", log]).await;
    assert_eq!(code, 0, "{complained}");
    let documents = text.split("---\n").filter(|document| !document.trim().is_empty());
    let restored: Vec<Value> =
        documents.map(|document| serde_saphyr::from_str(document).unwrap()).collect();
    assert_eq!(restored.len(), 6);
    let orphan = restored.iter().find(|r| r["metadata"]["name"] == "orphan").unwrap();
    assert_eq!(orphan["spec"]["hostnames"], json!(["orphan.example.com"]));
    let meta: Vec<_> = orphan["metadata"].as_object().unwrap().keys().collect();
    assert_eq!(meta, ["labels", "name", "namespace"]);
    throughline.stop().await;
    for route in restored {
        hub.create(ROUTES, route).await.unwrap();
    }
    assert!(site.exists("orphan").await);
}

/// While they are only reported, a route has an Event when its Gateway is gone, and one when it is back.
async fn events_tell_when_a_route_is_an_orphan(site: &Site) {
    let hub = site.testbed.hub().rest();
    let report = json!({ "orphans": { "mode": "report" } });
    let throughline = site.setup().set(&report).ready().await;
    site.remove_gateway("site").await;
    let events = wait_for_events(hub, "alive", "Orphaned", 1).await;
    let message = events[0]["message"].as_str().unwrap();
    assert!(message.starts_with("All parent Gateways of route "), "{message}");
    assert!(message.contains("with `orphans.mode: delete` it is deleted"), "{message}");
    assert_eq!((&events[0]["type"], events.len()), (&json!("Warning"), 1));
    assert!(events[0]["involvedObject"]["uid"].is_string());
    site.gateway("site").await;
    let events = wait_for_events(hub, "alive", "Resolved", 1).await;
    assert_eq!(events[0]["message"], "Orphaned");
    throughline.stop().await;
}
