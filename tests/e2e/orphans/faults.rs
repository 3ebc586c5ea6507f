//! Upstream clusters that do not answer, or answer partly or wrongly.

use serde_json::{Value, json};
use throughline::core::contract::cause::Cause;

use super::{Site, wait_for_kept, wait_for_outcome};
use crate::cluster::faults::{Fault, Rule};
use crate::cluster::rest::{GATEWAYS, NAMESPACES, run_concurrently};
use crate::cluster::{SOON, ensure, eventually};

fn lists(fault: Fault) -> Rule {
    Rule::new(fault).method("GET").name("").watches(false)
}

/// Nothing is deleted while an upstream list is incomplete; once it is complete, the orphan is.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn orphans_need_whole_lists() {
    let site = Site::start().await;
    site.gateway("site").await;
    site.route("alive", &["site"]).await;
    let up = &site.testbed.upstream().proxy;
    let forbidden = || Rule::status(403).method("GET").name("").watches(false);
    let broken: [(&str, Rule); 6] = [
        ("403 gateways", forbidden().resource("gateways")),
        ("403 namespaces", forbidden().resource("namespaces")),
        ("404 gateways", Rule::status(404).resource("gateways")),
        ("410 lists", Rule::status(410).method("GET").resource("gateways").watches(false)),
        ("truncated", lists(Fault::Truncate).resource("gateways")),
        ("no answer", lists(Fault::Freeze).resource("gateways")),
    ];
    for (what, rule) in broken {
        site.route("orphan", &["gone"]).await;
        let rule = up.add(rule);
        let throughline = site
            .setup()
            .provokes(&[Cause::ClusterUnavailable, Cause::KindNotServed, Cause::PermissionMissing])
            .start()
            .await;
        wait_for_kept(&throughline, Cause::RouteUnproven, 2).await;
        assert_eq!(site.delete_requests(), [""; 0], "{what}");
        up.remove(rule);
        site.wait_until_deleted("orphan").await;
        assert!(site.exists("alive").await, "{what}");
        throughline.stop().await;
        site.testbed.reset_counts();
    }
}

/// Before a delete, the Gateway and its namespace are read again. A 403, a 404 about something else,
/// another error or no answer proves nothing: the route stays until the fault is gone.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn orphans_need_an_answer_about_that_very_gateway() {
    let site = Site::start().await;
    let up = &site.testbed.upstream().proxy;
    let at = |rule: Rule, resource, name: &str| rule.method("GET").resource(resource).name(name);
    let code = |code, resource, name: &str| at(Rule::status(code), resource, name);
    let listed = json!({ "kind": "Status", "status": "Success" });
    let broken: [(&str, Rule, &str); 8] = [
        ("403", code(403, "gateways", "gone"), "conflict"),
        ("404", code(404, "gateways", "gone"), "conflict"),
        ("503", code(503, "gateways", "gone"), "failed"),
        ("cut", at(Rule::new(Fault::Cut), "gateways", "gone"), "failed"),
        ("namespace 403", code(403, "namespaces", "shop"), "conflict"),
        ("namespace 404", code(404, "namespaces", "shop"), "conflict"),
        ("namespace cut", at(Rule::new(Fault::Cut), "namespaces", "shop"), "failed"),
        ("no namespace", at(Rule::new(Fault::Answer(listed)), "namespaces", "shop"), "conflict"),
    ];
    for (what, rule, outcome) in broken {
        site.route("orphan", &["gone"]).await;
        let rule = up.add(rule);
        let throughline =
            site.setup().provokes(&[Cause::WriteFailing, Cause::WriteRefused]).ready().await;
        wait_for_outcome(&throughline, outcome).await;
        assert!(site.exists("orphan").await, "{what}");
        assert_eq!(site.delete_requests(), [""; 0], "{what}");
        up.remove(rule);
        site.wait_until_deleted("orphan").await;
        throughline.stop().await;
        site.testbed.reset_counts();
    }
}

/// Upstream is restored from a backup older than the Gateway: the Gateway is lost, not deleted.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn orphans_of_a_restored_upstream_stay() {
    let site = Site::start().await;
    let up = site.testbed.upstream();
    up.server.back_up().await;
    site.gateway("site").await;
    site.route("alive", &["site"]).await;
    let throughline =
        site.setup().provokes(&[Cause::ClusterUnavailable, Cause::PermissionMissing]).ready().await;
    wait_for_kept(&throughline, Cause::RouteUnproven, 0).await;
    // Moves the resourceVersion well ahead of the one in the backup.
    run_concurrently(300, async |i| {
        let name = json!({ "metadata": { "name": format!("later-{i}") } });
        up.rest().create(NAMESPACES, name).await
    })
    .await
    .unwrap();
    site.gateway("another").await;
    up.server.restore().await;
    assert_eq!(up.rest().items(GATEWAYS).await.unwrap(), Vec::<Value>::new());
    eventually("it is noticed", 3 * SOON, async || {
        ensure(throughline.logged("the resourceVersion went backwards"), || "not yet".to_owned())
    })
    .await;
    wait_for_kept(&throughline, Cause::UpstreamRestored, 1).await;
    assert!(site.exists("alive").await);
    assert_eq!(site.delete_requests(), [""; 0]);
    throughline.stop().await;
}
