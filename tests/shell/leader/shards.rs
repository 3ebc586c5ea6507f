//! Several shards, and several numbers of shards, on one API server.

use throughline::core::contract::cause::Cause;
use throughline_sim::apiserver::{ApiVerb, Fault};

use super::*;

const LONG: Duration = Duration::from_secs(600);

fn shard(api: &Api, index: u16, of: u16) -> Instance {
    let name = format!("{index}of{of}");
    instance_of(&name, api, Shard { index, of }, TIMINGS)
}

fn shards(api: &Api, of: u16) -> Vec<Instance> {
    (0..of).map(|index| shard(api, index, of)).collect()
}

async fn all_become(instances: &mut [Instance], leads: bool, within: Duration) {
    futures::future::join_all(instances.iter_mut().map(|one| one.becomes(leads, within))).await;
}

/// A shard labelled its Lease, and is gone.
fn release(api: &Api, index: u16, of: u16) {
    let released =
        json!({"metadata": {"labels": {GROUP_LABEL: "tl"}}, "spec": {"leaseDurationSeconds": 1}});
    api.put(&Group::new("tl", Shard { index, of }).own_lease(), released);
}

async fn all_stay(instances: &mut [Instance], long: Duration) {
    futures::future::join_all(instances.iter_mut().map(|one| one.stays(long))).await;
}

/// From one instance to two shards, to four, and back to one: the new ones wait until the last of the old
/// ones has gone, and then each leads.
#[tokio::test(start_paused = true)]
async fn numbers_of_shards_follow_one_another_and_never_overlap() {
    let api = Api::released();
    let mut before = shards(&api, 1);
    all_become(&mut before, true, RETRY).await;
    all_stay(&mut before, LONG).await;
    let list = (ApiVerb::List, Resource::Leases);
    assert!(!api.server.requests().contains_key(&list), "a single instance asks for no group");
    for of in [2, 4, 1, 4, 1] {
        let mut next = shards(&api, of);
        tokio::join!(all_stay(&mut before, LONG), all_stay(&mut next, LONG));
        let last = before.pop();
        for old in before {
            old.election.release(RETRY).await;
        }
        // One of them is left.
        all_stay(&mut next, LONG).await;
        last.unwrap().election.release(RETRY).await;
        all_become(&mut next, true, 2 * LEASE).await;
        let label = &api.get(PATH).await["metadata"]["labels"][GROUP_LABEL];
        assert_eq!(label.is_string(), of > 1);
        before = next;
    }
}

/// Two numbers that start in the same moment, at any offset.
#[tokio::test(start_paused = true)]
async fn of_two_numbers_that_start_together_one_leads() {
    for round in 0..100_u64 {
        let api = Api::released();
        release(&api, 0, 2);
        let two = shard(&api, 1, 2);
        sleep(Duration::from_millis(round % 25)).await;
        let four = shard(&api, 1, 4);
        let mut have_led = [false; 2];
        for _ in 0..12_000 {
            sleep(Duration::from_millis(10)).await;
            let open = [two.gate.is_open(), four.gate.is_open()];
            assert_ne!(open, [true; 2], "round {round}");
            have_led = [have_led[0] || open[0], have_led[1] || open[1]];
        }
        assert!(two.gate.is_open() || four.gate.is_open(), "round {round}: nobody leads");
        assert_ne!(have_led, [true; 2], "round {round}: the one that led was stopped");
    }
}

