//! Changes between the decision to delete a route and the delete.

use std::sync::Arc;

use super::{Site, wait_for_outcome};
use crate::cluster::rest::ROUTES;
use crate::prelude::*;

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn changes_in_the_gap() {
    let site = Site::start().await;
    orphans_that_are_changed_in_the_gap_stay(&site).await;
    orphans_stay_when_leadership_is_lost_in_the_gap(&site).await;
}

/// Where a delete is held: a cluster, and what selects the request there.
type HeldAt<'a> = (&'a Cluster, fn(Rule) -> Rule);

/// Creates an orphan, and starts a run whose delete of it is held.
async fn hold_delete(
    site: &Site,
    (cluster, rule): HeldAt<'_>,
    settings: &Value,
) -> (Throughline, Arc<Gate>) {
    site.route("orphan", &["site"]).await;
    let gate = Gate::new();
    cluster.proxy.add(rule(Rule::new(Fault::Hold(gate.clone())).times(1)));
    let throughline = site.setup().set(settings).ready().await;
    gate.holds_one().await;
    (throughline, gate)
}

/// The route gets an existing parent in the gap, and with it another resourceVersion.
async fn orphans_that_are_changed_in_the_gap_stay(site: &Site) {
    site.gateway("alive").await;
    let (up, hub) = (site.testbed.upstream(), site.testbed.hub());
    let held: [HeldAt<'_>; 3] = [
        (hub, |hold| hold.method("GET").resource("httproutes").name("orphan")),
        (up, |hold| hold.method("GET").resource("gateways").name("site")),
        (hub, |hold| hold.method("DELETE")),
    ];
    for held in held {
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
    let election = json!({ "enabled": true, "leaseNamespace": "default", "retryPeriodMs": 1_000,
        "renewDeadlineMs": 12_000, "leaseDuration": "18s" });
    // The gate closes one write timeout before the Lease expires.
    let settings = json!({ "leaderElection": election, "executor": { "timeoutMs": 12_000 } });
    let held: HeldAt<'_> =
        (site.testbed.upstream(), |hold| hold.method("GET").resource("gateways").name("site"));
    let (mut throughline, gate) = hold_delete(site, held, &settings).await;
    throughline.provokes(&[Cause::LeaseUnusable]);
    site.testbed.reset_counts();
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
