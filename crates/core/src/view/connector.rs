//! One connector in all tiers.

use std::collections::{BTreeMap, BTreeSet};

use super::edges::EdgeAt;
use super::fleet::{Connector, LivenessView, worst_of};
use super::hubs::HubAt;
use super::judged::{HopAt, Judged, Names};
use super::upstream::UpstreamAt;
use crate::contract::cause::{Cause, Hop, Kubectl, Problem, State};
use crate::data::ids::{Kind, NamespacedName, Role};
use crate::machine::Machine;
use crate::world::cluster::Cluster;
use crate::world::hub::UpstreamRef;

/// A connector in the tables.
pub(super) struct ConnectorAt<'m> {
    m: &'m Machine,
    /// As the labels of a hub Connector name it: the first one whose cluster is in the run, or else
    /// the first one. Without labels, it is known by the uid of its namespace.
    upstream: Option<UpstreamAt<'m>>,
    /// Its namespace and name at hubs and edges.
    place: Option<&'m NamespacedName>,
    hubs: Vec<HubAt<'m>>,
    edges: Vec<EdgeAt<'m>>,
}

impl<'m> ConnectorAt<'m> {
    /// Every connector once: by its name at hubs and edges, or else by its upstream name.
    pub(super) fn all(m: &'m Machine) -> Vec<Self> {
        let connectors = names(m).into_iter().map(|name| (name, Self::at(m, name)));
        let mut connectors: BTreeMap<_, _> = connectors.collect();
        let mut upstream_alone = Vec::new();
        for upstream in unlinked(m) {
            let place = place_by_namespace(upstream);
            let connector = place.and_then(|place| connectors.get_mut(&place));
            match connector.filter(|connector| connector.upstream.is_none()) {
                Some(connector) => connector.upstream = Some(upstream),
                None => upstream_alone.push(upstream),
            }
        }

        let upstream_alone = upstream_alone.into_iter().map(|upstream| Self {
            m,
            upstream: Some(upstream),
            place: None,
            hubs: Vec::new(),
            edges: Vec::new(),
        });
        connectors.into_values().chain(upstream_alone).collect()
    }

    fn at(m: &'m Machine, name: &'m NamespacedName) -> Self {
        let hubs = HubAt::all(m, name);
        let named = || hubs.iter().filter_map(|hub| hub.upstream);
        let upstream = named().find(|upstream| upstream.cluster.is_some());
        let upstream = upstream.or_else(|| named().next());
        Self { m, upstream, place: Some(name), hubs, edges: EdgeAt::all(m, name) }
    }

    /// The worst of its hops, computed without their texts.
    pub(super) fn state(&self) -> State {
        let at_hubs = self.hubs.iter().map(|hub| hub.judged().state);
        let at_edges = self
            .edges
            .iter()
            .flat_map(|edge| [edge.judged(self.hubs.first()).state, edge.announced_state()]);
        let elsewhere = self.missing_edges().into_iter().map(|(_, judged)| judged.state);
        let upstream = self.upstream.and_then(UpstreamAt::judged);
        let unreplicated = self.unreplicated().map(unreplicated);
        let upstream = upstream.into_iter().chain(unreplicated).map(|judged| judged.state);
        let all = at_hubs.chain(at_edges).chain(elsewhere).chain(upstream);
        all.max().unwrap_or(State::Ok)
    }

