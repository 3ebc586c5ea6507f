//! Connectors, by the thousand if need be, with their proxies and gateways in every tier, and changes
//! to them.

use std::sync::Mutex;

use serde_json::json;

use super::carrier::Carrier;
use super::objects::{
    self, TRIGGER, UPSTREAM_STATUS, annotation, connector, gateway, proxy, status,
    with_upstream_labels,
};
use super::rest::{
    Answer, CONNECTORS, GATEWAYS, NAMESPACES, PROXIES, ROUTES, Rest, run_concurrently,
};
use super::testbed::{Testbed, Topology};
use super::{SOON, ensure, eventually};

/// The hub's status annotations at the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mirrored {
    /// They equal the upstream status: the platform's replicator wrote them.
    Fresh,
    /// There are none.
    Absent,
    /// The first `n` say the opposite of upstream; the others are fresh.
    Stale(usize),
}

/// The size and the initial state of a fleet. Its connectors are spread over namespaces.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spec {
    pub(crate) connectors: usize,
    pub(crate) per_namespace: usize,
    /// HTTPProxies for each connector, each with its Gateway.
    pub(crate) gateways: usize,
    pub(crate) mirrored: Mirrored,
    /// Also create upstream Gateways, and hub HTTPRoutes that have them as parents.
    pub(crate) with_routes: bool,
}

impl Spec {
    /// Ten connectors in a namespace, one gateway for each, online and not mirrored yet.
    pub(crate) fn of(connectors: usize) -> Self {
        let (per_namespace, mirrored) = (10, Mirrored::Absent);
        Self { connectors, per_namespace, gateways: 1, mirrored, with_routes: false }
    }
}

/// A fleet in its clusters. Connector `i` starts on node `i`.
pub(crate) struct Fleet {
    pub(crate) spec: Spec,
    pub(crate) up: Rest,
    pub(crate) hub: Rest,
    pub(crate) edge: Rest,
    upstream: &'static str,
    /// Each namespace upstream, and its `ns-<uid>`.
    namespaces: Vec<(String, String)>,
    /// Online and node of each connector, as last written upstream.
    now: Mutex<Vec<(bool, u32)>>,
}

impl Fleet {
    /// Creates the fleet. Where there is a carrier, it brings the Connectors to the edge.
    pub(crate) async fn seed(testbed: &Testbed, spec: Spec) -> Self {
        let upstream = testbed.upstream();
        let [up, hub, edge] =
            [upstream, testbed.hub(), testbed.edge()].map(|cluster| cluster.rest().clone());
        let now = (0..spec.connectors).map(|i| (true, u32::try_from(i).unwrap())).collect();
        let upstream = upstream.name;
        let namespaces = Vec::new();
        let mut fleet = Self { spec, up, hub, edge, upstream, namespaces, now: Mutex::new(now) };
        fleet.create_namespaces(testbed.topology).await;
        fleet.create_upstream().await;
        let carried = testbed.carrier.as_ref().map_or(0, |carrier| carrier.carried_count());
        fleet.create_hub_connectors().await;
        match &testbed.carrier {
            Some(carrier) => fleet.seed_edge(&fleet.edge, carrier, carried).await,
            None => fleet.create_edge(&fleet.edge).await,
        }
        fleet
    }

    /// Waits until the carrier has brought the fleet to an edge, and creates the rest there.
    pub(super) async fn seed_edge(&self, edge: &Rest, carrier: &Carrier, carried: u64) {
        let wanted = carried + u64::try_from(self.spec.connectors).unwrap();
        eventually("the fleet is carried to the edge", 3 * SOON, async || {
            let done = carrier.carried_count();
            ensure(done >= wanted, || format!("{done} of {wanted}"))
        })
        .await;
        self.create_edge(edge).await;
    }

    async fn create_namespaces(&mut self, topology: Topology) {
        let count = self.spec.connectors.div_ceil(self.spec.per_namespace);
        let made = run_concurrently(count, async |i| {
            let name = format!("project-{i}");
            let made = self.up.create(NAMESPACES, json!({ "metadata": { "name": name } })).await?;
            let hub_namespace = format!("ns-{}", made["metadata"]["uid"].as_str().unwrap());
            let object = json!({ "metadata": { "name": hub_namespace } });
            let kind = ("", "Namespace");
            let object = with_upstream_labels(object, self.upstream, kind, (&name, &name));
            self.hub.create(NAMESPACES, object.clone()).await?;
            if topology == Topology::Three {
                self.edge.create(NAMESPACES, object).await?;
            }
            Ok((name, hub_namespace))
        });
        self.namespaces = made.await.unwrap();
    }

    async fn create_upstream(&self) {
        run_concurrently(self.spec.connectors, async |i| {
            let (namespace, name) = self.upstream_key(i);
            self.up.create(CONNECTORS, connector(namespace, &name)).await?;
            if self.spec.with_routes {
                self.up.create(GATEWAYS, gateway(namespace, &app(i, 0))).await?;
            }
            let (online, node) = self.now(i);
            self.set(i, online, node).await
        })
        .await
        .unwrap();
    }

