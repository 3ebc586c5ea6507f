//! Connectors by the thousand, with all that hangs on them, in every tier; and what happens to them.

use std::sync::Mutex;

use serde_json::{Value, json};

use super::objects::{self, META, UPSTREAM_STATUS, connector, gateway, proxy, replica_of, status};
use super::rest::{CONNECTORS, GATEWAYS, NAMESPACES, PROXIES, ROUTES, Refused, Rest, each};
use super::world::{Topology, World};
use super::{SOON, ensure, eventually};

/// What the hub's annotations say at first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mirrored {
    /// What upstream says: the platform's replicator did its work.
    Fresh,
    /// Nothing.
    Absent,
    /// The opposite, for the first so many; the others are fresh.
    Stale(usize),
}

/// How a fleet looks. Its connectors are spread over projects' namespaces.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spec {
    pub(crate) connectors: usize,
    pub(crate) per_namespace: usize,
    /// Proxies, each with its gateway, for every connector.
    pub(crate) gateways: usize,
    /// What all connectors are at first.
    pub(crate) online: bool,
    pub(crate) mirrored: Mirrored,
    /// Gateways upstream, and the HTTPRoutes that have them as parents at the hub.
    pub(crate) with_routes: bool,
}

impl Spec {
    /// So many connectors, ten a namespace, one gateway each, online, not mirrored yet.
    pub(crate) fn of(connectors: usize) -> Self {
        let mirrored = Mirrored::Absent;
        Self {
            connectors,
            per_namespace: 10,
            gateways: 1,
            online: true,
            mirrored,
            with_routes: false,
        }
    }
}

/// A fleet in its clusters. Connector `i` is on node `i` at first.
pub(crate) struct Fleet {
    pub(crate) spec: Spec,
    pub(crate) up: Rest,
    pub(crate) hub: Rest,
    pub(crate) edge: Rest,
    upstream: &'static str,
    /// Upstream's, and the replicas'.
    namespaces: Vec<(String, String)>,
    /// What each connector's status is upstream, as last written by `set`.
    now: Mutex<Vec<(bool, u32)>>,
}

const PLATFORM: &str = "networking.datumapis.com";

impl Fleet {
    /// Puts it into the clusters of `world`, by way of its carrier where there is one.
    pub(crate) async fn seed(world: &World, spec: Spec) -> Self {
        let [up, hub, edge] =
            [world.upstream(), world.hub(), world.edge()].map(|cluster| cluster.rest().clone());
        let now = (0..spec.connectors).map(|i| (spec.online, u32::try_from(i).unwrap())).collect();
        let upstream = world.upstream().name;
        let namespaces = Vec::new();
        let mut fleet = Self { spec, up, hub, edge, upstream, namespaces, now: Mutex::new(now) };
        fleet.make_namespaces(world.topology).await.unwrap();
        fleet.make_upstream().await.unwrap();
        let carried = world.carrier.as_ref().map_or(0, |carrier| carrier.done());
        fleet.make_replicas().await.unwrap();
        fleet.make_edge().await.unwrap();
        if let Some(carrier) = &world.carrier {
            let wanted = carried + u64::try_from(spec.connectors).unwrap();
            eventually("the fleet is carried to the edge", 3 * SOON, async || {
                let done = carrier.done();
                ensure(done >= wanted, || format!("{done} of {wanted}"))
            })
            .await;
        }
        fleet
    }

    async fn make_namespaces(&mut self, topology: Topology) -> Result<(), Refused> {
        let count = self.spec.connectors.div_ceil(self.spec.per_namespace);
        self.namespaces = each(count, async |i| {
            let name = format!("project-{i}");
            let made = self.up.create(NAMESPACES, json!({ "metadata": { "name": name } })).await?;
            let uid = made["metadata"]["uid"].as_str().unwrap_or_default();
            let replica = format!("ns-{uid}");
            let labels = json!({
                format!("{META}/upstream-cluster-name"): format!("cluster-{}", self.upstream),
                format!("{META}/upstream-group"): "",
                format!("{META}/upstream-kind"): "Namespace",
                format!("{META}/upstream-name"): name,
                format!("{META}/upstream-namespace"): name,
            });
            let object = json!({ "metadata": { "name": replica, "labels": labels } });
            self.hub.create(NAMESPACES, object.clone()).await?;
            if topology == Topology::Three {
                self.edge.create(NAMESPACES, object).await?;
            }
            Ok((name, replica))
        })
        .await?;
        Ok(())
    }

    async fn make_upstream(&self) -> Result<(), Refused> {
        each(self.spec.connectors, async |i| {
            let (namespace, name) = self.key(i);
            self.up.create(CONNECTORS, connector(namespace, &name)).await?;
            let (online, node) = self.now(i);
            self.up.merge_status(CONNECTORS, (namespace, &name), &status(online, node)).await?;
            if self.spec.with_routes {
                self.up.create(GATEWAYS, gateway(namespace, &app(i, 0))).await?;
            }
            Ok(())
        })
        .await
        .map(drop)
    }

    async fn make_replicas(&self) -> Result<(), Refused> {
        each(self.spec.connectors, async |i| {
            self.make_replica(i).await?;
            if self.spec.with_routes {
                let (name, (source, _)) = (app(i, 0), self.key(i));
                let route = objects::route(self.replica(i).0, &name, &[&name]);
                let kind = ("gateway.networking.k8s.io", "HTTPRoute");
                let route = replica_of(route, self.upstream, kind, (source, &name));
                self.hub.create(ROUTES, route).await?;
            }
            Ok(())
        })
        .await
        .map(drop)
    }

