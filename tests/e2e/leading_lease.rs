//! Faults of the Lease and of its API, while every other API works.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use throughline::core::contract::cause::Cause;

use crate::cluster::rest::{EVENTS, LEASES};
use crate::cluster::rights::{ELECTION, grant, revoke};
use crate::cluster::testbed::Topology;
use crate::cluster::{SOON, ensure, eventually, oracle};
use crate::leading::{ElectionTest, Instance, LEASE, print_elapsed, short};

/// Nobody can lead, as who can read the Lease sees.
const UNUSABLE: &[Cause] = &[Cause::LeaseUnusable, Cause::NoLeader, Cause::NotMirrored];
const LOST: &str = "no longer leader: mirroring and deleting stopped";

/// What an instance logged of a Lease that is unusable.
fn lease_lines(instance: &Instance) -> Vec<Value> {
    let log = instance.throughline().log();
    let lines = log.iter().map(|line| serde_json::from_str::<Value>(line).unwrap());
    lines.filter(|line| line["cause"] == Cause::LeaseUnusable.as_str()).collect()
}

/// No instance can renew: leader-only work stops, everything else continues, and each instance logs it
/// once, and its end. `ends` removes the fault; then the waiting work is done.
async fn leadership_is_lost_and_regained(
    election: &ElectionTest,
    (kind, reason): (&str, &str),
    ends: impl AsyncFnOnce(),
) {
    eprintln!("{kind}:");
    let began = Instant::now();
    let leader = election.somebody_leads().await;
    election.nobody_leads().await;
    print_elapsed("no instance leads", began);
    election.touches_without_leader(0).await;
    election.fleet.flip_all(1..4).await.unwrap();
    let writes = || election.instances.iter().map(|r| r.leader_writes().len()).sum::<usize>();
    let before = writes();
    tokio::time::sleep(Duration::from_secs(8)).await;
    assert_eq!(election.leaders().await, Vec::<usize>::new());
    assert_eq!(writes(), before, "{kind}: an instance wrote nevertheless");
    assert_eq!(election.instances[leader].count_log_lines(LOST), 1, "{kind}");
    for (number, instance) in election.instances.iter().enumerate() {
        // One that has not tried to write it does not know.
        let lines = lease_lines(instance);
        assert!(lines.len() == 1 || lines.is_empty() && number != leader, "{kind}: {lines:?}");
        assert!(lines.iter().all(|line| line["level"] == "ERROR"), "{kind}: {lines:?}");
    }
    let lost = election.instances[leader].throughline().log();
    let lost = lost.iter().find(|line| line.contains(LOST)).unwrap();
    let because = serde_json::from_str::<serde_json::Value>(lost).unwrap()["because"].to_string();
    eprintln!("  because {because}");
    assert!(because.contains(reason), "{because}");
    let mended = Instant::now();
    ends().await;
    election.somebody_leads().await;
    print_elapsed("led again after its end", mended);
    for instance in &election.instances {
        eventually("the Lease is usable", SOON, async || {
            let lines = lease_lines(instance);
            let is_over = lines.last().is_none_or(|line| line["message"] == "resolved");
            ensure(is_over, || format!("{lines:?}"))
        })
        .await;
    }
    oracle::converges(&election.testbed).await;
    print_elapsed("converged", mended);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn permissions_on_leases_are_revoked_and_granted_again() {
    let election = ElectionTest::with(Topology::Two, 2, short()).await.provokes(UNUSABLE);
    let admin = election.testbed.hub().rest().clone();
    revoke(&admin, &[ELECTION]).await.unwrap();
    leadership_is_lost_and_regained(
        &election,
        ("no permission on leases", "403 Forbidden"),
        async || {
            grant(&admin, &[ELECTION]).await.unwrap();
        },
    )
    .await;
    // Gaining and losing leadership left Events on the Lease.
    let events = admin.items(EVENTS).await.unwrap();
    let events: Vec<_> = events.iter().filter(|e| e["involvedObject"]["name"] == LEASE.1).collect();
    let messages: Vec<_> = events.iter().filter_map(|event| event["message"].as_str()).collect();
    assert!(messages.iter().any(|m| m.ends_with("became leader")), "{messages:?}");
    assert!(events.iter().all(|event| event["reason"] == "LeaderElection"), "{events:?}");
    election.only_holders_wrote();
    election.end().await;
}

/// An instance creates it again at once, and leads only after the former holder must have noticed.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn a_deleted_lease_is_created_again() {
    let election = ElectionTest::with(Topology::Two, 2, short()).await;
    let admin = election.testbed.hub().rest().clone();
    for round in 0..3 {
        let former = election.somebody_leads().await;
        let began = Instant::now();
        admin.delete(LEASES, LEASE.0, LEASE.1).await.unwrap();
        election.fleet.flip_all(1..5).await.unwrap();
        election.touches_without_leader(0).await;
        let leader = election.somebody_leads().await;
        let same = if leader == former { "the same" } else { "another" };
        print_elapsed(&format!("round {round}: {same} led after the deletion"), began);
        oracle::converges(&election.testbed).await;
        print_elapsed("converged", began);
    }
    election.no_writers_overlap();
    election.end().await;
}

