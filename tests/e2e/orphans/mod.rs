//! Deleting orphaned routes: true orphans are deleted and nothing else is, whatever goes wrong.

mod faults;
mod many;
mod reasons;

use throughline::core::contract::event::Event;
use throughline::core::machine::Machine;
use throughline::event_log::{Header, LogEntry, LogReader};

use crate::cluster::objects::{route, with_upstream_labels};
use crate::cluster::rights;
use crate::prelude::*;

/// One upstream cluster with a namespace, and the hub that the namespace is replicated to.
struct Site {
    testbed: Testbed,
    /// The namespace at the hub.
    hub_ns: String,
}

const SHOP: &str = "shop";

impl Site {
    async fn start() -> Self {
        let testbed = Testbed::start(Topology::Two).await;
        let (up, hub) = (testbed.upstream().rest(), testbed.hub().rest());
        for (rest, folder) in [up, hub].into_iter().zip(rights::DELETING) {
            rights::grant(rest, &[folder]).await.unwrap();
        }
        let named = json!({ "metadata": { "name": SHOP } });
        let made = up.create(NAMESPACES, named).await.unwrap();
        let hub_ns = format!("ns-{}", made["metadata"]["uid"].as_str().unwrap());
        let labels = json!({ "meta.datumapis.com/upstream-namespace": SHOP });
        let replica = json!({ "metadata": { "name": hub_ns, "labels": labels } });
        hub.create(NAMESPACES, replica).await.unwrap();
        Self { testbed, hub_ns }
    }

    async fn gateway(&self, name: &str) {
        self.testbed.upstream().rest().create(GATEWAYS, gateway(SHOP, name)).await.unwrap();
    }

    async fn remove_gateway(&self, name: &str) {
        self.testbed.upstream().rest().delete(GATEWAYS, SHOP, name).await.unwrap();
    }

    /// A route at the hub, as the platform's replicator makes it.
    fn made_route(&self, name: &str, parents: &[&str]) -> Value {
        let (kind, up) = (("gateway.networking.k8s.io", "HTTPRoute"), self.testbed.upstream().name);
        with_upstream_labels(route(&self.hub_ns, name, parents), up, kind, (SHOP, name))
    }

    async fn route(&self, name: &str, parents: &[&str]) {
        let made = self.made_route(name, parents);
        self.testbed.hub().rest().create(ROUTES, made).await.unwrap();
    }

    async fn merge(&self, name: &str, patch: &Value) {
        self.testbed.hub().rest().merge(ROUTES, (&self.hub_ns, name), patch).await.unwrap();
    }

    async fn exists(&self, name: &str) -> bool {
        self.testbed.hub().rest().read(ROUTES, &self.hub_ns, name).await.is_ok()
    }

    async fn wait_until_deleted(&self, name: &str) {
        until(&format!("{name} is deleted"), async || !self.exists(name).await).await;
    }

    /// The names in the DELETE requests that the hub received, whatever their outcome.
    fn delete_requests(&self) -> Vec<String> {
        let writes = self.testbed.hub().proxy.writes().into_iter();
        writes.filter(|w| w.target.method == "DELETE").map(|w| w.target.name).collect()
    }

    fn setup(&self) -> Setup {
        Setup::of(&self.testbed).set(&json!({
            "orphans": { "mode": "delete", "minAge": "1s", "settleMs": 1_000 },
            "retry": { "firstMs": 300, "maxMs": 1_000 },
            "watch": { "backoffMaxMs": 1_000, "timeoutMs": 5_000 },
        }))
    }
}

/// Waits until this many routes are kept for this reason; `None` counts routes that nothing keeps.
async fn wait_for_kept(throughline: &Throughline, cause: impl Into<Option<Cause>>, routes: usize) {
    let cause = cause.into();
    eventually(&format!("{routes} kept: {cause:?}"), SOON, async || {
        let kept = kept(throughline);
        ensure(kept.iter().filter(|of| **of == cause).count() == routes, || format!("{kept:?}"))
    })
    .await;
}

/// Why each route is kept, by a replay of what the run has logged so far.
fn kept(throughline: &Throughline) -> Vec<Option<Cause>> {
    let mut log = LogReader::open(throughline.event_log().to_str().unwrap()).unwrap();
    let Header { clusters, settings, .. } = log.header().clone();
    let mut machine = Machine::new(settings.unwrap());
    let mut is_first = true;
    while let Some(line) = log.next_line().unwrap() {
        let LogEntry::Event(event) = line else { continue };
        for cluster in clusters.iter().filter(|_| is_first) {
            machine.handle_event(&Event { at: event.at, kind: cluster.added() });
        }
        is_first = false;
        machine.handle_event(&event);
        while machine.poll_action().is_some() {}
    }
    machine.candidates().into_iter().map(|candidate| candidate.kept).collect()
}

/// Waits until a delete has this outcome.
async fn wait_for_outcome(throughline: &Throughline, outcome: &str) {
    let series = format!("throughline_actions_total{{verb=\"delete\",outcome=\"{outcome}\"}}");
    until(&format!("a delete has the outcome {outcome}"), async || {
        throughline.metrics().await.get(&series).is_some_and(|count| *count > 0.0)
    })
    .await;
}
