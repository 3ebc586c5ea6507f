//! Several instances that share a Lease.

use super::*;

#[tokio::test(start_paused = true)]
async fn another_instance_leads_a_retry_period_after_a_clean_stop() {
    let (api, mut one) = leader().await;
    let mut two = instance("two", &api);
    two.stays(Duration::from_secs(61)).await;
    one.election.release(RETRY).await;
    assert!(!one.gate.is_open());
    assert!(matches!(one.events.recv().await, Some(EventKind::LeadershipLost)));
    two.becomes(true, RETRY).await;
}

/// At any offset between the attempts of the two, counted from the crash.
#[tokio::test(start_paused = true)]
async fn after_a_crash_another_instance_leads_within_a_lease_and_a_retry_period() {
    for round in 0..200 {
        let (api, one) = leader().await;
        let mut two = instance("two", &api);
        two.stays(Duration::from_secs(20) + Duration::from_millis(round * 37)).await;
        one.api.written.notified().await;
        drop(one.election);
        // A dropped election closes its gate at once.
        tokio::task::yield_now().await;
        assert!(!one.gate.is_open());
        let after = two.becomes(true, LEASE + 2 * RETRY).await;
        // Each timer involved rounds up to a millisecond.
        let longest = LEASE + RETRY + Duration::from_millis(5);
        assert!((LEASE - RETRY..=longest).contains(&after), "{after:?} in round {round}");
    }
}

/// At any offset between the attempts of the two.
#[tokio::test(start_paused = true)]
async fn an_edit_of_the_leaders_own_lease_does_not_make_another_instance_leader() {
    for round in 0..100 {
        let (api, mut one) = leader().await;
        let mut two = instance("two", &api);
        two.stays(Duration::from_secs(20) + Duration::from_millis(round * 37)).await;
        api.edit(json!({"renewTime": "edited"})).await;
        let minute = Duration::from_secs(60);
        tokio::join!(
            async {
                one.becomes(false, RETRY).await;
                one.becomes(true, LEASE + RETRY).await;
                one.stays(minute - LEASE - 2 * RETRY).await;
            },
            two.stays(minute)
        );
        assert!(one.gate.is_open() && !two.gate.is_open(), "round {round}");
    }
}
