//! A cluster leaves: nothing is kept of it.
//!
//! Its absence proves nothing. Hub objects that name an upstream which left are *unconfigured*: they stay
//! as they are. A cluster that joins later under the same name starts from nothing.

use super::clusters::Place;
use super::contract::note::NamingProblem;
use super::data::ids::ClusterId;
use super::data::interner::Sym;
use super::data::optional_millis::OptionalMillis;
use super::data::used_names::{HoldsNames, UsedNames};
use super::machine::Machine;

/// How much the machine holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableSizes {
    pub names: usize,
    pub clusters: usize,
    /// Upstreams that are configured, or that hub objects name.
    pub upstreams: usize,
    /// Upstreams with removals or holds to remember.
    pub removals: usize,
    pub timers: usize,
    /// Actions without an outcome.
    pub in_flight: usize,
    /// Hub Connectors and routes.
    pub hub_objects: usize,
    /// Edge Connectors, HTTPProxies and Gateways.
    pub edge_objects: usize,
}

impl HoldsNames for Machine {
    fn mark(&self, used: &mut UsedNames) {
        let Self {
            ctx,
            clusters,
            upstreams,
            hubs,
            edges,
            removals,
            orphan_totals,
            unknown_clusters: _,
            roster: _,
        } = self;
        ctx.mark(used);
        clusters.mark(used);
        upstreams.mark(used);
        hubs.mark(used);
        edges.mark(used);
        removals.mark(used);
        orphan_totals.mark(used);
    }
}

impl Machine {
    /// How much the machine holds, to tell whether anything stays behind.
    pub fn table_sizes(&self) -> TableSizes {
        let hub_objects = self.hubs.values().map(|hub| hub.connectors.len() + hub.routes.len());
        let edge_objects = self.edges.values().map(|edge| {
            edge.connectors.len() + edge.proxies.len() + edge.gateways.len() + edge.referrers.len()
        });
        TableSizes {
            names: self.ctx.names.count(),
            clusters: self.clusters.iter().count(),
            upstreams: self.upstreams.len(),
            removals: self.removals.len(),
            timers: self.ctx.timers.len(),
            in_flight: self.in_flight(),
            hub_objects: hub_objects.sum(),
            edge_objects: edge_objects.sum(),
        }
    }

    /// Drops the names that no table holds. The machine does it by itself, when its names have
    /// doubled; no decision depends on it.
    pub fn sweep_names(&mut self) {
        let mut used = self.ctx.names.unused();
        self.mark(&mut used);
        self.ctx.names.sweep(&used);
    }

    /// Drops everything that is known of a cluster. Nothing of it may be left under its id, which
    /// the next cluster gets.
    pub(super) fn remove_cluster(&mut self, id: ClusterId) {
        self.ctx.forget_in_flight(id);
        self.ctx.releases.forget(id);
        self.forget_hub(id);
        self.forget_edge(id);
        let cluster = self.clusters.remove(id);
        debug_assert!(cluster.is_some(), "a cluster is removed twice");
        if let Some(cluster) = cluster {
            self.forget_upstream(cluster.sym);
        }
        self.ctx.forget_queues(id);
        debug_assert!(!self.hubs.contains_key(&id) && !self.edges.contains_key(&id));
    }

    fn forget_upstream(&mut self, sym: Sym) {
        let Some(upstream) = self.upstreams.get_mut(&sym) else { return };
        upstream.forget();
        // Deletes that were held are held no longer: there is nothing to delete.
        upstream.share.schedule_check(sym, &mut self.ctx);
        let hub_connectors = upstream.hub_connectors();
        for at in &hub_connectors {
            self.forget_upstream_of(*at);
        }
        // The stalls of its hub Connectors end: nobody knows any longer what is desired.
        self.evaluate_hub_connectors(hub_connectors);
        self.removals.forget_upstream(&mut self.ctx, sym);
        self.evaluate_routes_naming(sym);
        self.ctx.look_at_name_again(sym);
        if self.upstreams.get(&sym).is_some_and(|upstream| upstream.named > 0) {
            self.ctx.look_at_name(sym, NamingProblem::Unconfigured);
        }
        self.drop_unused_upstream(sym);
    }

    /// Drops what a hub Connector remembers of its upstream.
    fn forget_upstream_of(&mut self, at: Place) {
        let Some(hub) = self.hubs.get_mut(&at.cluster) else { return };
        hub.unsettled.remove(&at.key);
        if let Some(connector) = hub.connectors.get_mut(&at.key) {
            connector.namespace_deleted_at = OptionalMillis::default();
            connector.upstream_changed = false;
            connector.mirrored_at = None;
        }
    }

    /// Drops an upstream that is no cluster of this run and that no hub object names.
    pub(super) fn drop_unused_upstream(&mut self, sym: Sym) {
        if self.upstreams.get(&sym).is_some_and(|upstream| upstream.is_unused()) {
            self.upstreams.remove(&sym);
        }
    }
}
