//! How far each connector is on its way, in one word.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::clusters::Place;
use crate::contract::keep_reason::KeepReason;
use crate::contract::note::{Hop, Stall};
use crate::data::closed_list::closed_list;
use crate::data::ids::{ClusterId, ClusterName, Kind};
use crate::data::interner::Key;
use crate::edge::EdgeState;
use crate::hub::{Desired, HubConnector, HubState};
use crate::machine::Machine;
use crate::orphans::route::{Route, RouteVerdict};
use crate::view::places::Appearance;

/// How far a connector's status has come: the first hop that is not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[derive(strum::EnumString, strum::IntoStaticStr, strum::VariantArray, strum::VariantNames)]
#[strum(serialize_all = "lowercase", const_into_str)]
pub enum Phase {
    /// Every hop is done, and the connector is online.
    Settled,
    /// Every hop is done, and the connector is offline.
    Offline,
    /// It exists upstream, but no hub has it.
    Unreplicated,
    /// The hub's annotation differs from the upstream status.
    Mirroring,
    /// The hub's annotation differs from the upstream status, and this instance waits before it may
    /// lead by a Lease that it created.
    Waiting,
    /// An edge's annotation differs from the hub's.
    Carrying,
    /// A gateway does not yet announce the liveness at its edge.
    Touching,
    /// Everything that routes is done. The rest of the status, such as an address, is mirrored later.
    Deferred,
    /// Upstream seems to have nothing to say, or something else, and that is not proven or not acted
    /// on; [`HoldReason`](crate::contract::hold_reason::HoldReason) says why.
    Unproven,
    /// A hop is late; [`View`](crate::view::View) says which one, and why.
    Stalled,
    /// A hub Connector names an upstream that is not a cluster of this run: it never was, or it left.
    /// The hub's annotation stays as it is.
    Unconfigured,
    /// A person has paused its hub Connector, or a Gateway that announces it: nothing is written there,
    /// and nothing is late.
    Paused,
    /// A watch that is needed to tell is not live.
    Unknown,
}

closed_list!(Phase);

/// How many connectors are in each phase; every phase has an entry.
pub type Phases = BTreeMap<Phase, u64>;

/// Whether a hub's annotation equals the upstream status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AnnotationState {
    Right,
    /// It differs, or will soon have to be removed.
    Wrong,
    /// It routes as upstream says; the rest differs and is written later.
    Deferred,
    /// A watch is not live, or the labels name no upstream.
    Unknown,
    /// The labels name an upstream that is not a cluster of this run.
    Unconfigured,
    /// Upstream seems to say otherwise, which is not acted on.
    Held,
    /// A person has paused the hub Connector.
    Paused,
    /// `mirror.enabled` is false.
    Off,
}

/// Whether a gateway announces the liveness of its connectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum AnnouncementState {
    Announced,
    /// It has to be touched.
    Pending,
    /// No Gateway has the HTTPProxy's name. That is not an error.
    NoGateway,
    /// A watch of the edge is not live.
    Unknown,
    /// It has to be touched, but a person has paused it.
    Paused,
    /// `touch.enabled` is false.
    Off,
}

/// How many there are of each phase, also of those that do not occur.
pub(super) fn count_phases(found: impl Iterator<Item = Phase>) -> Phases {
    let mut phases: Phases = Phase::ALL.into_iter().map(|phase| (phase, 0)).collect();
    for phase in found {
        *phases.entry(phase).or_default() += 1;
    }
    phases
}

impl Machine {
    /// How many connectors are in each phase. Costs O(connectors); nothing is kept for it.
    pub fn phases(&self) -> Phases {
        count_phases(self.appearances().into_iter().map(|at| self.phase_of(&at)))
    }

    pub(super) fn phase_of(&self, connector: &Appearance) -> Phase {
        match *connector {
            Appearance { upstream: Some((upstream, _)), .. } => self.unreplicated_phase(upstream),
            Appearance { place: Some(place), .. } => self.phase_at(place),
            Appearance { place: None, upstream: None } => Phase::Unknown,
        }
    }

