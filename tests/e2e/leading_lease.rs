//! The Lease, or its API, is in trouble, while every other API works.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::cluster::faults::{Fault, Rule};
use crate::cluster::oracle;
use crate::cluster::rest::{EVENTS, LEASES};
use crate::cluster::rights::{ELECTION, grant, revoke};
use crate::cluster::world::Topology;
use crate::leading::{LEASE, Party, short, took};

const CANT: &str = "the election can't go on";
const LOST: &str = "no longer the leader: mirroring and deleting stop";

/// Nobody can renew: leader-only work stops, all else goes on, and each replica says so once. `ends`
/// mends it; the work that was held is done then.
async fn is_lived_through(party: &Party, (what, reason): (&str, &str), ends: impl AsyncFnOnce()) {
    eprintln!("{what}:");
    let began = Instant::now();
    let leader = party.somebody_leads().await;
    party.nobody_leads().await;
    took("nobody led", began);
    party.touches_without_leader(0).await;
    party.fleet.flip_all(1..4).await.unwrap();
    let writes = || party.replicas.iter().map(|r| r.leader_writes().len()).sum::<usize>();
    let before = writes();
    tokio::time::sleep(Duration::from_secs(8)).await;
    assert_eq!(party.leaders().await, Vec::<usize>::new());
    assert_eq!(writes(), before, "{what}: somebody wrote all the same");
    assert_eq!(party.replicas[leader].said(LOST), 1, "{what}");
    for replica in &party.replicas {
        let times = replica.said(CANT);
        assert!(times <= 1, "{what}: one line for each change, not for each try: {times}");
    }
    let lost = party.replicas[leader].throughline().log();
    let lost = lost.iter().find(|line| line.contains(LOST)).unwrap();
    let because = serde_json::from_str::<serde_json::Value>(lost).unwrap()["because"].to_string();
    eprintln!("  because {because}");
    assert!(because.contains(reason), "{because}");
    let mended = Instant::now();
    ends().await;
    party.somebody_leads().await;
    took("led again after its end", mended);
    oracle::converges(&party.world).await;
    took("converged", mended);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn rights_on_leases_are_taken_away_and_given_back() {
    let party = Party::with(Topology::Two, 2, short()).await;
    let admin = party.world.hub().rest().clone();
    revoke(&admin, &[ELECTION]).await.unwrap();
    is_lived_through(
        &party,
        ("no rights on leases", "on leases.coordination.k8s.io to the ServiceAccount"),
        async || {
            grant(&admin, &[ELECTION]).await.unwrap();
        },
    )
    .await;
    // Whoever came to lead left an Event on the Lease, and whoever ceased to.
    let told = admin.items(EVENTS).await.unwrap();
    let told: Vec<_> = told.iter().filter(|e| e["involvedObject"]["name"] == LEASE.1).collect();
    let messages: Vec<_> = told.iter().filter_map(|event| event["message"].as_str()).collect();
    assert!(messages.iter().any(|m| m.ends_with("became leader")), "{messages:?}");
    assert!(told.iter().all(|event| event["reason"] == "LeaderElection"), "{told:?}");
    party.only_holders_wrote();
    party.end().await;
}

async fn lease_api_fails(what: (&str, &str), rule: impl Fn() -> Rule) {
    let party = Party::with(Topology::Two, 2, short()).await;
    for replica in &party.replicas {
        replica.hub().add(rule().resource("leases"));
    }
    is_lived_through(&party, what, async || {
        for replica in &party.replicas {
            replica.hub().clear();
        }
    })
    .await;
    party.only_holders_wrote();
    party.end().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn the_lease_api_answers_500() {
    lease_api_fails(("500", "500"), || Rule::status(500)).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn the_lease_api_answers_409() {
    lease_api_fails(("409", "409"), || Rule::status(409).method("PUT")).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn the_lease_api_answers_too_late() {
    lease_api_fails(("slow", "no answer"), || Rule::new(Fault::Delay(Duration::from_secs(3))))
        .await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn the_lease_api_does_not_answer() {
    lease_api_fails(("no answer", "no answer"), || Rule::new(Fault::Freeze)).await;
}

/// Slow, but not too slow; every second renewal fails; answers are lost: the leader stays.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn a_lease_api_that_is_bad_at_times_changes_nothing() {
    let party = Party::with(Topology::Two, 2, short()).await;
    let leader = party.somebody_leads().await;
    let transitions = party.lease().await["leaseTransitions"].clone();
    let hub = party.replicas[leader].hub();
    let slow = || Rule::new(Fault::Delay(Duration::from_millis(150)));
    let lossy = || Rule::new(Fault::LoseAnswer).method("PUT");
    for (what, rule) in [("slow", slow()), ("answers lost", lossy())] {
        let rule = hub.add(rule.resource("leases"));
        party.fleet.flip_all(0..3).await.unwrap();
        tokio::time::sleep(Duration::from_secs(6)).await;
        assert!(hub.applied(rule) > 5, "{what}: {} requests", hub.applied(rule));
        hub.remove(rule);
        assert_eq!(party.leaders().await, [leader], "{what}");
        oracle::converges(&party.world).await;
    }
    for _ in 0..6 {
        hub.add(Rule::status(500).resource("leases").times(1));
        tokio::time::sleep(Duration::from_millis(1_000)).await;
    }
    assert_eq!(party.leaders().await, [leader]);
    assert_eq!(party.replicas[leader].said(LOST), 0);
    assert_eq!(party.lease().await["leaseTransitions"], transitions);
    party.only_holders_wrote();
    party.end().await;
}

/// It is taken at once, and led by only when its former holder must have noticed.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn a_lease_that_is_deleted_is_taken_anew() {
    let party = Party::with(Topology::Two, 2, short()).await;
    let admin = party.world.hub().rest().clone();
    for round in 0..3 {
        let former = party.somebody_leads().await;
        let began = Instant::now();
        admin.delete(LEASES, LEASE.0, LEASE.1).await.unwrap();
        party.fleet.flip_all(1..5).await.unwrap();
        party.touches_without_leader(0).await;
        let leader = party.somebody_leads().await;
        let same = if leader == former { "the same" } else { "another" };
        took(&format!("round {round}: {same} led after the deletion"), began);
        oracle::converges(&party.world).await;
        took("converged", began);
    }
    party.no_writers_overlap();
    party.end().await;
}

/// Another holder whose clock is years ahead, or behind: its Lease lasts for as long as it says from
/// when it was seen, and not until its times are over.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn times_in_the_record_say_nothing() {
    let mut party = Party::new(Topology::Two, 6, short()).await;
    let admin = party.world.hub().rest().clone();
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
            party.join().await;
            party.join().await;
        }
        party.fleet.flip_all(1..5).await.unwrap();
        // Renewed by a clock that stands: a change all the same. Nobody may lead before it ends.
        for again in 0..4 {
            tokio::time::sleep(Duration::from_secs(2)).await;
            let spec = party.lease().await;
            assert_eq!(spec["holderIdentity"], json!(ghost), "taken while it was renewed");
            assert_eq!(party.leaders().await, Vec::<usize>::new(), "{spec}");
            let renewed = time.replace("00:00:00.", &format!("00:00:0{}.", again + 1));
            let theirs = json!({ "spec": { "renewTime": renewed } });
            admin.merge(LEASES, LEASE, &theirs).await.unwrap();
        }
        party.touches_without_leader(0).await;
        let left = Instant::now();
        let leader = party.somebody_leads().await;
        took(&format!("a Lease of {} was led after its last renewal", &time[..4]), left);
        oracle::converges(&party.world).await;
        took("converged", began);
        former = Some(leader);
    }

    // Those of the leader's own record, edited under it: nobody else takes it.
    let leader = former.unwrap();
    let transitions = party.lease().await["leaseTransitions"].clone();
    for time in ["2099-01-01T00:00:00.000000Z", "1971-01-01T00:00:00.000000Z"] {
        for fields in [&["acquireTime"][..], &["renewTime", "acquireTime"]] {
            let began = Instant::now();
            let edit: serde_json::Map<_, _> =
                fields.iter().map(|field| ((*field).to_owned(), json!(time))).collect();
            admin.merge(LEASES, LEASE, &json!({ "spec": edit })).await.unwrap();
            party.fleet.flip_all(1..5).await.unwrap();
            tokio::time::sleep(Duration::from_secs(1)).await;
            assert_eq!(party.somebody_leads().await, leader);
            took(&format!("{fields:?} set to {}: led again after", &time[..4]), began);
            oracle::converges(&party.world).await;
            let spec = party.lease().await;
            assert_eq!(spec["leaseTransitions"], transitions, "{spec}");
            assert_ne!(spec["renewTime"], json!(time), "{spec}");
        }
    }
    // The second ghost took the Lease from under its holder.
    party.no_writers_overlap();
    party.end().await;
}
