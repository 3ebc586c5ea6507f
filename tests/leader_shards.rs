//! Instances that share shards, by the real elections and a simulated API server, in virtual time. All the
//! time, no two instances may write for one upstream.

#![allow(missing_docs, unreachable_pub, reason = "a test crate has no callers")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test says so by failing")]

#[path = "leader_shards/claims.rs"]
mod claims;
#[path = "simulation/computer.rs"]
#[allow(dead_code, reason = "the simulation uses all of it")]
mod computer;
#[path = "simulation/crash.rs"]
#[allow(dead_code, reason = "the simulation uses all of it")]
mod crash;
#[path = "simulation/network.rs"]
#[allow(dead_code, reason = "the simulation uses all of it")]
mod network;
#[path = "simulation/random.rs"]
#[allow(dead_code, reason = "the simulation uses all of it")]
mod random;
#[path = "leader_shards/stage.rs"]
mod stage;

use std::time::Duration;

use throughline::core::contract::event::EventKind;
use throughline::sim::apiserver::{ApiVerb, Fault, Resource};

use stage::{CALLS, LEASE, RETRY, Stage, run};

/// One lease until a Lease that was not there is led.
pub(crate) const FIRST: Duration = Duration::from_secs(15 + 2 + 1);

async fn three(stage: &mut Stage) {
    for name in ["a", "b", "c"] {
        stage.start(name, 8).await;
    }
    // The first one may take all, and gives up one a second once the others have lived for a lease.
    stage.until(&[3, 3, 2], FIRST + LEASE + 10 * RETRY).await;
}

#[test]
fn three_instances_share_eight_shards_and_those_of_one_that_dies_are_led_a_lease_later() {
    run(async |mut stage| {
        three(&mut stage).await;
        stage.pass(3 * LEASE).await;
        assert_eq!(stage.led(), [3, 3, 2], "nothing moves at rest");
        stage.kill("a");
        stage.pass(LEASE - RETRY - CALLS).await;
        assert_eq!(stage.led(), [0, 3, 2], "a may still write");
        let rest = stage.until(&[0, 4, 4], 4 * RETRY + CALLS).await;
        println!("led again {:?} after the kill", LEASE - RETRY - CALLS + rest);
    });
}

#[test]
fn what_a_clean_stop_releases_is_led_a_few_retry_periods_later() {
    run(async |mut stage| {
        three(&mut stage).await;
        stage.stop("b");
        // Both may go for one shard: whoever comes second looks again.
        let after = stage.until(&[4, 0, 4], 3 * RETRY + CALLS).await;
        println!("led again {after:?} after the stop");
        stage.pass(RETRY).await;
        let names = stage.lease_names().await;
        let members = names.iter().filter(|name| name.contains("member")).count();
        assert_eq!(members, 2, "the one that stopped has no Lease any more: {names:?}");
        for name in ["a", "c"] {
            stage.stop(name);
        }
        stage.pass(RETRY).await;
        assert_eq!(stage.holder("lease").await, "", "the last one releases the group's Lease");
    });
}

#[test]
fn a_newcomer_gets_its_share_once_it_has_lived_for_a_lease() {
    run(async |mut stage| {
        stage.start("b", 6).await;
        stage.until(&[6], FIRST).await;
        stage.start("a", 6).await;
        stage.pass(LEASE - RETRY).await;
        assert_eq!(stage.led(), [6, 0], "it may be gone soon");
        stage.until(&[3, 3], 4 * RETRY + 3 * (3 * RETRY + CALLS)).await;
        let events = stage.instance("b").events.lock().unwrap();
        let left = events.iter().filter(|event| matches!(event, EventKind::ShardLeft { .. }));
        assert_eq!(left.count(), 3);
    });
}

#[test]
fn an_instance_that_is_cut_off_loses_its_shards_and_gets_its_share_again() {
    run(async |mut stage| {
        three(&mut stage).await;
        stage.cut("c", true);
        stage.until(&[4, 4, 0], LEASE + 4 * RETRY).await;
        stage.pass(LEASE).await;
        let lost = |stage: &Stage| {
            let events = stage.instance("c").events.lock().unwrap();
            events.iter().filter(|event| matches!(event, EventKind::LeaseApiLost)).count()
        };
        assert_eq!(lost(&stage), 1);
        stage.cut("c", false);
        stage.until(&[3, 3, 2], LEASE + 10 * RETRY).await;
        let events = stage.instance("c").events.lock().unwrap();
        assert!(events.iter().any(|event| matches!(event, EventKind::LeaseApiReachable)));
    });
}

#[test]
fn at_rest_four_instances_with_sixteen_shards_send_at_most_twelve_requests_a_second() {
    run(async |mut stage| {
        for name in ["a", "b", "c", "d"] {
            stage.start(name, 16).await;
        }
        stage.until(&[4, 4, 4, 4], FIRST + LEASE + 20 * RETRY).await;
        stage.pass(LEASE).await;
        let before = stage.requests(None);
        stage.pass(Duration::from_secs(100)).await;
        let sent = stage.requests(None) - before;
        println!("{sent} requests in 100 s");
        assert!(sent <= 1_200, "{sent}");
    });
}

#[test]
fn lists_that_fail_for_a_while_change_nothing() {
    run(async |mut stage| {
        three(&mut stage).await;
        let lists = vec![ApiVerb::List];
        let fault = Fault { verbs: lists, ..Fault::on_watches(Resource::Leases, 503) };
        stage.server.inject(&fault, usize::from(u16::MAX));
        stage.pass(3 * RETRY).await;
        assert_eq!(stage.led(), [3, 3, 2], "a few lists are not needed");
        stage.pass(LEASE).await;
        assert_eq!(stage.led(), [0, 0, 0], "nobody knows whose the fleet is");
        stage.server.clear_faults();
        stage.until(&[3, 3, 2], LEASE + 2 * RETRY).await;
    });
}
