//! The Lease without a number: who has another number of shards waits.

use super::stage::Lines;
use super::*;

const WARNING: &str = "have another number of shards";
/// How long the Lease without a number lasts.
const CLAIM: Duration = Duration::from_secs(3 * 15);

#[test]
fn an_instance_with_another_number_of_shards_takes_none_until_the_others_have_stopped() {
    let (lines, _collecting) = Lines::collect();
    run(async |mut stage| {
        stage.start("a", 8).await;
        stage.start("b", 8).await;
        stage.until(&[4, 4], FIRST + LEASE + 10 * RETRY).await;
        stage.start("c", 16).await;
        stage.pass(4 * LEASE).await;
        assert_eq!(stage.led(), [4, 4, 0]);
        assert_eq!(lines.count(WARNING), 1);
        stage.stop("a");
        stage.until(&[0, 8, 0], RETRY + CALLS).await;
        stage.stop("b");
        // Eight shards were released, and eight have no Lease yet.
        stage.until(&[0, 0, 8], 2 * RETRY + CALLS).await;
        stage.until(&[0, 0, 16], FIRST).await;
    });
}

#[test]
fn an_instance_with_another_number_of_shards_takes_over_from_those_that_died() {
    run(async |mut stage| {
        stage.start("a", 8).await;
        stage.until(&[8], FIRST).await;
        stage.start("b", 4).await;
        stage.pass(LEASE).await;
        stage.kill("a");
        stage.pass(LEASE).await;
        assert_eq!(stage.led(), [0, 0]);
        stage.until(&[0, 4], CLAIM + 2 * RETRY).await;
    });
}

#[test]
fn one_that_starts_while_the_groups_lease_expires_does_not_trust_it() {
    // Its first look shows the Lease as it was written long ago.
    for late in 0..16 {
        run(async |mut stage| {
            stage.start("a", 8).await;
            stage.until(&[8], FIRST).await;
            // Its clock is the fastest that may be.
            stage.start_with("other", 16, 100).await;
            stage.pass(LEASE).await;
            stage.kill("a");
            stage.pass(CLAIM * 10 / 11 - LEASE - RETRY + Duration::from_millis(1_171 * late)).await;
            stage.start("b", 8).await;
            stage.pass(3 * LEASE).await;
        });
    }
}

#[test]
fn a_group_and_an_instance_without_shards_keep_each_other_out() {
    run(async |mut stage| {
        stage.start("one", 1).await;
        stage.until(&[1], FIRST).await;
        stage.start("a", 8).await;
        stage.pass(3 * LEASE).await;
        assert_eq!(stage.led(), [1, 0]);
        stage.stop("one");
        stage.until(&[0, 8], FIRST + RETRY).await;
        stage.start("two", 1).await;
        stage.pass(3 * LEASE).await;
        assert_eq!(stage.led(), [0, 8, 0]);
        stage.kill("a");
        stage.until(&[0, 0, 1], CLAIM + RETRY).await;
    });
}

#[test]
fn somebody_deletes_the_groups_lease_while_others_wait_for_it() {
    for (waits, rate) in [(1, 100), (1, 0), (16, 100), (16, 0), (4, 100)] {
        for late in 0..6 {
            run(async |mut stage| {
                stage.start_with("a", 8, 0).await;
                stage.until(&[8], FIRST).await;
                stage.start_with("other", waits, rate).await;
                stage.pass(LEASE + Duration::from_millis(331 * late)).await;
                stage.by_hand("DELETE", "/lease", None).await;
                if late % 2 == 0 {
                    stage.cut("a", true);
                }
                stage.pass(4 * LEASE).await;
            });
        }
    }
}

#[test]
fn somebody_writes_another_holder_into_the_groups_lease() {
    for holder in ["16 shards", "8 shards", "", "somebody", "8 shards, settling"] {
        run(async |mut stage| {
            stage.start("a", 8).await;
            stage.until(&[8], FIRST).await;
            stage.start_with("other", 16, 100).await;
            stage.pass(LEASE).await;
            let edit = serde_json::json!({"spec": {"holderIdentity": holder}});
            stage.by_hand("PATCH", "/lease", Some(edit)).await;
            stage.pass(6 * LEASE).await;
            let led = stage.led();
            assert!(led == [8, 0] || led == [0, 16], "{holder}: {led:?}");
        });
    }
}
