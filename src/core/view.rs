//! What the machine believes, for people and programs to look at. Nothing is decided by it.

use std::collections::BTreeMap;

use serde::Serialize;

use super::action::Hop;
pub use super::cluster::Watch;
use super::edge::{Edge, EdgeConnector, hash_sign, stamp_of};
use super::ids::{ActionId, ClusterId, ClusterName, Key, Kind, ObjectKey, Role};
use super::liveness;
use super::machine::Machine;
use super::packed::Packed;
pub use super::phase::{Annotation, Announcement, Phase, Phases};
use super::replica::Replica;
use super::source::Source;
use super::time::UnixMillis;

/// Everything that the machine believes at one moment. The same state gives the same view; lists
/// are sorted. Times are milliseconds since the Unix epoch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct View {
    /// The machine's clock: the time of the last event.
    pub at_ms: UnixMillis,
    /// This process may mirror, nudge and delete.
    pub leads: bool,
    /// How many actions have no outcome yet.
    pub in_flight: usize,
    /// The clusters, by name.
    pub clusters: Vec<ClusterView>,
    /// How many connectors are in each phase.
    pub phases: Phases,
    /// The connectors, by their names upstream, then at hub and edges.
    pub connectors: Vec<ConnectorView>,
    /// Routes that are orphans by all evidence.
    pub orphans: Vec<OrphanView>,
}

/// A configured cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ClusterView {
    /// Its name.
    pub name: ClusterName,
    /// What it is to us.
    pub roles: Vec<Role>,
    /// Its watches; `never` also for kinds that are not watched there.
    pub watches: BTreeMap<Kind, Watch>,
}

/// A connector on its whole way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
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
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
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
    /// When its status last changed, as this process saw it.
    pub changed_at_ms: Option<UnixMillis>,
}

/// A hop that has not come in time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
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
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HubView {
    /// The hub.
    pub cluster: ClusterName,
    /// Whether its annotation means what upstream says.
    pub annotation: Annotation,
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

/// The writes to one object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WritesView {
    /// The action under way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub in_flight: Option<ActionId>,
    /// No try before this.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_before_ms: Option<UnixMillis>,
    /// What the last try came back with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// A copy at an edge.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
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
    /// The gateways whose proxies reference it, by name; in the connector's namespace.
    pub gateways: Vec<GatewayView>,
}

/// A gateway that has to announce a connector.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
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
    #[serde(skip_serializing_if = "Option::is_none")]
    pub announced_on: Option<ObjectKey>,
    /// When it is written next, as things are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub due_at_ms: Option<UnixMillis>,
    /// Its writes.
    #[serde(flatten)]
    pub writes: WritesView,
}

/// A route that is an orphan.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OrphanView {
    /// The hub.
    pub cluster: ClusterName,
    /// Its namespace and name.
    #[serde(flatten)]
    pub route: ObjectKey,
    /// Since when it is one without a break.
    pub since_ms: Option<UnixMillis>,
    /// The delete under way.
    pub in_flight: Option<ActionId>,
    /// What the last try to delete it came back with.
    pub error: Option<String>,
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
            in_flight: self.in_flight(),
            clusters: self.cluster_ids.values().filter_map(|id| self.cluster_view(*id)).collect(),
            phases,
            connectors,
            orphans: self.orphans(),
        }
    }

    fn cluster_view(&self, id: ClusterId) -> Option<ClusterView> {
        let cluster = self.cluster(id)?;
        let roles = [Role::Upstream, Role::Downstream, Role::Edge];
        Some(ClusterView {
            name: cluster.name.clone(),
            roles: roles.into_iter().filter(|role| cluster.has(*role)).collect(),
            watches: Kind::ALL.into_iter().map(|kind| (kind, cluster.watch(kind))).collect(),
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
        let liveness = liveness::read(None, text.as_deref());
        let stamp = hash_sign(Some(&stamp_of(&liveness.node_id)));
        UpstreamView {
            cluster,
            object: self.desk.names.object_key(key),
            exists: source.is_some(),
            online: liveness.online,
            node: node(liveness.online, stamp),
            changed_at_ms: source.map(|s| s.changed_at),
        }
    }

    fn hub_view(&self, id: ClusterId, key: Key, replica: &Replica) -> Option<HubView> {
        let annotation = self.annotation(id, key, replica);
        let trouble = replica.trouble.as_deref();
        Some(HubView {
            cluster: self.cluster(id)?.name.clone(),
            annotation,
            right_since_ms: (annotation == Annotation::Right).then_some(replica.settled_at),
            writes: trouble.map(|t| self.writes(&t.flight)).unwrap_or_default(),
            spoiled: trouble.map_or(0, |t| t.spoils),
            nudged: trouble.map_or(0, |t| t.nudges),
        })
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

    fn orphans(&self) -> Vec<OrphanView> {
        let routes = self.hubs.iter().flat_map(|(&id, hub)| {
            hub.orphans.iter().filter_map(move |key| Some((id, *key, hub.routes.get(key)?)))
        });
        let mut orphans: Vec<_> = routes
            .filter_map(|(id, key, route)| {
                Some(OrphanView {
                    cluster: self.cluster(id)?.name.clone(),
                    route: self.desk.names.object_key(key),
                    since_ms: route.orphan_since,
                    in_flight: route.flight.in_flight,
                    error: route.flight.error.as_deref().map(str::to_owned),
                })
            })
            .collect();
        orphans.sort_unstable();
        orphans
    }
}

/// A node as people may see it: not its id, which is a key.
fn node(online: bool, stamp: u64) -> Option<String> {
    let named = online && stamp != hash_sign(Some(&stamp_of("")));
    named.then(|| format!("{:08x}", stamp >> 32))
}
