//! The state at one time. `/state`, `status`, `trace` and the live page print it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::group::GroupView;
use super::orphans::OrphanView;
use crate::contract::cause::{Cause, Hop, State};
use crate::data::closed_list::closed_list;
use crate::data::ids::{ClusterName, Kind, NamespacedName, Role};
use crate::data::shard::Shard;
use crate::data::time::UnixMillis;
use crate::status::liveness;
use crate::world::cluster::WatchState;
use crate::world::edge::Stamp;

/// The state of the fleet at one time. The same state always gives the same value: lists are
/// sorted. Times are milliseconds since the Unix epoch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Fleet {
    /// The time of the last event. A running instance sets it to the time of the request.
    pub at_ms: UnixMillis,
    pub source: Source,
    /// The part of the fleet that this state has; absent if it has the whole.
    #[serde(default, skip_serializing_if = "Shard::is_whole")]
    pub shard: Shard,
    pub leader: Leader,
    pub in_flight: usize,
    pub clusters: Vec<ClusterState>,
    /// Problems by cause and cluster. The machine leaves it empty; the shell, which groups
    /// problems, adds them.
    #[serde(default)]
    pub problems: Vec<GroupView>,
    /// The number of connectors in each state; every state has an entry.
    pub counts: BTreeMap<State, u64>,
    /// Sorted by their upstream names, then by their names at hub and edges.
    pub connectors: Vec<Connector>,
    /// Gateways and HTTPProxies at the edges that belong to no connector, each as a hop.
    #[serde(default)]
    pub unpaired: Vec<HopView>,
    pub orphans: Vec<OrphanView>,
}

/// The origin of a [`Fleet`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[derive(strum::EnumString, strum::IntoStaticStr, strum::VariantArray, strum::VariantNames)]
#[strum(serialize_all = "snake_case", const_into_str)]
pub enum Source {
    /// A process that reads the clusters once and writes nothing.
    Clusters,
    /// A running instance.
    Instance,
    /// The event log of a run, at some time.
    Log,
    /// An event log recorded while throughline was not writing, at some time.
    Recording,
}

closed_list!(Source);

/// The leadership.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Leader {
    /// Whether this instance leads.
    pub leads: bool,
    /// The holder of the Lease, added by the shell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub holder: Option<String>,
    /// Until then an instance waits before it may lead by a Lease that it created. A Lease that
    /// never existed looks like one that was deleted while its holder still writes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waits_until_ms: Option<UnixMillis>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterState {
    pub name: ClusterName,
    pub roles: Vec<Role>,
    /// By kind. Kinds that are not watched in this cluster have `never`.
    pub watches: BTreeMap<Kind, WatchState>,
    /// Since when each watch that was live no longer is. The shell replaces this by the time of the
    /// watch's last event if it knows that.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub unknown_since_ms: BTreeMap<Kind, UnixMillis>,
    /// When each watch last received anything, including bookmarks; added by the shell.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub received_at_ms: BTreeMap<Kind, UnixMillis>,
    /// The number of objects that exist but cannot be read, by kind.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub unreadable: BTreeMap<Kind, usize>,
}

/// One connector in all tiers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Connector {
    /// `None` without a hub, or if the hub Connector's labels name no upstream.
    pub upstream: Option<UpstreamName>,
    /// Its namespace and name at hub and edges; `None` if it exists only upstream.
    pub name: Option<NamespacedName>,
    /// The liveness upstream; if that is unknown, the liveness at the first edge.
    pub online: Option<bool>,
    /// A fingerprint of the tunnel node's id. Equal nodes have equal fingerprints in all tiers.
    pub node: Option<String>,
    /// The worst of its hops.
    pub state: State,
    /// In the order of the hops, then by cluster and object.
    pub hops: Vec<HopView>,
}

/// An upstream Connector, as the hub Connector's labels name it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct UpstreamName {
    pub cluster: ClusterName,
    #[serde(flatten)]
    pub object: NamespacedName,
}

impl std::fmt::Display for UpstreamName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} in {}", self.object, self.cluster)
    }
}

/// One hop of a connector, in the cluster in which it ends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HopView {
    pub hop: Hop,
    pub cluster: ClusterName,
    /// The kind of the object in which the hop ends.
    pub kind: Kind,
    /// `None` if no such object is known.
    pub object: Option<NamespacedName>,
    pub state: State,
    /// The liveness that the object has; `None` if it has none, or if that is unknown.
    pub says: Option<LivenessView>,
    /// The liveness that it should have: that of the previous hop.
    pub expected: Option<LivenessView>,
    /// Since when the hop is in this state, if known.
    pub since_ms: Option<UnixMillis>,
    /// The hop may have been in this state for longer.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub at_least: bool,
    /// Why the hop is not ok, or a remark about it.
    pub cause: Option<Cause>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
    /// When a failed write is next attempted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_attempt_ms: Option<UnixMillis>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub evidence: Vec<String>,
    /// Added by a command that reads the clusters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub writer: Option<Writer>,
}

