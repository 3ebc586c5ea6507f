//! Builds the [`Fleet`].

use std::collections::BTreeMap;

use super::connector::ConnectorAt;
use super::fleet::{ClusterState, Fleet, Leader, Source, count_states};
use super::{orphans, unpaired};
use crate::contract::cause::{Kubectl, State};
use crate::data::ids::{ClusterName, Kind, Role};
use crate::machine::Machine;
use crate::world::cluster::Cluster;

impl Machine {
    /// The state of the machine. Costs O(everything), so it is for users, not for every event.
    pub fn fleet(&self, source: Source, kubectl: Kubectl<'_>) -> Fleet {
        let connectors = ConnectorAt::all(self);
        let mut connectors: Vec<_> = connectors.iter().map(|of| of.view(kubectl)).collect();
        connectors.sort_unstable_by(|a, b| (&a.upstream, &a.name).cmp(&(&b.upstream, &b.name)));
        let world = &self.world;
        let clusters = world.ids.values().filter_map(|id| world.clusters.get(id));

        Fleet {
            at_ms: self.now,
            source,
            shard: world.settings.shard,
            leader: leader(self),
            in_flight: self.in_flight.len(),
            clusters: clusters.map(cluster_state).collect(),
            problems: Vec::new(),
            counts: count_states(connectors.iter().map(|connector| connector.state)),
            connectors,
            unpaired: unpaired::hops(self, kubectl),
            orphans: orphans::views(self),
        }
    }

    /// The number of connectors in each state. Costs O(connectors).
    pub fn states(&self) -> BTreeMap<State, u64> {
        count_states(ConnectorAt::all(self).iter().map(ConnectorAt::state))
    }

    /// Clusters that hub objects name but that no source shows. Each may be a deleted project; the
    /// source can be asked.
    pub fn unknown_upstreams(&self) -> Vec<ClusterName> {
        self.roster.unknown_upstreams(&self.world)
    }
}

fn leader(m: &Machine) -> Leader {
    let waits = !m.is_leader && m.now < m.lease_wait_until;
    Leader { leads: m.is_leader, holder: None, waits_until_ms: waits.then_some(m.lease_wait_until) }
}

fn cluster_state(cluster: &Cluster) -> ClusterState {
    let kinds = || Kind::ALL.into_iter();
    let unknown_since = |kind| Some((kind, cluster.watch(kind).unknown_since?));
    let unreadable = |kind| (kind, cluster.watch(kind).unreadable.len());

    ClusterState {
        name: cluster.name.clone(),
        roles: Role::ALL.into_iter().filter(|role| cluster.has(*role)).collect(),
        watches: kinds().map(|kind| (kind, cluster.watch(kind).state)).collect(),
        unknown_since_ms: kinds().filter_map(unknown_since).collect(),
        received_at_ms: BTreeMap::new(),
        unreadable: kinds().map(unreadable).filter(|(_, count)| *count > 0).collect(),
    }
}
