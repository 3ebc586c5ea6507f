//! The objects as the watches show them, and the deletions that the watches have shown.
//!
//! The world does not know what throughline did, and decides nothing. It can be rebuilt from the
//! watches at any time, except for those deletions.
//!
//! [`World::observe`] takes one event and returns the [`Change`]s. Its cost depends on what the
//! event concerns: one object and those that name it, or all objects of a cluster when evidence
//! about that cluster appears or is lost.

pub(crate) mod absence;
pub(crate) mod change;
pub(crate) mod class;
pub(crate) mod cluster;
pub(crate) mod edge;
pub(crate) mod edge_tables;
pub(crate) mod hub;
pub(crate) mod links;
mod observe;
pub(crate) mod table;
pub(crate) mod upstream;

use std::collections::{BTreeMap, BTreeSet};

pub(crate) use self::change::Change;
use self::cluster::Cluster;
use self::links::Links;
use crate::contract::settings::Settings;
use crate::data::ids::{ClusterName, ResourceVersion, Role};
use crate::data::object_ref::{ClusterId, ObjectRef};
use crate::status::liveness::StatusDigest;
use crate::status::trigger::NodeIds;
use crate::subject::Subject;

#[derive(Debug, Default)]
pub(crate) struct World {
    pub(crate) clusters: BTreeMap<ClusterId, Cluster>,
    pub(crate) ids: BTreeMap<ClusterName, ClusterId>,
    pub(crate) links: Links,
    hubs: BTreeSet<ClusterId>,
    edges: BTreeSet<ClusterId>,
    last_id: u32,
    /// The settings of the run, for the rules and the controller, too.
    pub(crate) settings: Settings,
    /// Whether objects come from clusters or from a redacted log.
    pub(crate) node_ids: NodeIds,
}

impl World {
    pub(crate) fn new(settings: Settings, node_ids: NodeIds) -> Self {
        Self { settings, node_ids, ..Self::default() }
    }

    pub(crate) fn id_of(&self, name: &ClusterName) -> Option<ClusterId> {
        self.ids.get(name).copied()
    }

    pub(crate) fn name_of(&self, id: ClusterId) -> ClusterName {
        let cluster = self.clusters.get(&id);
        debug_assert!(cluster.is_some(), "a cluster that left is named");
        cluster.map_or_else(|| "".into(), |cluster| cluster.name.clone())
    }

    /// The upstream of this name, if it is in the run.
    pub(crate) fn upstream_named(&self, name: &ClusterName) -> Option<&Cluster> {
        let cluster = self.clusters.get(self.ids.get(name)?)?;
        cluster.has(Role::Upstream).then_some(cluster)
    }

    /// Whether this instance keeps an object of a tier. Upstream objects are always kept: an object
    /// that is not kept would look absent.
    fn keeps(&self, role: Role, cluster: &Cluster, namespace: &str) -> bool {
        let shard = self.settings.shard;
        match role {
            Role::Upstream => true,
            // A class of Gateways spans namespaces.
            Role::Edge if cluster.edge.is_by_class => {
                shard.owns(namespace) || shard.owns(cluster.name.as_str())
            }
            Role::Hub | Role::Edge => shard.owns(namespace),
        }
    }

    /// Whether the upstream has Connectors and no hub Connector names it.
    fn is_unnamed(&self, upstream: &Cluster) -> bool {
        let is_named = self.links.counts_of(&upstream.name).connectors > 0;
        !upstream.upstream_connectors.is_empty() && !is_named
    }

    /// Whether the namespace is an upstream one whose hub objects are kept; false if that is
    /// unknown.
    pub(crate) fn keeps_replicas_of(&self, upstream: &Cluster, namespace: &str) -> bool {
        let shard = self.settings.shard;
        let at_hub = || upstream.namespace_uid(namespace)?.hub_namespace();
        let is_owned =
            || shard.is_whole() || at_hub().is_some_and(|namespace| shard.owns(&namespace));
        upstream.is_upstream_namespace(namespace) && is_owned()
    }

    /// Every subject of the rules.
    pub(crate) fn subjects(&self) -> impl Iterator<Item = Subject> {
        self.clusters.values().flat_map(Cluster::subjects)
    }

    pub(crate) fn hubs(&self) -> impl Iterator<Item = &Cluster> {
        self.hubs.iter().filter_map(|id| self.clusters.get(id))
    }

    pub(crate) fn edges(&self) -> impl Iterator<Item = &Cluster> {
        self.edges.iter().filter_map(|id| self.clusters.get(id))
    }

    /// Whether neither a hub nor an upstream is in the run, so only the edge is known.
    pub(crate) fn is_edge_alone(&self) -> bool {
        self.hubs.is_empty() && !self.clusters.values().any(|cluster| cluster.has(Role::Upstream))
    }

    pub(crate) fn routes(&self) -> u64 {
        self.hubs().map(|hub| hub.routes.len() as u64).sum()
    }

    /// A mirror was written. Returns false if the watch has shown a later version, or one that
    /// cannot be compared.
    pub(crate) fn on_mirrored(
        &mut self,
        at: &ObjectRef,
        version: ResourceVersion,
        object_changed: bool,
        annotation: Option<StatusDigest>,
    ) -> bool {
        let Some(hub) = self.clusters.get_mut(&at.cluster) else { return false };
        hub.hub_connectors.on_written(&at.name, version, object_changed, |seen| {
            let before = seen.clone();
            seen.annotation = annotation;
            self.links.on_mirrored(&before, seen);
        })
    }

    /// A nudge was written. Its number counts once the watch shows it.
    pub(crate) fn on_nudged(
        &mut self,
        at: &ObjectRef,
        version: ResourceVersion,
        object_changed: bool,
    ) {
        if let Some(hub) = self.clusters.get_mut(&at.cluster) {
            hub.hub_connectors.on_written(&at.name, version, object_changed, |_| ());
        }
    }
}

#[cfg(test)]
pub(crate) mod fixture;
#[cfg(test)]
mod tests;
