//! What a run is configured with: clusters that come and go, and settings.

use std::collections::BTreeSet;

use throughline::core::contract::action::Action;
use throughline::core::contract::event::{Event, EventKind};
use throughline::core::data::ids::{ClusterName, Kind, Role};

use crate::sim::Sim;

/// The cluster that an event of a watch comes from.
pub(super) fn cluster_of(kind: &EventKind) -> Option<&ClusterName> {
    match kind {
        EventKind::Listed { cluster, .. }
        | EventKind::Applied { cluster, .. }
        | EventKind::Deleted { cluster, .. }
        | EventKind::ListStarted { cluster, .. }
        | EventKind::ListFinished { cluster, .. }
        | EventKind::Bookmark { cluster, .. }
        | EventKind::WatchLost { cluster, .. } => Some(cluster),
        _ => None,
    }
}

impl Sim {
    /// Configures every cluster; nothing is listed yet. The log's header stands for these events.
    pub fn add_clusters(&mut self) {
        for cluster in &self.cluster_specs {
            self.machine.handle_event(&Event { at: self.now, kind: cluster.added() });
        }
    }

    /// The kinds that are watched in a cluster.
    pub fn kinds(&self, cluster: &ClusterName) -> Vec<Kind> {
        let roles = &self.cluster_specs.iter().find(|c| c.name == *cluster).unwrap().roles;
        let mut kinds = BTreeSet::new();
        for role in roles {
            kinds.extend(match role {
                Role::Upstream => [Kind::Connector, Kind::Gateway, Kind::Namespace],
                Role::Hub => [Kind::Connector, Kind::HttpRoute, Kind::Namespace],
                Role::Edge => [Kind::Connector, Kind::HttpProxy, Kind::Gateway],
            });
        }
        kinds.into_iter().collect()
    }

    /// An action was applied: its Gateway counts as touched.
    pub(super) fn was_applied(&mut self, action: &Action) {
        self.touched.insert((action.cluster.clone(), action.precondition.uid.clone()));
    }

    /// Removes a cluster from the run.
    pub fn leave(&mut self, cluster: &ClusterName) {
        if !self.gone.insert(cluster.clone()) {
            return;
        }
        self.watches.retain(|_, event| cluster_of(&event.kind) != Some(cluster));
        self.touched.retain(|(c, _)| c != cluster);
        self.in_flight.retain(|(c, ..), _| c != cluster);
        self.lost.retain(|(c, _)| c != cluster);
        let kind = EventKind::ClusterRemoved { cluster: cluster.clone() };
        self.feed(Event { at: self.now, kind });
    }

    /// Adds a cluster that left.
    pub fn join(&mut self, cluster: &ClusterName) {
        if !self.gone.remove(cluster) {
            return;
        }
        let spec = self.cluster_specs.iter().find(|c| c.name == *cluster).unwrap();
        self.feed(Event { at: self.now, kind: spec.added() });
        for kind in self.kinds(cluster) {
            if self.unreachable.contains(cluster) {
                self.lost.insert((cluster.clone(), kind));
            }
        }
        self.list_cluster(cluster);
    }

    /// Removes a cluster from the configuration and adds it again.
    pub fn rejoin(&mut self, cluster: &ClusterName) {
        self.leave(cluster);
        self.join(cluster);
    }
}
