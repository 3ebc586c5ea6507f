//! What happens between the decision and the delete.

use std::sync::Arc;

use serde_json::{Value, json};

use super::reasons::remake_namespace;
use super::{Site, came_to, said};
use crate::cluster::faults::{Fault, Gate, Rule};
use crate::cluster::throughline::Throughline;
use crate::cluster::{SOON, ensure, eventually};

/// An orphan whose delete is held back at one request.
struct Held {
    site: Site,
    throughline: Throughline,
    gate: Arc<Gate>,
}

/// Where it is held.
#[derive(Clone, Copy)]
enum At {
    Route,
    Namespace,
    Parent,
    Delete,
}

async fn held(at: At, timeout_ms: u64) -> Held {
    held_with(at, &json!({ "executor": { "timeoutMs": timeout_ms } })).await
}

async fn held_with(at: At, settings: &Value) -> Held {
    let site = Site::start().await;
    site.route("orphan", &["site"]).await;
    let (gate, up, hub) = (Gate::new(), site.world.upstream(), site.world.hub());
    let hold = Rule::new(Fault::Hold(gate.clone())).times(1);
    match at {
        At::Route => hub.proxy.add(hold.method("GET").resource("httproutes").name("orphan")),
        At::Namespace => up.proxy.add(hold.method("GET").resource("namespaces").name("shop")),
        At::Parent => up.proxy.add(hold.method("GET").resource("gateways").name("site")),
        At::Delete => hub.proxy.add(hold.method("DELETE")),
    };
    let throughline = site.setup().set(settings).ready().await;
    eventually("the delete is held", SOON, async || {
        ensure(gate.waiting() == 1, || "not yet".to_owned())
    })
    .await;
    Held { site, throughline, gate }
}

impl Held {
    /// It goes on; it comes to nothing, and the route stays although there is time to delete it.
    async fn comes_to_nothing(self, outcome: &str) {
        let Held { site, throughline, gate } = self;
        gate.release();
        came_to(&throughline, outcome).await;
        // One more that goes: by then the other was looked at again.
        site.route("witness", &["gone"]).await;
        site.goes("witness").await;
        assert!(site.stands("orphan").await);
        throughline.stop().await;
    }
}

const LONG: u64 = 60_000;

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn orphans_whose_gateway_is_made_again_before_the_proof_stay() {
    for at in [At::Route, At::Namespace, At::Parent] {
        let held = held(at, LONG).await;
        held.site.gateway("site").await;
        held.comes_to_nothing("conflict").await;
    }
}

/// The delete itself is held for longer than it may take: it is given up, and the next one finds the
/// Gateway.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn orphans_whose_gateway_is_made_again_while_the_delete_is_held_stay() {
    let held = held(At::Delete, 2_000).await;
    held.site.gateway("site").await;
    came_to(&held.throughline, "unanswered").await;
    eventually("the proxy has given it up", SOON, async || {
        ensure(held.gate.waiting() == 0 || held.site.deletes().len() == 1, || "not yet".to_owned())
    })
    .await;
    held.comes_to_nothing("unanswered").await;
}

/// The route gets a living parent in the gap: its version is another one.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn orphans_that_are_changed_in_the_gap_stay() {
    for at in [At::Route, At::Parent, At::Delete] {
        let held = held(at, LONG).await;
        held.site.gateway("alive").await;
        let parents = json!({ "spec": { "parentRefs": [{ "name": "alive" }] } });
        held.site.merge("orphan", &parents).await;
        held.comes_to_nothing("conflict").await;
    }
}

/// Another route under the same name, of the very same content.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn orphans_that_are_replaced_in_the_gap_stay() {
    use crate::cluster::rest::ROUTES;
    let held = held(At::Delete, LONG).await;
    held.site.world.hub().rest().delete(ROUTES, &held.site.ns, "orphan").await.unwrap();
    held.site.gateway("site").await;
    held.site.route("orphan", &["site"]).await;
    held.comes_to_nothing("conflict").await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn orphans_whose_namespace_is_made_anew_in_the_gap_stay() {
    let held = held(At::Namespace, LONG).await;
    remake_namespace(&held.site).await;
    let Held { site, throughline, gate } = held;
    gate.release();
    came_to(&throughline, "conflict").await;
    said(&throughline, "is another one than the route's labels mean").await;
    super::kept(&throughline, "namespace_unproved", 1).await;
    assert!(site.stands("orphan").await);
    assert_eq!(site.deletes(), [""; 0]);
    throughline.stop().await;
}

/// The Lease can't be renewed any longer while the last proof is waited for.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn orphans_stay_when_leadership_is_lost_in_the_gap() {
    let election = json!({ "enabled": true, "leaseNamespace": "default", "retryPeriodMs": 1_000,
        "renewDeadlineMs": 20_000, "leaseDurationMs": 30_000 });
    // What is under way may take as long as that, so the gate closes as much earlier.
    let settings = json!({ "leaderElection": election, "executor": { "timeoutMs": 20_000 } });
    let Held { site, throughline, gate } = held_with(At::Parent, &settings).await;
    let hub = &site.world.hub().proxy;
    let refused = hub.add(Rule::status(503).resource("leases"));
    eventually("leadership is lost", SOON, async || {
        let metrics = throughline.metrics().await;
        let leads = metrics.get(r#"leader_election_master_status{name="throughline"}"#);
        ensure(leads == Some(&0.0), || format!("{leads:?}"))
    })
    .await;
    gate.release();
    came_to(&throughline, "dropped").await;
    assert!(site.stands("orphan").await);
    assert_eq!(site.deletes(), [""; 0]);
    hub.remove(refused);
    site.goes("orphan").await;
    throughline.stop().await;
}

/// The delete is done and its answer lost: it is told so, and what was deleted can be brought back.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn orphans_deleted_without_an_answer_are_in_the_log() {
    let site = Site::start().await;
    site.route("orphan", &["gone"]).await;
    site.world.hub().proxy.add(Rule::new(Fault::LoseAnswer).method("DELETE").times(1));
    let throughline = site.setup().ready().await;
    came_to(&throughline, "unanswered").await;
    site.goes("orphan").await;
    let log = std::fs::read_to_string(throughline.event_log()).unwrap();
    assert!(log.contains(r#""outcome":"unanswered""#) && log.contains("orphan.example.com"));
    throughline.stop().await;
}