/// The Lease of a holder whose clock is years ahead or behind lasts for its duration from when it was
/// observed, whatever its times say.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn times_in_the_lease_do_not_matter() {
    let mut election = ElectionTest::new(Topology::Two, 6, short()).await;
    election = election.provokes(&[Cause::NotMirrored, Cause::NoLeader]);
    let admin = election.testbed.hub().rest().clone();
    let mut former = None;
    for (round, time) in
        ["2099-01-01T00:00:00.000000Z", "1971-01-01T00:00:00.000000Z"].into_iter().enumerate()
    {
        let ghost = format!("ghost-{round}");
        let theirs = json!({ "spec": { "holderIdentity": ghost, "leaseDurationSeconds": 5,
                                       "renewTime": time, "acquireTime": time } });
        let began = Instant::now();
        admin.merge(LEASES, LEASE, &theirs).await.unwrap();
        if round == 0 {
            election.join().await;
            election.join().await;
        }
        election.fleet.flip_all(1..5).await.unwrap();
        // Any change of the times is a renewal. No instance may lead before the last one expires.
        for again in 0..4 {
            tokio::time::sleep(Duration::from_secs(2)).await;
            let spec = election.lease().await;
            assert_eq!(spec["holderIdentity"], json!(ghost), "taken although it was renewed");
            assert_eq!(election.leaders().await, Vec::<usize>::new(), "{spec}");
            let renewed = time.replace("00:00:00.", &format!("00:00:0{}.", again + 1));
            let theirs = json!({ "spec": { "renewTime": renewed } });
            admin.merge(LEASES, LEASE, &theirs).await.unwrap();
        }
        election.touches_without_leader(0).await;
        let left = Instant::now();
        let leader = election.somebody_leads().await;
        print_elapsed(&format!("a Lease of {} was led after its last renewal", &time[..4]), left);
        oracle::converges(&election.testbed).await;
        print_elapsed("converged", began);
        former = Some(leader);
    }

    // Somebody edits the times of the leader's own Lease: no other instance takes it.
    let leader = former.unwrap();
    let transitions = election.lease().await["leaseTransitions"].clone();
    for time in ["2099-01-01T00:00:00.000000Z", "1971-01-01T00:00:00.000000Z"] {
        for fields in [&["acquireTime"][..], &["renewTime", "acquireTime"]] {
            let began = Instant::now();
            let edit: serde_json::Map<_, _> =
                fields.iter().map(|field| ((*field).to_owned(), json!(time))).collect();
            admin.merge(LEASES, LEASE, &json!({ "spec": edit })).await.unwrap();
            election.fleet.flip_all(1..5).await.unwrap();
            tokio::time::sleep(Duration::from_secs(1)).await;
            assert_eq!(election.somebody_leads().await, leader);
            print_elapsed(&format!("{fields:?} set to {}: led again after", &time[..4]), began);
            oracle::converges(&election.testbed).await;
            let spec = election.lease().await;
            assert_eq!(spec["leaseTransitions"], transitions, "{spec}");
            assert_ne!(spec["renewTime"], json!(time), "{spec}");
        }
    }
    // The second ghost took the Lease from its holder.
    election.no_writers_overlap();
    election.end().await;
}
