//! What the machine believes, for people and programs to look at. Nothing is decided by it.

mod beside;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::action::Hop;
pub use super::cluster::Watch;
use super::edge::{Edge, EdgeConnector, hash_sign, stamp_of};
use super::ids::{ActionId, ClusterId, ClusterName, Key, Kind, ObjectKey, Role};
use super::liveness;
use super::machine::Machine;
use super::packed::Packed;
pub use super::phase::{Annotation, Announcement, Phase, Phases};
use super::replica::Replica;
use super::source::{Digest, Source};
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

impl Machine {
    /// What the machine believes. Costs O(all that it knows): for people, not for every event.
    pub fn view(&self) -> View {
        let mut connectors: Vec<_> = self.places().into_iter().map(|k| self.connector(k)).collect();
        connectors.extend(self.lone_sources().map(|(id, key, source)| ConnectorView {
            upstream: self.cluster(id).map(|c| self.upstream(c.name.clone(), key, Some(source))),
            place: None,
            phase: self.phase_of_lone(id),
            stalls: Vec::new(),
            hubs: Vec::new(),
            edges: Vec::new(),
        }));
        connectors.sort_unstable_by(|a, b| (&a.upstream, &a.place).cmp(&(&b.upstream, &b.place)));
        let mut phases: Phases = Phase::ALL.into_iter().map(|phase| (phase, 0)).collect();
        for connector in &connectors {
            *phases.entry(connector.phase).or_default() += 1;
        }
        View {
            at_ms: self.desk.now,
            leads: self.desk.leader,
            holder: None,
            in_flight: self.in_flight(),
            clusters: self.cluster_ids.values().filter_map(|id| self.cluster_view(*id)).collect(),
            phases,
            connectors,
            loose: self.loose(),
            orphans: self.orphans(),
        }
    }

    fn cluster_view(&self, id: ClusterId) -> Option<ClusterView> {
        let cluster = self.cluster(id)?;
        let roles = [Role::Upstream, Role::Downstream, Role::Edge];
        let live = |kind: &Kind| cluster.watch(*kind) == Watch::Live;
        let since = |kind: Kind| (kind, cluster.live_since(kind));
        Some(ClusterView {
            name: cluster.name.clone(),
            roles: roles.into_iter().filter(|role| cluster.has(*role)).collect(),
            watches: Kind::ALL.into_iter().map(|kind| (kind, cluster.watch(kind))).collect(),
            live_since_ms: Kind::ALL.into_iter().filter(live).map(since).collect(),
            errors: BTreeMap::new(),
        })
    }

    fn connector(&self, key: Key) -> ConnectorView {
        let upstream = self.replicas_at(key).find_map(|(_, replica)| {
            let (cluster, key, source) = self.source_of(replica)?;
            Some(self.upstream(self.desk.names.text(cluster).into(), key, source))
        });
        ConnectorView {
            upstream,
            place: Some(self.desk.names.object_key(key)),
            phase: self.phase_at(key),
            stalls: self
                .stalls_at(key)
                .map(|stall| StallView {
                    hop: stall.hop,
                    cluster: stall.cluster.clone(),
                    since_ms: stall.since,
                    reason: stall.reason.clone(),
                })
                .collect(),
            hubs: self.replicas_at(key).filter_map(|(id, r)| self.hub_view(id, key, r)).collect(),
            edges: self
                .copies_at(key)
                .filter_map(|(id, edge, copy)| self.edge_view(id, edge, key, copy))
                .collect(),
        }
    }

    fn upstream(&self, cluster: ClusterName, key: Key, source: Option<&Source>) -> UpstreamView {
        let source = source.filter(|s| s.exists);
        let text = source.and_then(|s| s.text.as_ref()).map(Packed::text);
        let SaysView { online, node } = SaysView::of(text.as_deref());
        UpstreamView {
            cluster,
            object: self.desk.names.object_key(key),
            exists: source.is_some(),
            online,
            node,
            because: text.as_deref().filter(|_| !online).and_then(why_not_ready),
            changed_at_ms: source.map(|s| s.changed_at),
        }
    }

