//! Faults of the Lease and of its API, while every other API works.

use crate::cluster::rest::{EVENTS, LEASES};
use crate::cluster::rights::{ELECTION, grant, revoke};
use crate::leading::{ElectionTest, Instance, LEASE, short};
use crate::prelude::*;

/// Nobody can lead, as who can read the Lease sees.
const UNUSABLE: &[Cause] = &[Cause::LeaseUnusable, Cause::NoLeader, Cause::NotMirrored];
const LOST: &str = "no longer leader: mirroring and deleting stopped";

/// What an instance logged of a Lease that is unusable.
fn lease_lines(instance: &Instance) -> Vec<Value> {
    let log = instance.throughline().log();
    let lines = log.iter().map(|line| serde_json::from_str::<Value>(line).unwrap());
    lines.filter(|line| line["cause"] == Cause::LeaseUnusable.as_str()).collect()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn faults_of_the_lease() {
    let election = ElectionTest::with(Topology::Two, 2, short()).await.provokes(UNUSABLE);
    permissions_on_leases_are_revoked_and_granted_again(&election).await;
    a_deleted_lease_is_created_again(&election).await;
    election.end().await;
}

/// No instance can renew: leader-only work stops, everything else continues, and each instance logs it
/// once, and its end. Then the waiting work is done.
async fn permissions_on_leases_are_revoked_and_granted_again(election: &ElectionTest) {
    let admin = election.testbed.hub().rest().clone();
    let leader = election.somebody_leads().await;
    revoke(&admin, &[ELECTION]).await.unwrap();
    election.touches_without_leader(0).await;
    election.fleet.flip_all(1..4).await.unwrap();
    let writes = || election.instances.iter().map(|r| r.leader_writes().len()).sum::<usize>();
    let before = writes();
    tokio::time::sleep(Duration::from_secs(8)).await;
    assert_eq!(election.leaders().await, [0; 0]);
    assert_eq!(writes(), before, "an instance wrote nevertheless");
    for (number, instance) in election.instances.iter().enumerate() {
        // One that has not tried to write it does not know.
        let lines = lease_lines(instance);
        assert!(lines.len() == 1 || lines.is_empty() && number != leader, "{lines:?}");
        assert!(lines.iter().all(|line| line["level"] == "ERROR"), "{lines:?}");
    }
    let mut lost = election.instances[leader].throughline().log();
    lost.retain(|line| line.contains(LOST));
    let [lost] = &lost[..] else { panic!("{lost:?}") };
    let lost: Value = serde_json::from_str(lost).unwrap();
    assert!(lost["because"].to_string().contains("403 Forbidden"), "{lost}");

    grant(&admin, &[ELECTION]).await.unwrap();
    election.somebody_leads().await;
    for instance in &election.instances {
        eventually("the Lease is usable", SOON, async || {
            let lines = lease_lines(instance);
            let is_over = lines.last().is_none_or(|line| line["message"] == "resolved");
            ensure(is_over, || format!("{lines:?}"))
        })
        .await;
    }
    oracle::converges(&election.testbed).await;
    // Gaining and losing leadership left Events on the Lease.
    let events = admin.items(EVENTS).await.unwrap();
    let events: Vec<_> = events.iter().filter(|e| e["involvedObject"]["name"] == LEASE.1).collect();
    let messages: Vec<_> = events.iter().filter_map(|event| event["message"].as_str()).collect();
    assert!(messages.iter().any(|m| m.ends_with("became leader")), "{messages:?}");
    assert!(events.iter().all(|event| event["reason"] == "LeaderElection"), "{events:?}");
    election.only_holders_wrote();
}

/// An instance creates it again at once, and leads only after the former holder must have noticed.
async fn a_deleted_lease_is_created_again(election: &ElectionTest) {
    let admin = election.testbed.hub().rest().clone();
    for _ in 0..2 {
        admin.delete(LEASES, LEASE.0, LEASE.1).await.unwrap();
        election.fleet.flip_all(1..5).await.unwrap();
        election.touches_without_leader(0).await;
        election.somebody_leads().await;
        oracle::converges(&election.testbed).await;
    }
    election.no_writers_overlap();
}
