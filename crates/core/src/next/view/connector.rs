//! One connector in all tiers.

use std::collections::{BTreeMap, BTreeSet};

use super::build::Present;
use super::edges::EdgeAt;
use super::hubs::HubAt;
use super::{ConnectorView, LivenessView, StallView, UpstreamView};
use crate::contract::note::{Hop, Stall, StallCause};
use crate::data::ids::{ClusterName, Kind, Role};
use crate::data::name::NamespacedName;
use crate::next::world::cluster::Cluster;
use crate::next::world::hub::UpstreamRef;
use crate::next::world::upstream::UpstreamConnector;

/// A connector as the tables have it.
pub(super) struct Connector<'c> {
    /// Its upstream cluster and name, where no hub Connector tells.
    pub(super) unlinked: Option<Unlinked<'c>>,
    /// Its namespace and name at hubs and edges.
    pub(super) place: Option<NamespacedName>,
    pub(super) hubs: Vec<HubAt<'c>>,
    pub(super) edges: Vec<EdgeAt<'c>>,
}

/// An upstream Connector that no hub Connector names.
#[derive(Clone, Copy)]
pub(super) struct Unlinked<'c> {
    pub(super) cluster: &'c Cluster,
    pub(super) name: &'c NamespacedName,
    row: &'c UpstreamConnector,
}

impl<'c> Connector<'c> {
    /// Every connector once: by its name at hubs and edges, or else by its upstream name.
    pub(super) fn all(present: Present<'c>) -> Vec<Self> {
        let mut placed: BTreeMap<_, _> =
            names(present).into_iter().map(|name| (name, Self::at(present, name))).collect();
        let mut upstream_alone = Vec::new();
        for unlinked in unlinked(present) {
            let place = unlinked.place_by_namespace(present);
            match place.and_then(|place| placed.get_mut(&place)) {
                Some(connector) => connector.unlinked = Some(unlinked),
                None => upstream_alone.push(Self::upstream_alone(unlinked)),
            }
        }
        placed.into_values().chain(upstream_alone).collect()
    }

    fn at(present: Present<'c>, name: &NamespacedName) -> Self {
        let hubs = HubAt::all(present, name);
        let edges = EdgeAt::all(present, name);
        Self { unlinked: None, place: Some(name.clone()), hubs, edges }
    }

    fn upstream_alone(unlinked: Unlinked<'c>) -> Self {
        Self { unlinked: Some(unlinked), place: None, hubs: Vec::new(), edges: Vec::new() }
    }

    pub(super) fn view(&self, present: Present<'c>) -> ConnectorView {
        let linked = self.hubs.iter().find_map(|hub| hub.upstream_view(present));
        let unlinked = || {
            let Unlinked { cluster, name, row } = self.unlinked?;
            Some(upstream_view(present, &cluster.name, name, Some(row)))
        };

        ConnectorView {
            upstream: linked.or_else(unlinked),
            place: self.place.as_ref().map(NamespacedName::key),
            phase: self.phase(present),
            stalls: self.stalls().map(|stall| self.stall_view(present, stall)).collect(),
            hubs: self.hubs.iter().map(|hub| hub.view(present, &self.edges)).collect(),
            edges: self.edges.iter().map(|edge| edge.view(present, &self.hubs)).collect(),
        }
    }

    pub(super) fn stalls(&self) -> impl Iterator<Item = &'c Stall> {
        let hubs = self.hubs.iter().filter_map(|hub| hub.memory?.hop.stall.as_deref());
        hubs.chain(self.edges.iter().filter_map(|edge| edge.stall))
    }

    fn stall_view(&self, present: Present<'_>, stall: &Stall) -> StallView {
        let limits = &present.c.settings.stall;
        let limit_ms = match (stall.hop, &stall.cause) {
            (_, StallCause::Deferred { .. }) => limits.deferred_ms,
            (Hop::Upstream | Hop::Mirrored, _) => limits.mirrored_ms,
            (Hop::Arrived, _) => limits.arrived_ms,
            (Hop::Touched, _) => limits.touched_ms,
        };
        // What was the cause when the stall began may have been an effect of silence.
        let world = &present.c.world;
        let cluster = world.id_of(&stall.cluster).and_then(|id| world.clusters.get(&id));
        let unseen = cluster.filter(|_| !self.shows(stall)).map(not_seen);

        StallView {
            hop: stall.hop,
            cluster: stall.cluster.clone(),
            since_ms: stall.since,
            late_since_ms: Some(stall.since.plus(limit_ms)),
            reason: unseen.unwrap_or_else(|| stall.reason.clone()),
        }
    }
}

