//! The touch, to the millisecond, and what it makes of outcomes and of other writers.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "support/stage.rs"]
mod stage;

use stage::{Stage, UID, status};
use throughline::core::action::{Anomaly, AnomalyKind, Decision, Hop, Noted, Verb};
use throughline::core::event::Outcome;
use throughline::core::settings::{PlatformKeyMode, Settings, TouchScope};
use throughline::core::trigger::{Trigger, connector_part, digest, gateway_part};

const KEY: &str = "gateway.envoyproxy.io/connector-liveness";

fn announces(online: bool, node: &str) -> u64 {
    digest([connector_part("lab", online, node)])
}

fn value(decision: &Decision) -> Trigger {
    assert_eq!(decision.action.verb, Verb::Touch);
    let (key, value) = &decision.action.annotations[0];
    assert_eq!(key, KEY);
    Trigger::parse(value.as_deref().unwrap()).unwrap()
}

fn carrying(trigger: Trigger) -> String {
    format!(r#""{KEY}":"{trigger}""#)
}

/// An edge alone as far as the test goes: the gateway announces `online` on n1 in its value
/// number 4, confirmed twice; a minute and more has gone by.
fn settled(settings: Settings) -> Stage {
    let mut stage = Stage::new(settings);
    stage.edge(Some(&status(Some("n1"))));
    stage.proxy(&["lab"]);
    stage.gateway(&carrying(Trigger { digest: announces(true, "n1"), n: 4, c: 2 }));
    stage.pass_to(100_000);
    stage.nothing();
    stage.notes();
    stage
}

fn went_offline() -> (Stage, Decision) {
    let mut stage = settled(Settings::default());
    stage.edge(Some(&status(None)));
    stage.pass_to(100_099);
    stage.nothing();
    stage.pass_to(100_100);
    let touch = stage.one();
    (stage, touch)
}

#[test]
fn a_change_is_announced_after_the_window_and_confirmed_twice() {
    let (mut stage, touch) = went_offline();
    let digest = announces(false, "");
    assert_eq!(value(&touch), Trigger { digest, n: 5, c: 0 });
    assert_eq!(touch.action.precondition.uid.as_deref(), Some("u-g"));
    assert_eq!(touch.action.precondition.resource_version, None);
    assert_eq!(touch.action.connectors[0].to_string(), format!("ns-{UID}/lab"));
    stage.land(&touch);
    let hops: Vec<_> = stage.notes().into_iter().map(|n| n.what).collect();
    assert!(
        matches!(&hops[..], [.., Noted::HopPassed { hop: Hop::Touched, online: false, .. }]),
        "{hops:?}"
    );
    for (ms, n, c) in [(105_100, 6, 1), (160_100, 7, 2)] {
        stage.pass_to(ms - 1);
        stage.nothing();
        stage.pass_to(ms);
        let confirmation = stage.one();
        assert_eq!(value(&confirmation), Trigger { digest, n, c });
        stage.land(&confirmation);
    }
    stage.pass_to(10_000_000);
    stage.nothing();
    assert_eq!(stage.machine.poll_deadline(), None);
}

#[test]
fn two_touches_of_one_object_are_a_second_apart_and_the_last_state_wins() {
    let (mut stage, first) = went_offline();
    stage.land(&first);
    for (ms, node) in [(100_200, Some("n2")), (100_600, None), (100_950, Some("n3"))] {
        stage.pass_to(ms);
        stage.edge(Some(&status(node)));
    }
    stage.pass_to(101_099);
    stage.nothing();
    stage.pass_to(101_100);
    assert_eq!(value(&stage.one()), Trigger { digest: announces(true, "n3"), n: 6, c: 0 });
}

#[test]
fn what_never_stops_changing_is_announced_all_the_same() {
    let mut stage = settled(Settings::default());
    let mut touched = Vec::new();
    for n in 0..40 {
        stage.pass_to(100_000 + n * 50);
        stage.edge(Some(&status(Some(&format!("m{n}")))));
        touched.extend(stage.decided().into_iter().map(|d| d.at.0 - stage::START));
    }
    assert_eq!(touched, [101_000], "a second after the first change; the next is in flight");
}

#[test]
fn what_came_back_is_announced_anew() {
    let mut stage = settled(Settings::default());
    stage.edge(Some(&status(None)));
    stage.edge(Some(&status(Some("n1"))));
    stage.pass_to(100_100);
    assert_eq!(value(&stage.one()), Trigger { digest: announces(true, "n1"), n: 5, c: 0 });
}

#[test]
fn a_failed_touch_is_tried_again_with_a_value_never_used() {
    let (mut stage, first) = went_offline();
    stage.finish(&first, Outcome::Failed { error: "503".into(), retry_after_ms: Some(2_500) });
    stage.pass_to(102_599);
    stage.nothing();
    stage.pass_to(102_600);
    let second = stage.one();
    assert_eq!(value(&second), Trigger { digest: announces(false, ""), n: 6, c: 0 });
    stage.finish(&second, Outcome::Refused { error: "403".into() });
    let refused = |n: &Noted| matches!(n, Noted::Anomaly(a) if a.anomaly == AnomalyKind::Refused);
    assert_eq!(stage.troubles().iter().filter(|n| refused(n)).count(), 1);
    stage.pass_to(402_599);
    stage.nothing();
    stage.pass_to(402_600);
    let third = stage.one();
    assert_eq!(value(&third).n, 7);
    // A failed confirmation is done again as a confirmation.
    stage.land(&third);
    stage.pass_to(407_600);
    let confirmation = stage.one();
    assert_eq!(value(&confirmation).c, 1);
    stage.fail(confirmation.action.id);
    stage.pass_to(408_600);
    let again = value(&stage.one());
    assert_eq!((again.n, again.c), (9, 1));
}

#[test]
fn an_outcome_that_never_comes_is_not_waited_for_for_ever() {
    let (mut stage, first) = went_offline();
    stage.pass_to(160_099);
    stage.nothing();
    stage.pass_to(161_100);
    assert_eq!(value(&stage.one()).n, 6);
    // The late answer changes nothing.
    stage.land(&first);
    stage.nothing();
}

#[test]
fn another_replica_that_announced_the_same_is_enough() {
    let offline = announces(false, "");
    for (n, c, enough) in [(5, 0, true), (9, 0, true), (5, 1, false), (4, 0, false)] {
        let mut stage = settled(Settings::default());
        stage.edge(Some(&status(None)));
        stage.pass_to(100_050);
        stage.gateway(&carrying(Trigger { digest: offline, n, c }));
        let announced = stage
            .notes()
            .into_iter()
            .any(|n| matches!(n.what, Noted::HopPassed { hop: Hop::Touched, .. }));
        assert_eq!(announced, enough, "n {n} c {c}");
        stage.pass_to(103_000);
        let touches = stage.decided();
        assert_eq!(touches.is_empty(), enough, "n {n} c {c}");
        if enough {
            stage.pass_to(105_049);
            stage.nothing();
            stage.pass_to(105_050);
            assert_eq!(value(&stage.one()), Trigger { digest: offline, n: n + 1, c: 1 });
        } else {
            assert_eq!(value(&touches[0]), Trigger { digest: offline, n: 5.max(n + 1), c: 0 });
        }
    }
}

#[test]
fn a_spoiled_trigger_is_written_again_with_growing_pauses() {
    let mut stage = settled(Settings::default());
    let mut now = 100_000;
    for (n, pause_ms) in [(1, 1_000), (2, 2_000), (3, 4_000), (4, 8_000)] {
        stage.gateway(&format!(r#""{KEY}":"spoiled-{n}""#));
        stage.pass_to(now + pause_ms - 1);
        stage.nothing();
        stage.pass_to(now + pause_ms);
        let touch = stage.one();
        assert_eq!((value(&touch).n, value(&touch).c), (4 + n, 0));
        assert_eq!(touch.because, "another writer changed the trigger");
        stage.gateway(&carrying(value(&touch)));
        stage.land(&touch);
        let is = |n: &Noted| {
            matches!(n, Noted::Anomaly(Anomaly { anomaly: AnomalyKind::Contention, .. }))
        };
        let told = stage.troubles().iter().any(is);
        assert_eq!(told, n >= 3, "spoil {n}");
        now += pause_ms + 1_000;
        stage.pass_to(now);
    }
    // Left alone for long, it begins anew.
    stage.settle_to(now + 300_000);
    stage.gateway(r#""other":"key""#);
    stage.pass_to(now + 300_999);
    stage.nothing();
    stage.pass_to(now + 301_000);
    assert_eq!(value(&stage.one()).c, 0);
}

#[test]
fn an_announcement_that_does_not_land_is_a_stall_until_it_does() {
    let (mut stage, touch) = went_offline();
    stage.fail(touch.action.id);
    stage.pass_to(104_999);
    for decision in stage.decided() {
        stage.fail(decision.action.id);
    }
    assert_eq!(stage.troubles(), []);
    stage.pass_to(105_000);
    let stalls = stage.troubles();
    let [Noted::Stalled(stall)] = &stalls[..] else { panic!("{stalls:?}") };
    assert_eq!((stall.hop, stall.since.0), (Hop::Touched, stage::START + 100_000));
    assert!(stall.reason.contains("503"), "{}", stall.reason);
    stage.pass_to(130_000);
    for decision in stage.decided() {
        stage.land(&decision);
    }
    assert!(matches!(&stage.troubles()[..], [Noted::StallEnded(_)]));
}

#[test]
fn the_platforms_key_is_written_along_where_that_is_asked_for() {
    let mut settings = Settings::default();
    settings.touch.platform_key = PlatformKeyMode::Write;
    let mut stage = settled(settings);
    for (ms, node, stamp) in [(100_000, Some("n2"), "true/n2"), (200_000, None, "false/")] {
        stage.settle_to(ms);
        stage.edge(Some(&status(node)));
        stage.pass_to(ms + 100);
        let touch = stage.one();
        let (key, written) = &touch.action.annotations[1];
        assert_eq!(key, "networking.datumapis.com/connector-ready-generation");
        assert_eq!(written.as_deref(), Some(stamp));
        stage.land(&touch);
    }
}

#[test]
fn after_an_outage_only_what_was_announced_around_it_is_confirmed_once_more() {
    // Announced at 100.1 s. The outage begins so long after, and lasts 10 s.
    for (after_ms, once_more) in [(60_000, true), (60_001, false)] {
        let (mut stage, touch) = went_offline();
        stage.land(&touch);
        stage.pass_to(160_099);
        stage.decided().iter().for_each(|d| stage.land(d));
        let lost_at = 100_100 + after_ms;
        if after_ms > 60_000 {
            stage.pass_to(lost_at);
            stage.decided().iter().for_each(|d| stage.land(d));
        } else {
            stage.now = stage::START + lost_at;
        }
        stage.lost("edge", "Gateway");
        stage.pass_to(lost_at + 10_000);
        stage.nothing();
        let copy = carrying(Trigger { digest: announces(false, ""), n: 7, c: 2 });
        let gateway = stage.gateway(&copy);
        stage.list("edge", "Gateway", &[&gateway]);
        stage.pass_to(lost_at + 189_999);
        stage.nothing();
        stage.pass_to(lost_at + 190_000);
        let confirmed = stage.decided();
        assert_eq!(confirmed.len(), usize::from(once_more), "{after_ms} ms");
        for decision in &confirmed {
            assert_eq!(value(decision).c, 3);
            assert!(decision.because.contains("outage"));
        }
    }
}

#[test]
fn a_class_is_announced_by_one_gateway_for_all() {
    let mut settings = Settings::default();
    settings.touch.scope = TouchScope::GatewayClass;
    let mut stage = Stage::new(settings);
    stage.edge(Some(&status(Some("n1"))));
    stage.proxy(&["lab"]);
    stage.gateway("");
    stage.pass_to(100);
    let touch = stage.one();
    let ns = format!("ns-{UID}");
    let whole = digest([gateway_part(&ns, "app", announces(true, "n1"))]);
    assert_eq!(value(&touch), Trigger { digest: whole, n: 1, c: 0 });
    stage.land(&touch);
    stage.proxy(&[]);
    stage.pass_to(10_000_000);
    stage.nothing();
}

#[test]
fn another_replicas_confirmation_does_not_move_the_next_one() {
    let (mut stage, touch) = went_offline();
    stage.gateway(&carrying(value(&touch)));
    stage.land(&touch);
    stage.pass_to(105_000);
    stage.gateway(&carrying(Trigger { digest: announces(false, ""), n: 6, c: 1 }));
    stage.pass_to(160_099);
    stage.nothing();
    stage.pass_to(160_100);
    assert_eq!((value(&stage.one()).n, stage.now), (7, stage::START + 160_100));
}

#[test]
fn spoils_of_a_trigger_add_up_until_it_was_left_alone_for_long() {
    for (apart_ms, pause_ms) in [(120_000, 2_000), (120_001, 1_000)] {
        let mut stage = settled(Settings::default());
        stage.gateway(&format!(r#""{KEY}":"spoiled""#));
        stage.settle_to(100_000 + apart_ms);
        stage.gateway(&format!(r#""{KEY}":"spoiled again""#));
        stage.pass_to(100_000 + apart_ms + pause_ms - 1);
        stage.nothing();
        stage.pass_to(100_000 + apart_ms + pause_ms);
        assert_eq!(stage.decided().len(), 1, "{apart_ms} ms apart");
    }
}

#[test]
fn an_outage_is_no_reason_to_write_what_was_found_settled() {
    let mut stage = Stage::new(Settings::default());
    stage.edge(Some(&status(Some("n1"))));
    stage.proxy(&["lab"]);
    let gateway = stage.gateway(&carrying(Trigger { digest: announces(true, "n1"), n: 4, c: 2 }));
    stage.pass_to(1_000);
    stage.lost("edge", "Gateway");
    stage.list("edge", "Gateway", &[&gateway]);
    stage.pass_to(1_000_000);
    stage.nothing();
}
