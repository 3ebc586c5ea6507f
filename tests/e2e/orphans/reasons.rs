//! Which routes are orphans, and each reason to keep a route.

use super::{SHOP, Site, wait_for_kept};
use crate::cluster::objects::META;
use crate::cluster::throughline::merge_json;
use crate::events::{events_about, wait_for_events};
use crate::prelude::*;

const PROTECTED: &str = "resourcetemplate.karmada.io/deletion-protected";

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
    let finalizer = json!({ "metadata": { "finalizers": ["example.com/mine"] } });
    let mut leaving = gateway(SHOP, "leaving");
    merge_json(&mut leaving, &finalizer);
    up.create(GATEWAYS, leaving).await.unwrap();
    site.remove_gateway("leaving").await;

    let parents = |parents: Value| json!({ "spec": { "parentRefs": parents } });
    let labels = |labels: Value| json!({ "metadata": { "labels": labels } });
    let of_another = |key: &str, value: &str| labels(json!({ format!("{META}/{key}"): value }));
    let service = json!({ "kind": "Service", "group": "", "name": "gone" });
    let stay = [
        ("half-alive", parents(json!([{ "name": "gone" }, { "name": "site" }]))),
        ("leaving", parents(json!([{ "name": "leaving" }]))),
        ("parentless", parents(json!([]))),
        ("protected", labels(json!({ PROTECTED: "Always" }))),
        ("finalized", finalizer.clone()),
        ("deleting", finalizer),
        ("foreign", parents(json!([{ "name": "gone" }, service]))),
        ("elsewhere", parents(json!([{ "name": "gone", "namespace": "another" }]))),
        ("other-kind", of_another("upstream-kind", "GRPCRoute")),
        ("unlabelled", labels(Value::Null)),
        ("unknown-cluster", of_another("upstream-cluster-name", "cluster-elsewhere")),
        ("other-namespace", of_another("upstream-namespace", "default")),
    ];
    for (name, change) in &stay {
        let mut route = site.made_route(name, &["gone"]);
        merge_json(&mut route, change);
        hub.create(ROUTES, route).await.unwrap();
    }
    hub.delete(ROUTES, &site.hub_ns, "deleting").await.unwrap();
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
    for (name, _) in stay.iter().chain(&[("alive", Value::Null)]) {
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

    // The log holds the deleted routes in full, and they can be created again.
    let log = throughline.event_log().to_str().unwrap();
    let (code, text, complained) = command(&["orphans", "restore", log]).await;
    assert_eq!(code, 0, "{complained}");
    let documents = text.split("---\n").filter(|document| !document.trim().is_empty());
    let restored: Vec<Value> =
        documents.map(|document| serde_saphyr::from_str(document).unwrap()).collect();
    assert_eq!(restored.len(), 6);
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
    assert!(message.contains("with `orphans.mode: delete` it is deleted"), "{message}");
    assert_eq!(events[0]["type"], "Warning");
    site.gateway("site").await;
    let events = wait_for_events(hub, "alive", "Resolved", 1).await;
    assert_eq!(events[0]["message"], "Orphaned");
    throughline.stop().await;
}
