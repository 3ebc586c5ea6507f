//! The touch rule, to the millisecond: when it writes, how it takes outcomes and other writers.

mod outages;
mod overwriting;

use throughline_core::status::trigger::{connector_part, digest, gateway_part, node_stand_in};

use crate::stage::*;

fn announces(online: bool, node: &str) -> u64 {
    digest([connector_part("lab", online, node)])
}

/// The trigger that announces that the connector is offline.
fn offline(n: u32, c: u32) -> Trigger {
    Trigger { digest: announces(false, ""), n, c }
}

fn value(decision: &Decision) -> Trigger {
    assert_eq!(decision.action.verb, Verb::Touch);
    assert_eq!(decision.action.annotations[0].0, TRIGGER);
    Trigger::parse(written(decision).unwrap()).unwrap()
}

fn carrying(trigger: Trigger) -> String {
    format!(r#""{TRIGGER}":"{trigger}""#)
}

/// The edge's Gateways are listed, with the only one as it is.
fn relist(stage: &mut Stage, trigger: Trigger) -> &mut Stage {
    let gateway = stage.gateway(&carrying(trigger));
    stage.list("edge", "Gateway", [gateway])
}

/// An edge whose Gateway announces that the connector is online on n1. Its trigger has number 4
/// and is confirmed twice; more than a minute has passed since.
fn settled(settings: Settings) -> Stage {
    let mut stage = Stage::before_the_edge(settings);
    stage.list("edge", "Connector", []).list("edge", "HTTPProxy", []);
    stage.edge(N1).proxy(&["lab"]);
    // What the edge's first list shows is trusted.
    relist(&mut stage, found()).quiet_to(100_000);
    stage.notes();
    stage
}

fn found() -> Trigger {
    Trigger { digest: announces(true, "n1"), n: 4, c: 2 }
}

fn went_offline() -> (Stage, Decision) {
    let mut stage = settled(Settings::default());
    let touch = stage.edge(OFFLINE).next_at(100_100);
    (stage, touch)
}

#[test]
fn a_change_is_announced_after_the_window_and_confirmed_twice() {
    let (mut stage, touch) = went_offline();
    assert_eq!((value(&touch), touch.urgency), (offline(5, 0), Urgency::Routing));
    assert_eq!(touch.action.precondition.uid.as_deref(), Some("u-app"));
    assert_eq!(touch.action.precondition.resource_version, None);
    assert_eq!(touch.action.connectors[0].to_string(), format!("ns-{UID}/lab"));
    let last = stage.succeed(&touch).notes().pop().map(|note| note.kind);
    assert!(matches!(last, Some(NoteKind::HopPassed { hop: Hop::Announced, online: false, .. })));
    for (ms, n, c) in [(105_100, 6, 1), (160_100, 7, 2)] {
        let confirmation = stage.next_at(ms);
        assert_eq!(value(&confirmation), offline(n, c));
        stage.succeed(&confirmation);
    }
    stage.quiet_to(10_000_000);
    assert_eq!(stage.machine.poll_deadline(), None);
}

/// Every cache has had its state for as long as ours, whether or not the first write succeeds.
#[test]
fn a_first_touch_is_confirmed_once_also_when_it_had_to_be_written_twice() {
    for fails in [false, true] {
        let mut stage = Stage::before_the_edge(Settings::default());
        stage.list("edge", "Connector", [with_uid(UP.copy("lab", N1), "u-edge")]);
        stage.list("edge", "HTTPProxy", []).proxy(&["lab"]);
        let gateway = stage.gateway("");
        let mut touch = stage.list("edge", "Gateway", [gateway]).action_at(100);
        if fails {
            let again = stage.fail(touch.action.id).action_at(1_100);
            assert_eq!(again.because, touch.because);
            touch = again;
        }
        let confirmation = stage.succeed(&touch).next_at(time_of(&touch) + 60_000);
        assert_eq!(value(&confirmation).c, 2, "the last of two, written twice: {fails}");
        stage.succeed(&confirmation).quiet_to(600_000);
    }
}

#[test]
fn beyond_the_burst_touches_of_one_gateway_are_a_second_apart_and_the_last_state_wins() {
    let mut stage = settled(settings(|s| s.touch.burst = 1));
    let first = stage.edge(OFFLINE).action_at(100_100);
    stage.succeed(&first).pass_to(100_200).edge(N2).pass_to(100_600).edge(OFFLINE);
    let second = stage.pass_to(100_950).edge(N3).next_at(101_100);
    assert_eq!(value(&second), Trigger { digest: announces(true, "n3"), n: 6, c: 0 });
}

#[test]
fn a_connector_that_never_stops_changing_is_still_announced() {
    let mut stage = settled(Settings::default());
    let mut touched = Vec::new();
    for n in 0..40 {
        stage.pass_to(100_000 + n * 50).edge(Some(&status(Some(&format!("m{n}")))));
        touched.extend(stage.actions().iter().map(time_of));
    }
    assert_eq!(touched, [101_000], "a second after the first change; it stays in flight");
}

/// Whoever writes a status chooses its node ids.
#[test]
fn a_node_id_that_equals_the_stand_in_of_another_is_touched() {
    let mut stage = settled(Settings::default());
    let stand_in = node_stand_in("n1", 0);
    let touch = stage.edge(Some(&status(Some(&stand_in)))).action_at(100_100);
    assert_eq!(value(&touch).digest, announces(true, &stand_in));
}

#[test]
fn a_failed_touch_is_retried_with_a_new_value() {
    let (mut stage, first) = went_offline();
    let second = stage.finish(&first, unavailable(Some(2_500))).next_at(102_600);
    assert_eq!(value(&second), offline(6, 0));
    assert_eq!(stage.finish(&second, forbidden()).wrong(), [Cause::WriteRefused]);
    // What is refused is tried again every 30 s.
    let third = stage.next_at(132_600);
    assert_eq!(value(&third).n, 7);
    // A failed confirmation is retried as a confirmation.
    let confirmation = stage.succeed(&third).action_at(137_600);
    assert_eq!(value(&confirmation), offline(8, 1));
    assert_eq!(value(&stage.fail(confirmation.action.id).action_at(138_600)), offline(9, 1));
}

#[test]
fn a_touch_without_an_outcome_is_waited_for() {
    let (mut stage, first) = went_offline();
    stage.quiet_to(400_000).fail(first.action.id);
    assert_eq!(value(&stage.action_at(401_000)).n, 6);
}

#[test]
fn an_announcement_by_another_instance_is_enough() {
    for (n, c, is_enough) in [(5, 0, true), (9, 0, true), (5, 1, false), (4, 0, false)] {
        let mut stage = settled(Settings::default());
        stage.edge(OFFLINE).pass_to(100_050).gateway(&carrying(offline(n, c)));
        let touched = stage.hops().into_iter().any(|(hop, ..)| hop == Hop::Announced);
        assert_eq!(touched, is_enough, "n {n} c {c}");
        let (at, touch) = match is_enough {
            true => (105_050, offline(n + 1, 1)),
            false => (100_100, offline(5.max(n + 1), 0)),
        };
        let found = stage.pass_to(at).only_action();
        assert_eq!((time_of(&found), value(&found)), (at, touch), "n {n} c {c}");
    }
}

#[test]
fn a_confirmation_by_another_instance_does_not_delay_the_next_one() {
    let (mut stage, touch) = went_offline();
    stage.gateway(&carrying(value(&touch)));
    stage.succeed(&touch).pass_to(105_000).gateway(&carrying(offline(6, 1)));
    assert_eq!(value(&stage.next_at(160_100)).n, 7);
}

#[test]
fn an_announcement_is_late_without_an_answer_and_failing_from_the_second_failure_until_it_succeeds()
{
    let (mut stage, touch) = went_offline();
    let late = stage.pass_to(105_100).began(Cause::NotAnnounced);
    assert_eq!(late[0].since.0, START + 100_100, "since the touch that has no answer");
    stage.finish(&touch, unavailable(None));
    stage.run_to(110_000, |stage, touch| _ = stage.finish(touch, unavailable(None)));
    let failing = stage.began(Cause::WriteFailing);
    assert_eq!(failing[0].since.0, START + 100_000);
    assert!(failing[0].facts.error.as_deref().unwrap().contains("503"));
    assert_eq!(stage.wrong(), [Cause::WriteFailing]);
    stage.settle_to(140_000);
    assert_eq!(stage.wrong(), []);
}

#[test]
fn the_platform_key_is_written_in_the_same_patch_if_so_configured() {
    let mut stage = settled(settings(|s| s.touch.platform_key = PlatformKeyMode::Write));
    for (ms, status, stamp) in [(100_000, N2, "true/n2"), (200_000, OFFLINE, "false/")] {
        stage.settle_to(ms);
        let touch = stage.edge(status).action_at(ms + 100);
        assert_eq!(touch.action.annotations[1], (STAMP.to_owned(), Some(stamp.to_owned())));
        stage.succeed(&touch);
    }
}

#[test]
fn one_gateway_announces_for_its_whole_class() {
    let mut stage = Stage::new(with_scope(TouchScope::GatewayClass));
    stage.edge(N1).proxy(&["lab"]).gateway("");
    let touch = stage.action_at(100);
    let whole = digest([gateway_part(&format!("ns-{UID}"), "app", announces(true, "n1"))]);
    assert_eq!(value(&touch), Trigger { digest: whole, n: 1, c: 0 });
    stage.succeed(&touch).proxy(&[]).quiet_to(10_000_000);
}

/// The next cluster gets the id of the removed one, and must not inherit its timers.
#[test]
fn a_removed_edge_takes_its_timers_with_it() {
    let mut stage = settled(Settings::default());
    relist(stage.lost("edge", "Gateway"), found()).edge(OFFLINE);
    assert!(stage.machine.poll_deadline().is_some());
    stage.leave("edge");
    assert_eq!(stage.machine.poll_deadline(), None);
    stage.join("other", Role::Edge).quiet_to(1_000_000);
}
