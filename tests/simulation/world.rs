//! The clusters, what the platform does in them, and the edges' extension servers.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard};

use serde_json::{Value, json};
use throughline::core::contract::event::ClusterSpec;
use throughline::core::data::ids::{ClusterName, Kind, NamespacedName, Role};
use throughline::core::data::objects::{Object, UPSTREAM_STATUS, WireObject};
use throughline::core::data::time::UnixMillis;
use throughline::core::status::liveness::Liveness;
use throughline_sim::{SimClusters, WatchNotice};

use crate::extension_server::ExtensionServer;
use crate::orphans::{Site, UPSTREAM_NAMESPACE};
use crate::random::Random;

pub(crate) const TRIGGER: &str = "gateway.envoyproxy.io/connector-liveness";
pub(crate) const NUDGE: &str = "networking.datumapis.com/upstream-status-nudge";

#[derive(Clone, Debug)]
pub(crate) struct Names {
    pub(crate) upstreams: Vec<ClusterName>,
    pub(crate) hub: ClusterName,
    pub(crate) edges: Vec<ClusterName>,
}

impl Names {
    pub(crate) fn new(upstreams: usize, edges: usize) -> Self {
        let name = |what: &str, n: usize| ClusterName::from(format!("{what}-{n}").as_str());
        Self {
            upstreams: (0..upstreams).map(|n| name("project", n)).collect(),
            hub: ClusterName::from("hub"),
            edges: (0..edges).map(|n| name("edge", n)).collect(),
        }
    }

    pub(crate) fn all(&self) -> Vec<ClusterSpec> {
        let spec = |name: &ClusterName, role| ClusterSpec { name: name.clone(), roles: vec![role] };
        let mut all: Vec<_> = self.upstreams.iter().map(|n| spec(n, Role::Upstream)).collect();
        all.push(spec(&self.hub, Role::Hub));
        all.extend(self.edges.iter().map(|n| spec(n, Role::Edge)));
        all
    }
}

/// A connector as the platform means it to be.
#[derive(Clone, Debug)]
pub(crate) struct Connector {
    pub(crate) upstream: usize,
    pub(crate) name: String,
    pub(crate) online: bool,
    pub(crate) node: u64,
    /// Routes nothing.
    pub(crate) address: u64,
    pub(crate) gateways: Vec<String>,
}

impl Connector {
    pub(crate) fn status(&self) -> Value {
        let ready = if self.online { "True" } else { "False" };
        json!({
            "conditions": [{ "type": "Ready", "status": ready, "reason": "R", "message": "",
                             "lastTransitionTime": "2026-11-21T09:19:32Z" }],
            "connectionDetails": { "type": "PublicKey", "publicKey": {
                "id": format!("{:016x}", self.node), "homeRelay": "https://relay.example/?a=1&b=<2>",
                "addresses": [{ "address": format!("192.0.2.{}", self.address % 250), "port": 4433 }] } },
        })
    }
}

pub(crate) struct World {
    pub(crate) names: Names,
    pub(crate) clusters: Arc<Mutex<SimClusters>>,
    pub(crate) connectors: Vec<Connector>,
    pub(crate) extension_servers: Vec<ExtensionServer>,
    pub(crate) sites: Vec<Site>,
    /// The edges to which the carrier does not bring a connector.
    pub(crate) stuck: Vec<(usize, usize)>,
    /// When the platform's replicator next looks at the routes.
    replicates_at: UnixMillis,
}

/// What the name of an upstream's namespace at the hub begins with; its number follows.
const HUB_NAMESPACE: &str = "ns-00000000-0000-4000-9000-";

/// How often the platform's replicator looks for routes that are missing at the hub.
const REPLICATION_MS: u64 = 1_000;

