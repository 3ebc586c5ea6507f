//! What an orphan is, and each reason to keep what is none.

use serde_json::{Value, json};

use super::{SHOP, Site, kept};
use crate::cluster::rest::{GATEWAYS, ROUTES};
use crate::cluster::{SOON, ensure, eventually};

fn protect(route: &mut Value) {
    route["metadata"]["labels"]["resourcetemplate.karmada.io/deletion-protected"] = "Always".into();
}

fn finalizer(object: &mut Value) {
    object["metadata"]["finalizers"] = json!(["example.com/mine"]);
}

/// Beside every route that must stay stands one that must go, and it goes after all of them were
/// judged.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn orphans_go_and_what_is_none_stays() {
    let site = Site::start().await;
    let (up, hub) = (site.world.upstream().rest(), site.world.hub().rest());
    site.gateway("site").await;
    // A Gateway that is being deleted still exists.
    let mut leaving = crate::cluster::objects::gateway(SHOP, "leaving");
    finalizer(&mut leaving);
    up.create(GATEWAYS, leaving).await.unwrap();
    site.remove_gateway("leaving").await;

    site.route("alive", &["site"]).await;
    site.route("half-alive", &["gone", "site"]).await;
    site.route("leaving", &["leaving"]).await;
    site.route("parentless", &[]).await;
    site.route_with("protected", &["gone"], protect).await;
    site.route_with("finalized", &["gone"], finalizer).await;
    site.route_with("deleting", &["gone"], finalizer).await;
    hub.delete(ROUTES, &site.ns, "deleting").await.unwrap();
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
    let stay = [
        "alive",
        "half-alive",
        "leaving",
        "parentless",
        "protected",
        "finalized",
        "deleting",
        "foreign",
        "elsewhere",
        "other-kind",
        "unlabelled",
        "unknown-cluster",
        "other-namespace",
    ];
    site.route("orphan", &["gone", "also-gone"]).await;

    let throughline = site.setup().ready().await;
    site.goes("orphan").await;
    for (reason, routes) in [
        ("no_parents", 1),
        ("protected", 1),
        ("finalizers", 1),
        ("being_deleted", 1),
        ("foreign_parent", 2),
        ("cluster_unknown", 1),
        ("namespace_unproved", 1),
        ("none", 0),
    ] {
        kept(&throughline, reason, routes).await;
    }
    // Whatever was to be one by now is one that goes later.
    site.route("later", &["gone"]).await;
    site.goes("later").await;
    for name in stay {
        assert!(site.stands(name).await, "{name} is gone");
    }

    // The last living parent goes; the protection is taken off.
    site.remove_gateway("site").await;
    site.merge(
        "protected",
        &json!({ "metadata": { "labels":
        { "resourcetemplate.karmada.io/deletion-protected": null } } }),
    )
    .await;
    site.merge("finalized", &json!({ "metadata": { "finalizers": null } })).await;
    for name in ["alive", "half-alive", "protected", "finalized"] {
        site.goes(name).await;
    }
    let mut gone = site.deletes();
    gone.sort_unstable();
    assert_eq!(gone, ["alive", "finalized", "half-alive", "later", "orphan", "protected"]);

    // What was deleted is in the log whole.
    let restored = restored(throughline.event_log());
    assert_eq!(restored.len(), 6);
    let orphan = restored.iter().find(|r| r["metadata"]["name"] == "orphan").unwrap();
    assert_eq!(orphan["spec"]["hostnames"], json!(["orphan.example.com"]));
    let meta: Vec<_> = orphan["metadata"].as_object().unwrap().keys().collect();
    assert_eq!(meta, ["labels", "name", "namespace"]);
    throughline.stop().await;
    for route in restored {
        hub.create(ROUTES, route).await.unwrap();
    }
    assert!(site.stands("orphan").await);
}

/// What `throughline orphans restore` prints.
fn restored(log: &std::path::Path) -> Vec<Value> {
    let mut command = std::process::Command::new(crate::cluster::throughline::binary());
    let output = command.args(["orphans", "restore"]).arg(log).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let documents = text.split("---\n").filter(|document| !document.trim().is_empty());
    documents.map(|document| serde_saphyr::from_str(document).unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn orphans_wait_for_age_settling_and_fresh_news() {
    let site = Site::start().await;
    site.route("orphan", &["gone"]).await;
    for (settings, reason) in [
        (json!({ "minAgeMs": 3_600_000 }), "young"),
        (json!({ "settleMs": 3_600_000 }), "settling"),
        // Bookmarks come once a minute.
        (json!({ "settleMs": 3_000, "freshMs": 1_000 }), "stale"),
        (json!({ "maxPerMinute": 0 }), "budget"),
        (json!({ "mode": "report" }), "none"),
    ] {
        let throughline = site.setup().set(&json!({ "orphans": settings })).ready().await;
        kept(&throughline, reason, 1).await;
        throughline.stop().await;
    }
    // Its upstream cluster is no longer configured.
    let hub = site.world.hub().config();
    let throughline = site.setup().set(&json!({ "clusters": [hub] })).ready().await;
    kept(&throughline, "cluster_unknown", 1).await;
    throughline.stop().await;
    assert!(site.stands("orphan").await);
    assert_eq!(site.deletes(), [""; 0]);
    let throughline = site.setup().ready().await;
    site.goes("orphan").await;
    throughline.stop().await;
}

/// Upstream's namespace is deleted and another one of that name made: the routes are not its
/// replicas, whatever it lacks.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn orphans_of_a_namespace_that_was_made_anew_stay() {
    let site = Site::start().await;
    site.gateway("site").await;
    site.route("alive", &["site"]).await;
    let throughline = site.setup().ready().await;
    kept(&throughline, "namespace_unproved", 0).await;
    remake_namespace(&site).await;
    kept(&throughline, "namespace_unproved", 1).await;
    assert!(site.stands("alive").await);
    assert_eq!(site.deletes(), [""; 0]);
    throughline.stop().await;
}

/// Nobody else finishes the deletion of a namespace here.
pub(super) async fn remake_namespace(site: &Site) {
    use crate::cluster::rest::NAMESPACES;
    let up = site.world.upstream().rest();
    let gateways = up.list(GATEWAYS, SHOP).await.unwrap().0;
    for gateway in gateways {
        up.delete(GATEWAYS, SHOP, gateway["metadata"]["name"].as_str().unwrap()).await.unwrap();
    }
    let mut namespace = up.delete(NAMESPACES, "", SHOP).await.unwrap();
    namespace["spec"]["finalizers"] = json!([]);
    up.replace("/api/v1/namespaces/shop/finalize", &namespace).await.unwrap();
    eventually("the namespace is gone", SOON, async || {
        ensure(up.read(NAMESPACES, "", SHOP).await.is_err(), || "it is there".to_owned())
    })
    .await;
    up.create(NAMESPACES, json!({ "metadata": { "name": SHOP } })).await.unwrap();
}
