//! Orphaned routes, deleted: a true one goes, and nothing else does, whatever goes wrong.

mod events;
mod faults;
mod gap;
mod many;
mod reasons;

use serde_json::{Value, json};

use crate::cluster::objects::{gateway, replica_of, route};
use crate::cluster::rest::{GATEWAYS, NAMESPACES, ROUTES};
use crate::cluster::throughline::{Setup, Throughline};
use crate::cluster::world::{Topology, World};
use crate::cluster::{SOON, ensure, eventually, rights};

/// One project with its namespace, and the hub that it is replicated to.
struct Site {
    world: World,
    /// The namespace of the replicas.
    ns: String,
}

const SHOP: &str = "shop";

impl Site {
    async fn start() -> Self {
        let world = World::start(Topology::Two).await;
        let [upstream, hub] = rights::DELETING;
        rights::grant(world.upstream().rest(), &[upstream]).await.unwrap();
        rights::grant(world.hub().rest(), &[hub]).await.unwrap();
        let mut site = Self { world, ns: String::new() };
        site.ns = site.namespace(SHOP).await;
        site
    }

    /// A namespace upstream, and its replica, whose name this gives.
    async fn namespace(&self, name: &str) -> String {
        let named = json!({ "metadata": { "name": name } });
        let made = self.world.upstream().rest().create(NAMESPACES, named).await.unwrap();
        let ns = format!("ns-{}", made["metadata"]["uid"].as_str().unwrap());
        let labels = json!({ "meta.datumapis.com/upstream-namespace": name });
        let replica = json!({ "metadata": { "name": ns, "labels": labels } });
        self.world.hub().rest().create(NAMESPACES, replica).await.unwrap();
        ns
    }

    async fn gateway(&self, name: &str) {
        self.world.upstream().rest().create(GATEWAYS, gateway(SHOP, name)).await.unwrap();
    }

    async fn remove_gateway(&self, name: &str) {
        self.world.upstream().rest().delete(GATEWAYS, SHOP, name).await.unwrap();
    }

    /// A replica of upstream's route, as the platform makes it; `change` may make it another.
    async fn route_with(&self, name: &str, parents: &[&str], change: impl FnOnce(&mut Value)) {
        let kind = ("gateway.networking.k8s.io", "HTTPRoute");
        let up = self.world.upstream().name;
        let mut made = replica_of(route(&self.ns, name, parents), up, kind, (SHOP, name));
        change(&mut made);
        self.world.hub().rest().create(ROUTES, made).await.unwrap();
    }

    async fn route(&self, name: &str, parents: &[&str]) {
        self.route_with(name, parents, |_| {}).await;
    }

    async fn merge(&self, name: &str, patch: &Value) {
        self.world.hub().rest().merge(ROUTES, (&self.ns, name), patch).await.unwrap();
    }

    async fn stands(&self, name: &str) -> bool {
        self.world.hub().rest().read(ROUTES, &self.ns, name).await.is_ok()
    }

    async fn goes(&self, name: &str) {
        eventually(&format!("{name} goes"), SOON, async || {
            ensure(!self.stands(name).await, || "it stands".to_owned())
        })
        .await;
    }

    /// DELETEs that came to the hub, whatever became of them.
    fn deletes(&self) -> Vec<String> {
        let writes = self.world.hub().proxy.writes().into_iter();
        writes.filter(|w| w.target.method == "DELETE").map(|w| w.target.name).collect()
    }

    fn setup(&self) -> Setup {
        Setup::of(&self.world).set(&json!({
            "orphans": { "mode": "delete", "minAgeMs": 1_000, "settleMs": 1_000 },
            "retry": { "firstMs": 300, "maxMs": 1_000 },
            "watch": { "backoffMaxMs": 1_000, "timeoutMs": 5_000 },
        }))
    }
}

/// Waits until so many routes are kept for this reason (`none`: by nothing).
async fn kept(throughline: &Throughline, reason: &str, routes: usize) {
    let series = format!("throughline_orphans{{reason=\"{reason}\"}}");
    let wanted = f64::from(u32::try_from(routes).unwrap());
    eventually(&format!("{routes} kept: {reason}"), SOON, async || {
        let metrics = throughline.metrics().await;
        let orphans = metrics.iter().filter(|(name, n)| name.contains("orphans{") && **n > 0.0);
        ensure(metrics.get(&series) == Some(&wanted), || {
            format!("{:?}", orphans.collect::<Vec<_>>())
        })
    })
    .await;
}

/// Waits until this is what became of a delete.
async fn came_to(throughline: &Throughline, outcome: &str) {
    let series = format!("throughline_actions_total{{verb=\"delete\",outcome=\"{outcome}\"}}");
    eventually(&format!("a delete came to: {outcome}"), SOON, async || {
        let metrics = throughline.metrics().await;
        let fates = metrics.keys().filter(|name| name.contains("verb=\"delete\",outcome"));
        ensure(metrics.contains_key(&series), || format!("{:?}", fates.collect::<Vec<_>>()))
    })
    .await;
}

/// Waits until its log says this; what it counts may be seen before what it writes.
async fn said(throughline: &Throughline, text: &str) {
    eventually(&format!("it says: {text}"), SOON, async || {
        ensure(throughline.logged(text), || "not yet".to_owned())
    })
    .await;
}
