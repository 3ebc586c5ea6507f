//! A testbed: one, two or three API servers, a proxy in front of each, and the carrier between hub and
//! edge.

use std::path::PathBuf;

use serde_json::{Value, json};

use super::apiserver::{ApiServer, THROUGHLINE};
use super::carrier::Carrier;
use super::fleet::Fleet;
use super::proxy::{Exchange, FaultProxy};
use super::rest::Rest;
use super::rights;
use super::throughline::merge_json;

/// How the roles are spread over the clusters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Topology {
    /// One cluster with every role.
    One,
    /// `up`, and `down`, which is hub and edge.
    Two,
    /// `up`, `hub` and `edge`, with the carrier between the last two.
    Three,
}

pub(crate) struct Cluster {
    pub(crate) name: &'static str,
    pub(crate) roles: &'static [&'static str],
    pub(crate) server: ApiServer,
    pub(crate) proxy: FaultProxy,
    /// throughline connects to the API server itself, not to the proxy.
    pub(crate) is_direct: bool,
}

impl Cluster {
    async fn start(name: &'static str, roles: &'static [&'static str], granted: bool) -> Self {
        let server = ApiServer::start_with_crds(name).await;
        if granted {
            rights::grant(server.rest(), &rights::folders(roles)).await.unwrap();
        }
        let proxy = FaultProxy::start(&server).await;
        Self { name, roles, server, proxy, is_direct: false }
    }

    /// Sends requests as the administrator, not through the proxy.
    pub(crate) fn rest(&self) -> &Rest {
        self.server.rest()
    }

    /// What throughline may do here, without one right; `None` gives it back.
    pub(crate) async fn without(&self, right: Option<(&str, &str, &str)>) {
        rights::without(self.rest(), &rights::folders(self.roles), right).await;
    }

    /// Its entry in throughline's configuration.
    pub(crate) fn config(&self) -> Value {
        let kubeconfig = if self.is_direct {
            self.server.kubeconfig(THROUGHLINE)
        } else {
            self.proxy.kubeconfig(THROUGHLINE)
        };
        json!({ "name": self.name, "roles": self.roles, "kubeconfig": kubeconfig })
    }
}

/// The clusters of one test.
pub(crate) struct Testbed {
    pub(crate) topology: Topology,
    /// Only with three tiers. Declared before the clusters, so that it is dropped first.
    pub(crate) carrier: Option<Carrier>,
    pub(crate) clusters: Vec<Cluster>,
}

impl Testbed {
    /// Starts all clusters at once, with CRDs and permissions, and the carrier.
    pub(crate) async fn start(topology: Topology) -> Self {
        let names = match topology {
            Topology::One => ["all"].as_slice(),
            Topology::Two => &["up", "down"],
            Topology::Three => &["up", "hub", "edge"],
        };
        Self::start_named(topology, names, true).await
    }

    /// Like `start`, with other cluster names, in the order of [`Topology`], and with permissions only if
    /// `granted`.
    pub(crate) async fn start_named(
        topology: Topology,
        names: &[&'static str],
        granted: bool,
    ) -> Self {
        let roles: &[&'static [&'static str]] = match topology {
            Topology::One => &[&["upstream", "downstream", "edge"]],
            Topology::Two => &[&["upstream"], &["downstream", "edge"]],
            Topology::Three => &[&["upstream"], &["downstream"], &["edge"]],
        };
        let tiers = names.iter().copied().zip(roles.iter().copied());
        let starting = tiers.map(|(name, roles)| Cluster::start(name, roles, granted));
        let clusters = futures::future::join_all(starting).await;
        let mut testbed = Self { topology, carrier: None, clusters };
        if topology == Topology::Three {
            let (hub, edge) = (testbed.hub().rest().clone(), testbed.edge().rest().clone());
            testbed.carrier = Some(Carrier::start(hub, edge));
        }
        testbed
    }

    /// Adds a second edge to which the fleet is brought. Its carrier runs until it is dropped.
    pub(crate) async fn add_edge(&mut self, name: &'static str, fleet: &Fleet) -> Carrier {
        let edge = Cluster::start(name, &["edge"], true).await;
        let carrier = Carrier::start(self.hub().rest().clone(), edge.rest().clone());
        fleet.seed_edge(edge.rest(), &carrier, 0).await;
        self.clusters.push(edge);
        carrier
    }

    /// Writes a configuration of these clusters for the commands that look at them.
    pub(crate) fn config_file(&self, more: &Value) -> PathBuf {
        let clusters: Vec<_> = self.clusters.iter().map(Cluster::config).collect();
        let mut config = json!({ "clusters": clusters });
        merge_json(&mut config, more);
        let path = self.hub().server.folder().join("config.yaml");
        std::fs::write(&path, config.to_string()).unwrap();
        path
    }

    fn with_role(&self, role: &str) -> &Cluster {
        self.clusters.iter().find(|cluster| cluster.roles.contains(&role)).unwrap()
    }

    /// The first one.
    pub(crate) fn upstream(&self) -> &Cluster {
        self.with_role("upstream")
    }

    pub(crate) fn hub(&self) -> &Cluster {
        self.with_role("downstream")
    }

    pub(crate) fn edge(&self) -> &Cluster {
        self.with_role("edge")
    }

    pub(crate) fn carrier(&self) -> &Carrier {
        self.carrier.as_ref().expect("a topology of three tiers")
    }

    /// All writes through the proxies except those of Events, in order.
    pub(crate) fn writes(&self) -> Vec<Exchange> {
        let mut writes: Vec<_> = self.clusters.iter().flat_map(|c| c.proxy.writes()).collect();
        writes.sort_by_key(|write| write.at);
        writes
    }

    /// Writes of Events through the proxies.
    pub(crate) fn events(&self) -> Vec<Exchange> {
        self.clusters.iter().flat_map(|cluster| cluster.proxy.events()).collect()
    }

    /// The number of requests that are neither watches nor writes.
    pub(crate) fn reads(&self) -> usize {
        self.clusters.iter().map(|cluster| cluster.proxy.reads()).sum()
    }

    /// The number of requests that are not watches: none when throughline is idle.
    pub(crate) fn requests(&self) -> usize {
        self.reads() + self.writes().len() + self.events().len()
    }

    /// Resets all counts.
    pub(crate) fn reset_counts(&self) {
        for cluster in &self.clusters {
            cluster.proxy.reset_counts();
        }
    }
}
