//! One, two or three tiers of real API servers, a proxy in front of each, the carrier between hub
//! and edge.

use super::apiserver::{ApiServer, THROUGHLINE};
use super::carrier::Carrier;
use super::objects;
use super::proxy::{FaultProxy, Write};
use super::rest::Rest;

/// How the roles are spread over clusters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Topology {
    /// One cluster with every role.
    One,
    /// `up`; and `down`, which is hub and edge.
    Two,
    /// `up`, `hub`, `edge`; the carrier between the last two.
    Three,
}

/// A cluster of a topology.
pub(crate) struct Cluster {
    pub(crate) name: &'static str,
    pub(crate) roles: &'static [&'static str],
    pub(crate) server: ApiServer,
    pub(crate) proxy: FaultProxy,
    /// throughline goes straight to the API server, past the proxy.
    pub(crate) is_direct: bool,
}

impl Cluster {
    async fn start(name: &'static str, roles: &'static [&'static str], with_crds: bool) -> Self {
        let server = ApiServer::start(name).await;
        if with_crds {
            objects::install(server.rest(), roles).await;
        }
        let proxy = FaultProxy::start(&server).await;
        Self { name, roles, server, proxy, is_direct: false }
    }

    /// Requests as the administrator, past the proxy.
    pub(crate) fn rest(&self) -> &Rest {
        self.server.rest()
    }

    /// What throughline's configuration says of it.
    pub(crate) fn config(&self) -> serde_json::Value {
        let kubeconfig = if self.is_direct {
            self.server.kubeconfig(THROUGHLINE)
        } else {
            self.proxy.kubeconfig(THROUGHLINE)
        };
        serde_json::json!({ "name": self.name, "roles": self.roles, "kubeconfig": kubeconfig })
    }
}

/// The clusters of one test.
pub(crate) struct World {
    pub(crate) topology: Topology,
    /// Between hub and edge, when they are two. Before the clusters: it is dropped first.
    pub(crate) carrier: Option<Carrier>,
    pub(crate) clusters: Vec<Cluster>,
}

impl World {
    /// Starts all of them at once, with CRDs and rights; the carrier carries.
    pub(crate) async fn start(topology: Topology) -> Self {
        Self::start_with(topology, |_| true).await
    }

    /// The same, without anything in the clusters that `with_crds` says no to.
    pub(crate) async fn start_with(topology: Topology, with_crds: impl Fn(&str) -> bool) -> Self {
        let names = match topology {
            Topology::One => ["all"].as_slice(),
            Topology::Two => &["up", "down"],
            Topology::Three => &["up", "hub", "edge"],
        };
        Self::start_named(topology, names, with_crds).await
    }

    /// The same, with clusters of other names, in the order of [`Topology`].
    pub(crate) async fn start_named(
        topology: Topology,
        names: &[&'static str],
        with_crds: impl Fn(&str) -> bool,
    ) -> Self {
        let roles: &[&'static [&'static str]] = match topology {
            Topology::One => &[&["upstream", "downstream", "edge"]],
            Topology::Two => &[&["upstream"], &["downstream", "edge"]],
            Topology::Three => &[&["upstream"], &["downstream"], &["edge"]],
        };
        let tiers = names.iter().copied().zip(roles.iter().copied());
        let starting = tiers.map(|(name, roles)| Cluster::start(name, roles, with_crds(name)));
        let clusters = futures::future::join_all(starting).await;
        let mut world = Self { topology, carrier: None, clusters };
        if topology == Topology::Three {
            let (hub, edge) = (world.hub().rest().clone(), world.edge().rest().clone());
            world.carrier = Some(Carrier::start(hub, edge));
        }
        world
    }

    fn with_role(&self, role: &str) -> &Cluster {
        self.clusters.iter().find(|cluster| cluster.roles.contains(&role)).unwrap()
    }

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
        self.carrier.as_ref().expect("only three tiers have a carrier")
    }

    /// All writes that came to the proxies but those of Events, in their order.
    pub(crate) fn writes(&self) -> Vec<Write> {
        let mut writes: Vec<_> = self.clusters.iter().flat_map(|c| c.proxy.writes()).collect();
        writes.sort_by_key(|write| write.at);
        writes
    }

    /// Writes of Events that came to the proxies.
    pub(crate) fn events(&self) -> Vec<Write> {
        self.clusters.iter().flat_map(|cluster| cluster.proxy.events()).collect()
    }

    /// Requests that are neither watches nor writes.
    pub(crate) fn reads(&self) -> u64 {
        self.clusters.iter().map(|cluster| cluster.proxy.reads()).sum()
    }

    /// Every request that is no watch: at rest there are none.
    pub(crate) fn requests(&self) -> u64 {
        self.reads() + u64::try_from(self.writes().len() + self.events().len()).unwrap()
    }

    /// Counts from zero again.
    pub(crate) fn forget(&self) {
        for cluster in &self.clusters {
            cluster.proxy.forget();
        }
    }
}
