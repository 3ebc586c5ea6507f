//! Outages of an edge, and what is confirmed after them.

use super::*;

#[test]
fn after_an_outage_only_announcements_made_around_it_are_confirmed_again() {
    // Announced at 100.1 s. The outage begins `after_ms` later and lasts 10 s.
    for (after_ms, confirmed_again) in [(60_000, true), (60_001, false)] {
        let (mut stage, touch) = went_offline();
        stage.succeed(&touch);
        stage.pass_to(160_099);
        stage.actions().iter().for_each(|d| stage.succeed(d));
        let lost_at = 100_100 + after_ms;
        if after_ms > 60_000 {
            stage.pass_to(lost_at);
            stage.actions().iter().for_each(|d| stage.succeed(d));
        } else {
            stage.now = stage::START + lost_at;
        }
        stage.lost("edge", "Gateway");
        stage.pass_to(lost_at + 10_000);
        stage.assert_no_action();
        let copy = carrying(Trigger { digest: announces(false, ""), n: 7, c: 2 });
        let gateway = stage.gateway(&copy);
        stage.list("edge", "Gateway", &[&gateway]);
        stage.pass_to(lost_at + 189_999);
        stage.assert_no_action();
        stage.pass_to(lost_at + 190_000);
        let confirmed = stage.actions();
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
    let mut counts = Vec::new();
    let mut n = 5;
    for minute in 0..20_u64 {
        let cut_at = 130_000 + minute * 60_000;
        while stage.now < stage::START + cut_at {
            stage.pass_to((stage.now - stage::START + 1_000).min(cut_at));
            for decision in stage.actions() {
                stage.succeed(&decision);
                let Trigger { digest, n: number, c } = value(&decision);
                stage.gateway(&carrying(Trigger { digest, n: number, c }));
                (n, counts) = (number, [counts, vec![(minute, c)]].concat());
            }
        }
        stage.lost("edge", "Gateway");
        let c = counts.last().map_or(0, |(_, c)| *c);
        let copy = stage.gateway(&carrying(Trigger { digest: announces(false, ""), n, c }));
        stage.list("edge", "Gateway", &[&copy]);
    }
    // Confirmed after 5 s and a minute, and 180 s after the first outage; nothing was announced later.
    assert_eq!(counts, [(0, 1), (1, 2), (3, 3)]);
}