    fn hub_view(&self, id: ClusterId, key: Key, replica: &Replica) -> Option<HubView> {
        let annotation = self.annotation(id, key, replica);
        let trouble = replica.trouble.as_deref();
        Some(HubView {
            cluster: self.cluster(id)?.name.clone(),
            annotation,
            annotated: replica.meaning != Digest::ABSENT,
            says: self.hub_says(key, replica, annotation),
            right_since_ms: (annotation == Annotation::Right).then_some(replica.settled_at),
            writes: trouble.map(|t| self.writes(&t.flight)).unwrap_or_default(),
            spoiled: trouble.map_or(0, |t| t.spoils),
            nudged: trouble.map_or(0, |t| t.nudges),
        })
    }

    /// Of the hub's annotation only the digest is kept: what it says is known from who says the same.
    fn hub_says(&self, key: Key, replica: &Replica, annotation: Annotation) -> Option<SaysView> {
        (replica.meaning != Digest::ABSENT).then_some(())?;
        if annotation == Annotation::Right {
            let (.., source) = self.source_of(replica)?;
            return Some(SaysView::of(source?.text.as_ref().map(Packed::text).as_deref()));
        }
        let mut copies = self.copies_at(key).map(|(.., copy)| copy);
        let same = copies.find(|copy| copy.meaning == replica.meaning)?;
        Some(SaysView { online: same.online, node: node(same.online, same.stamp) })
    }

    fn writes(&self, flight: &super::flight::Flight) -> WritesView {
        WritesView {
            in_flight: flight.in_flight,
            not_before_ms: Some(flight.not_before).filter(|at| *at > self.desk.now),
            error: flight.error.as_deref().map(str::to_owned),
        }
    }

    fn edge_view(
        &self,
        id: ClusterId,
        edge: &Edge,
        key: Key,
        copy: &EdgeConnector,
    ) -> Option<EdgeView> {
        let mut gateways: Vec<_> =
            edge.gateways_of(key).map(|gateway| self.gateway_view(id, edge, gateway)).collect();
        gateways.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        let known = |at: UnixMillis| Some(at).filter(|at| *at > UnixMillis(0));
        Some(EdgeView {
            cluster: self.cluster(id)?.name.clone(),
            online: copy.online,
            node: node(copy.online, copy.stamp),
            changed_at_ms: known(copy.changed_at),
            behind_since_ms: known(copy.missing_since),
            as_hub: self.replicas_at(key).next().map(|(_, r)| r.meaning == copy.meaning),
            gateways,
        })
    }

    fn gateway_view(&self, id: ClusterId, edge: &Edge, gateway: Key) -> GatewayView {
        let target = edge.target_of(gateway);
        let object = target.and_then(|target| edge.object_of(target));
        let touch = target.and_then(|target| edge.remembered(target)?.ok());
        let value = object.and_then(|object| edge.gateways.get(&object)?.value);
        GatewayView {
            name: self.desk.names.text(gateway.name).to_owned(),
            announcement: self.announcement(id, edge, gateway),
            trigger: value.map(|value| value.to_string()),
            announced_on: object
                .filter(|object| *object != gateway)
                .map(|object| self.desk.names.object_key(object)),
            due_at_ms: touch.and_then(|touch| touch.scheduled),
            writes: touch.map(|touch| self.writes(&touch.flight)).unwrap_or_default(),
        }
    }
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

/// Why upstream says that it is not online.
fn why_not_ready(status: &str) -> Option<String> {
    let status: serde_json::Value = serde_json::from_str(status).ok()?;
    let ready = status["conditions"].as_array()?.iter().find(|c| c["type"] == "Ready")?;
    let words = [&ready["reason"], &ready["message"]].map(|word| word.as_str().unwrap_or_default());
    let words: Vec<_> = words.into_iter().filter(|word| !word.is_empty()).collect();
    (!words.is_empty()).then(|| words.join(": "))
}

/// A node as people may see it: not its id, which is a key.
fn node(online: bool, stamp: u64) -> Option<String> {
    let named = online && stamp != hash_sign(Some(&stamp_of("")));
    named.then(|| format!("{:08x}", stamp >> 32))
}