    /// How many objects a person has paused, by cluster and kind. Costs O(objects); nothing is kept for it.
    pub fn paused_objects(&self) -> BTreeMap<(ClusterName, Kind), u64> {
        let connectors = |hub: &HubState| hub.connectors.values().filter(|c| c.is_paused).count();
        let is_paused =
            |route: &&Route| matches!(route.verdict, Some(RouteVerdict::Kept(KeepReason::Paused)));
        let routes = |hub: &HubState| hub.routes.values().filter(is_paused).count();
        let gateways =
            |edge: &EdgeState| edge.gateways.values().filter(|g| g.observed.is_paused).count();
        let of_hubs = self.hubs.iter().flat_map(|(id, hub)| {
            [(*id, Kind::Connector, connectors(hub)), (*id, Kind::HttpRoute, routes(hub))]
        });
        let of_edges = self.edges.iter().map(|(id, edge)| (*id, Kind::Gateway, gateways(edge)));
        let named = of_hubs.chain(of_edges).filter(|(.., count)| *count > 0);
        named
            .filter_map(|(id, kind, count)| {
                Some(((self.cluster(id)?.name.clone(), kind), count as u64))
            })
            .collect()
    }

    pub(crate) fn unreplicated_phase(&self, upstream: ClusterId) -> Phase {
        let live = |id: &ClusterId| self.cluster(*id).is_some_and(|c| c.is_live(Kind::Connector));
        if live(&upstream) && self.hubs.keys().all(live) {
            Phase::Unreplicated
        } else {
            Phase::Unknown
        }
    }

    /// Whether a hub Connector names an upstream that is not a cluster of this run.
    fn names_unconfigured(&self, connector: &HubConnector) -> bool {
        let named = connector.upstream.and_then(|named| self.upstreams.get(&named.cluster));
        named.is_some_and(|upstream| upstream.id.is_none())
    }

    pub(crate) fn phase_at(&self, key: Key) -> Phase {
        if self.stalls_at(key).any(|stall| self.is_seen(key, stall)) {
            return Phase::Stalled;
        }
        let (mut unknown, mut unconfigured, mut held) = (false, false, false);
        let (mut deferred, mut paused) = (false, false);
        let (mut upstream, mut edges) = (None, None);
        for (id, connector) in self.hub_connectors_at(key) {
            match self.annotation(id, key, connector) {
                AnnotationState::Wrong if self.ctx.waits_for_lease() => return Phase::Waiting,
                AnnotationState::Wrong => return Phase::Mirroring,
                AnnotationState::Unknown => unknown = true,
                AnnotationState::Unconfigured => unconfigured = true,
                AnnotationState::Held => held = true,
                AnnotationState::Deferred => deferred = true,
                AnnotationState::Paused => paused = true,
                AnnotationState::Right | AnnotationState::Off => {}
            }
            let said =
                self.upstream_of(connector).and_then(|(.., upstream)| Some(upstream?.online));
            upstream = upstream.or(said);
        }
        if unknown {
            return Phase::Unknown;
        }
        if unconfigured {
            return Phase::Unconfigured;
        }
        if paused {
            return Phase::Paused;
        }
        if held {
            return Phase::Unproven;
        }
        if self.is_seen_behind(key) {
            return Phase::Carrying;
        }
        if self.edges.keys().any(|id| self.is_edge_unknown(*id, key)) {
            return Phase::Unknown;
        }
        for (id, edge, edge_connector) in self.edge_connectors_at(key) {
            edges = Some(edge_connector.online && edges.unwrap_or(true));
            for gateway in edge.gateways_of(key) {
                paused |= edge.target_of(gateway).is_some_and(|target| edge.is_paused(target));
                match self.announcement(id, edge, gateway) {
                    AnnouncementState::Pending => return Phase::Touching,
                    AnnouncementState::Unknown => unknown = true,
                    _ => {}
                }
            }
        }
        match upstream.or(edges) {
            _ if unknown => Phase::Unknown,
            _ if paused => Phase::Paused,
            _ if deferred => Phase::Deferred,
            Some(true) => Phase::Settled,
            _ => Phase::Offline,
        }
    }

