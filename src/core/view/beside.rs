//! What is told beside the connectors.

use serde::{Deserialize, Serialize};

use crate::core::ids::{ActionId, ClusterName, Key, ObjectKey};
use crate::core::machine::Machine;
use crate::core::time::UnixMillis;

/// A route that is an orphan.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OrphanView {
    /// The hub.
    pub cluster: ClusterName,
    /// Its namespace and name.
    #[serde(flatten)]
    pub route: ObjectKey,
    /// Since when it is one without a break.
    pub since_ms: Option<UnixMillis>,
    /// The delete under way.
    pub in_flight: Option<ActionId>,
    /// What the last try to delete it came back with.
    pub error: Option<String>,
}

/// A Gateway at an edge that announces no connector, or an HTTPProxy that references a Connector
/// that is not there.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct LooseView {
    /// The edge.
    pub cluster: ClusterName,
    /// Namespace and name, which Gateway and HTTPProxy have in common.
    #[serde(flatten)]
    pub object: ObjectKey,
    /// There is such a Gateway.
    pub gateway: bool,
    /// There is such an HTTPProxy.
    pub proxy: bool,
    /// The Connectors that the proxy references, and that are not there.
    pub missing: Vec<String>,
}

impl Machine {
    /// Gateways and proxies at the edges that don't go together.
    pub(super) fn loose(&self) -> Vec<LooseView> {
        let mut loose = Vec::new();
        for (&id, edge) in &self.edges {
            let Some(cluster) = self.cluster(id) else { continue };
            let placed = |key: &Key| cluster.is_replica_namespace(key.ns) == Some(true);
            let proxies = edge.proxies.keys().copied();
            let bare = edge.gateways.keys().copied().filter(|k| edge.connectors_of(*k).is_empty());
            let mut keys: Vec<_> = proxies.chain(bare).filter(placed).collect();
            keys.sort_unstable();
            keys.dedup();
            for key in keys {
                let names = edge.connectors_of(key).iter();
                let missing =
                    names.filter(|&&name| !edge.connectors.contains_key(&Key { ns: key.ns, name }));
                let missing: Vec<_> =
                    missing.map(|name| self.desk.names.text(*name).to_owned()).collect();
                if missing.is_empty() && !edge.connectors_of(key).is_empty() {
                    continue;
                }
                loose.push(LooseView {
                    cluster: cluster.name.clone(),
                    object: self.desk.names.object_key(key),
                    gateway: edge.gateways.contains_key(&key),
                    proxy: edge.proxies.contains_key(&key),
                    missing,
                });
            }
        }
        loose.sort_unstable();
        loose
    }

    /// Routes that are orphans by all evidence.
    pub(super) fn orphans(&self) -> Vec<OrphanView> {
        let routes = self.hubs.iter().flat_map(|(&id, hub)| {
            hub.orphans.iter().filter_map(move |key| Some((id, *key, hub.routes.get(key)?)))
        });
        let mut orphans: Vec<_> = routes
            .filter_map(|(id, key, route)| {
                Some(OrphanView {
                    cluster: self.cluster(id)?.name.clone(),
                    route: self.desk.names.object_key(key),
                    since_ms: route.orphan_since,
                    in_flight: route.flight.in_flight,
                    error: route.flight.error.as_deref().map(str::to_owned),
                })
            })
            .collect();
        orphans.sort_unstable();
        orphans
    }
}
