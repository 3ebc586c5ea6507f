//! Objects that a person has paused by annotation: nothing is written to them, nothing about them is late,
//! and once the annotation is gone, what is behind is written at once.

mod gateways;

use crate::stage::*;

const PAUSED_HUB: (State, Hop, Option<Cause>) = (State::Held, Hop::Mirrored, Some(Cause::Paused));

/// The hub Connector with this status annotation, and that of a pause.
fn hub<'a>(stage: &'a mut Stage, status: Option<&str>, paused: Option<&str>) -> &'a mut Stage {
    let mut object = with_uid(UP.copy("lab", status), "u-hub");
    if let Some(value) = paused {
        object["metadata"]["annotations"][PAUSED] = json!(value);
    }
    stage.applied("hub", object)
}

fn settled() -> Stage {
    Stage::settled(Settings::default())
}

/// The hub Connector is paused at 600 s.
fn paused() -> Stage {
    let mut stage = settled();
    hub(&mut stage, N1, Some("true"));
    stage
}

#[test]
fn a_paused_hub_connector_is_not_mirrored_until_it_is_resumed() {
    let mut stage = paused();
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
        let mut stage = settled();
        let mirror = hub(&mut stage, N1, Some(value)).upstream(OFFLINE).only_action();
        assert_eq!(mirror.action.verb, Verb::Mirror, "{value:?}");
    }
}

#[test]
fn a_paused_hub_connector_is_not_nudged() {
    let mut stage = settled();
    let mirror = stage.upstream(OFFLINE).only_action();
    // The carrier does not carry it. Without the pause, it is nudged after a while.
    hub(stage.succeed(&mirror), OFFLINE, Some("true")).quiet_to(600_000 + HOUR);
    assert_eq!(stage.causes(), [(true, Cause::Paused)]);
    let nudges = hub(&mut stage, OFFLINE, None).pass_to(600_000 + 2 * HOUR).actions();
    assert!(nudges.iter().any(|action| action.action.verb == Verb::Nudge), "{nudges:?}");
}

#[test]
fn a_pause_that_comes_while_a_write_is_in_flight_is_honoured_by_the_next() {
    for outcome in [applied(None), forbidden(), conflict()] {
        let mut stage = settled();
        let mirror = stage.upstream(OFFLINE).only_action();
        hub(&mut stage, N1, Some("true")).finish(&mirror, outcome.clone());
        stage.upstream(N2).quiet_to(600_000 + HOUR);
        assert_eq!(stage.worst(), PAUSED_HUB, "{outcome:?}");
        let mirror = hub(&mut stage, N1, None).only_action();
        assert_eq!(written(&mirror), N2, "{outcome:?}");
    }
}

/// What is wrong about its writes ends with the pause; after it, it is found again.
#[test]
fn a_pause_ends_what_is_wrong_with_a_mirror_and_its_end_starts_the_time_anew() {
    let mut stage = settled();
    stage.upstream(OFFLINE);
    stage.run_to(600_000 + 2 * HOUR, |stage, mirror| _ = stage.finish(mirror, forbidden()));
    assert_eq!(stage.wrong(), [Cause::WriteRefused]);
    assert_eq!(hub(&mut stage, N1, Some("true")).wrong(), [Cause::Paused]);
    stage.quiet_to(600_000 + 3 * HOUR);
    // A refusal before the pause does not delay the write after it.
    let mirror = hub(&mut stage, N1, None).only_action();
    assert_eq!(stage.finish(&mirror, forbidden()).pass(MINUTE).wrong(), [Cause::WriteRefused]);
}

/// Whoever pauses an object may write its annotation. That is no contention.
#[test]
fn what_a_person_writes_during_a_pause_is_put_right_after_it() {
    let mut stage = settled();
    for _ in 0..20 {
        hub(&mut stage, Some("{}"), Some("true"));
        hub(&mut stage, N1, Some("true"));
    }
    assert_eq!(hub(&mut stage, Some("{}"), Some("true")).causes(), [(true, Cause::Paused)]);
    assert_eq!(written(&hub(&mut stage, Some("{}"), None).only_action()), N1);
}

#[test]
fn a_removal_is_not_carried_out_nor_counted_during_a_pause() {
    let mut stage = paused();
    stage.upstream(None).quiet_to(600_000 + HOUR);
    let removals = hub(&mut stage, N1, None).settle_to(600_000 + HOUR + MINUTE);
    assert_eq!(removals[0].action.annotations, [(STATUS.to_owned(), None)]);
}

#[test]
fn a_paused_route_is_never_deleted() {
    let mut stage = Stage::new(settings(|s| s.orphans.mode = OrphanMode::Delete));
    let route = UP.route("lab", START - HOUR, &["gone"]);
    let pause = json!({"metadata": {"annotations": { PAUSED: "true" }}});
    stage.applied("hub", with(route.clone(), pause)).quiet_to(HOUR);
    assert_eq!(stage.causes(), [(true, Cause::Paused)]);
    let deletes = stage.applied("hub", route).settle_to(HOUR + MINUTE);
    assert_eq!(deletes[0].action.verb, Verb::Delete, "after the settling time");
}
