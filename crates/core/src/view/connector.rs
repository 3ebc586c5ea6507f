//! One connector in all tiers.

use std::collections::{BTreeMap, BTreeSet};

use super::edges::EdgeAt;
use super::hubs::HubAt;
use super::phase::{AnnotationState, AnnouncementState, Phase};
use super::{ConnectorView, EdgeView, LivenessView, StallView, upstream};
use crate::contract::cause::{Cause, Problem, State};
use crate::contract::note::Hop;
use crate::controller::Controller;
use crate::data::ids::{Kind, Role};
use crate::data::name::NamespacedName;
use crate::data::time::UnixMillis;
use crate::world::cluster::Cluster;
use crate::world::hub::UpstreamRef;
use crate::world::upstream::UpstreamConnector;

/// A connector as the tables have it.
pub(super) struct Connector<'c> {
    c: &'c Controller,
    /// Its upstream cluster and name, where no hub Connector tells.
    unlinked: Option<Unlinked<'c>>,
    /// Its namespace and name at hubs and edges.
    place: Option<&'c NamespacedName>,
    hubs: Vec<HubAt<'c>>,
    edges: Vec<EdgeAt<'c>>,
}

/// An upstream Connector that no hub Connector names.
#[derive(Clone, Copy)]
struct Unlinked<'c> {
    cluster: &'c Cluster,
    name: &'c NamespacedName,
    row: &'c UpstreamConnector,
}

impl<'c> Connector<'c> {
    /// Every connector once: by its name at hubs and edges, or else by its upstream name.
    pub(super) fn all(c: &'c Controller) -> Vec<Self> {
        let connectors = names(c).into_iter().map(|name| (name, Self::at(c, name)));
        let mut connectors: BTreeMap<_, _> = connectors.collect();
        let mut upstream_alone = Vec::new();
        for unlinked in unlinked(c) {
            let place = unlinked.place_by_namespace(c);
            let connector = place.and_then(|place| connectors.get_mut(&place));
            match connector.filter(|connector| connector.hubs.is_empty()) {
                Some(connector) => connector.unlinked = Some(unlinked),
                None => upstream_alone.push(unlinked),
            }
        }

        let upstream_alone = upstream_alone.into_iter().map(|unlinked| Self {
            c,
            unlinked: Some(unlinked),
            place: None,
            hubs: Vec::new(),
            edges: Vec::new(),
        });
        connectors.into_values().chain(upstream_alone).collect()
    }

    fn at(c: &'c Controller, name: &'c NamespacedName) -> Self {
        Self {
            c,
            unlinked: None,
            place: Some(name),
            hubs: HubAt::all(c, name),
            edges: EdgeAt::all(c, name),
        }
    }

    /// The first hop that is not done.
    pub(super) fn phase(&self) -> Phase {
        let has_annotation = |state| self.hubs.iter().any(|hub| hub.annotation == state);
        let gateways = || self.edges.iter().flat_map(|edge| &edge.gateways);
        let has_gateway = |state| gateways().any(|gateway| gateway.announcement == state);

        let is_waiting = self.c.leadership.waits_for_lease(self.c.now);
        let mirroring = if is_waiting { Phase::Waiting } else { Phase::Mirroring };
        if let Some(unlinked) = &self.unlinked {
            return unlinked.phase(self.c);
        }

        let phases = [
            (Phase::Stalled, self.stalls().iter().any(|(hop, _)| self.shows(*hop))),
            (mirroring, has_annotation(AnnotationState::Wrong)),
            (Phase::Unknown, has_annotation(AnnotationState::Unknown)),
            (Phase::Unconfigured, has_annotation(AnnotationState::Unconfigured)),
            (Phase::Paused, has_annotation(AnnotationState::Paused)),
            (Phase::Unproven, has_annotation(AnnotationState::Held)),
            (Phase::Carrying, self.is_seen_behind()),
            (Phase::Unknown, self.c.world.edges().any(|edge| self.is_hidden_at(edge))),
            (Phase::Touching, has_gateway(AnnouncementState::Pending)),
            (Phase::Unknown, has_gateway(AnnouncementState::Unknown)),
            (Phase::Paused, gateways().any(|gateway| gateway.is_target_paused)),
            (Phase::Deferred, has_annotation(AnnotationState::Deferred)),
            (Phase::Settled, self.is_online()),
        ];
        let first = phases.into_iter().find(|(_, is_it)| *is_it);
        first.map_or(Phase::Offline, |(phase, _)| phase)
    }

