//! Where each connector stands in the tables: upstream, at the hubs and at the edges.

use std::collections::BTreeMap;

use crate::contract::note::Stall;
use crate::data::ids::{ClusterId, Kind};
use crate::data::interner::{Key, Sym};
use crate::edge::{EdgeConnector, EdgeState};
use crate::hub::{HubConnector, UpstreamRef};
use crate::machine::Machine;
use crate::upstream::UpstreamConnector;

/// A connector as the tables have it.
pub(super) struct Appearance {
    /// Its name at the hubs and edges.
    pub(super) place: Option<Key>,
    /// Its upstream cluster and name, where no hub Connector tells.
    pub(super) upstream: Option<(ClusterId, Key)>,
}

impl Machine {
    /// Every connector once: by its name at the hubs and edges, or else by its upstream name.
    pub(super) fn appearances(&self) -> Vec<Appearance> {
        let lone = self.unreplicated_connectors().map(|(id, key, _)| (id, key));
        let mut unlisted = BTreeMap::new();
        let mut only_upstream = Vec::new();
        for (id, key) in lone {
            match self.place_by_namespace(id, key) {
                Some(place) => drop(unlisted.insert(place, (id, key))),
                None => only_upstream.push(Appearance { place: None, upstream: Some((id, key)) }),
            }
        }
        let placed = self.places().into_iter().map(|place| Appearance {
            place: Some(place),
            upstream: unlisted.get(&place).copied(),
        });
        let mut all: Vec<_> = placed.collect();
        all.append(&mut only_upstream);
        all
    }

    /// Where an edge has an upstream Connector whose hub cannot be listed, and so has no labels to
    /// tell: the namespace there is named after the uid of the upstream namespace.
    fn place_by_namespace(&self, id: ClusterId, key: Key) -> Option<Key> {
        let is_listed =
            |hub: &ClusterId| self.cluster(*hub).is_some_and(|hub| hub.is_live(Kind::Connector));
        if self.hubs.keys().all(is_listed) {
            return None;
        }
        let uid = self.cluster(id)?.namespaces.get(&key.ns)?.uid.text()?;
        let place = self.ctx.names.find(&format!("ns-{uid}"), self.ctx.names.text(key.name))?;
        let is_at_edge = self.edge_connectors_at(place).next().is_some();
        (is_at_edge && self.hub_connectors_at(place).next().is_none()).then_some(place)
    }

    /// Every Connector at the hubs and edges, each name once.
    pub(crate) fn places(&self) -> Vec<Key> {
        let mut keys = Vec::new();
        for (&id, hub) in &self.hubs {
            keys.extend(hub.connectors.keys().filter(|key| self.is_placed(id, **key)));
        }
        for (&id, edge) in &self.edges {
            keys.extend(edge.connectors.keys().filter(|key| self.is_placed(id, **key)));
        }
        keys.sort_unstable();
        keys.dedup();
        keys
    }

    pub(super) fn is_placed(&self, id: ClusterId, key: Key) -> bool {
        self.cluster(id).is_some_and(|c| c.is_hub_namespace(key.ns))
    }

    /// Upstream Connectors that no hub Connector names. The order is not defined.
    pub(crate) fn unreplicated_connectors(
        &self,
    ) -> impl Iterator<Item = (ClusterId, Key, &UpstreamConnector)> {
        self.upstreams
            .values()
            .flat_map(|u| u.connectors.iter().map(move |s| (u.id, s)))
            .filter_map(|(id, (&key, upstream))| {
                let id = id?;
                let in_place = self.cluster(id)?.is_upstream_namespace(key.ns);
                let unreplicated =
                    upstream.exists() && upstream.hub_connectors.is_empty() && in_place;
                unreplicated.then_some((id, key, upstream))
            })
    }

    /// The hub Connectors of one name, by hub.
    pub(crate) fn hub_connectors_at(
        &self,
        key: Key,
    ) -> impl Iterator<Item = (ClusterId, &HubConnector)> {
        let found =
            self.hubs.iter().filter_map(move |(&id, h)| Some((id, h.connectors.get(&key)?)));
        found.filter(move |(id, _)| self.is_placed(*id, key))
    }

    /// The edge Connectors of one name, by edge.
    pub(crate) fn edge_connectors_at(
        &self,
        key: Key,
    ) -> impl Iterator<Item = (ClusterId, &EdgeState, &EdgeConnector)> {
        let found =
            self.edges.iter().filter_map(move |(&id, e)| Some((id, e, e.connectors.get(&key)?)));
        found.filter(move |(id, ..)| self.is_placed(*id, key))
    }

    pub(crate) fn stalls_at(&self, key: Key) -> impl Iterator<Item = &Stall> {
        let hubs =
            self.hub_connectors_at(key).filter_map(|(_, r)| r.repair.as_ref()?.stall.as_ref());
        hubs.chain(self.edge_connectors_at(key).filter_map(|(.., c)| c.touch_stall.as_deref()))
    }

    /// The upstream Connector that a hub Connector names, if its cluster is configured.
    pub(crate) fn upstream_of(
        &self,
        connector: &HubConnector,
    ) -> Option<(Sym, Key, Option<&UpstreamConnector>)> {
        let UpstreamRef { cluster, key } = connector.upstream?;
        let upstream = self.upstreams.get(&cluster).filter(|u| u.id.is_some());
        Some((cluster, key, upstream.and_then(|u| u.connectors.get(&key))))
    }
}
