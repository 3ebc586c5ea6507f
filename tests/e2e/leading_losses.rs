//! Leaders that stop, die, or are frozen.

use std::time::{Duration, Instant};

use crate::cluster::faults::{Fault, Gate, Rule};
use crate::cluster::world::Topology;
use crate::cluster::{SOON, ensure, eventually, oracle};
use crate::leading::{Party, endless, short, took};

/// The Lease lasts ten minutes: only a release lets the other lead within the test.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn a_leader_that_stops_hands_over() {
    let mut party = Party::with(Topology::Two, 2, endless()).await;
    let first = party.somebody_leads().await;
    party.fleet.flip_all(0..6).await.unwrap();
    let began = Instant::now();
    party.stop(first).await;
    let second = party.somebody_leads().await;
    assert_ne!(first, second);
    took("led after the SIGTERM of the leader", began);
    oracle::converges(&party.world).await;
    took("converged", began);
    assert_eq!(party.lease().await["leaseTransitions"], 2, "two releases count one each");

    // With nobody left it is released, and whoever comes leads at once.
    party.stop(second).await;
    assert_eq!(party.lease().await["holderIdentity"], "");
    party.fleet.flip_all(0..3).await.unwrap();
    let began = Instant::now();
    let third = party.join().await;
    assert_eq!(party.somebody_leads().await, third);
    took("started and led a Lease that was released", began);
    oracle::converges(&party.world).await;
    party.only_holders_wrote();
    party.end().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn a_leader_that_is_killed_is_replaced() {
    let mut party = Party::with(Topology::Two, 2, short()).await;
    let first = party.somebody_leads().await;
    let began = Instant::now();
    party.kill(first);
    party.fleet.flip_all(1..4).await.unwrap();
    party.is_touched(0).await;
    let second = party.somebody_leads().await;
    assert_ne!(first, second);
    took("led after the SIGKILL of the leader", began);
    oracle::converges(&party.world).await;
    took("converged", began);
    party.only_holders_wrote();
    party.end().await;
}

/// The leader's write is on its way while it is frozen for longer than its lease. Once the write goes
/// on before the process, once the process before the write.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn a_leader_that_was_frozen_in_a_write_changes_nothing() {
    let mut party = Party::with(Topology::Two, 2, short()).await;
    for write_first in [true, false] {
        let first = party.somebody_leads().await;
        let gate = Gate::new();
        let hold = Rule::new(Fault::Hold(gate.clone())).method("PATCH").resource("connectors");
        let rule = party.replicas[first].hub().add(hold);
        party.fleet.flip_all(0..4).await.unwrap();
        eventually("a write is on its way", SOON, async || {
            ensure(gate.waiting() > 0, || "none".to_owned())
        })
        .await;
        let began = Instant::now();
        party.replicas[first].freeze();
        let before = party.replicas[first].leader_writes().len();
        party.is_touched(5).await;
        let second = party.somebody_leads().await;
        assert_ne!(first, second);
        took("led after the SIGSTOP of the leader", began);
        oracle::converges(&party.world).await;

        let (held, versions) = (gate.waiting(), party.versions().await);
        if write_first {
            assert!(held > 0, "the write was given up while its sender was frozen");
            gate.release();
            eventually("the held writes are answered", SOON, async || {
                let late = party.replicas[first].leader_writes().len() - before;
                ensure(late >= held, || format!("{late} of {held}"))
            })
            .await;
            party.replicas[first].thaw();
        } else {
            party.replicas[first].thaw();
            eventually("its writes are given up", SOON, async || {
                let late = party.replicas[first].leader_writes().len() - before;
                ensure(late >= held, || format!("{late} of {held}"))
            })
            .await;
            gate.release();
        }
        eventually("it knows that it leads no longer", SOON, async || {
            ensure(!party.leaders().await.contains(&first), || "not yet".to_owned())
        })
        .await;
        // Time for anything that is still to come.
        tokio::time::sleep(Duration::from_secs(2)).await;
        let late = party.replicas[first].leader_writes().split_off(before);
        let codes: Vec<_> = late.iter().map(|write| write.code).collect();
        eprintln!("  late writes, of which {held} were on their way: {codes:?}");
        assert!(late.len() >= held, "{codes:?}");
        // 0: given up by its sender. More may come than was on its way: what had passed the gate, but
        // not been sent, when the process was frozen.
        assert!(codes.iter().all(|code| [0, 409].contains(code)), "one was accepted: {late:?}");
        assert!(!write_first || codes.contains(&409), "none was refused: {codes:?}");
        let met = party.replicas[first].said("not sent: not the leader");
        assert!(met < 100, "it asked a closed gate {met} times");
        assert_eq!(party.versions().await, versions, "a late write changed something");
        assert_eq!(party.somebody_leads().await, second);
        oracle::converged(&party.world).await.unwrap();
        party.replicas[first].hub().remove(rule);
    }
    party.only_holders_wrote();
    party.end().await;
}

/// One leads at a time, and each of them in its turn, while connectors flip all the time.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn three_replicas_take_turns() {
    let mut party = Party::with(Topology::Three, 3, short()).await;
    let mut led = Vec::new();
    for round in 0..5_usize {
        let leader = party.somebody_leads().await;
        led.push(leader);
        let began = Instant::now();
        party.fleet.flip_all(0..6).await.unwrap();
        if round % 2 == 0 {
            party.stop(leader).await;
        } else {
            party.kill(leader);
        }
        party.fleet.flip_all(0..3).await.unwrap();
        party.is_touched(5).await;
        // From the third round on the last but one is there alone for a while.
        let next = party.somebody_leads().await;
        assert_ne!(leader, next);
        took(if round % 2 == 0 { "led after a SIGTERM" } else { "led after a SIGKILL" }, began);
        oracle::converges(&party.world).await;
        if round > 0 {
            party.join().await;
        }
    }
    led.truncate(3);
    led.sort_unstable();
    led.dedup();
    assert_eq!(led.len(), 3, "the same one led twice");
    party.only_holders_wrote();
    party.end().await;
}
