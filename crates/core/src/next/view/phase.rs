//! How far each connector is on its way, in one word.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::build::Present;
use super::connector::Connector;
use crate::contract::note::{Hop, Stall};
use crate::data::closed_list::closed_list;
use crate::data::ids::Kind;
use crate::next::world::cluster::Cluster;

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
    /// A hop is late; [`View`](super::View) says which one, and why.
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

impl Connector<'_> {
    pub(super) fn phase(&self, present: Present<'_>) -> Phase {
        if let Some(unlinked) = &self.unlinked {
            return unreplicated(unlinked.cluster, present);
        }
        if self.stalls().any(|stall| self.shows(stall)) {
            return Phase::Stalled;
        }

        let open = self.open_at_hubs(present).or_else(|| self.open_on_the_way(present));
        open.or_else(|| self.open_at_edges(present)).unwrap_or_else(|| self.done())
    }

    /// The hop to the hubs, while it is not done.
    fn open_at_hubs(&self, present: Present<'_>) -> Option<Phase> {
        let wrong = if present.waits_for_lease() { Phase::Waiting } else { Phase::Mirroring };
        let states = [
            (AnnotationState::Wrong, wrong),
            (AnnotationState::Unknown, Phase::Unknown),
            (AnnotationState::Unconfigured, Phase::Unconfigured),
            (AnnotationState::Paused, Phase::Paused),
            (AnnotationState::Held, Phase::Unproven),
        ];
        let open = states.into_iter().find(|(state, _)| self.has_annotation(*state))?;
        Some(open.1)
    }

    /// The hop to the edges, while it is not done.
    fn open_on_the_way(&self, present: Present<'_>) -> Option<Phase> {
        if self.is_seen_behind() {
            return Some(Phase::Carrying);
        }
        let is_unknown = present.c.world.edges().any(|edge| self.may_be_at(edge));
        is_unknown.then_some(Phase::Unknown)
    }

    /// The announcements, while they are not done.
    fn open_at_edges(&self, present: Present<'_>) -> Option<Phase> {
        let gateways = || self.edges.iter().flat_map(|edge| &edge.gateways);
        let has = |state| gateways().any(|gateway| gateway.announcement(present) == state);
        if has(AnnouncementState::Pending) {
            return Some(Phase::Touching);
        }
        if has(AnnouncementState::Unknown) {
            return Some(Phase::Unknown);
        }
        let is_paused = gateways().any(|gateway| gateway.is_target_paused(present));
        is_paused.then_some(Phase::Paused)
    }

    /// Every hop is done that routes.
    fn done(&self) -> Phase {
        let upstream = self.hubs.iter().find_map(|hub| hub.is_online());
        let is_online = upstream.unwrap_or_else(|| {
            !self.edges.is_empty() && self.edges.iter().all(|edge| edge.row.is_online)
        });
        match is_online {
            _ if self.has_annotation(AnnotationState::Deferred) => Phase::Deferred,
            true => Phase::Settled,
            false => Phase::Offline,
        }
    }

    /// Whether the watches still show that the hop of a stall is late.
    pub(super) fn shows(&self, stall: &Stall) -> bool {
        match stall.hop {
            Hop::Upstream | Hop::Mirrored => self.hubs.iter().any(|hub| {
                hub.cluster.name == stall.cluster && hub.annotation != AnnotationState::Unknown
            }),
            Hop::Arrived => self.is_seen_behind(),
            Hop::Touched => self.edges.iter().any(|edge| {
                edge.cluster.name == stall.cluster && edge.cluster.edge.ready_since.is_some()
            }),
        }
    }

    fn has_annotation(&self, state: AnnotationState) -> bool {
        self.hubs.iter().any(|hub| hub.annotation == state)
    }

    /// Whether an edge whose watch is live does not say what the hub says.
    fn is_seen_behind(&self) -> bool {
        self.edges.iter().any(|edge| {
            edge.cluster.is_live(Kind::Connector) && edge.behind_since(&self.hubs).is_some()
        })
    }

    /// Whether an edge has the Connector, or may have it, and cannot be seen.
    fn may_be_at(&self, edge: &Cluster) -> bool {
        let was_live = edge.watch(Kind::Connector).unknown_since().is_some();
        let has_it =
            || self.place.as_ref().is_some_and(|name| edge.edge.connectors.get(name).is_some());
        !edge.is_live(Kind::Connector) && (!was_live || has_it())
    }
}

fn unreplicated(upstream: &Cluster, present: Present<'_>) -> Phase {
    let is_live = |cluster: &Cluster| cluster.is_live(Kind::Connector);
    match is_live(upstream) && present.c.world.hubs().all(is_live) {
        true => Phase::Unreplicated,
        false => Phase::Unknown,
    }
}