    /// Whether the watches still show that the hop of a stall is late.
    pub(super) fn is_seen(&self, key: Key, stall: &Stall) -> bool {
        match stall.hop {
            // Whether the hub's annotation is known says the rule.
            Hop::Upstream | Hop::Mirrored => self.hub_connectors_at(key).any(|(id, connector)| {
                self.cluster(id).is_some_and(|hub| hub.name == stall.cluster)
                    && self.annotation(id, key, connector) != AnnotationState::Unknown
            }),
            Hop::Arrived => self.is_seen_behind(key),
            Hop::Touched => self.edge_connectors_at(key).any(|(id, edge, _)| {
                edge.ready && self.cluster(id).is_some_and(|c| c.name == stall.cluster)
            }),
        }
    }

    /// Whether an edge whose watch is live does not say what the hub says.
    fn is_seen_behind(&self, key: Key) -> bool {
        let mut edges = self.edge_connectors_at(key);
        edges.any(|(id, _, connector)| {
            let is_live = self.cluster(id).is_some_and(|edge| edge.is_live(Kind::Connector));
            is_live && connector.missing_since.get().is_some()
        })
    }

    /// Whether an edge has the Connector, or may have it, and cannot be seen.
    fn is_edge_unknown(&self, id: ClusterId, key: Key) -> bool {
        let (Some(cluster), Some(edge)) = (self.cluster(id), self.edges.get(&id)) else {
            return false;
        };
        let was_live = cluster.unknown_since(Kind::Connector).is_some();
        !cluster.is_live(Kind::Connector) && (!was_live || edge.connectors.contains_key(&key))
    }

    /// Whether a hub Connector's annotation says what upstream says. Nothing is compared again: the
    /// rule keeps the result.
    pub(crate) fn annotation(
        &self,
        id: ClusterId,
        key: Key,
        connector: &HubConnector,
    ) -> AnnotationState {
        if !self.ctx.settings.mirror.enabled {
            return AnnotationState::Off;
        }
        if !self.cluster(id).is_some_and(|c| c.is_live(Kind::Connector)) {
            return AnnotationState::Unknown;
        }
        if self.names_unconfigured(connector) {
            return AnnotationState::Unconfigured;
        }
        if connector.is_paused {
            return AnnotationState::Paused;
        }
        match self.desired(Place { cluster: id, key }, connector) {
            Desired::Unknown => AnnotationState::Unknown,
            Desired::Held(..) => AnnotationState::Held,
            _ if connector.held.is_some() => AnnotationState::Held,
            Desired::Status(_) if connector.deferred_since().is_some() => AnnotationState::Deferred,
            Desired::Status(_) if connector.mirrored_at.is_some() => AnnotationState::Right,
            Desired::Status(_) | Desired::NotBefore(_) => AnnotationState::Wrong,
        }
    }

    /// Whether a Gateway's connectors are announced, by itself or for its class.
    pub(crate) fn announcement(
        &self,
        id: ClusterId,
        edge: &EdgeState,
        gateway: Key,
    ) -> AnnouncementState {
        if !self.ctx.settings.touch.enabled {
            return AnnouncementState::Off;
        }
        let Some(target) = edge.target_of(gateway) else { return AnnouncementState::NoGateway };
        if !edge.ready || !self.is_placed(id, gateway) {
            return AnnouncementState::Unknown;
        }
        if edge.is_announced(&self.ctx.names, target) {
            AnnouncementState::Announced
        } else if edge.is_paused(target) {
            AnnouncementState::Paused
        } else {
            AnnouncementState::Pending
        }
    }
}