    pub(super) fn view(&self, kubectl: Kubectl<'_>) -> Connector {
        let at_edges: Vec<_> = self.edges.iter().map(|edge| edge.row).collect();
        let at_hub = self.hubs.first().and_then(|hub| hub.says(&at_edges));

        let mut hops = Vec::new();
        hops.extend(self.upstream.and_then(UpstreamAt::hop));
        hops.extend(self.unreplicated().and_then(unreplicated_hop));
        hops.extend(self.hubs.iter().map(|hub| hub.hop(&at_edges)));
        hops.extend(self.carried_hops(at_hub.as_ref()));
        hops.extend(self.edges.iter().flat_map(EdgeAt::announced_hops));
        let names = Names {
            upstream: self.upstream.map(UpstreamAt::upstream_name),
            connector: self.place.cloned(),
            hub: self.hub_cluster().map(|hub| hub.name.clone()),
            lost_source: self.m.roster.lost_source(),
        };
        let liveness = self.liveness(&hops);
        let key = |hop: &HopAt<'m>| (hop.hop, hop.cluster.name.clone(), hop.object.clone());
        hops.sort_by_cached_key(key);
        let hops: Vec<_> = hops.into_iter().map(|hop| hop.view(&names, kubectl)).collect();

        Connector {
            upstream: names.upstream,
            name: names.connector,
            online: liveness.as_ref().map(|says| says.online),
            node: liveness.and_then(|says| says.node),
            state: worst_of(&hops),
            hops,
        }
    }

    /// The upstream Connector, if a hub should have the connector but does not.
    fn unreplicated(&self) -> Option<UpstreamAt<'m>> {
        let has_hub = self.m.world.hubs().next().is_some();
        self.upstream.filter(|_| has_hub && self.hubs.is_empty())
    }

    /// The hub that has the connector, or that should have it.
    fn hub_cluster(&self) -> Option<&'m Cluster> {
        let with_it = self.hubs.first().map(|hub| hub.cluster);
        with_it.or_else(|| self.m.world.hubs().next())
    }

    /// The liveness upstream. For a Connector that is gone, the expected liveness at the hub; if
    /// neither is known, the liveness at the first edge.
    fn liveness(&self, hops: &[HopAt<'_>]) -> Option<LivenessView> {
        let upstream = hops.iter().filter(|hop| hop.hop == Hop::Upstream);
        let at_upstream = upstream.filter_map(|hop| hop.says.as_ref());
        let mirrored = hops.iter().filter(|hop| hop.hop == Hop::Mirrored);
        let expected = mirrored.filter_map(|hop| hop.expected.as_ref());
        let known = at_upstream.chain(expected).next().cloned();
        known.or_else(|| self.edges.first().map(EdgeAt::says))
    }

    fn carried_hops(&self, at_hub: Option<&LivenessView>) -> Vec<HopAt<'m>> {
        let hub = self.hubs.first();
        let expected = || at_hub.cloned();
        let at_edges = self.edges.iter().map(|edge| edge.hop(hub, expected()));
        let object = || self.place.cloned();
        let elsewhere = self.missing_edges().into_iter().map(|(cluster, judged)| HopAt {
            expected: expected(),
            ..HopAt::new(Hop::Carried, cluster, Kind::Connector, object(), judged)
        });
        at_edges.chain(elsewhere).collect()
    }

    /// Edges without the Connector that affect its state: those that are not watched and may have
    /// it, those whose object cannot be decoded, or all if no edge has it. The carrier decides which
    /// edges should have it.
    fn missing_edges(&self) -> Vec<(&'m Cluster, Judged<'m>)> {
        let (Some(place), Some(hub)) = (self.place, self.hubs.first()) else { return Vec::new() };
        let has_it = |edge: &Cluster| edge.edge.connectors.get(place).is_some();
        let without = self.m.world.edges().filter(|edge| !has_it(edge));
        let without: Vec<_> = without.collect();

        let hidden = without.iter().filter_map(|edge| {
            // An edge that was once listed did not have the Connector then.
            let was_seen = edge.watch(Kind::Connector).unknown_since.is_some();
            let not_live = Judged::not_live(self.m, edge, &[Kind::Connector]);
            let unknown = not_live.or_else(|| Judged::unreadable(self.m, edge, place))?;
            (self.edges.is_empty() || !was_seen).then_some((*edge, unknown))
        });
        let hidden: Vec<_> = hidden.collect();
        let is_placed = !self.edges.is_empty() || !hidden.is_empty() || without.is_empty();
        if is_placed || hub.digest().is_none() {
            return hidden;
        }
        let unknown = Judged::not_live(self.m, hub.cluster, &[Kind::Connector]);
        let judged = unknown.or_else(|| hub.not_placed());
        vec![(hub.cluster, judged.unwrap_or(Judged::cause(State::Held, Cause::NotPlaced)))]
    }
}

