//! Builds the view.

use std::collections::BTreeMap;

use super::connector::Connector;
use super::phase::count_phases;
use super::{
    ClusterView, GoneView, LeaseWaitView, OrphanView, Phases, View, WatchState, WritesView,
    orphans, unpaired,
};
use crate::contract::keep_reason::{KeepReason, OrphanCandidate, OrphanCounts};
use crate::data::ids::{ClusterName, Kind, Role};
use crate::data::object_ref::ObjectRef;
use crate::data::time::UnixMillis;
use crate::next::controller::Controller;
use crate::next::machine::Machine;
use crate::next::rules::orphan::{self, Verdict};
use crate::next::rules::touch::edge_memory;
use crate::next::world::cluster::{self, Cluster};
use crate::next::write_queue::QueueKey;
use crate::next::write_state::WriteState;

/// What a view is made of.
#[derive(Clone, Copy)]
pub(super) struct Present<'c> {
    pub(super) c: &'c Controller,
    pub(super) now: UnixMillis,
}

impl Machine {
    /// What the machine knows. Costs O(everything): for people, not for every event.
    pub fn view(&self) -> View {
        let present = self.present();
        let connectors = Connector::all(present);
        let phases = count_phases(connectors.iter().map(|connector| connector.phase(present)));
        let mut connectors: Vec<_> =
            connectors.iter().map(|connector| connector.view(present)).collect();
        connectors.sort_unstable_by(|a, b| (&a.upstream, &a.place).cmp(&(&b.upstream, &b.place)));

        View {
            at_ms: self.now,
            leads: self.controller.leadership.is_leader,
            holder: None,
            lease_wait: present.lease_wait(),
            in_flight: self.in_flight(),
            clusters: present.clusters(),
            phases,
            connectors,
            unpaired: unpaired::unpaired(&self.controller.world),
            orphans: present.orphans(),
            gone: present.gone(),
        }
    }

    /// How many connectors are in each phase. Costs O(connectors).
    pub fn phases(&self) -> Phases {
        let present = self.present();
        let connectors = Connector::all(present);
        count_phases(connectors.iter().map(|connector| connector.phase(present)))
    }

    /// How many objects a person has paused, by cluster and kind. Costs O(objects).
    pub fn paused_objects(&self) -> BTreeMap<(ClusterName, Kind), u64> {
        let counts = self.controller.world.clusters.values().flat_map(paused_of);
        counts.filter(|(_, count)| *count > 0).collect()
    }

    /// How many routes are orphans, or may be. Judges every route.
    pub fn orphan_counts(&self) -> OrphanCounts {
        orphans::orphan_counts(&self.controller, self.now)
    }

    /// The routes that are orphans, or may be, sorted by hub, namespace and name. Judges every route.
    pub fn candidates(&self) -> Vec<OrphanCandidate> {
        orphans::candidates(&self.controller, self.now)
    }

    /// Clusters that hub objects name and that no source shows: each may be a deleted project, which
    /// its source is asked about.
    pub fn unknown_upstreams(&self) -> Vec<ClusterName> {
        self.controller.roster.unknown_upstreams(&self.controller.world)
    }

    fn present(&self) -> Present<'_> {
        Present { c: &self.controller, now: self.now }
    }
}

