//! Several shards on real API servers: rollouts from one number to another, an instance that is killed, one
//! that loses the Lease API, and none that has it.

use throughline::core::data::shard::Shard;

use crate::cluster::rights::{SHARDS, grant};
use crate::leading::{ElectionTest, short};
use crate::prelude::*;

/// Connectors, each in a namespace of its own.
const CONNECTORS: usize = 12;

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn several_shards() {
    let spec = Spec { per_namespace: 1, ..Spec::of(CONNECTORS) };
    let mut election = ElectionTest::new(Topology::Three, spec, short()).await;
    election.provoked =
        &[Cause::NoLeader, Cause::NotMirrored, Cause::ShardUnheld, Cause::LeaseUnusable];
    grant(election.testbed.hub().rest(), &[SHARDS]).await.unwrap();
    rollouts_from_one_number_to_another_never_have_two_writers(&mut election).await;
    each_edge_heals_as_long_as_one_instance_of_each_shard_runs(&mut election).await;
    election.end().await;
}

impl ElectionTest {
    async fn join_all(&mut self, pods: std::ops::Range<u16>, shards: u16) -> Vec<usize> {
        let mut joined = Vec::new();
        for pod in pods {
            joined.push(self.join_as(&format!("throughline-{pod}"), shards).await);
        }
        joined
    }

    /// Every connector changes, and that reaches the edge.
    async fn all_change(&self) {
        self.fleet.flip_all(0..CONNECTORS).await.unwrap();
        oracle::converges(&self.testbed).await;
    }

    /// A connector of this shard.
    fn kept_by(&self, shard: Shard) -> usize {
        let is_kept = |i: &usize| shard.owns(self.fleet.hub_key(*i).0);
        (0..CONNECTORS).find(is_kept).expect("a shard without a connector: run it again")
    }
}

async fn rollouts_from_one_number_to_another_never_have_two_writers(election: &mut ElectionTest) {
    let mut before = election.join_all(0..1, 1).await;
    election.lead(1).await;
    election.all_change().await;
    for (pods, shards) in [(2, 2), (6, 4), (1, 1)] {
        let old = before.clone();
        let next = election.join_all(0..pods, shards).await;
        election.all_change().await;
        // The new ones wait for the last of the old ones.
        let last = before.pop().unwrap();
        for old in before {
            election.stop(old).await;
        }
        tokio::time::sleep(Duration::from_secs(2)).await;
        let leaders = election.leaders().await;
        assert!(leaders.iter().all(|leader| old.contains(leader)), "{leaders:?} of {old:?}");
        election.stop(last).await;
        election.lead(shards.into()).await;
        election.all_change().await;
        before = next;
    }
    let lease = election.lease().await;
    assert!(lease["metadata"]["labels"].is_null(), "{lease}");
    election.only_holders_wrote();
    assert_eq!(election.numbers_in_turn(), [1, 2, 4, 1]);
    election.stop(before[0]).await;
}

/// With two shards and one standby, whose ordinal is beyond their number.
async fn each_edge_heals_as_long_as_one_instance_of_each_shard_runs(election: &mut ElectionTest) {
    let joined = election.join_all(0..3, 2).await;
    election.lead(2).await;
    election.all_change().await;

    // Shard 0 has the standby `throughline-2`.
    let of_first = if election.leaders().await.contains(&joined[0]) { 0 } else { 2 };
    election.kill(joined[of_first]);
    election.all_change().await;
    election.lead(2).await;

    // The leader of shard 1 is cut off from the Lease, and so nobody leads that shard.
    let rule = election.instances[joined[1]].hub().add(Rule::status(503).resource("leases"));
    election.lead(1).await;
    election.is_touched(election.kept_by(Shard { index: 1, of: 2 })).await;
    // Nor does anybody lead the other one.
    let other = 2 - of_first;
    election.instances[joined[other]].hub().add(Rule::status(503).resource("leases"));
    election.lead(0).await;
    for index in [0, 1] {
        election.is_touched(election.kept_by(Shard { index, of: 2 })).await;
    }
    election.instances[joined[1]].hub().remove(rule);
    election.instances[joined[other]].hub().clear();
    election.lead(2).await;
    election.all_change().await;
    election.only_holders_wrote();
}
