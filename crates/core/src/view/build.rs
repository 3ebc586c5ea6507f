//! Builds the view.

use std::collections::BTreeMap;

use super::connector::Connector;
use super::phase::{Phase, Phases};
use super::{ClusterView, GoneView, LeaseWaitView, View, orphans, unpaired};
use crate::controller::Controller;
use crate::data::ids::{ClusterName, Kind, Role};
use crate::machine::Machine;
use crate::rules::touch::edge_memory;
use crate::world::cluster::Cluster;
use crate::write_queue::QueueKey;

impl Machine {
    /// What the machine knows. Costs O(everything): for people, not for every event.
    pub fn view(&self) -> View {
        let c = &self.controller;
        let mut connectors: Vec<_> = Connector::all(c).iter().map(Connector::view).collect();
        connectors.sort_unstable_by(|a, b| (&a.upstream, &a.place).cmp(&(&b.upstream, &b.place)));
        let world = &c.world;
        let clusters = world.ids.values().filter_map(|id| world.clusters.get(id));

        View {
            at_ms: c.now,
            leads: c.leadership.is_leader,
            holder: None,
            lease_wait: lease_wait(c),
            in_flight: c.in_flight.len(),
            clusters: clusters.map(|cluster| cluster_view(c, cluster)).collect(),
            phases: count(connectors.iter().map(|connector| connector.phase)),
            connectors,
            unpaired: unpaired::views(world),
            orphans: orphans::views(c),
            gone: gone(c),
        }
    }

    /// How many connectors are in each phase. Costs O(connectors).
    pub fn phases(&self) -> Phases {
        count(Connector::all(&self.controller).iter().map(Connector::phase))
    }

    /// Clusters that hub objects name and that no source shows: each may be a deleted project, which
    /// its source is asked about.
    pub fn unknown_upstreams(&self) -> Vec<ClusterName> {
        self.controller.roster.unknown_upstreams(&self.controller.world)
    }
}

/// How many there are of each phase, also of those that do not occur.
fn count(found: impl Iterator<Item = Phase>) -> Phases {
    let mut phases: Phases = Phase::ALL.into_iter().map(|phase| (phase, 0)).collect();
    for phase in found {
        *phases.entry(phase).or_default() += 1;
    }
    phases
}

fn lease_wait(c: &Controller) -> Option<LeaseWaitView> {
    let wait = c.leadership.wait;
    let is_waiting = c.leadership.waits_for_lease(c.now);
    is_waiting.then_some(LeaseWaitView { until_ms: wait.until, wait_ms: wait.ms })
}

fn cluster_view(c: &Controller, cluster: &Cluster) -> ClusterView {
    let kinds = || Kind::ALL.into_iter();
    let live_since = |kind| {
        let since = cluster.watch(kind).live_since()?;
        Some((kind, since.max(cluster.listed_since(kind)?)))
    };
    let unknown_since = |kind| Some((kind, cluster.watch(kind).unknown_since?));
    let unreadable = |kind| (kind, cluster.watch(kind).unreadable.len());
    let queue = c.scheduler.queue(QueueKey::Touches(cluster.id));
    let per_second = c.settings.touch.max_per_second;

    ClusterView {
        name: cluster.name.clone(),
        roles: Role::ALL.into_iter().filter(|role| cluster.has(*role)).collect(),
        watches: kinds().map(|kind| (kind, cluster.watch(kind).state)).collect(),
        live_since_ms: kinds().filter_map(live_since).collect(),
        unknown_since_ms: kinds().filter_map(unknown_since).collect(),
        received_at_ms: BTreeMap::new(),
        errors: BTreeMap::new(),
        unreadable: kinds().map(unreadable).filter(|(_, count)| *count > 0).collect(),
        touches_waiting: edge_memory::touches_waiting(queue, per_second, c.now),
        causes: BTreeMap::new(),
    }
}

/// Deleted projects that hub objects name.
fn gone(c: &Controller) -> Vec<GoneView> {
    let view = |(cluster, since_ms): (&ClusterName, _)| {
        let counts = c.world.links.counts_of(cluster);
        GoneView {
            cluster: cluster.clone(),
            since_ms,
            connectors: counts.connectors,
            routes: counts.routes,
        }
    };
    c.roster.deleted_projects().map(view).collect()
}
