//! Leaders that stop, are killed, are frozen, or lose their upstream or their Lease.

use std::collections::BTreeSet;

use crate::cluster::rights::{ELECTION, grant, revoke};
use crate::leading::{ElectionTest, Instance, LEASE, short};
use crate::prelude::*;

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn two_instances() {
    let mut election = ElectionTest::with(Topology::Two, 2, short()).await;
    election.provoked = &[Cause::ClusterUnavailable, Cause::NotMirrored];
    late_writes_of_a_frozen_leader_change_nothing(&mut election).await;
    a_leader_that_is_blind_hands_over_to_one_that_sees(&mut election).await;
    election.only_holders_wrote();
    // Its log is checked against these causes alone.
    let last = election.somebody_leads().await;
    election.stop(last).await;

    // While nobody can lead, who can read the Lease sees that, too.
    election.provoked = &[Cause::LeaseUnusable, Cause::NoLeader, Cause::NotMirrored];
    election.join().await;
    election.join().await;
    permissions_on_leases_are_revoked_and_granted_again(&election).await;
    election.only_holders_wrote();
    a_deleted_lease_is_created_again(&election).await;
    election.end().await;
}

/// The leader is frozen for longer than its lease while a write is held. In the first round the write
/// continues before the process, in the second the process before the write.
async fn late_writes_of_a_frozen_leader_change_nothing(election: &mut ElectionTest) {
    for write_first in [true, false] {
        let first = election.somebody_leads().await;
        let gate = Gate::new();
        let hold = Rule::new(Fault::Hold(gate.clone())).method("PATCH").resource("connectors");
        let rule = election.instances[first].hub().add(hold);
        election.fleet.flip_all(0..4).await.unwrap();
        gate.holds_one().await;
        election.instances[first].freeze();
        let before = election.instances[first].leader_writes().len();
        election.is_touched(5).await;
        let second = election.somebody_leads().await;
        assert_ne!(first, second);
        oracle::converges(&election.testbed).await;

        let (held, versions) = (gate.waiting(), election.versions().await);
        assert!(!write_first || held > 0, "the write was abandoned while its sender was frozen");
        if write_first {
            gate.release();
        } else {
            election.instances[first].thaw();
        }
        let ended = || election.instances[first].leader_writes().len() >= before + held;
        until("the held writes have ended", async || ended()).await;
        if write_first {
            election.instances[first].thaw();
        } else {
            gate.release();
        }
        let knows = async || !election.leaders().await.contains(&first);
        until("it knows that it no longer leads", knows).await;
        // Time for late writes.
        tokio::time::sleep(Duration::from_secs(2)).await;
        let late = election.instances[first].leader_writes().split_off(before);
        let codes: Vec<_> = late.iter().map(|write| write.code).collect();
        assert!(late.len() >= held, "{codes:?}");
        // 0: abandoned by its sender. There may be more than were held: writes that had passed the
        // leadership gate, but were not sent yet when the process was frozen.
        assert!(codes.iter().all(|code| [0, 409].contains(code)), "accepted: {late:?}");
        assert!(!write_first || codes.contains(&409), "no write was refused: {codes:?}");
        let met = election.instances[first].throughline().count_logged("write dropped");
        assert!(met < 100, "it tried to write {met} times without leading");
        assert_eq!(election.versions().await, versions, "a late write changed something");
        assert_eq!(election.somebody_leads().await, second);
        oracle::converged(&election.testbed).await.unwrap();
        election.instances[first].hub().remove(rule);
    }
}

/// One instance leads at a time, each in its turn, while connectors keep flipping. Prints the times of
/// docs/explanation/benchmarks.md.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn three_instances_take_turns() {
    let mut election = ElectionTest::with(Topology::Three, 3, short()).await;
    let mut led = Vec::new();
    for round in 0..5_usize {
        let leader = election.somebody_leads().await;
        led.push(leader);
        election.fleet.flip_all(0..6).await.unwrap();
        let began = Instant::now();
        let signal = if round % 2 == 0 { "SIGTERM" } else { "SIGKILL" };
        if signal == "SIGTERM" {
            election.stop(leader).await;
        } else {
            election.kill(leader);
        }
        // From the third round on, only one other instance is left for a while.
        let next = async {
            let next = election.somebody_leads().await;
            eprintln!("  led after a {signal} of the leader: {:.1?}", began.elapsed());
            next
        };
        let changes = async {
            election.fleet.flip_all(0..3).await.unwrap();
            election.is_touched(5).await;
        };
        let (next, ()) = tokio::join!(next, changes);
        assert_ne!(leader, next);
        oracle::converges(&election.testbed).await;
        if round > 0 {
            election.join().await;
        }
    }
    let first: BTreeSet<_> = led[..3].iter().collect();
    assert_eq!(first.len(), 3, "an instance led twice: {led:?}");
    election.only_holders_wrote();
    election.end().await;
}

/// The leader is cut from the upstream, which the other instance sees. Both are healthy otherwise, so
/// the Lease alone would stay where it is.
async fn a_leader_that_is_blind_hands_over_to_one_that_sees(election: &mut ElectionTest) {
    let blind = election.somebody_leads().await;
    election.instances[blind].proxies[0].down();
    election.fleet.flip_all(0..6).await.unwrap();
    eventually("the blind leader hands over", 4 * SOON, async || {
        let leaders = election.leaders().await;
        ensure(leaders.iter().any(|leader| *leader != blind), || format!("{leaders:?} lead"))
    })
    .await;
    oracle::converges(&election.testbed).await;
    assert_eq!(election.instances[blind].throughline().count_logged("standing down"), 1);

    // It sees again, and that is no reason to take the Lease back.
    election.instances[blind].proxies[0].up();
    tokio::time::sleep(Duration::from_secs(5)).await;
    let leader = election.somebody_leads().await;
    assert_ne!(leader, blind);
    election.stop(leader).await;
    assert_eq!(election.somebody_leads().await, blind, "it takes part again");
    election.fleet.flip_all(0..3).await.unwrap();
    oracle::converges(&election.testbed).await;
}

/// What an instance logged of a Lease that is unusable.
fn lease_lines(instance: &Instance) -> Vec<Value> {
    let mut lines = parsed(&instance.throughline().log());
    lines.retain(|line| line["cause"] == Cause::LeaseUnusable.as_str());
    lines
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
    let running = || election.instances.iter().filter(|instance| instance.running.is_some());
    for instance in running() {
        // One that has not tried to write it does not know.
        let lines = lease_lines(instance);
        assert!(lines.len() <= 1, "{lines:?}");
        assert!(lines.iter().all(|line| line["level"] == "ERROR"), "{lines:?}");
    }
    assert_eq!(lease_lines(&election.instances[leader]).len(), 1);
    let mut lost = election.instances[leader].throughline().log();
    lost.retain(|line| line.contains("no longer leader: mirroring and deleting stopped"));
    assert!(lost.len() == 1 && lost[0].contains("403 Forbidden"), "{lost:?}");

    grant(&admin, &[ELECTION]).await.unwrap();
    election.somebody_leads().await;
    for instance in running() {
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