impl Unlinked<'_> {
    /// Where an edge has it although the hub cannot be listed, and so has no labels to tell: the
    /// namespace there is named after the uid of the upstream namespace.
    fn place_by_namespace(self, present: Present<'_>) -> Option<NamespacedName> {
        let world = &present.c.world;
        if world.hubs().all(|hub| hub.is_live(Kind::Connector)) {
            return None;
        }

        let uid = self.cluster.namespace_uid(self.name.namespace())?.text()?;
        let place = NamespacedName::new(&format!("ns-{uid}"), self.name.name());
        let is_at_edge = !EdgeAt::all(present, &place).is_empty();
        let is_at_hub = !HubAt::all(present, &place).is_empty();
        (is_at_edge && !is_at_hub).then_some(place)
    }
}

/// The name of every Connector at the hubs and edges.
fn names<'c>(present: Present<'c>) -> BTreeSet<&'c NamespacedName> {
    let world = &present.c.world;
    let is_in_place =
        |cluster: &Cluster, name: &NamespacedName| cluster.is_hub_namespace(name.namespace());
    let hubs = world
        .hubs()
        .flat_map(|hub| hub.hub_connectors.keys().filter(move |name| is_in_place(hub, name)));
    let edges = world
        .edges()
        .flat_map(|edge| edge.edge.connectors.keys().filter(move |name| is_in_place(edge, name)));
    hubs.chain(edges).collect()
}

/// Upstream Connectors that no hub Connector names.
fn unlinked<'c>(present: Present<'c>) -> impl Iterator<Item = Unlinked<'c>> {
    let world = &present.c.world;
    let upstreams = world.clusters.values().filter(|cluster| cluster.has(Role::Upstream));
    upstreams.flat_map(move |cluster| {
        let is_unlinked = move |name: &NamespacedName| {
            let named = UpstreamRef { cluster: cluster.name.clone(), name: name.clone() };
            world.linked(&named).is_empty()
        };
        cluster
            .upstream_connectors
            .iter()
            .filter(|(name, _)| cluster.is_upstream_namespace(name.namespace()))
            .filter(move |(name, _)| is_unlinked(name))
            .map(move |(name, row)| Unlinked { cluster, name, row: &row.seen })
    })
}

/// `row`: `None` where the cluster has no such Connector, or is not in the run.
pub(super) fn upstream_view(
    present: Present<'_>,
    cluster: &ClusterName,
    name: &NamespacedName,
    row: Option<&UpstreamConnector>,
) -> UpstreamView {
    let text = row.and_then(UpstreamConnector::said).map(|status| status.text.text());
    let LivenessView { online, node } = LivenessView::of(text.as_deref());
    UpstreamView {
        gone: present.c.roster.deleted_project(cluster).is_some(),
        cluster: cluster.clone(),
        object: name.key(),
        exists: row.is_some(),
        online,
        node,
        because: text.as_deref().filter(|_| !online).and_then(why_not_ready),
        changed_at_ms: row.map(|row| row.changed_at),
    }
}

/// Why a stall is no longer seen: the watch that showed it is lost.
fn not_seen(cluster: &Cluster) -> String {
    let name = &cluster.name;
    let unknown_since = |kind| cluster.watch(kind).unknown_since();
    match Kind::ALL.into_iter().filter_map(unknown_since).min() {
        Some(since) => format!("unknown since {since}: the watch of {name} is lost"),
        None => format!("unknown: a watch that it needs is not live ({name})"),
    }
}

/// The reason that upstream gives for not being online.
fn why_not_ready(status: &str) -> Option<String> {
    let status: serde_json::Value = serde_json::from_str(status).ok()?;
    let ready = status["conditions"].as_array()?.iter().find(|c| c["type"] == "Ready")?;
    let words = [&ready["reason"], &ready["message"]].map(|word| word.as_str().unwrap_or_default());
    let words: Vec<_> = words.into_iter().filter(|word| !word.is_empty()).collect();
    let words = words.join(": ");
    Some(words.trim_end_matches('.').to_owned()).filter(|words| !words.is_empty())
}