    /// Creates the hub Connectors and the routes, as the platform's replicator does.
    async fn create_hub_connectors(&self) {
        run_concurrently(self.spec.connectors, async |i| {
            let ((namespace, name), source) = (self.hub_key(i), self.upstream_key(i));
            let kind = ("networking.datumapis.com", "Connector");
            let made = connector(namespace, &name);
            let mut made = with_upstream_labels(made, self.upstream, kind, (source.0, &source.1));
            let (online, node) = self.now(i);
            let said = match self.spec.mirrored {
                Mirrored::Absent => None,
                Mirrored::Stale(count) if i < count => Some(status(!online, node)),
                Mirrored::Fresh | Mirrored::Stale(_) => Some(status(online, node)),
            };
            if let Some(said) = said {
                made["metadata"]["annotations"] = json!({ UPSTREAM_STATUS: said.to_string() });
            }
            self.hub.create(CONNECTORS, made).await?;
            if self.spec.with_routes {
                let name = app(i, 0);
                let kind = ("gateway.networking.k8s.io", "HTTPRoute");
                let route = objects::route(namespace, &name, &[&name]);
                let route = with_upstream_labels(route, self.upstream, kind, (source.0, &name));
                self.hub.create(ROUTES, route).await?;
            }
            Ok(())
        })
        .await
        .unwrap();
    }

    async fn create_edge(&self, edge: &Rest) {
        run_concurrently(self.spec.connectors, async |i| {
            let (namespace, name) = self.hub_key(i);
            for g in 0..self.spec.gateways {
                edge.create(PROXIES, proxy(namespace, &app(i, g), &[&name])).await?;
                edge.create(GATEWAYS, gateway(namespace, &app(i, g))).await?;
            }
            // One Gateway in each namespace has no connector: throughline must not touch it.
            if i % self.spec.per_namespace == 0 {
                edge.create(PROXIES, proxy(namespace, "plain", &[""; 0])).await?;
                edge.create(GATEWAYS, gateway(namespace, "plain")).await?;
            }
            Ok(())
        })
        .await
        .unwrap();
    }

    /// Namespace and name of the upstream Connector `i`.
    pub(crate) fn upstream_key(&self, i: usize) -> (&str, String) {
        (&self.namespaces[i / self.spec.per_namespace].0, format!("c-{i:05}"))
    }

    /// Namespace and name of the hub and edge Connector `i`.
    pub(crate) fn hub_key(&self, i: usize) -> (&str, String) {
        (&self.namespaces[i / self.spec.per_namespace].1, format!("c-{i:05}"))
    }

    /// The status annotation of connector `i` at the hub.
    pub(crate) async fn status_at_hub(&self, i: usize) -> Option<String> {
        self.status_at(&self.hub, i).await
    }

    pub(crate) async fn statuses_at_hub(&self) -> Vec<Option<String>> {
        let mut statuses = Vec::new();
        for i in 0..self.spec.connectors {
            statuses.push(self.status_at_hub(i).await);
        }
        statuses
    }

    /// The same at the hub or an edge.
    pub(crate) async fn status_at(&self, rest: &Rest, i: usize) -> Option<String> {
        let (namespace, name) = self.hub_key(i);
        let found = rest.read(CONNECTORS, namespace, &name).await.unwrap();
        annotation(&found, UPSTREAM_STATUS).map(str::to_owned)
    }

    /// The trigger of the first Gateway of connector `i`, at the first edge or another one.
    pub(crate) async fn trigger(&self, edge: &Rest, i: usize) -> Option<String> {
        let gateway = edge.read(GATEWAYS, self.hub_key(i).0, &app(i, 0)).await.unwrap();
        annotation(&gateway, TRIGGER).map(str::to_owned)
    }

    fn now(&self, i: usize) -> (bool, u32) {
        self.now.lock().unwrap()[i]
    }

    /// Writes the upstream status.
    pub(crate) async fn set(&self, i: usize, online: bool, node: u32) -> Answer<()> {
        self.now.lock().unwrap()[i] = (online, node);
        let (namespace, name) = self.upstream_key(i);
        let status = status(online, node);
        self.up.merge_status(CONNECTORS, (namespace, &name), &status).await.map(drop)
    }

    /// Turns an online connector offline, and an offline one online.
    pub(crate) async fn flip(&self, i: usize) -> Answer<()> {
        let (online, node) = self.now(i);
        self.set(i, !online, node).await
    }

    /// Flips them as fast as upstream accepts it.
    pub(crate) async fn flip_all(&self, connectors: std::ops::Range<usize>) -> Answer<()> {
        let first = connectors.start;
        run_concurrently(connectors.len(), async |i| self.flip(first + i).await).await.map(drop)
    }

    /// Moves a connector to a node that it was never on, online.
    pub(crate) async fn move_node(&self, i: usize) -> Answer<()> {
        let (_, node) = self.now(i);
        self.set(i, true, node + 100_000).await
    }

    /// The node that a connector is on.
    pub(crate) fn node(&self, i: usize) -> u32 {
        self.now(i).1
    }

    /// Deletes the upstream Connector only: the replicator has not followed yet.
    pub(crate) async fn delete_upstream(&self, i: usize) -> Answer<()> {
        let (namespace, name) = self.upstream_key(i);
        self.up.delete(CONNECTORS, namespace, &name).await.map(drop)
    }

    /// Adds a proxy and its gateway at the edge, in the namespace of connector `i`.
    pub(crate) async fn add_app(&self, i: usize, name: &str, to: &[usize]) -> Answer<()> {
        let names: Vec<_> = to.iter().map(|i| self.hub_key(*i).1).collect();
        let (namespace, _) = self.hub_key(i);
        self.edge.create(GATEWAYS, gateway(namespace, name)).await?;
        self.edge.create(PROXIES, proxy(namespace, name, &names)).await.map(drop)
    }
}

/// The name of the `g`-th proxy, and gateway, of connector `i`.
pub(crate) fn app(i: usize, g: usize) -> String {
    format!("app-{i:05}-{g}")
}