    pub(super) fn view(&self) -> ConnectorView {
        let c = self.c;
        let linked = self.hubs.iter().find_map(|hub| hub.upstream_view(c));
        let unlinked = self.unlinked.map(|Unlinked { cluster, name, row }| {
            upstream::view(c, &cluster.name, name, Some(row))
        });
        let at_edges = || self.edges.iter().map(|edge| edge.row);

        ConnectorView {
            upstream: linked.or(unlinked),
            place: self.place.map(NamespacedName::key),
            phase: self.phase(),
            stalls: self.stalls().into_iter().map(|stall| self.stall_view(stall)).collect(),
            hubs: self.hubs.iter().map(|hub| hub.view(c, at_edges())).collect(),
            edges: self.edges.iter().map(|edge| self.edge_view(edge)).collect(),
        }
    }

    fn edge_view(&self, edge: &EdgeAt<'_>) -> EdgeView {
        let LivenessView { online, node } = LivenessView::new(edge.row.is_online, edge.row.stamp);
        EdgeView {
            cluster: edge.cluster.name.clone(),
            online,
            node,
            changed_at_ms: edge.row.changed_at,
            behind_since_ms: self.behind_since(edge),
            as_hub: self.hubs.first().map(|hub| hub.digest() == edge.row.annotation),
            gateways: edge.gateway_views(self.c),
        }
    }

    fn stall_view(&self, (hop, problem): (Hop, &Problem)) -> StallView {
        let limits = &self.c.settings.stall;
        let limit_ms = match problem.cause {
            Cause::NotMirrored => limits.mirrored_ms,
            Cause::NotCarried => limits.arrived_ms,
            Cause::NotAnnounced => limits.touched_ms,
            _ => 0,
        };
        let unseen = self.hubs.last().filter(|_| !self.shows(hop));

        StallView {
            hop,
            cluster: problem.about.cluster.clone(),
            since_ms: problem.since,
            late_since_ms: Some(problem.since.plus(limit_ms)),
            reason: unseen.map_or_else(|| problem.sentence(), |hub| not_seen(hub.cluster)),
        }
    }

    /// The problems that make it stuck.
    fn stalls(&self) -> Vec<(Hop, &'c Problem)> {
        let at_hubs = self.hubs.iter().flat_map(|hub| {
            let is_right = hub.annotation == AnnotationState::Right;
            hub.problems().iter().map(move |problem| match problem.cause {
                Cause::NotCarried => (Hop::Arrived, problem),
                _ if is_right => (Hop::Arrived, problem),
                _ => (Hop::Mirrored, problem),
            })
        });
        let gateways = self.edges.iter().flat_map(|edge| &edge.gateways);
        let at_edges = gateways.flat_map(|gateway| gateway.problems(self.c));
        let all = at_hubs.chain(at_edges.map(|problem| (Hop::Touched, problem)));
        let is_stuck = |problem: &Problem| problem.cause.info().state == Some(State::Stuck);
        let mut stalls: Vec<_> = all.filter(|(_, problem)| is_stuck(problem)).collect();
        // A class has several Gateways, and one problem.
        stalls.dedup();
        stalls
    }

    /// Whether the watches still show what makes it stuck before a hop.
    fn shows(&self, hop: Hop) -> bool {
        hop != Hop::Mirrored
            || self.hubs.iter().any(|hub| hub.annotation != AnnotationState::Unknown)
    }