/// A renewal that its client gave up may be carried out once others have seen the Lease unchanged for its
/// duration, and lead.
#[tokio::test(start_paused = true)]
async fn a_renewal_that_lands_late_makes_no_second_leader() {
    let mut landed = 0;
    for round in 0..60_u64 {
        let api = Api::released();
        for (index, of) in [(0, 2), (1, 2), (1, 4)] {
            release(&api, index, of);
        }
        // Such instances look again soon.
        let timings = Timings { retry_ms: 200, ..TIMINGS };
        let shard = |of: u16| instance_of(&of.to_string(), &api, Shard { index: 1, of }, timings);
        let mut two = shard(2);
        two.becomes(true, RETRY).await;
        let four = shard(4);
        two.api.written.notified().await;
        // The renewals hang, until one of them is on its way shortly before the deadline.
        two.api.behaves(Behaviour::Hangs);
        sleep(Duration::from_millis(7_000 + round * 30)).await;
        two.api.behaves(Behaviour::Lands(6_500 + round * 40));
        sleep(Duration::from_millis(2_300)).await;
        two.api.behaves(Behaviour::Hangs);
        let lands = timeout(Duration::from_secs(9), two.api.written.notified()).await;
        landed += u32::from(lands.is_ok());
        two.api.behaves(Behaviour::Responds);
        for _ in 0..6_000 {
            sleep(Duration::from_millis(10)).await;
            let open = [two.gate.is_open(), four.gate.is_open()];
            assert_ne!(open, [true; 2], "round {round}");
        }
    }
    assert!(landed > 10, "{landed} landed");
}

/// A single instance would see nothing of a shard whose first Lease is gone.
#[tokio::test(start_paused = true)]
async fn a_shard_stops_when_the_lease_of_shard_0_is_deleted() {
    let api = Api::released();
    let mut two = shards(&api, 2);
    all_become(&mut two, true, 2 * LEASE).await;
    drop(two.remove(0).election);
    tokio::task::yield_now().await;
    two[0].stays(LONG).await;
    api.delete();
    two[0].becomes(false, LEASE).await;
    let mut one = shard(&api, 0, 1);
    one.becomes(true, 2 * LEASE).await;
    tokio::join!(one.stays(LONG), two[0].stays(LONG));
    let Some(NoteKind::Began(problem)) = two[0].unled.recv().await else { panic!("no problem") };
    assert_eq!(problem.cause, Cause::NoLeader);
}

#[tokio::test(start_paused = true)]
async fn a_leader_tells_which_shards_nobody_holds() {
    let api = Api::released();
    let mut first = shard(&api, 0, 3);
    first.becomes(true, 2 * LEASE).await;
    let mut second = shard(&api, 1, 3);
    second.becomes(true, 2 * LEASE).await;
    first.stays(LONG).await;
    let Some(NoteKind::Began(problem)) = first.unheld.recv().await else { panic!("no problem") };
    assert_eq!(problem.sentence(), "No instance holds shard 2; its Connectors are not mirrored.");
    // It is cut off for a while, and does not know.
    first.api.behaves(Behaviour::Hangs);
    first.becomes(false, LEASE).await;
    assert!(matches!(first.unheld.try_recv(), Ok(NoteKind::Ended(_))));
    first.api.behaves(Behaviour::Responds);
    first.becomes(true, 2 * LEASE).await;
    first.stays(LEASE).await;
    assert!(matches!(first.unheld.try_recv(), Ok(NoteKind::Began(_))));
    let mut third = shard(&api, 2, 3);
    third.becomes(true, 2 * LEASE).await;
    first.stays(2 * LEASE).await;
    assert!(matches!(first.unheld.recv().await, Some(NoteKind::Ended(_))));
    assert!(first.unheld.is_empty());
}

/// Another number of shards may begin unseen.
#[tokio::test(start_paused = true)]
async fn nobody_leads_where_the_group_cannot_be_listed() {
    let api = Api::released();
    let mut first = shard(&api, 0, 2);
    first.becomes(true, 2 * LEASE).await;
    for _ in 0..2 {
        // Only lists fail.
        api.server.inject(&Fault::on_watches(Resource::Leases, 500), 1_000);
        first.becomes(false, LEASE + RETRY).await;
        first.stays(LONG).await;
        api.server.clear_faults();
        first.becomes(true, 2 * LEASE).await;
    }
}
