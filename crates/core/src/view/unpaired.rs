//! What the view shows besides connectors.

use serde::{Deserialize, Serialize};

use crate::data::ids::{ActionId, ClusterName, ObjectKey};

use crate::data::interner::Key;
use crate::data::time::UnixMillis;
use crate::machine::Machine;

/// An orphaned hub HTTPRoute.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OrphanView {
    pub cluster: ClusterName,
    #[serde(flatten)]
    pub route: ObjectKey,
    /// Since when it has been an orphan without a break.
    pub since_ms: Option<UnixMillis>,
    pub in_flight: Option<ActionId>,
    /// Why the last attempt to delete it failed.
    pub error: Option<String>,
    /// When the next attempt may come.
    #[serde(default, rename = "notBeforeMs", skip_serializing_if = "Option::is_none")]
    pub not_before_ms: Option<UnixMillis>,
}

/// A Gateway at an edge that announces no connector, or an HTTPProxy that references a Connector
/// that does not exist.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct UnpairedView {
    pub cluster: ClusterName,
    /// Namespace and name, which a Gateway and its HTTPProxy share.
    #[serde(flatten)]
    pub object: ObjectKey,
    /// Whether a Gateway of this name exists.
    pub gateway: bool,
    /// Whether an HTTPProxy of this name exists.
    pub proxy: bool,
    /// The Connectors that the HTTPProxy references and that do not exist.
    pub missing: Vec<String>,
}

impl Machine {
    /// Gateways and HTTPProxies at the edges without a counterpart.
    pub(crate) fn unpaired(&self) -> Vec<UnpairedView> {
        let mut unpaired = Vec::new();
        for (&id, edge) in &self.edges {
            let Some(cluster) = self.cluster(id) else { continue };
            let placed = |key: &Key| cluster.is_hub_namespace(key.ns);
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
                    missing.map(|name| self.ctx.names.text(*name).to_owned()).collect();
                if missing.is_empty() && !edge.connectors_of(key).is_empty() {
                    continue;
                }
                unpaired.push(UnpairedView {
                    cluster: cluster.name.clone(),
                    object: self.ctx.names.object_key(key),
                    gateway: edge.gateways.contains_key(&key),
                    proxy: edge.proxies.contains_key(&key),
                    missing,
                });
            }
        }
        unpaired.sort_unstable();
        unpaired
    }

    /// Routes that are orphans by all evidence.
    pub(crate) fn orphans(&self) -> Vec<OrphanView> {
        let routes = self.hubs.iter().flat_map(|(&id, hub)| {
            hub.orphans.iter().filter_map(move |key| Some((id, *key, hub.routes.get(key)?)))
        });
        let mut orphans: Vec<_> = routes
            .filter_map(|(id, key, route)| {
                Some(OrphanView {
                    cluster: self.cluster(id)?.name.clone(),
                    route: self.ctx.names.object_key(key),
                    since_ms: route.orphan_since,
                    in_flight: route.flight.action(),
                    error: route.flight.error().map(ToString::to_string),
                    not_before_ms: self.writes(&route.flight).not_before_ms,
                })
            })
            .collect();
        orphans.sort_unstable();
        orphans
    }
}
