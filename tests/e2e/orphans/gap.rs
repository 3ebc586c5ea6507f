//! Changes between the decision to delete a route and the delete.

use std::sync::Arc;

use super::{Site, wait_for_outcome};
use crate::prelude::*;

/// The request at which a delete is held.
#[derive(Clone, Copy)]
enum HeldAt {
    GetRoute,
    GetParent,
    Delete,
}

/// An orphan whose delete is held at one of its requests.
async fn hold_delete(at: HeldAt, settings: &Value) -> (Site, Throughline, Arc<Gate>) {
    let site = Site::start().await;
    site.route("orphan", &["site"]).await;
    let (gate, up, hub) = (Gate::new(), site.testbed.upstream(), site.testbed.hub());
    let hold = Rule::new(Fault::Hold(gate.clone())).times(1);
    match at {
        HeldAt::GetRoute => hub.proxy.add(hold.method("GET").resource("httproutes").name("orphan")),
        HeldAt::GetParent => up.proxy.add(hold.method("GET").resource("gateways").name("site")),
        HeldAt::Delete => hub.proxy.add(hold.method("DELETE")),
    };
    let throughline = site.setup().set(settings).ready().await;
    gate.holds_one().await;
    (site, throughline, gate)
}

/// The route gets an existing parent in the gap, and with it another resourceVersion.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn orphans_that_are_changed_in_the_gap_stay() {
    for at in [HeldAt::GetRoute, HeldAt::GetParent, HeldAt::Delete] {
        let patient = json!({ "executor": { "timeoutMs": 60_000 } });
        let (site, throughline, gate) = hold_delete(at, &patient).await;
        site.gateway("alive").await;
        site.merge("orphan", &json!({ "spec": { "parentRefs": [{ "name": "alive" }] } })).await;
        gate.release();
        wait_for_outcome(&throughline, "conflict").await;
        // Once a later orphan is deleted, the first one has been judged again, too.
        site.route("later", &["gone"]).await;
        site.wait_until_deleted("later").await;
        assert!(site.exists("orphan").await);
        throughline.stop().await;
    }
}

/// The Lease can no longer be renewed while the Gateway is being read.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn orphans_stay_when_leadership_is_lost_in_the_gap() {
    let election = json!({ "enabled": true, "leaseNamespace": "default", "retryPeriodMs": 1_000,
        "renewDeadlineMs": 20_000, "leaseDuration": "30s" });
    // The gate closes one write timeout before the Lease expires.
    let settings = json!({ "leaderElection": election, "executor": { "timeoutMs": 20_000 } });
    let (site, mut throughline, gate) = hold_delete(HeldAt::GetParent, &settings).await;
    throughline.provokes(&[Cause::LeaseUnusable]);
    let hub = &site.testbed.hub().proxy;
    let refused = hub.add(Rule::status(503).resource("leases"));
    until("leadership is lost", async || {
        let leads = r#"leader_election_master_status{name="throughline"}"#;
        throughline.metrics().await.get(leads) == Some(&0.0)
    })
    .await;
    gate.release();
    wait_for_outcome(&throughline, "dropped").await;
    assert!(site.exists("orphan").await);
    assert_eq!(site.delete_requests(), [""; 0]);
    hub.remove(refused);
    site.wait_until_deleted("orphan").await;
    throughline.stop().await;
}