/// The state of a Connector that no hub has.
fn unreplicated(upstream: UpstreamAt<'_>) -> Judged<'_> {
    let m = upstream.m;
    let not_live = |cluster| Judged::not_live(m, cluster, &[Kind::Connector]);
    if let Some(unknown) = m.world.hubs().chain(upstream.cluster).find_map(not_live) {
        return unknown;
    }
    if let Some(unknown) = m.world.hubs().find_map(|hub| unreadable(upstream, hub)) {
        return unknown;
    }
    let whole = m.notes.of_whole(upstream.cluster_name, &[Cause::NotReplicated]);
    let problem = whole.or_else(|| renamed(upstream)).map(Judged::problem);
    problem.unwrap_or(Judged::cause(State::Held, Cause::NotReplicated))
}

/// A Connector of the hub cannot be decoded. It may be this one's, as its labels are unknown.
fn unreadable<'m>(upstream: UpstreamAt<'m>, hub: &Cluster) -> Option<Judged<'m>> {
    let own = place_by_namespace(upstream);
    let any = hub.watch(Kind::Connector).unreadable.first();
    let mut names = own.as_ref().into_iter().chain(any);
    names.find_map(|name| Judged::unreadable(upstream.m, hub, name))
}

/// The problem that hub objects use another name for its upstream.
fn renamed(upstream: UpstreamAt<'_>) -> Option<&Problem> {
    let is_it = |problem: &&Problem| {
        problem.cause == Cause::UpstreamUnknown
            && problem.facts.what.as_deref() == Some(upstream.cluster_name.as_str())
    };
    upstream.m.notes.of_wholes().find(is_it)
}

/// `None` without a hub.
fn unreplicated_hop(upstream: UpstreamAt<'_>) -> Option<HopAt<'_>> {
    let hub = upstream.m.world.hubs().next()?;
    let judged = unreplicated(upstream);
    Some(HopAt {
        expected: upstream.says(),
        since: match judged.state {
            State::Unknown => judged.unknown_since,
            _ => upstream.row.map(|row| row.changed_at),
        },
        ..HopAt::new(Hop::Mirrored, hub, Kind::Connector, None, judged)
    })
}

/// Its name at hub and edges, derived without labels: the namespace there is named after the uid of
/// the upstream namespace.
fn place_by_namespace(upstream: UpstreamAt<'_>) -> Option<NamespacedName> {
    let UpstreamAt { cluster, name, .. } = upstream;
    let hub_namespace = cluster?.namespace_uid(name.namespace())?.hub_namespace()?;
    Some(NamespacedName::new(&hub_namespace, name.name()))
}

fn names(m: &Machine) -> BTreeSet<&NamespacedName> {
    let world = &m.world;
    let at_hubs = world.hubs().flat_map(|hub| hub.hub_connectors.keys().map(move |at| (hub, at)));
    let at_edges =
        world.edges().flat_map(|edge| edge.edge.connectors.keys().map(move |at| (edge, at)));
    let all = at_hubs.chain(at_edges);
    all.filter(|(cluster, at)| cluster.is_hub_namespace(at.namespace())).map(|(_, at)| at).collect()
}

/// The upstream Connectors that no hub Connector names.
fn unlinked(m: &Machine) -> impl Iterator<Item = UpstreamAt<'_>> {
    let world = &m.world;
    let upstreams = world.clusters.values().filter(|cluster| cluster.has(Role::Upstream));
    let rows = upstreams.flat_map(|cluster| {
        cluster.upstream_connectors.iter().map(move |(name, row)| (cluster, name, &row.seen))
    });
    let unlinked = rows.filter(|(cluster, name, _)| {
        let named = UpstreamRef { cluster: cluster.name.clone(), name: (*name).clone() };
        world.keeps_replicas_of(cluster, name.namespace()) && world.links.linked(&named).is_empty()
    });
    unlinked.map(move |(cluster, name, row)| UpstreamAt {
        m,
        cluster_name: &cluster.name,
        cluster: Some(cluster),
        name,
        row: Some(row),
    })
}
