//! The touch rule, to the millisecond: when it writes, how it takes outcomes and other writers.

mod first_touch;
mod node_ids;
mod outages;
mod overwriting;

use throughline_core::contract::action::{Decision, Verb};
use throughline_core::contract::event::{EventKind, Outcome};
use throughline_core::contract::note::{Anomaly, AnomalyKind, Hop, NoteKind};
use throughline_core::contract::settings::{PlatformKeyMode, Settings, TouchScope};
use throughline_core::data::ids::Role;
use throughline_core::status::trigger::{Trigger, connector_part, digest, gateway_part};

use crate::stage::{self, Stage, UID, status};

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

/// An edge whose Gateway announces that the connector is online on n1. Its trigger has number 4
/// and is confirmed twice; more than a minute has passed since.
fn settled(settings: Settings) -> Stage {
    let mut stage = Stage::before_the_edge(settings);
    stage.list("edge", "Connector", &[]);
    stage.list("edge", "HTTPProxy", &[]);
    stage.edge(Some(&status(Some("n1"))));
    stage.proxy(&["lab"]);
    let trigger = Trigger { digest: announces(true, "n1"), n: 4, c: 2 };
    let gateway = stage.gateway(&carrying(trigger));
    // What the edge's first list shows is trusted.
    stage.list("edge", "Gateway", &[&gateway]);
    stage.pass_to(100_000);
    stage.assert_no_action();
    stage.notes();
    stage
}

fn went_offline() -> (Stage, Decision) {
    let mut stage = settled(Settings::default());
    stage.edge(Some(&status(None)));
    stage.pass_to(100_099);
    stage.assert_no_action();
    stage.pass_to(100_100);
    let touch = stage.only_action();
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
    stage.succeed(&touch);
    let hops: Vec<_> = stage.notes().into_iter().map(|n| n.kind).collect();
    assert!(
        matches!(&hops[..], [.., NoteKind::HopPassed { hop: Hop::Touched, online: false, .. }]),
        "{hops:?}"
    );
    for (ms, n, c) in [(105_100, 6, 1), (160_100, 7, 2)] {
        stage.pass_to(ms - 1);
        stage.assert_no_action();
        stage.pass_to(ms);
        let confirmation = stage.only_action();
        assert_eq!(value(&confirmation), Trigger { digest, n, c });
        stage.succeed(&confirmation);
    }
    stage.pass_to(10_000_000);
    stage.assert_no_action();
    assert_eq!(stage.machine.poll_deadline(), None);
}

#[test]
fn beyond_the_burst_touches_of_one_gateway_are_a_second_apart_and_the_last_state_wins() {
    let mut settings = Settings::default();
    settings.touch.burst = 1;
    let mut stage = settled(settings);
    stage.edge(Some(&status(None)));
    stage.pass_to(100_100);
    let first = stage.only_action();
    stage.succeed(&first);
    for (ms, node) in [(100_200, Some("n2")), (100_600, None), (100_950, Some("n3"))] {
        stage.pass_to(ms);
        stage.edge(Some(&status(node)));
    }
    stage.pass_to(101_099);
    stage.assert_no_action();
    stage.pass_to(101_100);
    assert_eq!(value(&stage.only_action()), Trigger { digest: announces(true, "n3"), n: 6, c: 0 });
}

#[test]
fn a_connector_that_never_stops_changing_is_still_announced() {
    let mut stage = settled(Settings::default());
    let mut touched = Vec::new();
    for n in 0..40 {
        stage.pass_to(100_000 + n * 50);
        stage.edge(Some(&status(Some(&format!("m{n}")))));
        touched.extend(stage.actions().into_iter().map(|d| d.at.0 - stage::START));
    }
    assert_eq!(touched, [101_000], "a second after the first change; it stays in flight");
}