    /// The replicator's work: the connector's replica at the hub.
    pub(crate) async fn make_replica(&self, i: usize) -> Result<(), Refused> {
        let ((namespace, name), source) = (self.replica(i), self.key(i));
        let kind = (PLATFORM, "Connector");
        let replica =
            replica_of(connector(namespace, &name), self.upstream, kind, (source.0, &source.1));
        let (online, node) = self.now(i);
        let said = match self.spec.mirrored {
            Mirrored::Absent => None,
            Mirrored::Stale(count) if i < count => Some(status(!online, node)),
            Mirrored::Fresh | Mirrored::Stale(_) => Some(status(online, node)),
        };
        let mut replica = replica;
        if let Some(said) = said {
            replica["metadata"]["annotations"] = json!({ UPSTREAM_STATUS: said.to_string() });
        }
        self.hub.create(CONNECTORS, replica).await.map(drop)
    }

    async fn make_edge(&self) -> Result<(), Refused> {
        each(self.spec.connectors, async |i| {
            let (namespace, name) = self.replica(i);
            for g in 0..self.spec.gateways {
                self.edge.create(PROXIES, proxy(namespace, &app(i, g), &[&name])).await?;
                self.edge.create(GATEWAYS, gateway(namespace, &app(i, g))).await?;
            }
            // One that throughline has no business with, a namespace.
            if i % self.spec.per_namespace == 0 {
                self.edge.create(PROXIES, proxy(namespace, "plain", &[])).await?;
                self.edge.create(GATEWAYS, gateway(namespace, "plain")).await?;
            }
            Ok(())
        })
        .await
        .map(drop)
    }

    /// Namespace and name of connector `i` upstream.
    pub(crate) fn key(&self, i: usize) -> (&str, String) {
        (&self.namespaces[i / self.spec.per_namespace].0, format!("c-{i:05}"))
    }

    /// Namespace and name of its replica, at hub and edge.
    pub(crate) fn replica(&self, i: usize) -> (&str, String) {
        (&self.namespaces[i / self.spec.per_namespace].1, format!("c-{i:05}"))
    }

    fn now(&self, i: usize) -> (bool, u32) {
        self.now.lock().unwrap()[i]
    }

    /// Writes the status upstream.
    pub(crate) async fn set(&self, i: usize, online: bool, node: u32) -> Result<(), Refused> {
        self.now.lock().unwrap()[i] = (online, node);
        let (namespace, name) = self.key(i);
        let status = status(online, node);
        self.up.merge_status(CONNECTORS, (namespace, &name), &status).await.map(drop)
    }

    /// Online becomes offline and the other way round.
    pub(crate) async fn flip(&self, i: usize) -> Result<(), Refused> {
        let (online, node) = self.now(i);
        self.set(i, !online, node).await
    }

    /// Flips so many, as fast as upstream takes it.
    pub(crate) async fn flip_all(&self, connectors: std::ops::Range<usize>) -> Result<(), Refused> {
        let first = connectors.start;
        each(connectors.len(), async |i| self.flip(first + i).await).await.map(drop)
    }

    /// Online on a node that it was never on.
    pub(crate) async fn move_node(&self, i: usize) -> Result<(), Refused> {
        let (_, node) = self.now(i);
        self.set(i, true, node + 100_000).await
    }

    /// Upstream's status vanishes.
    pub(crate) async fn remove_status(&self, i: usize) -> Result<(), Refused> {
        let (namespace, name) = self.key(i);
        self.up.merge_status(CONNECTORS, (namespace, &name), &Value::Null).await.map(drop)
    }

    /// Deleted upstream alone: the replicator has not followed yet.
    pub(crate) async fn delete_source(&self, i: usize) -> Result<(), Refused> {
        let (namespace, name) = self.key(i);
        self.up.delete(CONNECTORS, namespace, &name).await.map(drop)
    }

    /// The replicator follows: the hub's replica goes, and the carrier takes the edge's away.
    pub(crate) async fn delete_replica(&self, i: usize) -> Result<(), Refused> {
        let (namespace, name) = self.replica(i);
        self.hub.delete(CONNECTORS, namespace, &name).await.map(drop)
    }

    /// A proxy and its gateway at the edge, in the namespace of connector `i`.
    pub(crate) async fn add_app(&self, i: usize, name: &str, to: &[usize]) -> Result<(), Refused> {
        let names: Vec<_> = to.iter().map(|i| self.replica(*i).1).collect();
        let names: Vec<_> = names.iter().map(String::as_str).collect();
        let (namespace, _) = self.replica(i);
        self.edge.create(GATEWAYS, gateway(namespace, name)).await?;
        self.edge.create(PROXIES, proxy(namespace, name, &names)).await.map(drop)
    }

    /// A proxy of connector `i`'s namespace is behind these connectors from now on.
    pub(crate) async fn repoint(&self, i: usize, name: &str, to: &[usize]) -> Result<(), Refused> {
        let names: Vec<_> = to.iter().map(|i| self.replica(*i).1).collect();
        let names: Vec<_> = names.iter().map(String::as_str).collect();
        let change = json!({ "spec": { "rules": objects::rules(&names) } });
        self.edge.merge(PROXIES, (self.replica(i).0, name), &change).await.map(drop)
    }

    /// The gateway is deleted, and made anew without any annotation.
    pub(crate) async fn recreate_gateway(&self, i: usize, name: &str) -> Result<(), Refused> {
        let (namespace, _) = self.replica(i);
        self.edge.delete(GATEWAYS, namespace, name).await?;
        self.edge.create(GATEWAYS, gateway(namespace, name)).await.map(drop)
    }
}

/// The name of the `g`-th proxy, and gateway, of connector `i`.
pub(crate) fn app(i: usize, g: usize) -> String {
    format!("app-{i:05}-{g}")
}