/// The last writer of an object, by its `managedFields`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Writer {
    /// The field manager.
    pub manager: String,
    /// When it wrote, by the API server's clock, in whole seconds.
    pub at_ms: UnixMillis,
    /// Whether it owns the field that the hop shows. If not, it is the object's last writer,
    /// perhaps of another field.
    pub of_field: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LivenessView {
    pub online: bool,
    /// A fingerprint of the tunnel node's id.
    pub node: Option<String>,
}

impl LivenessView {
    /// Parses a Connector's status, which is JSON text.
    pub fn of(status: &str) -> Self {
        Self::new(Stamp::of_liveness(&liveness::read(Some(status), None)))
    }

    /// Shows only a fingerprint: the node's id is a public key and identifies a customer's device.
    pub(super) fn new(stamp: Stamp) -> Self {
        let online = stamp.is_online();
        let is_named = online && stamp != Stamp::of(&Stamp::text(""));
        Self { online, node: is_named.then(|| format!("{:08x}", stamp.hash() >> 32)) }
    }
}

impl Fleet {
    /// Adds when each watch last received anything. Its state is unknown since then, and an edge
    /// that is silent may already have the value but be unable to show it.
    pub fn add_received(
        &mut self,
        received: impl IntoIterator<Item = (ClusterName, Kind, UnixMillis)>,
    ) {
        let clusters = self.clusters.iter_mut();
        let mut clusters: BTreeMap<_, _> = clusters.map(|c| (c.name.clone(), c)).collect();
        for (name, kind, at) in received {
            let Some(cluster) = clusters.get_mut(&name) else { continue };
            cluster.received_at_ms.insert(kind, at);
            if let Some(since) = cluster.unknown_since_ms.get_mut(&kind) {
                *since = at.min(*since);
            }
        }

        let hops = self.connectors.iter_mut().flat_map(|connector| &mut connector.hops);
        for hop in hops.filter(|hop| hop.cause == Some(Cause::NotCarried)) {
            let cluster = clusters.get(&hop.cluster);
            let received = cluster.and_then(|cluster| cluster.received_at_ms.get(&Kind::Connector));
            let is_silent = |at: &&UnixMillis| {
                hop.since_ms.is_some_and(|since| **at < since)
                    && self.at_ms.since(**at) >= SILENT_MS
            };
            if let Some(at) = received.filter(is_silent) {
                hop.evidence.push(format!("{} has sent nothing since {at}", hop.cluster));
            }
        }
    }

    /// Whether a cluster, or a source of clusters, cannot be read: there may be connectors that are
    /// not in it.
    pub fn is_partly_unseen(&self) -> bool {
        let is_unseen =
            |watch: &WatchState| matches!(watch, WatchState::Listing | WatchState::Lost);
        self.clusters.iter().any(|cluster| cluster.watches.values().any(is_unseen))
            || self.problems.iter().any(|group| group.cause == Cause::DiscoveryFailing)
    }

    pub fn count(&self, state: State) -> u64 {
        self.counts.get(&state).copied().unwrap_or_default()
    }
}

/// Counts the states; states that do not occur have 0.
pub fn count_states(found: impl Iterator<Item = State>) -> BTreeMap<State, u64> {
    let mut states: BTreeMap<_, _> = State::ALL.into_iter().map(|state| (state, 0)).collect();
    for state in found {
        *states.entry(state).or_default() += 1;
    }
    states
}

pub(super) fn worst_of(hops: &[HopView]) -> State {
    hops.iter().map(|hop| hop.state).max().unwrap_or(State::Ok)
}

/// A cluster that sent something more recently than this still answers.
const SILENT_MS: u64 = 5_000;

impl Connector {
    /// Updates the state from its hops.
    pub fn update_state(&mut self) {
        self.state = worst_of(&self.hops);
    }

    /// Its upstream name, or else its name at hub and edges.
    pub fn title(&self) -> String {
        let name = || self.name.as_ref().map(ToString::to_string);
        self.upstream.as_ref().map(ToString::to_string).or_else(name).unwrap_or_default()
    }

    /// The first hop with the worst state. `None` if all are ok.
    pub fn worst(&self) -> Option<&HopView> {
        let is_it = |hop: &&HopView| hop.state == self.state && self.state != State::Ok;
        self.hops.iter().find(is_it)
    }

    pub fn hops_of(&self, hop: Hop) -> impl Iterator<Item = &HopView> {
        self.hops.iter().filter(move |view| view.hop == hop)
    }
}