#[test]
fn a_change_that_is_undone_within_the_window_is_still_announced() {
    let mut stage = settled(Settings::default());
    stage.edge(Some(&status(None)));
    stage.edge(Some(&status(Some("n1"))));
    stage.pass_to(100_100);
    assert_eq!(value(&stage.only_action()), Trigger { digest: announces(true, "n1"), n: 5, c: 0 });
}

#[test]
fn a_failed_touch_is_retried_with_a_new_value() {
    let (mut stage, first) = went_offline();
    stage.finish(&first, Outcome::Failed { error: "503".into(), retry_after_ms: Some(2_500) });
    stage.pass_to(102_599);
    stage.assert_no_action();
    stage.pass_to(102_600);
    let second = stage.only_action();
    assert_eq!(value(&second), Trigger { digest: announces(false, ""), n: 6, c: 0 });
    stage.finish(&second, Outcome::Refused { error: "403".into() });
    let refused =
        |n: &NoteKind| matches!(n, NoteKind::Anomaly(a) if a.anomaly == AnomalyKind::Refused);
    assert_eq!(stage.problems().iter().filter(|n| refused(n)).count(), 1);
    // What is refused is tried again every 30 s.
    stage.pass_to(132_599);
    stage.assert_no_action();
    stage.pass_to(132_600);
    let third = stage.only_action();
    assert_eq!(value(&third).n, 7);
    // A failed confirmation is retried as a confirmation.
    stage.succeed(&third);
    stage.pass_to(137_600);
    let confirmation = stage.only_action();
    assert_eq!(value(&confirmation).c, 1);
    stage.fail(confirmation.action.id);
    stage.pass_to(138_600);
    let again = value(&stage.only_action());
    assert_eq!((again.n, again.c), (9, 1));
}

#[test]
fn a_touch_without_an_outcome_is_retried_after_a_timeout() {
    let (mut stage, first) = went_offline();
    stage.pass_to(160_099);
    stage.assert_no_action();
    stage.pass_to(161_100);
    assert_eq!(value(&stage.only_action()).n, 6);
    // The late outcome changes nothing.
    stage.succeed(&first);
    stage.assert_no_action();
}

#[test]
fn an_announcement_by_another_instance_is_enough() {
    let offline = announces(false, "");
    for (n, c, enough) in [(5, 0, true), (9, 0, true), (5, 1, false), (4, 0, false)] {
        let mut stage = settled(Settings::default());
        stage.edge(Some(&status(None)));
        stage.pass_to(100_050);
        stage.gateway(&carrying(Trigger { digest: offline, n, c }));
        let announced = stage
            .notes()
            .into_iter()
            .any(|n| matches!(n.kind, NoteKind::HopPassed { hop: Hop::Touched, .. }));
        assert_eq!(announced, enough, "n {n} c {c}");
        stage.pass_to(103_000);
        let touches = stage.actions();
        assert_eq!(touches.is_empty(), enough, "n {n} c {c}");
        if enough {
            stage.pass_to(105_049);
            stage.assert_no_action();
            stage.pass_to(105_050);
            assert_eq!(value(&stage.only_action()), Trigger { digest: offline, n: n + 1, c: 1 });
        } else {
            assert_eq!(value(&touches[0]), Trigger { digest: offline, n: 5.max(n + 1), c: 0 });
        }
    }
}

#[test]
fn an_announcement_that_keeps_failing_is_a_stall_until_it_succeeds() {
    let (mut stage, touch) = went_offline();
    stage.fail(touch.action.id);
    stage.pass_to(104_999);
    for decision in stage.actions() {
        stage.fail(decision.action.id);
    }
    assert_eq!(stage.problems(), []);
    stage.pass_to(105_000);
    let stalls = stage.problems();
    let [NoteKind::Stalled(stall)] = &stalls[..] else { panic!("{stalls:?}") };
    assert_eq!((stall.hop, stall.since.0), (Hop::Touched, stage::START + 100_000));
    assert!(stall.reason.contains("503"), "{}", stall.reason);
    stage.pass_to(130_000);
    for decision in stage.actions() {
        stage.succeed(&decision);
    }
    assert!(matches!(&stage.problems()[..], [NoteKind::StallEnded(_)]));
}

