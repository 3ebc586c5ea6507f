//! Upstream clusters that do not answer, or answer partly or wrongly, and changes between the decision to
//! delete a route and the delete.

use std::sync::Arc;

use super::{Site, wait_for_kept, wait_for_outcome};
use crate::prelude::*;

/// With this fault upstream, a run that starts keeps an orphan; once it is over, the orphan is deleted.
async fn is_kept(site: &Site, what: &str, fault: Rule, by: impl AsyncFnOnce(&Throughline)) {
    site.testbed.reset_counts();
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
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn orphans_without_proof_stay() {
    let site = Site::start().await;
    orphans_that_are_changed_in_the_gap_stay(&site).await;
    orphans_stay_when_leadership_is_lost_in_the_gap(&site).await;
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

/// The request at which a delete is held.
struct HeldAt<'a> {
    cluster: &'a Cluster,
    method: &'static str,
    resource: &'static str,
    name: &'static str,
}

/// Creates an orphan, and starts a run whose delete of it is held there.
async fn hold_delete(site: &Site, held: HeldAt<'_>, settings: &Value) -> (Throughline, Arc<Gate>) {
    site.route("orphan", &["site"]).await;
    let gate = Gate::new();
    let hold = Rule::new(Fault::Hold(gate.clone())).method(held.method).resource(held.resource);
    held.cluster.proxy.add(hold.name(held.name).times(1));
    let throughline = site.setup().set(settings).ready().await;
    gate.holds_one().await;
    (throughline, gate)
}

/// The route gets an existing parent in the gap, and with it another resourceVersion.
async fn orphans_that_are_changed_in_the_gap_stay(site: &Site) {
    site.gateway("alive").await;
    let (up, hub) = (site.testbed.upstream(), site.testbed.hub());
    for held in [
        HeldAt { cluster: hub, method: "GET", resource: "httproutes", name: "orphan" },
        HeldAt { cluster: up, method: "GET", resource: "gateways", name: "site" },
        HeldAt { cluster: hub, method: "DELETE", resource: "httproutes", name: "orphan" },
    ] {
        let patient = json!({ "executor": { "timeoutMs": 60_000 } });
        let (throughline, gate) = hold_delete(site, held, &patient).await;
        site.merge("orphan", &json!({ "spec": { "parentRefs": [{ "name": "alive" }] } })).await;
        gate.release();
        wait_for_outcome(&throughline, "conflict").await;
        // Once a later orphan is deleted, the first one has been judged again, too.
        site.route("later", &["gone"]).await;
        site.wait_until_deleted("later").await;
        assert!(site.exists("orphan").await);
        throughline.stop().await;
        hub.rest().delete(ROUTES, &site.hub_ns, "orphan").await.unwrap();
    }
}

/// The Lease can no longer be renewed while the Gateway is being read.
async fn orphans_stay_when_leadership_is_lost_in_the_gap(site: &Site) {
    let lease = json!({ "enabled": true, "leaseNamespace": "default", "leaseDuration": "18s" });
    // The gate closes one write timeout before the Lease expires.
    let settings = json!({ "leaderElection": lease, "executor": { "timeoutMs": 12_000 },
        "election": { "renewDeadlineMs": 12_000, "retryMs": 1_000 } });
    let cluster = site.testbed.upstream();
    let held = HeldAt { cluster, method: "GET", resource: "gateways", name: "site" };
    let (mut throughline, gate) = hold_delete(site, held, &settings).await;
    throughline.provokes(&[Cause::LeaseUnusable]);
    site.testbed.reset_counts();
    let hub = &site.testbed.hub().proxy;
    let refused = hub.add(Rule::status(503).resource("leases"));
    let leads = r#"leader_election_master_status{name="throughline"}"#;
    let leads = async || throughline.metrics().await.get(leads).copied();
    becomes("leadership is lost", Some(0.0), leads).await;
    gate.release();
    wait_for_outcome(&throughline, "dropped").await;
    assert!(site.exists("orphan").await);
    assert_eq!(site.delete_requests(), [""; 0]);
    hub.remove(refused);
    site.wait_until_deleted("orphan").await;
    throughline.stop().await;
}
