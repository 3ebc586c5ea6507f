//! Leaders that stop, are killed, or are frozen.

use std::time::{Duration, Instant};

use crate::cluster::faults::{Fault, Gate, Rule};
use crate::cluster::testbed::Topology;
use crate::cluster::{SOON, ensure, eventually, oracle};
use crate::leading::{ElectionTest, endless, print_elapsed, short};

/// The Lease lasts ten minutes, so the other instance can lead only after a release.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn a_leader_that_stops_hands_over() {
    let mut election = ElectionTest::with(Topology::Two, 2, endless()).await;
    let first = election.somebody_leads().await;
    election.fleet.flip_all(0..6).await.unwrap();
    let began = Instant::now();
    election.stop(first).await;
    let second = election.somebody_leads().await;
    assert_ne!(first, second);
    print_elapsed("led after the SIGTERM of the leader", began);
    oracle::converges(&election.testbed).await;
    print_elapsed("converged", began);
    assert_eq!(election.lease().await["leaseTransitions"], 2, "two releases count one each");

    // The last instance releases it too, and the next one leads at once.
    election.stop(second).await;
    assert_eq!(election.lease().await["holderIdentity"], "");
    election.fleet.flip_all(0..3).await.unwrap();
    let began = Instant::now();
    let third = election.join().await;
    assert_eq!(election.somebody_leads().await, third);
    print_elapsed("started and led a Lease that was released", began);
    oracle::converges(&election.testbed).await;
    election.only_holders_wrote();
    election.end().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn a_leader_that_is_killed_is_replaced() {
    let mut election = ElectionTest::with(Topology::Two, 2, short()).await;
    let first = election.somebody_leads().await;
    let began = Instant::now();
    election.kill(first);
    election.fleet.flip_all(1..4).await.unwrap();
    election.is_touched(0).await;
    let second = election.somebody_leads().await;
    assert_ne!(first, second);
    print_elapsed("led after the SIGKILL of the leader", began);
    oracle::converges(&election.testbed).await;
    print_elapsed("converged", began);
    election.only_holders_wrote();
    election.end().await;
}

/// The leader is frozen for longer than its lease while a write is held. In the first round the write
/// continues before the process, in the second the process before the write.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn late_writes_of_a_frozen_leader_change_nothing() {
    let mut election = ElectionTest::with(Topology::Two, 2, short()).await;
    for write_first in [true, false] {
        let first = election.somebody_leads().await;
        let gate = Gate::new();
        let hold = Rule::new(Fault::Hold(gate.clone())).method("PATCH").resource("connectors");
        let rule = election.instances[first].hub().add(hold);
        election.fleet.flip_all(0..4).await.unwrap();
        eventually("a write is held", SOON, async || {
            ensure(gate.waiting() > 0, || "none".to_owned())
        })
        .await;
        let began = Instant::now();
        election.instances[first].freeze();
        let before = election.instances[first].leader_writes().len();
        election.is_touched(5).await;
        let second = election.somebody_leads().await;
        assert_ne!(first, second);
        print_elapsed("led after the SIGSTOP of the leader", began);
        oracle::converges(&election.testbed).await;

        let (held, versions) = (gate.waiting(), election.versions().await);
        if write_first {
            assert!(held > 0, "the write was abandoned while its sender was frozen");
            gate.release();
            eventually("the held writes are answered", SOON, async || {
                let late = election.instances[first].leader_writes().len() - before;
                ensure(late >= held, || format!("{late} of {held}"))
            })
            .await;
            election.instances[first].thaw();
        } else {
            election.instances[first].thaw();
            eventually("its writes are abandoned", SOON, async || {
                let late = election.instances[first].leader_writes().len() - before;
                ensure(late >= held, || format!("{late} of {held}"))
            })
            .await;
            gate.release();
        }
        eventually("it knows that it no longer leads", SOON, async || {
            ensure(!election.leaders().await.contains(&first), || "not yet".to_owned())
        })
        .await;
        // Time for late writes.
        tokio::time::sleep(Duration::from_secs(2)).await;
        let late = election.instances[first].leader_writes().split_off(before);
        let codes: Vec<_> = late.iter().map(|write| write.code).collect();
        eprintln!("  late writes, of which {held} were held: {codes:?}");
        assert!(late.len() >= held, "{codes:?}");
        // 0: abandoned by its sender. There may be more than were held: writes that had passed the
        // leadership gate, but were not sent yet when the process was frozen.
        assert!(
            codes.iter().all(|code| [0, 409].contains(code)),
            "a late write was accepted: {late:?}"
        );
        assert!(!write_first || codes.contains(&409), "no write was refused: {codes:?}");
        let met = election.instances[first].count_log_lines("write dropped");
        assert!(met < 100, "it tried to write {met} times without leading");
        assert_eq!(election.versions().await, versions, "a late write changed something");
        assert_eq!(election.somebody_leads().await, second);
        oracle::converged(&election.testbed).await.unwrap();
        election.instances[first].hub().remove(rule);
    }
    election.only_holders_wrote();
    election.end().await;
}

/// One instance leads at a time, each in its turn, while connectors keep flipping.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn three_instances_take_turns() {
    let mut election = ElectionTest::with(Topology::Three, 3, short()).await;
    let mut led = Vec::new();
    for round in 0..5_usize {
        let leader = election.somebody_leads().await;
        led.push(leader);
        let began = Instant::now();
        election.fleet.flip_all(0..6).await.unwrap();
        if round % 2 == 0 {
            election.stop(leader).await;
        } else {
            election.kill(leader);
        }
        election.fleet.flip_all(0..3).await.unwrap();
        election.is_touched(5).await;
        // From the third round on, only one other instance is left for a while.
        let next = election.somebody_leads().await;
        assert_ne!(leader, next);
        print_elapsed(
            if round % 2 == 0 { "led after a SIGTERM" } else { "led after a SIGKILL" },
            began,
        );
        oracle::converges(&election.testbed).await;
        if round > 0 {
            election.join().await;
        }
    }
    led.truncate(3);
    led.sort_unstable();
    led.dedup();
    assert_eq!(led.len(), 3, "an instance led twice");
    election.only_holders_wrote();
    election.end().await;
}
