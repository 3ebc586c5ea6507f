//! Outages of an edge, and what is confirmed after them.

use super::*;

#[test]
fn an_outage_does_not_touch_a_gateway_that_was_found_settled() {
    let mut stage = settled(Settings::default());
    relist(stage.lost("edge", "Gateway"), found()).quiet_to(1_000_000);
}

#[test]
fn after_an_outage_only_announcements_made_around_it_are_confirmed_again() {
    // Announced at 100.1 s. The outage begins `after_ms` later and lasts 10 s.
    for (after_ms, confirmed_again) in [(60_000, true), (60_001, false)] {
        let (mut stage, touch) = went_offline();
        stage.succeed(&touch);
        let lost_at = 100_100 + after_ms;
        if confirmed_again {
            // The last confirmation is due at the time of the outage, which comes first.
            stage.settle_to(lost_at - 1);
            stage.now = START + lost_at;
        } else {
            stage.settle_to(lost_at);
        }
        stage.lost("edge", "Gateway").quiet_to(lost_at + 10_000);
        relist(&mut stage, offline(7, 2)).quiet_to(lost_at + 189_999);
        let confirmed = stage.pass_to(lost_at + 190_000).actions();
        assert_eq!(confirmed.len(), usize::from(confirmed_again), "{after_ms} ms");
        for decision in &confirmed {
            assert_eq!(value(decision).c, 3);
            assert!(decision.because.contains("outage"));
        }
    }
}

/// A load balancer that cuts watches every minute must not put the confirmation off for ever, nor cause
/// one for each cut.
#[test]
fn outages_that_follow_one_another_are_confirmed_all_the_same() {
    let (mut stage, touch) = went_offline();
    stage.succeed(&touch);
    let mut confirmed = Vec::new();
    let mut carried = value(&touch);
    for minute in 0..20 {
        stage.run_to(130_000 + minute * 60_000, |stage, touch| {
            carried = value(touch);
            stage.succeed(touch).gateway(&carrying(carried));
            confirmed.push((minute, carried.c));
        });
        relist(stage.lost("edge", "Gateway"), carried);
    }
    // Confirmed after 5 s and a minute, and 180 s after the first outage; nothing was announced later.
    assert_eq!(confirmed, [(0, 1), (1, 2), (3, 3)]);
}