#[test]
fn the_platform_key_is_written_in_the_same_patch_if_so_configured() {
    let mut settings = Settings::default();
    settings.touch.platform_key = PlatformKeyMode::Write;
    let mut stage = settled(settings);
    for (ms, node, stamp) in [(100_000, Some("n2"), "true/n2"), (200_000, None, "false/")] {
        stage.settle_to(ms);
        stage.edge(Some(&status(node)));
        stage.pass_to(ms + 100);
        let touch = stage.only_action();
        let (key, written) = &touch.action.annotations[1];
        assert_eq!(key, "networking.datumapis.com/connector-ready-generation");
        assert_eq!(written.as_deref(), Some(stamp));
        stage.succeed(&touch);
    }
}

#[test]
fn one_gateway_announces_for_its_whole_class() {
    let mut settings = Settings::default();
    settings.touch.scope = TouchScope::GatewayClass;
    let mut stage = Stage::new(settings);
    stage.edge(Some(&status(Some("n1"))));
    stage.proxy(&["lab"]);
    stage.gateway("");
    stage.pass_to(100);
    let touch = stage.only_action();
    let ns = format!("ns-{UID}");
    let whole = digest([gateway_part(&ns, "app", announces(true, "n1"))]);
    assert_eq!(value(&touch), Trigger { digest: whole, n: 1, c: 0 });
    stage.succeed(&touch);
    stage.proxy(&[]);
    stage.pass_to(10_000_000);
    stage.assert_no_action();
}

#[test]
fn a_confirmation_by_another_instance_does_not_delay_the_next_one() {
    let (mut stage, touch) = went_offline();
    stage.gateway(&carrying(value(&touch)));
    stage.succeed(&touch);
    stage.pass_to(105_000);
    stage.gateway(&carrying(Trigger { digest: announces(false, ""), n: 6, c: 1 }));
    stage.pass_to(160_099);
    stage.assert_no_action();
    stage.pass_to(160_100);
    assert_eq!((value(&stage.only_action()).n, stage.now), (7, stage::START + 160_100));
}

#[test]
fn an_outage_does_not_touch_a_gateway_that_was_found_settled() {
    let mut stage = settled(Settings::default());
    let gateway = stage.gateway(&carrying(Trigger { digest: announces(true, "n1"), n: 4, c: 2 }));
    stage.lost("edge", "Gateway");
    stage.list("edge", "Gateway", &[&gateway]);
    stage.pass_to(1_000_000);
    stage.assert_no_action();
}

#[test]
fn a_stall_says_how_many_gateways_are_not_touched_yet() {
    let (mut stage, _never_answered) = went_offline();
    stage.pass_to(105_000);
    let stalls = stage.problems();
    let [NoteKind::Stalled(stall)] = &stalls[..] else { panic!("{stalls:?}") };
    assert_eq!(stall.reason, "1 Gateway is not touched yet");
}

/// The next cluster gets the id of the removed one, and must not inherit its timers.
#[test]
fn a_removed_edge_takes_its_timers_with_it() {
    let mut stage = settled(Settings::default());
    stage.lost("edge", "Gateway");
    let gateway = stage.gateway(&carrying(Trigger { digest: announces(true, "n1"), n: 4, c: 2 }));
    stage.list("edge", "Gateway", &[&gateway]);
    stage.edge(Some(&status(None)));
    assert!(stage.machine.poll_deadline().is_some());
    stage.event(EventKind::ClusterRemoved { cluster: "edge".into() });
    assert_eq!(stage.machine.poll_deadline(), None);
    stage.event(EventKind::ClusterAdded { cluster: "other".into(), roles: vec![Role::Edge] });
    stage.pass_to(1_000_000);
    stage.assert_no_action();
}
