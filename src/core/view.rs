//! What the machine believes, for people and programs to look at. Nothing is decided by it.

mod beside;
mod build;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::action::Hop;
pub use super::cluster::Watch;
use super::edge::{hash_sign, stamp_of};
use super::ids::{ActionId, ClusterName, Kind, ObjectKey, Role};
use super::liveness;
pub use super::phase::{Annotation, Announcement, Phase, Phases};
use super::time::UnixMillis;
pub use beside::{LooseView, OrphanView};

/// Everything that the machine believes at one moment. The same state gives the same view; lists
/// are sorted. Times are milliseconds since the Unix epoch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct View {
    /// The machine's clock: the time of the last event; of a running instance, when it was asked.
    pub at_ms: UnixMillis,
    /// This process may mirror, nudge and delete.
    pub leads: bool,
    /// Who holds the Lease, where the shell knows; the machine doesn't.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<String>,
    /// How many actions have no outcome yet.
    pub in_flight: usize,
    /// The clusters, by name.
    pub clusters: Vec<ClusterView>,
    /// How many connectors are in each phase.
    pub phases: Phases,
    /// The connectors, by their names upstream, then at hub and edges.
    pub connectors: Vec<ConnectorView>,
    /// Gateways and proxies at the edges that don't go together.
    #[serde(default)]
    pub loose: Vec<LooseView>,
    /// Routes that are orphans by all evidence.
    pub orphans: Vec<OrphanView>,
}

/// A configured cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterView {
    /// Its name.
    pub name: ClusterName,
    /// What it is to us.
    pub roles: Vec<Role>,
    /// Its watches; `never` also for kinds that are not watched there.
    pub watches: BTreeMap<Kind, Watch>,
    /// Since when those that are live are.
    #[serde(default, rename = "liveSinceMs")]
    pub live_since_ms: BTreeMap<Kind, UnixMillis>,
    /// What came back of those that are lost, where the shell knows; the machine doesn't.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub errors: BTreeMap<Kind, String>,
}

/// A connector on its whole way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ConnectorView {
    /// As it is upstream; `None` where no hub is seen, or the replica's labels name nothing.
    pub upstream: Option<UpstreamView>,
    /// Its namespace and name at hub and edges; `None` where it has no replica.
    #[serde(rename = "replica")]
    pub place: Option<ObjectKey>,
    /// The first hop that is not done.
    pub phase: Phase,
    /// The hops that have not come in time.
    pub stalls: Vec<StallView>,
    /// The replica at each hub.
    pub hubs: Vec<HubView>,
    /// The copy at each edge.
    pub edges: Vec<EdgeView>,
}

/// A Connector upstream.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UpstreamView {
    /// The cluster, by the name that the replica's labels carry.
    pub cluster: ClusterName,
    /// Namespace and name there.
    #[serde(flatten)]
    pub object: ObjectKey,
    /// Whether the cluster is configured and shows it.
    pub exists: bool,
    /// What its status says.
    pub online: bool,
    /// A fingerprint of the tunnel node's id; equal for equal nodes, here and at the edges.
    pub node: Option<String>,
    /// The Ready condition's reason and message, where it is not online and has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub because: Option<String>,
    /// When its status last changed, as this process saw it.
    pub changed_at_ms: Option<UnixMillis>,
}

/// A hop that has not come in time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StallView {
    /// The hop.
    pub hop: Hop,
    /// The cluster in which it should have ended.
    pub cluster: ClusterName,
    /// Since when it is waited for.
    pub since_ms: UnixMillis,
    /// Why, as far as could be seen when it became a stall.
    pub reason: String,
}

/// A replica at a hub.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HubView {
    /// The hub.
    pub cluster: ClusterName,
    /// Whether its annotation means what upstream says.
    pub annotation: Annotation,
    /// Whether it has one.
    #[serde(default)]
    pub annotated: bool,
    /// What it says, where that is also said by upstream, or by an edge.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub says: Option<SaysView>,
    /// Since when it does.
    pub right_since_ms: Option<UnixMillis>,
    /// Its writes.
    #[serde(flatten)]
    pub writes: WritesView,
    /// How often another writer spoiled it of late.
    pub spoiled: u32,
    /// How often the carrier was nudged of late.
    pub nudged: u32,
}

/// What a status says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SaysView {
    /// Online or not.
    pub online: bool,
    /// A fingerprint of the tunnel node's id.
    pub node: Option<String>,
}

impl SaysView {
    /// What a Connector's status, as JSON text, says.
    pub fn of(status: Option<&str>) -> Self {
        let liveness = liveness::read(status, None);
        let stamp = hash_sign(Some(&stamp_of(&liveness.node_id)));
        Self { online: liveness.online, node: node(liveness.online, stamp) }
    }
}

/// The writes to one object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WritesView {
    /// The action under way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_flight: Option<ActionId>,
    /// No try before this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_before_ms: Option<UnixMillis>,
    /// What the last try came back with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// A copy at an edge.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EdgeView {
    /// The edge.
    pub cluster: ClusterName,
    /// What the edge's extension server would read from it.
    pub online: bool,
    /// A fingerprint of the tunnel node's id; equal for equal nodes.
    pub node: Option<String>,
    /// When that last changed, as this process saw it.
    pub changed_at_ms: Option<UnixMillis>,
    /// Since when it does not say what the hub says; `None` when it does, or no hub is seen.
    pub behind_since_ms: Option<UnixMillis>,
    /// Whether it says what the hub says; `None` where no hub has a replica of it.
    #[serde(default)]
    pub as_hub: Option<bool>,
    /// The gateways whose proxies reference it, by name; in the connector's namespace.
    pub gateways: Vec<GatewayView>,
}

/// A gateway that has to announce a connector.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GatewayView {
    /// Its name.
    pub name: String,
    /// Whether the connectors are announced.
    pub announcement: Announcement,
    /// The trigger that announces them, `<digest>-<writes>-<confirmations>`; `None` when
    /// throughline never wrote one.
    pub trigger: Option<String>,
    /// The gateway that carries it for the whole class, where that is another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub announced_on: Option<ObjectKey>,
    /// When it is written next, as things are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due_at_ms: Option<UnixMillis>,
    /// Its writes.
    #[serde(flatten)]
    pub writes: WritesView,
}

impl View {
    /// Adds what came back of watches that are lost.
    pub fn tell_errors(&mut self, errors: impl IntoIterator<Item = (ClusterName, Kind, String)>) {
        for (name, kind, error) in errors {
            let cluster = self.clusters.iter_mut().find(|c| c.name == name);
            if let Some(cluster) = cluster.filter(|c| c.watches.get(&kind) != Some(&Watch::Live)) {
                cluster.errors.insert(kind, error);
            }
        }
    }
}

/// A node as people may see it: not its id, which is a key.
fn node(online: bool, stamp: u64) -> Option<String> {
    let named = online && stamp != hash_sign(Some(&stamp_of("")));
    named.then(|| format!("{:08x}", stamp >> 32))
}
