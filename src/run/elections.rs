//! The elections that a run takes part in: none, one, or one for each shard.

use std::sync::Arc;
use std::time::Duration;

use super::Run;
use crate::client::ClusterClient;
use crate::config::ClusterConfig;
use crate::core::contract::event::EventKind;
use crate::core::data::ids::{ClusterName, Role};
use crate::core::data::shard::Shard;
use crate::leader::lease::LeaseClient;
use crate::leader::{ElectionParts, HandIn, LeaderElection, LeaseGroup, ShardElections, identity};
use tokio::sync::mpsc;

/// The elections that a run takes part in.
pub(super) enum Elections {
    /// It leads from the start.
    None,
    One(LeaderElection),
    Shards(ShardElections),
}

impl Elections {
    pub(super) fn is_none(&self) -> bool {
        matches!(self, Self::None)
    }

    /// A shard that this instance gives up. Cancel-safe.
    pub(super) async fn next_hand_in(&mut self) -> HandIn {
        match self {
            Self::Shards(elections) => elections.next_hand_in().await,
            Self::None | Self::One(_) => std::future::pending().await,
        }
    }

    /// Releases every Lease. All leader-only writes must have ended.
    pub(super) async fn release(self, within: Duration) {
        match self {
            Self::None => {}
            Self::One(election) => election.release(within).await,
            Self::Shards(elections) => elections.release(within).await,
        }
    }
}

/// Whether a configured cluster is an upstream and nothing else: who holds its shard follows it.
pub(super) fn has_shard(cluster: &ClusterConfig) -> bool {
    cluster.roles == [Role::Upstream]
}

impl Run {
    /// Joins the elections that are configured.
    pub(super) fn start_elections(
        &mut self,
        changes: &mpsc::UnboundedSender<EventKind>,
    ) -> Elections {
        let Some((gates, keepers)) = self.keepers.take() else { return Elections::None };
        let Some(cluster) = self.config.election_cluster().cloned() else { return Elections::None };
        let (timings, election) = (self.config.election_timings(), &self.config.leader_election);
        let settings = self.engine.machine.settings();
        let (shards, orphans) = (settings.shards, settings.orphans.mode);
        let (events, metrics) = (changes.clone(), self.engine.metrics.clone());
        let cluster = Arc::new(ClusterClient::new(cluster, metrics.clone()));
        let (namespace, name) = (election.lease_namespace.clone(), election.lease_name.clone());
        let timeout = Duration::from_millis(timings.request_ms());
        let recorder = self.recorder.clone();
        if !shards.is_one() {
            let table = self.engine.fleet.table().clone();
            let is_common = Arc::new(move |name: &ClusterName| {
                table.get(name).is_some_and(|cluster| cluster.roles() != [Role::Upstream])
            });
            let group = LeaseGroup { cluster, namespace, name, shards, timeout, events: recorder };
            let parts =
                ElectionParts { timings, gates, keepers, orphans, is_common, events, metrics };
            return Elections::Shards(ShardElections::start(group, identity(), parts));
        }
        let Some(keeper) = keepers.into_iter().next() else { return Elections::None };
        let lease = LeaseClient::new(cluster, namespace, name, timeout, recorder);
        let identity = identity();
        Elections::One(LeaderElection::start(
            lease, identity, timings, keeper, orphans, events, metrics,
        ))
    }

    /// What an election says: the upstreams of a shard come and go with it.
    pub(super) fn handle_leadership(&mut self, kind: EventKind) {
        let (followed, left) = match kind {
            EventKind::ShardFollowed { shard } => (Some(shard), None),
            EventKind::ShardLeft { shard } => (None, Some(shard)),
            _ => (None, None),
        };
        self.engine.handle_event(kind);
        if let Some(shard) = followed {
            for cluster in self.configured_upstreams(shard) {
                if !self.engine.fleet.table().contains(&cluster.name) {
                    self.join((&cluster).into());
                }
            }
            self.engine.fleet.list_hubs_again();
        }
        if let Some(shard) = left {
            for cluster in self.configured_upstreams(shard) {
                self.leave(&cluster.name);
            }
        }
    }

    fn configured_upstreams(&self, shard: Shard) -> Vec<ClusterConfig> {
        let shards = self.engine.machine.settings().shards;
        let is_of = |cluster: &&ClusterConfig| {
            has_shard(cluster) && shards.of(cluster.name.as_str()) == shard
        };
        self.config.clusters.iter().filter(is_of).cloned().collect()
    }

    /// Tells the elections of shards that are given up that their writes have ended, where they have.
    pub(super) fn finish_hand_ins(&mut self) {
        let executor = &self.engine.executor;
        for HandIn { ended, .. } in
            self.hand_ins.extract_if(.., |hand_in| !executor.is_writing(hand_in.shard))
        {
            // Without a receiver the election did not wait any longer.
            let _ = ended.send(());
        }
    }
}
