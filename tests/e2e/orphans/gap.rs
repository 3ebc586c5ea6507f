//! Changes between the decision to delete a route and the delete.

use std::sync::Arc;

use serde_json::{Value, json};
use throughline::core::contract::cause::Cause;

use super::{Site, wait_for_outcome};
use crate::cluster::faults::{Fault, Gate, Rule};
use crate::cluster::throughline::Throughline;
use crate::cluster::{SOON, ensure, eventually};

/// An orphan whose delete is held at one of its requests.
struct HeldDelete {
    site: Site,
    throughline: Throughline,
    gate: Arc<Gate>,
}

/// The request at which the delete is held.
#[derive(Clone, Copy)]
enum HeldAt {
    GetRoute,
    GetParent,
    Delete,
}

async fn hold_delete(at: HeldAt, timeout_ms: u64) -> HeldDelete {
    hold_delete_with(at, &json!({ "executor": { "timeoutMs": timeout_ms } })).await
}

async fn hold_delete_with(at: HeldAt, settings: &Value) -> HeldDelete {
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
    eventually("the delete is held", SOON, async || {
        ensure(gate.waiting() == 1, || "not yet".to_owned())
    })
    .await;
    HeldDelete { site, throughline, gate }
}

impl HeldDelete {
    /// Releases the request; the delete ends with this outcome and the route stays.
    async fn ends_without_deleting(self, outcome: &str) {
        let HeldDelete { site, throughline, gate } = self;
        gate.release();
        wait_for_outcome(&throughline, outcome).await;
        // Once a later orphan is deleted, the first one has been judged again, too.
        site.route("later", &["gone"]).await;
        site.wait_until_deleted("later").await;
        assert!(site.exists("orphan").await);
        throughline.stop().await;
    }
}

const LONG_MS: u64 = 60_000;

/// The route gets an existing parent in the gap, and with it another resourceVersion.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn orphans_that_are_changed_in_the_gap_stay() {
    for at in [HeldAt::GetRoute, HeldAt::GetParent, HeldAt::Delete] {
        let held = hold_delete(at, LONG_MS).await;
        held.site.gateway("alive").await;
        let parents = json!({ "spec": { "parentRefs": [{ "name": "alive" }] } });
        held.site.merge("orphan", &parents).await;
        held.ends_without_deleting("conflict").await;
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
    let HeldDelete { site, mut throughline, gate } =
        hold_delete_with(HeldAt::GetParent, &settings).await;
    throughline.provokes(&[Cause::LeaseUnusable]);
    let hub = &site.testbed.hub().proxy;
    let refused = hub.add(Rule::status(503).resource("leases"));
    eventually("leadership is lost", SOON, async || {
        let metrics = throughline.metrics().await;
        let leads = metrics.get(r#"leader_election_master_status{name="throughline"}"#);
        ensure(leads == Some(&0.0), || format!("{leads:?}"))
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