impl Present<'_> {
    fn lease_wait(self) -> Option<LeaseWaitView> {
        let leadership = self.c.leadership;
        let view =
            || LeaseWaitView { until_ms: leadership.wait.until, wait_ms: leadership.wait.ms };
        leadership.waits_for_lease(self.now).then(view)
    }

    fn clusters(self) -> Vec<ClusterView> {
        let clusters = self.c.world.ids.values();
        clusters.filter_map(|id| self.c.world.clusters.get(id)).map(|c| self.cluster(c)).collect()
    }

    fn cluster(self, cluster: &Cluster) -> ClusterView {
        let kinds = || Kind::ALL.into_iter();
        let live_since = |kind| {
            let since = cluster.watch(kind).live_since()?;
            Some((kind, since.max(cluster.listed_since(kind)?)))
        };
        let unknown_since = |kind| Some((kind, cluster.watch(kind).unknown_since()?));
        let unreadable = |kind| (kind, cluster.watch(kind).unreadable.len());
        let queue = self.c.scheduler.queue(QueueKey::Touches(cluster.id));
        let per_second = self.c.settings.touch.max_per_second;

        ClusterView {
            name: cluster.name.clone(),
            roles: Role::ALL.into_iter().filter(|role| cluster.has(*role)).collect(),
            watches: kinds().map(|kind| (kind, cluster.watch(kind).state.into())).collect(),
            live_since_ms: kinds().filter_map(live_since).collect(),
            unknown_since_ms: kinds().filter_map(unknown_since).collect(),
            received_at_ms: BTreeMap::new(),
            errors: BTreeMap::new(),
            unreadable: kinds().map(unreadable).filter(|(_, count)| *count > 0).collect(),
            touches_waiting: edge_memory::touches_waiting(queue, per_second, self.now),
            causes: BTreeMap::new(),
        }
    }

    /// The routes that were orphans by all evidence when they were last judged. One may wait for its
    /// turn to be deleted.
    fn orphans(self) -> Vec<OrphanView> {
        let routes = self.c.memory.routes.iter();
        let mut orphans: Vec<_> =
            routes.filter_map(|(at, memory)| self.orphan(at, memory)).collect();
        orphans.sort_unstable();
        orphans
    }

    fn orphan(self, at: &ObjectRef, memory: &orphan::OrphanMemory) -> Option<OrphanView> {
        let absence = memory.absence?;
        let is_orphan =
            matches!(absence.reported, Verdict::Orphan | Verdict::Absent(KeepReason::Budget));
        let writes = self.writes(&memory.write);
        is_orphan.then(|| OrphanView {
            cluster: self.c.world.name_of(at.cluster),
            route: at.name.key(),
            since_ms: Some(absence.since),
            in_flight: writes.in_flight,
            error: writes.error.map(|error| error.to_string()),
            not_before_ms: writes.not_before_ms,
        })
    }

    /// Deleted projects that hub objects name.
    fn gone(self) -> Vec<GoneView> {
        let view = |(cluster, since_ms): (&ClusterName, _)| {
            let counts = self.c.world.counts_of(cluster);
            let (connectors, routes) = (counts.connectors, counts.routes);
            GoneView { cluster: cluster.clone(), since_ms, connectors, routes }
        };
        self.c.roster.deleted_projects().map(view).collect()
    }

    pub(super) fn writes(self, write: &WriteState) -> WritesView {
        WritesView {
            in_flight: write.action(),
            not_before_ms: write.not_before().filter(|at| *at > self.now),
            error: write.failure().map(|failure| failure.error.clone()),
        }
    }

    pub(super) fn waits_for_lease(self) -> bool {
        self.c.leadership.waits_for_lease(self.now)
    }
}

fn paused_of(cluster: &Cluster) -> [((ClusterName, Kind), u64); 3] {
    let connectors = cluster.hub_connectors.iter().filter(|(_, row)| row.seen.is_paused).count();
    let is_paused = Some(KeepReason::Paused);
    let routes = cluster
        .routes
        .iter()
        .filter(|(_, row)| row.seen.parents.as_ref().err().copied() == is_paused);
    let gateways = cluster.edge.gateways.iter().filter(|(_, row)| row.seen.is_paused).count();

    let counts = [
        (Kind::Connector, connectors),
        (Kind::HttpRoute, routes.count()),
        (Kind::Gateway, gateways),
    ];
    counts.map(|(kind, count)| ((cluster.name.clone(), kind), count as u64))
}

impl From<cluster::WatchState> for WatchState {
    fn from(state: cluster::WatchState) -> Self {
        match state {
            cluster::WatchState::NeverListed => Self::Never,
            cluster::WatchState::Listing => Self::Listing,
            cluster::WatchState::Live { .. } => Self::Live,
            cluster::WatchState::Lost => Self::Lost,
        }
    }
}
