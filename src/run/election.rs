//! The election that a run joins.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;

use super::Run;
use super::banner::orphans_text;
use crate::client::{ClusterClient, Connections};
use crate::core::contract::event::EventKind;
use crate::leader::group::Group;
use crate::leader::lease::LeaseClient;
use crate::leader::{LeaderElection, Listeners, identity};

impl Run {
    /// Joins the election, if one is configured. Without one the instance leads from the start.
    pub(super) fn start_election(
        &mut self,
        changes: &mpsc::UnboundedSender<EventKind>,
    ) -> Option<LeaderElection> {
        let keeper = self.keeper.take()?;
        let cluster = self.config.election_cluster()?.clone();
        let timings = self.config.election_timings();
        let election = &self.config.leader_election;
        let group = Group::new(&election.lease_name, self.engine.machine.settings().shard);
        let metrics = self.engine.metrics.clone();
        let spec = cluster.connection();
        // Separate connections, so that no renewal waits behind other requests.
        let connections = Connections::default();
        let client =
            ClusterClient::new(cluster.name, cluster.roles, spec, &connections, metrics.clone());
        let lease = LeaseClient::new(
            Arc::new(client),
            election.lease_namespace.clone(),
            &group,
            Duration::from_millis(timings.request_ms()),
            self.recorder.clone(),
        );
        let orphans = orphans_text(self.engine.machine.settings().orphans.mode);
        let outside = &self.engine.outside;
        let listeners = Listeners {
            events: changes.clone(),
            usable: outside.clone(),
            led: outside.clone(),
            held: outside.clone(),
            metrics,
            clusters: self.engine.fleet.table().clone(),
        };
        Some(LeaderElection::start(lease, identity(), group, timings, keeper, orphans, listeners))
    }
}