    /// Since when an edge does not say what the hub says.
    fn behind_since(&self, edge: &EdgeAt<'_>) -> Option<UnixMillis> {
        self.hubs.iter().find_map(|hub| hub.memory?.hop.behind_since(edge.cluster.id))
    }

    /// Whether an edge whose watch is live does not say what the hub says.
    fn is_seen_behind(&self) -> bool {
        let mut edges = self.edges.iter().filter(|edge| edge.cluster.is_live(Kind::Connector));
        edges.any(|edge| self.behind_since(edge).is_some())
    }

    /// Whether an edge that cannot be seen has the Connector, or may have it.
    fn is_hidden_at(&self, edge: &Cluster) -> bool {
        let was_live = edge.watch(Kind::Connector).unknown_since.is_some();
        let has_it = || self.place.is_some_and(|name| edge.edge.connectors.get(name).is_some());
        !edge.is_live(Kind::Connector) && (!was_live || has_it())
    }

    fn is_online(&self) -> bool {
        let upstream = self.hubs.iter().find_map(HubAt::is_online);
        upstream.unwrap_or_else(|| {
            !self.edges.is_empty() && self.edges.iter().all(|edge| edge.row.is_online)
        })
    }
}

impl Unlinked<'_> {
    fn phase(self, c: &Controller) -> Phase {
        let mut clusters = c.world.hubs().chain([self.cluster]);
        match clusters.all(|cluster| cluster.is_live(Kind::Connector)) {
            true => Phase::Unreplicated,
            false => Phase::Unknown,
        }
    }

    /// Where an edge has it although the hub cannot be listed, and so has no labels to tell: the
    /// namespace there is named after the uid of the upstream namespace.
    fn place_by_namespace(self, c: &Controller) -> Option<NamespacedName> {
        if c.world.hubs().all(|hub| hub.is_live(Kind::Connector)) {
            return None;
        }
        let uid = self.cluster.namespace_uid(self.name.namespace())?.text()?;
        Some(NamespacedName::new(&format!("ns-{uid}"), self.name.name()))
    }
}

/// The name of every Connector at the hubs and edges.
fn names(c: &Controller) -> BTreeSet<&NamespacedName> {
    let world = &c.world;
    let at_hubs = world.hubs().flat_map(|hub| hub.hub_connectors.keys().map(move |at| (hub, at)));
    let at_edges =
        world.edges().flat_map(|edge| edge.edge.connectors.keys().map(move |at| (edge, at)));
    let all = at_hubs.chain(at_edges);
    all.filter(|(cluster, at)| cluster.is_hub_namespace(at.namespace())).map(|(_, at)| at).collect()
}

fn unlinked(c: &Controller) -> impl Iterator<Item = Unlinked<'_>> {
    let world = &c.world;
    let upstreams = world.clusters.values().filter(|cluster| cluster.has(Role::Upstream));
    let rows = upstreams.flat_map(|cluster| {
        let rows = cluster.upstream_connectors.iter();
        rows.map(move |(name, row)| Unlinked { cluster, name, row: &row.seen })
    });
    rows.filter(|Unlinked { cluster, name, .. }| {
        let named = UpstreamRef { cluster: cluster.name.clone(), name: (*name).clone() };
        cluster.is_upstream_namespace(name.namespace()) && world.links.linked(&named).is_empty()
    })
}

/// Why a stall is no longer seen: the watch that showed it is lost.
fn not_seen(cluster: &Cluster) -> String {
    let name = &cluster.name;
    let unknown_since = |kind| cluster.watch(kind).unknown_since;
    match Kind::ALL.into_iter().filter_map(unknown_since).min() {
        Some(since) => format!("unknown since {since}: the watch of {name} is lost"),
        None => format!("unknown: a watch that it needs is not live ({name})"),
    }
}
