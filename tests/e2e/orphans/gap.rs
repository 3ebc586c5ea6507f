//! Changes between the decision to delete a route and the delete.

use std::sync::Arc;

use serde_json::{Value, json};
use throughline::core::contract::cause::Cause;

use super::reasons::recreate_namespace;
use super::{Site, wait_for_error, wait_for_outcome};
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
    GetNamespace,
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
        HeldAt::GetNamespace => {
            up.proxy.add(hold.method("GET").resource("namespaces").name("shop"))
        }
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

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn orphans_whose_gateway_is_recreated_before_it_is_read_stay() {
    for at in [HeldAt::GetRoute, HeldAt::GetNamespace, HeldAt::GetParent] {
        let held = hold_delete(at, LONG_MS).await;
        held.site.gateway("site").await;
        held.ends_without_deleting("conflict").await;
    }
}

/// The DELETE is held beyond its timeout and is abandoned; the next attempt finds the Gateway.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn orphans_whose_gateway_is_recreated_while_the_delete_is_held_stay() {
    let held = hold_delete(HeldAt::Delete, 2_000).await;
    held.site.gateway("site").await;
    wait_for_outcome(&held.throughline, "unanswered").await;
    eventually("the proxy has dropped it", SOON, async || {
        ensure(held.gate.waiting() == 0 || held.site.delete_requests().len() == 1, || {
            "not yet".to_owned()
        })
    })
    .await;
    held.ends_without_deleting("unanswered").await;
}

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

/// The route is replaced by another one of the same name and content.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn orphans_that_are_replaced_in_the_gap_stay() {
    use crate::cluster::rest::ROUTES;
    let held = hold_delete(HeldAt::Delete, LONG_MS).await;
    held.site.testbed.hub().rest().delete(ROUTES, &held.site.hub_ns, "orphan").await.unwrap();
    held.site.gateway("site").await;
    held.site.route("orphan", &["site"]).await;
    held.ends_without_deleting("conflict").await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn orphans_whose_namespace_is_recreated_in_the_gap_stay() {
    let held = hold_delete(HeldAt::GetNamespace, LONG_MS).await;
    recreate_namespace(&held.site).await;
    let HeldDelete { site, throughline, gate } = held;
    gate.release();
    wait_for_outcome(&throughline, "conflict").await;
    wait_for_error(&throughline, "is not the namespace that the hub object was copied from").await;
    super::wait_for_kept(&throughline, Cause::NamespaceMismatch, 1).await;
    assert!(site.exists("orphan").await);
    assert_eq!(site.delete_requests(), [""; 0]);
    throughline.stop().await;
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

/// The delete is carried out and its answer is lost: the log says so, and the backup holds the route.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn orphans_deleted_without_an_answer_are_in_the_backup() {
    let site = Site::start().await;
    site.route("orphan", &["gone"]).await;
    site.testbed.hub().proxy.add(Rule::new(Fault::LoseAnswer).method("DELETE").times(1));
    let throughline = site.setup().ready().await;
    wait_for_outcome(&throughline, "unanswered").await;
    site.wait_until_deleted("orphan").await;
    let log = std::fs::read_to_string(throughline.event_log()).unwrap();
    assert!(log.contains(r#""outcome":"unanswered""#) && !log.contains("orphan.example.com"));
    let backup = throughline.event_log().with_extension("jsonl.deleted.jsonl");
    let backup = std::fs::read_to_string(backup).unwrap();
    assert!(backup.contains("orphan.example.com"), "{backup}");
    throughline.stop().await;
}