impl World {
    pub(crate) fn new(
        names: Names,
        connectors: usize,
        now: UnixMillis,
        random: &mut Random,
    ) -> Self {
        let mut clusters = SimClusters::new(&names.all(), 40);
        clusters.advance(now);
        clusters.keep_history(10_000);
        clusters.keep_managed_fields();
        let clusters = Arc::new(Mutex::new(clusters));
        let extension_server =
            |edge: &ClusterName| ExtensionServer::new(edge.clone(), random.fork());
        let extension_servers = names.edges.iter().map(extension_server).collect();
        let sites = random.below(4);
        let mut world = Self {
            names,
            clusters,
            connectors: Vec::new(),
            extension_servers,
            sites: Vec::new(),
            stuck: Vec::new(),
            replicates_at: now,
        };
        (0..world.names.upstreams.len()).for_each(|upstream| world.create_namespaces(upstream));
        for n in 0..connectors {
            let upstream = random.below(world.names.upstreams.len());
            let gateways = (0..random.between(1, 3)).map(|g| format!("app-{n}-{g}")).collect();
            let (name, online) = (format!("c-{n}"), random.one_in(2));
            let (node, address) = (random.next(), random.next());
            world.connectors.push(Connector { upstream, name, online, node, address, gateways });
            world.create(n);
        }
        for n in 0..sites {
            let upstream = random.below(world.names.upstreams.len());
            let cluster = (upstream, &world.names.upstreams[upstream]);
            let site = Site::new(n, cluster, &world.hub_namespace(upstream), random);
            world.sites.push(site);
        }
        (0..world.names.upstreams.len()).for_each(|upstream| world.restore_parents(upstream));
        world
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, SimClusters> {
        self.clusters.lock().unwrap()
    }

    fn hub_namespace(&self, upstream: usize) -> String {
        format!("{HUB_NAMESPACE}{upstream:012x}")
    }

    fn put(&self, cluster: &ClusterName, object: Value, manager: &str) {
        let wire: WireObject = serde_json::from_str(&object.to_string()).unwrap();
        let object = Object::try_from(wire).unwrap();
        self.lock().put(cluster, object, manager, WatchNotice::Applied).unwrap();
    }

    fn create_namespaces(&self, upstream: usize) {
        let uid = format!("00000000-0000-4000-9000-{upstream:012x}");
        let object = json!({"apiVersion": "v1", "kind": "Namespace",
            "metadata": {"name": UPSTREAM_NAMESPACE, "uid": uid}});
        self.put(&self.names.upstreams[upstream], object, "platform");
        let name = &self.names.upstreams[upstream];
        let labels = upstream_labels(name, "", "Namespace", UPSTREAM_NAMESPACE);
        for cluster in std::iter::once(&self.names.hub).chain(&self.names.edges) {
            let object = json!({"apiVersion": "v1", "kind": "Namespace",
                "metadata": {"name": self.hub_namespace(upstream), "labels": labels}});
            self.put(cluster, object, "platform");
        }
    }

    fn connector_object(&self, namespace: &str, n: usize) -> Value {
        json!({"apiVersion": "networking.datumapis.com/v1alpha1", "kind": "Connector",
               "metadata": {"namespace": namespace, "name": self.connectors[n].name}})
    }

    fn create(&self, n: usize) {
        self.create_upstream(n);
        let connector = &self.connectors[n];
        let namespace = self.hub_namespace(connector.upstream);
        for edge in &self.names.edges {
            self.put(edge, self.connector_object(&namespace, n), "karmada");
            for gateway in &connector.gateways {
                let rules = json!([{ "backends": [{ "endpoint": "http://localhost:8080",
                    "connector": { "name": connector.name } }] }]);
                let proxy = json!({"apiVersion": "networking.datumapis.com/v1alpha", "kind": "HTTPProxy",
                    "metadata": {"namespace": namespace, "name": gateway}, "spec": {"rules": rules}});
                self.put(edge, proxy, "karmada");
                self.put(edge, gateway_object(&namespace, gateway), "karmada");
            }
        }
        let mut hub_connector = self.connector_object(&namespace, n);
        let (upstream, group) =
            (&self.names.upstreams[connector.upstream], "networking.datumapis.com");
        let labels = upstream_labels(upstream, group, "Connector", &connector.name);
        hub_connector["metadata"]["labels"] = labels;
        self.put(&self.names.hub, hub_connector, "platform");
    }

    /// Its agent writes what upstream says.
    pub(crate) fn create_upstream(&self, n: usize) {
        let connector = &self.connectors[n];
        let mut object = self.connector_object(UPSTREAM_NAMESPACE, n);
        object["status"] = connector.status();
        self.put(&self.names.upstreams[connector.upstream], object, "agent");
    }

    pub(crate) fn flip(&mut self, n: usize) {
        self.connectors[n].online ^= true;
        self.create_upstream(n);
    }

    /// The agents and tenants of an upstream write what they know, as they do now and then.
    pub(crate) fn report(&self, upstream: usize) {
        let of_it = |(_, connector): &(usize, &Connector)| connector.upstream == upstream;
        self.connectors.iter().enumerate().filter(of_it).for_each(|(n, _)| self.create_upstream(n));
        self.restore_parents(upstream);
    }

    /// Tenants have their Gateways again, as they left them.
    fn restore_parents(&self, upstream: usize) {
        for site in self.sites.iter().filter(|site| site.upstream == upstream) {
            for (parent, is_deleted) in site.parents.iter().zip(&site.deleted) {
                let (cluster, key) =
                    (&site.cluster, NamespacedName::new(UPSTREAM_NAMESPACE, parent));
                let exists = self.lock().get(cluster, Kind::Gateway, &key).is_some();
                match (exists, is_deleted) {
                    (true, true) => self.lock().remove(cluster, Kind::Gateway, &key),
                    (false, false) => {
                        let gateway = gateway_object(UPSTREAM_NAMESPACE, parent);
                        self.put(cluster, gateway, "tenant");
                    }
                    _ => {}
                }
            }
        }
    }

    /// A tenant deletes a parent of a route, or makes it again.
    pub(crate) fn set_parent(&mut self, site: usize, parent: usize, is_deleted: bool) {
        self.sites[site].deleted[parent] = is_deleted;
        self.restore_parents(self.sites[site].upstream);
    }

    pub(crate) fn pick_site(&self, random: &mut Random) -> Option<usize> {
        let sites = self.sites.len();
        (sites > 0).then(|| random.below(sites))
    }

    pub(crate) fn empty_site(&mut self, site: usize) {
        self.sites[site].deleted.fill(true);
        self.restore_parents(self.sites[site].upstream);
    }

    /// The platform's replicator copies routes to the hub whose parents exist.
    fn replicate_routes(&mut self, now: UnixMillis) {
        if now < self.replicates_at {
            return;
        }
        self.replicates_at = now.plus(REPLICATION_MS);
        for site in &self.sites {
            let hub = &self.names.hub;
            let exists = self.lock().get(hub, Kind::HttpRoute, &site.route).is_some();
            if !exists && !site.is_orphan() {
                self.put(hub, site.route_object(&now.to_string()), "platform");
            }
        }
    }

    pub(crate) fn make_again(&mut self, n: usize) {
        let upstream = &self.names.upstreams[self.connectors[n].upstream];
        let key = NamespacedName::new(UPSTREAM_NAMESPACE, &self.connectors[n].name);
        self.lock().remove(upstream, Kind::Connector, &key);
        self.create_upstream(n);
    }

    pub(crate) fn make_gateway_again(&self, n: usize, edge: usize) {
        let (edge, key) = self.first_gateway((n, edge));
        self.lock().remove(&edge, Kind::Gateway, &key);
        self.put(&edge, gateway_object(key.namespace(), key.name()), "karmada");
    }

    /// An edge, and the first Gateway there of a connector.
    pub(crate) fn first_gateway(&self, (n, edge): (usize, usize)) -> (ClusterName, NamespacedName) {
        let gateway = &self.connectors[n].gateways[0];
        let key = NamespacedName::new(self.hub_key(n).namespace(), gateway);
        (self.names.edges[edge].clone(), key)
    }

    pub(crate) fn hub_key(&self, n: usize) -> NamespacedName {
        let connector = &self.connectors[n];
        NamespacedName::new(self.hub_namespace(connector.upstream), &connector.name)
    }

    pub(crate) fn annotate(
        &self,
        cluster: &ClusterName,
        kind: Kind,
        key: &NamespacedName,
        annotation: (&str, Option<&str>),
    ) {
        annotate(&mut self.lock(), cluster, (kind, key), annotation, "other");
    }

    /// The platform's replicator writes the status that it saw, sometimes an old one.
    pub(crate) fn replicate(&self, n: usize, stale: bool) {
        let mut connector = self.connectors[n].clone();
        connector.online ^= stale;
        let status = connector.status().to_string();
        let key = self.hub_key(n);
        self.annotate(&self.names.hub, Kind::Connector, &key, (UPSTREAM_STATUS, Some(&status)));
    }

    /// Moves time forward: the carrier and the extension servers do what is due.
    pub(crate) fn advance(&mut self, now: UnixMillis) {
        let mut clusters = self.clusters.lock().unwrap();
        clusters.advance(now);
        for (edge, connector) in &self.stuck {
            clusters.set_carry_stuck(&self.names.edges[*edge], &self.hub_key(*connector));
        }
        for server in &mut self.extension_servers {
            server.advance(&mut clusters, now);
        }
        drop(clusters);
        self.replicate_routes(now);
    }

    /// Routes that should be gone. Of an upstream that was restored, as far as an instance can tell, none
    /// is deleted until it is restarted (docs/explanation/orphans.md): those may stay.
    pub(crate) fn orphans_left(&self, held: &BTreeSet<usize>) -> Vec<String> {
        let clusters = self.lock();
        let is_left = |site: &&Site| {
            let exists = clusters.get(&self.names.hub, Kind::HttpRoute, &site.route).is_some();
            exists && site.is_orphan() && !site.is_protected && !held.contains(&site.upstream)
        };
        let left = self.sites.iter().filter(is_left);
        left.map(|site| format!("hub: route {} has no parent and is still there", site.route))
            .collect()
    }

    pub(crate) fn deviations(&self) -> Vec<String> {
        let clusters = self.lock();
        let mut found = Vec::new();
        for (n, connector) in self.connectors.iter().enumerate() {
            let (key, status) = (self.hub_key(n), connector.status());
            let says = |cluster: &ClusterName| {
                let object = clusters.get(cluster, Kind::Connector, &key)?;
                serde_json::from_str::<Value>(object.meta.annotations.get(UPSTREAM_STATUS)?).ok()
            };
            for cluster in std::iter::once(&self.names.hub).chain(&self.names.edges) {
                let said = says(cluster);
                if said.as_ref() != Some(&status) {
                    let said = said.as_ref().map_or_else(|| "nothing".to_owned(), brief);
                    let right = brief(&status);
                    found.push(format!("{cluster}: Connector {key} says {said}, upstream {right}"));
                }
            }
            let node =
                if connector.online { format!("{:016x}", connector.node) } else { String::new() };
            let truth = Liveness { online: connector.online, node_id: node.into() };
            for server in &self.extension_servers {
                for gateway in &connector.gateways {
                    let key = NamespacedName::new(key.namespace(), gateway);
                    let programmed = server.programmed.get(&key);
                    if programmed != Some(&truth) {
                        found.push(format!(
                            "{}: Envoy answers {key} as {programmed:?}, upstream is {truth:?}",
                            server.edge
                        ));
                    }
                }
            }
        }
        found
    }
}

pub(crate) fn annotate(
    clusters: &mut SimClusters,
    cluster: &ClusterName,
    (kind, key): (Kind, &NamespacedName),
    (name, value): (&str, Option<&str>),
    manager: &str,
) {
    let annotations = [(name.to_owned(), value.map(str::to_owned))];
    clusters.patch(cluster, kind, key, &annotations, manager);
}

/// What the replicator writes on a copy of an upstream object.
pub(crate) fn upstream_labels(cluster: &ClusterName, group: &str, kind: &str, name: &str) -> Value {
    json!({
        "meta.datumapis.com/upstream-cluster-name": format!("cluster-{cluster}"),
        "meta.datumapis.com/upstream-group": group,
        "meta.datumapis.com/upstream-kind": kind,
        "meta.datumapis.com/upstream-namespace": UPSTREAM_NAMESPACE,
        "meta.datumapis.com/upstream-name": name,
    })
}

pub(crate) fn gateway_object(namespace: &str, name: &str) -> Value {
    json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway",
        "metadata": {"namespace": namespace, "name": name}, "spec": {"gatewayClassName": "edge"}})
}

fn brief(status: &Value) -> String {
    let ready = &status["conditions"][0]["status"];
    let details = &status["connectionDetails"]["publicKey"];
    format!("Ready={ready} node={} address={}", details["id"], details["addresses"][0]["address"])
}
