//! How far each connector is on its way, in one word.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::action::Stall;
use super::announcement::TargetKey;
use super::edge::{Edge, EdgeConnector};
use super::ids::{ClusterId, Key, Kind, Sym};
use super::machine::Machine;
use super::mirror::Wish;
use super::replica::Replica;
use super::source::Source;
use super::time::UnixMillis;

/// Where a connector is: the first hop that is not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// Every hop is done, and it is online.
    Settled,
    /// Every hop is done, and it is offline.
    Offline,
    /// It exists upstream, and no hub has a replica of it.
    Unreplicated,
    /// The hub's annotation does not mean what upstream says.
    Mirroring,
    /// An edge's copy does not say what the hub says.
    Carrying,
    /// A gateway does not announce what its edge says.
    Touching,
    /// One of these has lasted too long; [`View`](super::view::View) says which hop, and why.
    Stalled,
    /// What should be can't be told: a watch is not live, or its upstream is not known.
    Unknown,
}

impl Phase {
    /// Every phase, in their order.
    pub const ALL: [Phase; 8] = [
        Phase::Settled,
        Phase::Offline,
        Phase::Unreplicated,
        Phase::Mirroring,
        Phase::Carrying,
        Phase::Touching,
        Phase::Stalled,
        Phase::Unknown,
    ];

    /// The phase as reports and metrics spell it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Phase::Settled => "settled",
            Phase::Offline => "offline",
            Phase::Unreplicated => "unreplicated",
            Phase::Mirroring => "mirroring",
            Phase::Carrying => "carrying",
            Phase::Touching => "touching",
            Phase::Stalled => "stalled",
            Phase::Unknown => "unknown",
        }
    }
}

/// How many connectors are in each phase; every phase has its number.
pub type Phases = BTreeMap<Phase, u64>;

/// Whether a hub's annotation means what upstream says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Annotation {
    /// It does.
    Right,
    /// It does not, or will soon have to be removed.
    Wrong,
    /// That can't be told.
    Unknown,
    /// The mirror is off.
    Off,
}

/// Whether a gateway announces what its connectors are at its edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Announcement {
    /// It does.
    Announced,
    /// It is to be written.
    Pending,
    /// There is no Gateway of the proxy's name; that is no error.
    NoGateway,
    /// That can't be told: not every watch of the edge is live.
    Unknown,
    /// The touch is off.
    Off,
}

impl Machine {
    /// How many connectors are in each phase. Costs O(connectors); nothing is kept for it.
    pub fn phases(&self) -> Phases {
        let mut phases: Phases = Phase::ALL.into_iter().map(|phase| (phase, 0)).collect();
        let places = self.places().into_iter().map(|key| self.phase_at(key));
        let lone = self.lone_sources().map(|(upstream, ..)| self.phase_of_lone(upstream));
        for phase in places.chain(lone) {
            *phases.entry(phase).or_default() += 1;
        }
        phases
    }

    /// Every Connector at the hubs and edges, each name once.
    pub(super) fn places(&self) -> Vec<Key> {
        let mut keys = Vec::new();
        for (&id, hub) in &self.hubs {
            keys.extend(hub.replicas.keys().filter(|key| self.is_placed(id, **key)));
        }
        for (&id, edge) in &self.edges {
            keys.extend(edge.connectors.keys().filter(|key| self.is_placed(id, **key)));
        }
        keys.sort_unstable();
        keys.dedup();
        keys
    }

    fn is_placed(&self, id: ClusterId, key: Key) -> bool {
        self.cluster(id).and_then(|c| c.is_replica_namespace(key.ns)) == Some(true)
    }

    /// Upstream Connectors that no replica names, in no order.
    pub(super) fn lone_sources(&self) -> impl Iterator<Item = (ClusterId, Key, &Source)> {
        self.upstreams.values().flat_map(|u| u.sources.iter().map(move |s| (u.id, s))).filter_map(
            |(id, (&key, source))| {
                let id = id?;
                let in_place = self.cluster(id)?.is_source_namespace(key.ns) == Some(true);
                let lone = source.exists && source.replicas.is_empty() && in_place;
                lone.then_some((id, key, source))
            },
        )
    }

    pub(super) fn phase_of_lone(&self, upstream: ClusterId) -> Phase {
        let live = |id: &ClusterId| self.cluster(*id).is_some_and(|c| c.is_live(Kind::Connector));
        if live(&upstream) && self.hubs.keys().all(live) {
            Phase::Unreplicated
        } else {
            Phase::Unknown
        }
    }

