//! Several instances that share a Lease.

use super::*;

#[tokio::test(start_paused = true)]
async fn another_instance_leads_a_retry_period_after_a_clean_stop_and_a_lease_later_after_a_crash()
{
    let (api, mut one) = leader("one").await;
    let mut two = instance("two", &api);
    two.stays(Duration::from_secs(61)).await;
    let since = Instant::now();
    one.election.release(RETRY).await;
    assert!(!one.gate.is_open());
    assert_eq!(one.events.recv().await.map(is_acquired), Some(false));
    two.becomes(true, RETRY).await;
    assert!(since.elapsed() <= RETRY, "{:?}", since.elapsed());

    let mut three = instance("three", &api);
    three.stays(Duration::from_secs(61)).await;
    drop(two.election);
    // A dropped election closes its gate at once.
    tokio::task::yield_now().await;
    assert!(!two.gate.is_open());
    let after = three.becomes(true, LEASE + RETRY).await;
    assert!(after > LEASE - RETRY, "{after:?}");
}

/// At any offset between the attempts of the two, counted from the crash.
#[tokio::test(start_paused = true)]
async fn after_a_crash_another_instance_leads_within_a_lease_and_a_retry_period() {
    for round in 0..200 {
        let (api, one) = leader("one").await;
        let mut two = instance("two", &api);
        two.stays(Duration::from_secs(20) + Duration::from_millis(round * 37)).await;
        let renewals = || api.server.lock().unwrap().version;
        let before = renewals();
        while renewals() == before {
            sleep(Duration::from_millis(1)).await;
        }
        drop(one.election);
        let after = two.becomes(true, LEASE + 2 * RETRY).await;
        // Each timer involved rounds up to a millisecond.
        let timers = Duration::from_millis(5);
        assert!(after <= LEASE + RETRY + timers, "{after:?} in round {round}");
    }
}

#[tokio::test(start_paused = true)]
async fn three_instances_never_have_two_open_gates() {
    let api = FakeApi::released();
    let mut instances = ["one", "two", "three"].map(|name| instance(name, &api));
    let behaviours = [
        Behaviour::Responds,
        Behaviour::Fails,
        Behaviour::Slow(2_100),
        Behaviour::LosesResponses,
        Behaviour::Hangs,
        Behaviour::Responds,
        Behaviour::Conflicts,
    ];
    let mut steps_led = 0;
    for step in 0..20_000_usize {
        if step % 400 == 0 {
            api.behaviour(behaviours[step / 400 % behaviours.len()]);
        }
        if step % 1_300 == 7 {
            api.delete();
        }
        sleep(Duration::from_millis(100)).await;
        let open = instances.iter().filter(|instance| instance.gate.is_open()).count();
        assert!(open <= 1, "{open} gates are open at step {step}");
        steps_led += open;
    }
    assert!(steps_led > 5_000, "an instance led in only {steps_led} of 20000 steps");
    // Each instance sees acquired and lost in turns; a wait ends in one of them.
    for instance in &mut instances {
        let (mut leads, mut waits) = (false, false);
        while let Ok(event) = instance.events.try_recv() {
            if matches!(event, EventKind::LeadershipPending { .. }) {
                assert!(!leads);
                waits = true;
                continue;
            }
            let acquired = is_acquired(event);
            assert!(if acquired { !leads } else { leads || waits });
            (leads, waits) = (acquired, false);
        }
    }
}

/// A machine that was copied while it ran: two processes with one identity.
#[tokio::test(start_paused = true)]
async fn of_two_processes_with_one_identity_one_leads_and_goes_on_leading() {
    let (api, mut one) = leader("twin").await;
    let mut two = instance("twin", &api);
    let hour = Duration::from_secs(3_600);
    tokio::join!(one.stays(hour), two.stays(hour));
    assert!(one.gate.is_open() && !two.gate.is_open());
    drop(one.election);
    two.becomes(true, LEASE + RETRY).await;
}

/// At any offset between the attempts of the two.
#[tokio::test(start_paused = true)]
async fn an_edit_of_the_leaders_own_lease_does_not_make_another_instance_leader() {
    for round in 0..100 {
        let (api, mut one) = leader("one").await;
        let mut two = instance("two", &api);
        two.stays(Duration::from_secs(20) + Duration::from_millis(round * 37)).await;
        api.edit(|record| record.renew_time = "edited".to_owned());
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
