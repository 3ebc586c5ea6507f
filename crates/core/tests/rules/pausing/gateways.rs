//! Paused Gateways: no touch is written to them, and what is beside them goes on.

use super::settled;
use crate::stage::*;

const PAUSED_GATEWAY: (State, Hop, Option<Cause>) =
    (State::Held, Hop::Announced, Some(Cause::Paused));

/// A Gateway with this trigger, paused or not.
fn gateway<'a>(
    stage: &'a mut Stage,
    name: &str,
    trigger: Option<&str>,
    is_paused: bool,
) -> &'a mut Stage {
    let mut annotations = json!({});
    if let Some(trigger) = trigger {
        annotations[TRIGGER] = json!(trigger);
    }
    if is_paused {
        annotations[PAUSED] = json!("true");
    }
    stage.applied("edge", UP.gateway(name, annotations))
}

/// The Gateways `a` and `b`, each touched as this scope asks for.
fn two_gateways(scope: TouchScope) -> Stage {
    let mut stage = Stage::new(with_scope(scope));
    stage.edge(N1);
    for name in ["a", "b"] {
        gateway(stage.applied("edge", UP.proxy(name, &["lab"])), name, None, false);
    }
    stage.settle_to(600_000);
    stage.notes();
    stage
}

/// The triggers that the Gateways of a settled stage carry.
fn triggers(stage: &Stage) -> Vec<String> {
    let connector = &stage.fleet().connectors[0];
    let first = |hop: &HopView| hop.evidence[0].split(' ').nth(1).unwrap().to_owned();
    connector.hops_of(Hop::Announced).map(first).collect()
}

/// Nothing is touched, and no touch is late.
fn assert_paused(stage: &mut Stage) {
    assert!(stage.actions().iter().all(|action| action.action.verb != Verb::Touch));
    stage.causes();
    let wrong = stage.wrong();
    assert!(wrong.contains(&Cause::Paused) && !wrong.contains(&Cause::NotAnnounced), "{wrong:?}");
}

#[test]
fn a_paused_gateway_is_not_touched_until_it_is_resumed() {
    let mut stage = settled();
    let before = triggers(&stage).remove(0);
    gateway(&mut stage, "app", Some(&before), true);
    assert_eq!(stage.worst(), PAUSED_GATEWAY, "also while it announces the truth");
    stage.upstream(OFFLINE).hub(OFFLINE).edge(OFFLINE).pass_to(600_000 + 48 * HOUR);
    assert_paused(&mut stage);
    assert_eq!(stage.worst(), PAUSED_GATEWAY);
    let hop = stage.hop(Hop::Announced);
    assert_eq!(hop.since_ms, Some(UnixMillis(START + 600_000)), "since the pause began");
    assert!(hop.message.unwrap().ends_with("/app in edge is paused by annotation."));

    let touch = gateway(&mut stage, "app", Some(&before), false).pass(0).only_action();
    assert_eq!(time_of(&touch), stage.time(), "at once");
    let passed = stage.succeed(&touch).notes_of(|kind| match kind {
        NoteKind::HopPassed { hop: Hop::Announced, after_ms, .. } => Some(after_ms),
        _ => None,
    });
    assert_eq!(passed, [None], "two days of pause are not how long a touch takes");
    assert_eq!(stage.state(), OFFLINE_AND_OK);
}

#[test]
fn a_gateway_that_is_paused_from_the_start_is_touched_once_it_is_resumed() {
    let mut stage = Stage::new(Settings::default());
    gateway(stage.edge(N1).proxy(&["lab"]), "app", None, true).quiet_to(HOUR);
    let touch = gateway(&mut stage, "app", None, false).action_at(HOUR + 100);
    assert_eq!(touch.action.verb, Verb::Touch);
}

#[test]
fn a_touch_in_flight_at_the_pause_is_the_last_one() {
    let mut stage = settled();
    let before = triggers(&stage).remove(0);
    let touch = stage.edge(OFFLINE).action_at(600_100);
    gateway(&mut stage, "app", Some(&before), true).finish(&touch, forbidden());
    stage.pass_to(600_000 + HOUR);
    assert_paused(&mut stage);
    // The refusal before the pause does not delay the touch after it.
    let touch = gateway(&mut stage, "app", Some(&before), false).pass(0).only_action();
    assert_eq!(touch.action.verb, Verb::Touch);
}

/// Of two Gateways one is paused and the other one can't be written: the connector is late because of
/// the other one alone.
#[test]
fn a_paused_gateway_hides_nothing_of_another() {
    let mut stage = two_gateways(TouchScope::Gateway);
    let a = triggers(&stage).remove(0);
    gateway(&mut stage, "a", Some(&a), true);
    let refuse = |stage: &mut Stage, touch: &Decision| {
        assert_eq!(name_of(touch), "b");
        stage.finish(touch, forbidden());
    };
    stage.edge(OFFLINE).run_to(660_000, refuse);
    assert_eq!(stage.wrong(), [Cause::WriteRefused, Cause::Paused]);
    assert_eq!(stage.worst(), (State::Stuck, Hop::Announced, Some(Cause::WriteRefused)));
    let probe = stage.action_at(660_100);
    assert_eq!(stage.succeed(&probe).wrong(), [Cause::Paused], "only the paused is left");
    assert_eq!(stage.worst(), PAUSED_GATEWAY);
    // Once it is resumed and refused, it is late by itself.
    gateway(&mut stage, "a", Some(&a), false).pass(100);
    for touch in stage.actions() {
        match name_of(&touch) {
            "a" => stage.finish(&touch, forbidden()),
            _ => stage.succeed(&touch),
        };
    }
    assert_eq!(stage.pass(29_000).wrong(), [Cause::WriteRefused]);
}

#[test]
fn a_class_goes_on_through_a_gateway_that_is_not_paused() {
    let mut stage = two_gateways(TouchScope::GatewayClass);
    let carried = triggers(&stage).remove(0);
    let touch = gateway(&mut stage, "a", Some(&carried), true).action_at(600_100);
    assert_eq!(name_of(&touch), "b", "the trigger moves to the other one");
    let touches = stage.succeed(&touch).edge(OFFLINE).settle_to(700_000);
    assert!(!touches.is_empty() && touches.iter().all(|touch| name_of(touch) == "b"));
    assert_eq!(stage.state(), OFFLINE_AND_OK, "a paused member stops nobody");
    stage.causes();
    assert_eq!(stage.wrong(), [], "nothing waits for it");
}

#[test]
fn a_class_waits_while_all_its_gateways_are_paused() {
    let mut stage = two_gateways(TouchScope::GatewayClass);
    let first = triggers(&stage).remove(0);
    gateway(&mut stage, "b", None, true);
    gateway(&mut stage, "a", Some(&first), true).edge(OFFLINE).quiet_to(600_000 + HOUR);
    assert_eq!(stage.wrong(), [Cause::Paused]);
    assert_eq!(stage.worst(), PAUSED_GATEWAY);
    let touch = gateway(&mut stage, "b", None, false).pass(0).only_action();
    assert_eq!((name_of(&touch), time_of(&touch)), ("b", stage.time()));
    assert_eq!(touch.action.verb, Verb::Touch);
    assert_ne!(written(&touch), Some(&*first));
}