    /// The replicas of one name, by hub.
    pub(super) fn replicas_at(&self, key: Key) -> impl Iterator<Item = (ClusterId, &Replica)> {
        let found = self.hubs.iter().filter_map(move |(&id, h)| Some((id, h.replicas.get(&key)?)));
        found.filter(move |(id, _)| self.is_placed(*id, key))
    }

    /// The copies of one name, by edge.
    pub(super) fn copies_at(
        &self,
        key: Key,
    ) -> impl Iterator<Item = (ClusterId, &Edge, &EdgeConnector)> {
        let found =
            self.edges.iter().filter_map(move |(&id, e)| Some((id, e, e.connectors.get(&key)?)));
        found.filter(move |(id, ..)| self.is_placed(*id, key))
    }

    pub(super) fn stalls_at(&self, key: Key) -> impl Iterator<Item = &Stall> {
        let hubs = self.replicas_at(key).filter_map(|(_, r)| r.trouble.as_ref()?.stall.as_ref());
        hubs.chain(self.copies_at(key).filter_map(|(.., c)| c.touch_stall.as_deref()))
    }

    /// The upstream Connector that a replica names, where its cluster is configured.
    pub(super) fn source_of(&self, replica: &Replica) -> Option<(Sym, Key, Option<&Source>)> {
        let (cluster, key) = replica.source?;
        let upstream = self.upstreams.get(&cluster).filter(|u| u.id.is_some());
        Some((cluster, key, upstream.and_then(|u| u.sources.get(&key))))
    }

    pub(super) fn phase_at(&self, key: Key) -> Phase {
        if self.stalls_at(key).next().is_some() {
            return Phase::Stalled;
        }
        let (mut unknown, mut upstream, mut edges) = (false, None, None);
        for (id, replica) in self.replicas_at(key) {
            match self.annotation(id, key, replica) {
                Annotation::Wrong => return Phase::Mirroring,
                Annotation::Unknown => unknown = true,
                Annotation::Right | Annotation::Off => {}
            }
            let said = self.source_of(replica).and_then(|(.., source)| Some(source?.online));
            upstream = upstream.or(said);
        }
        if unknown {
            return Phase::Unknown;
        }
        if self.copies_at(key).any(|(.., copy)| copy.missing_since > UnixMillis(0)) {
            return Phase::Carrying;
        }
        for (id, edge, copy) in self.copies_at(key) {
            edges = Some(copy.online && edges.unwrap_or(true));
            for gateway in edge.gateways_of(key) {
                match self.announcement(id, edge, gateway) {
                    Announcement::Pending => return Phase::Touching,
                    Announcement::Unknown => unknown = true,
                    _ => {}
                }
            }
        }
        match upstream.or(edges) {
            _ if unknown => Phase::Unknown,
            Some(true) => Phase::Settled,
            _ => Phase::Offline,
        }
    }

    /// Whether a replica's annotation is right. Nothing is compared anew: the rule keeps it.
    pub(super) fn annotation(&self, id: ClusterId, key: Key, replica: &Replica) -> Annotation {
        if !self.desk.settings.mirror.enabled {
            return Annotation::Off;
        }
        if !self.cluster(id).is_some_and(|c| c.is_live(Kind::Connector)) {
            return Annotation::Unknown;
        }
        match self.wish(id, key) {
            Wish::Unknown => Annotation::Unknown,
            Wish::This(_) if replica.settled_at > UnixMillis(0) => Annotation::Right,
            Wish::This(_) | Wish::Later(_) => Annotation::Wrong,
        }
    }

    /// Whether a gateway's connectors are announced, by it or for its class.
    pub(super) fn announcement(&self, id: ClusterId, edge: &Edge, gateway: Key) -> Announcement {
        if !self.desk.settings.touch.enabled {
            return Announcement::Off;
        }
        let Some(target) = edge.target_of(gateway) else { return Announcement::NoGateway };
        if !edge.ready || !self.is_placed(id, gateway) {
            return Announcement::Unknown;
        }
        if self.is_announced(edge, target) == Some(true) {
            Announcement::Announced
        } else {
            Announcement::Pending
        }
    }

    fn is_announced(&self, edge: &Edge, target: TargetKey) -> Option<bool> {
        let wish = edge.digest_of(&self.desk.names, target)?;
        let value = edge.gateways.get(&edge.object_of(target)?)?.value;
        let (open, adopted) = match edge.remembered(target)? {
            Ok(touch) => {
                let writes = touch.writing.is_some_and(|(_, value)| value.c == 0);
                (!touch.known || touch.dirty.is_some() || writes, touch.adopted)
            }
            Err(rest) => (false, rest.adopted),
        };
        Some(!open && value.map(|v| v.digest).or(adopted) == Some(wish))
    }
}
