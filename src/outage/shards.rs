//! Which connectors this instance counts where several share a fleet by shards.

use super::OutageTracker;
use crate::core::data::ids::ClusterName;
use crate::core::data::shard::{Shard, ShardSet, Shards};
use crate::core::data::time::UnixMillis;

/// With several shards, only connectors whose upstream is in a shard that this instance follows are
/// counted: of the others another instance sees what upstream says.
pub(super) struct FollowedShards {
    shards: Shards,
    followed: ShardSet,
}

impl FollowedShards {
    pub(super) fn new(shards: Shards) -> Self {
        Self { shards, followed: ShardSet::default() }
    }

    pub(super) fn have(&self, upstream: &ClusterName) -> bool {
        self.shards.is_one() || self.followed.contains(self.shards.of(upstream.as_str()))
    }

    /// Returns whether that changes anything.
    fn set(&mut self, shard: Shard, is_followed: bool) -> bool {
        let is_change = match is_followed {
            true => self.followed.insert(shard),
            false => self.followed.remove(shard),
        };
        is_change && !self.shards.is_one()
    }
}

impl OutageTracker {
    pub(super) fn set_followed(&mut self, at: UnixMillis, shard: Shard, is_followed: bool) {
        if !self.followed.set(shard, is_followed) {
            return;
        }
        let shards = self.followed.shards;
        let is_in_shard = |upstream: &&ClusterName| shards.of(upstream.as_str()) == shard;
        let upstreams: Vec<_> = self.downstream_of.keys().filter(is_in_shard).cloned().collect();
        for upstream in upstreams {
            self.compare_all_of(at, &upstream);
        }
    }
}
