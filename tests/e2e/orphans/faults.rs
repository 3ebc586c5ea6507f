//! Upstream clusters that do not answer, or answer partly or wrongly.

use super::{Site, wait_for_kept, wait_for_outcome};
use crate::prelude::*;

/// With this fault upstream, a run that starts keeps an orphan; once it is over, the orphan is deleted.
async fn is_kept(site: &Site, what: &str, fault: Rule, by: impl AsyncFnOnce(&Throughline)) {
    site.route("orphan", &["gone"]).await;
    let up = &site.testbed.upstream().proxy;
    let rule = up.add(fault);
    let provoked = [
        Cause::ClusterUnavailable,
        Cause::KindNotServed,
        Cause::PermissionMissing,
        Cause::WriteFailing,
        Cause::WriteRefused,
    ];
    let throughline = site.setup().provokes(&provoked).start().await;
    by(&throughline).await;
    assert!(site.exists("orphan").await, "{what}");
    assert_eq!(site.delete_requests(), [""; 0], "{what}");
    up.remove(rule);
    site.wait_until_deleted("orphan").await;
    throughline.stop().await;
    site.testbed.reset_counts();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn faults_upstream() {
    let site = Site::start().await;
    orphans_need_an_answer_about_that_very_gateway(&site).await;
    orphans_need_whole_lists(&site).await;
}

/// Nothing is deleted while an upstream list is incomplete; once it is complete, the orphan is.
async fn orphans_need_whole_lists(site: &Site) {
    site.gateway("site").await;
    site.route("alive", &["site"]).await;
    let list = |rule: Rule, resource| rule.method("GET").resource(resource).name("").watches(false);
    let broken = [
        ("403 gateways", list(Rule::status(403), "gateways")),
        ("403 namespaces", list(Rule::status(403), "namespaces")),
        ("404 gateways", Rule::status(404).resource("gateways")),
        ("410 lists", Rule::status(410).method("GET").resource("gateways").watches(false)),
        ("truncated", list(Rule::new(Fault::Truncate), "gateways")),
        ("no answer", list(Rule::new(Fault::Freeze), "gateways")),
    ];
    for (what, fault) in broken {
        let unproven = async |run: &Throughline| wait_for_kept(run, Cause::RouteUnproven, 2).await;
        is_kept(site, what, fault, unproven).await;
        assert!(site.exists("alive").await, "{what}");
    }
}

/// Before a delete, the Gateway and its namespace are read again. A 403, a 404 about something else,
/// another error or no answer proves nothing: the route stays until the fault is gone.
async fn orphans_need_an_answer_about_that_very_gateway(site: &Site) {
    let gateway = |rule: Rule| rule.method("GET").resource("gateways").name("gone");
    let namespace = |rule: Rule| rule.method("GET").resource("namespaces").name("shop");
    let success = json!({ "kind": "Status", "status": "Success" });
    let broken = [
        ("403", gateway(Rule::status(403)), "conflict"),
        ("404", gateway(Rule::status(404)), "conflict"),
        ("503", gateway(Rule::status(503)), "failed"),
        ("cut", gateway(Rule::new(Fault::Cut)), "failed"),
        ("namespace 403", namespace(Rule::status(403)), "conflict"),
        ("namespace 404", namespace(Rule::status(404)), "conflict"),
        ("namespace cut", namespace(Rule::new(Fault::Cut)), "failed"),
        ("no namespace", namespace(Rule::new(Fault::Answer(success))), "conflict"),
    ];
    for (what, fault, outcome) in broken {
        let ends = async |run: &Throughline| wait_for_outcome(run, outcome).await;
        is_kept(site, what, fault, ends).await;
    }
}
