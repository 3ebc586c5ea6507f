//! Objects that a person has paused by annotation: nothing is written to them, nothing about them is late,
//! and once the annotation is gone, what is behind is written at once.

use crate::stage::*;

const PAUSED_HUB: (State, Hop, Option<Cause>) = (State::Held, Hop::Mirrored, Some(Cause::Paused));
const PAUSED_GATEWAY: (State, Hop, Option<Cause>) =
    (State::Held, Hop::Announced, Some(Cause::Paused));

/// The hub Connector with this status annotation, and that of a pause.
fn hub<'a>(stage: &'a mut Stage, status: Option<&str>, paused: Option<&str>) -> &'a mut Stage {
    let mut object = with_uid(UP.copy("lab", status), "u-hub");
    if let Some(value) = paused {
        object["metadata"]["annotations"][PAUSED] = json!(value);
    }
    stage.applied("hub", object)
}

#[test]
fn a_paused_hub_connector_is_not_mirrored_until_it_is_resumed() {
    let mut stage = Stage::settled(Settings::default());
    hub(&mut stage, N1, Some("true"));
    assert_eq!(stage.worst(), PAUSED_HUB, "also while nothing is behind");
    stage.upstream(OFFLINE).quiet_to(600_000 + 48 * HOUR);
    assert_eq!(stage.causes(), [(true, Cause::Paused)], "what is paused is not late");
    assert_eq!(stage.worst(), PAUSED_HUB);
    assert_eq!(stage.wrong(), [Cause::Paused]);
    let hop = stage.hop(Hop::Mirrored);
    assert_eq!(hop.since_ms, Some(UnixMillis(START + 600_000)), "since the pause began");
    let message = format!("Connector ns-{UID}/lab in hub is paused by annotation.");
    assert_eq!(hop.message, Some(message));

    let mirror = hub(&mut stage, N1, None).only_action();
    assert_eq!(time_of(&mirror), stage.time(), "at once");
    assert_eq!(mirror.action.annotations, [(STATUS.to_owned(), OFFLINE.map(str::to_owned))]);
    assert_eq!(stage.succeed(&mirror).causes(), [(false, Cause::Paused)], "nor is it late now");
    assert_eq!(stage.wrong(), []);
    // The time of the pause is nobody's delay.
    let timed = stage.edge(OFFLINE).notes_of(|kind| match kind {
        NoteKind::HopPassed { hop: Hop::Mirrored, after_ms, .. } => after_ms,
        _ => None,
    });
    assert!(timed.iter().all(|ms| *ms < HOUR), "{timed:?}");
}

#[test]
fn only_the_value_true_pauses() {
    for value in ["false", "True", "yes", ""] {
        let mut stage = Stage::settled(Settings::default());
        let mirror = hub(&mut stage, N1, Some(value)).upstream(OFFLINE).only_action();
        assert_eq!(mirror.action.verb, Verb::Mirror, "{value:?}");
    }
}

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

/// The trigger that the first Gateway of a settled stage carries.
fn trigger(stage: &Stage) -> String {
    stage.hop(Hop::Announced).evidence[0].split(' ').nth(1).unwrap().to_owned()
}

#[test]
fn a_paused_gateway_is_not_touched_until_it_is_resumed() {
    let mut stage = Stage::settled(Settings::default());
    let before = trigger(&stage);
    gateway(&mut stage, "app", Some(&before), true);
    assert_eq!(stage.worst(), PAUSED_GATEWAY, "also while it announces the truth");
    stage.upstream(OFFLINE).hub(OFFLINE).edge(OFFLINE).pass_to(600_000 + 48 * HOUR);
    assert!(stage.actions().iter().all(|action| action.action.verb != Verb::Touch));
    let wrong = stage.wrong();
    assert!(wrong.contains(&Cause::Paused) && !wrong.contains(&Cause::NotAnnounced), "{wrong:?}");
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
fn a_class_waits_while_all_its_gateways_are_paused() {
    let mut stage = Stage::new(with_scope(TouchScope::GatewayClass));
    stage.edge(N1);
    for name in ["a", "b"] {
        gateway(stage.applied("edge", UP.proxy(name, &["lab"])), name, None, false);
    }
    stage.settle_to(600_000);
    let first = trigger(&stage);
    gateway(&mut stage, "b", None, true);
    gateway(&mut stage, "a", Some(&first), true).edge(OFFLINE).quiet_to(600_000 + HOUR);
    assert_eq!(stage.wrong(), [Cause::Paused]);
    assert_eq!(stage.worst(), PAUSED_GATEWAY);
    let touch = gateway(&mut stage, "b", None, false).pass(0).only_action();
    assert_eq!((name_of(&touch), time_of(&touch)), ("b", stage.time()));
    assert_eq!(touch.action.verb, Verb::Touch);
    assert_ne!(written(&touch), Some(&*first));
}
