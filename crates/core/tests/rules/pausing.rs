//! Objects that a person has paused by annotation: nothing is written to them, nothing about them is late,
//! and once the annotation is gone, what is behind is written at once.

mod gateways;

use serde_json::{Value, json};
use throughline_core::contract::action::Verb;
use throughline_core::contract::error_cause::{ErrorCause, RequestFailure};
use throughline_core::contract::event::Outcome;
use throughline_core::contract::note::{Hop, NoteKind};
use throughline_core::contract::settings::{OrphanMode, Settings};
use throughline_core::data::ids::Kind;
use throughline_core::view::phase::Phase;

use crate::stage::{self, START, Stage, status};

const PAUSED: &str = "throughline.datumapis.com/paused";
const STATUS: &str = "networking.datumapis.com/upstream-status";
const HOUR: u64 = 3_600_000;

fn forbidden() -> Outcome {
    Outcome::Refused { error: RequestFailure::new(ErrorCause::Forbidden, "403 Forbidden: no") }
}

/// The hub Connector with this status annotation, paused or not.
fn hub(stage: &mut Stage, status: &str, paused: Option<&str>) {
    let mut object: Value =
        serde_json::from_str(&stage.connector_copy("u-hub", Some(status))).unwrap();
    if let Some(value) = paused {
        object["metadata"]["annotations"][PAUSED] = json!(value);
    }
    stage.applied("hub", &object.to_string());
}

fn phase(stage: &Stage) -> Phase {
    let view = stage.machine.view();
    assert_eq!(view.phases, stage.machine.phases());
    view.connectors[0].phase
}

fn paused_objects(stage: &Stage) -> Vec<(String, Kind, u64)> {
    let counts = stage.machine.paused_objects().into_iter();
    counts.map(|((cluster, kind), count)| (cluster.to_string(), kind, count)).collect()
}

fn stalls(stage: &mut Stage) -> Vec<(bool, Hop)> {
    let stalls = stage.notes().into_iter().filter_map(|note| match note.kind {
        NoteKind::Stalled(stall) => Some((true, stall.hop)),
        NoteKind::StallEnded(stall) => Some((false, stall.hop)),
        _ => None,
    });
    stalls.collect()
}

fn settled() -> Stage {
    let mut stage = Stage::settled(Settings::default());
    stage.notes();
    stage
}

#[test]
fn a_paused_hub_connector_is_not_mirrored_until_it_is_resumed() {
    let (mut stage, online, offline) = (settled(), status(Some("n1")), status(None));
    hub(&mut stage, &online, Some("true"));
    assert_eq!(phase(&stage), Phase::Paused, "also while nothing is behind");
    stage.upstream(Some(&offline));
    stage.pass_to(600_000 + 48 * HOUR);
    stage.assert_no_action();
    assert_eq!(stalls(&mut stage), [], "what is paused is not late");
    assert_eq!(phase(&stage), Phase::Paused);
    assert_eq!(paused_objects(&stage), [("hub".to_owned(), Kind::Connector, 1)]);
    let view = serde_json::to_value(stage.machine.view()).unwrap();
    assert_eq!(view["connectors"][0]["hubs"][0]["annotation"], "paused");

    hub(&mut stage, &online, None);
    let mirror = stage.only_action();
    assert_eq!(mirror.at.0, stage.now, "at once");
    assert_eq!(mirror.action.annotations, [(STATUS.to_owned(), Some(offline.clone()))]);
    stage.succeed(&mirror);
    assert_eq!(stalls(&mut stage), [], "it was not late before, and is not now");
    assert_eq!(paused_objects(&stage), []);
    // The time of the pause is nobody's delay.
    stage.edge(Some(&offline));
    let timed = stage.notes().into_iter().filter_map(|note| match note.kind {
        NoteKind::HopPassed { hop: Hop::Mirrored, after_ms, .. } => Some(after_ms),
        _ => None,
    });
    assert!(timed.flatten().all(|ms| ms < HOUR));
}

#[test]
fn only_the_value_true_pauses() {
    for value in ["false", "True", "yes", ""] {
        let (mut stage, online) = (settled(), status(Some("n1")));
        hub(&mut stage, &online, Some(value));
        stage.upstream(Some(&status(None)));
        assert_eq!(stage.only_action().action.verb, Verb::Mirror, "{value:?}");
    }
}

#[test]
fn a_paused_hub_connector_is_not_nudged() {
    let (mut stage, offline) = (settled(), status(None));
    stage.upstream(Some(&offline));
    let mirror = stage.only_action();
    stage.succeed(&mirror);
    // The carrier does not carry it. Without the pause, it is nudged after a while.
    hub(&mut stage, &offline, Some("true"));
    stage.pass_to(600_000 + HOUR);
    stage.assert_no_action();
    assert_eq!(stalls(&mut stage), []);
    hub(&mut stage, &offline, None);
    stage.pass_to(600_000 + 2 * HOUR);
    let nudges = stage.actions();
    assert!(nudges.iter().any(|action| action.action.verb == Verb::Nudge), "{nudges:?}");
}

#[test]
fn a_pause_that_comes_while_a_write_is_in_flight_is_honoured_by_the_next() {
    for outcome in [None, Some(forbidden()), Some(Outcome::Conflict { error: "409".into() })] {
        let (mut stage, online, offline) = (settled(), status(Some("n1")), status(None));
        stage.upstream(Some(&offline));
        let mirror = stage.only_action();
        hub(&mut stage, &online, Some("true"));
        match outcome.clone() {
            None => stage.succeed(&mirror),
            Some(outcome) => stage.finish(&mirror, outcome),
        }
        stage.upstream(Some(&status(Some("n2"))));
        stage.pass_to(600_000 + HOUR);
        stage.assert_no_action();
        assert_eq!(phase(&stage), Phase::Paused, "{outcome:?}");
        hub(&mut stage, &online, None);
        let mirror = stage.only_action();
        assert_eq!(mirror.action.annotations[0].1, Some(status(Some("n2"))), "{outcome:?}");
    }
}

/// A stall that is open ends with the pause; after it, what is not done in time is late again.
#[test]
fn a_pause_ends_the_stall_of_a_mirror_and_its_end_starts_the_time_anew() {
    let (mut stage, online) = (settled(), status(Some("n1")));
    stage.upstream(Some(&status(None)));
    let mirror = stage.only_action();
    stage.finish(&mirror, forbidden());
    stage.pass_to(600_000 + 2 * HOUR);
    for probe in stage.actions() {
        stage.finish(&probe, forbidden());
    }
    assert_eq!(stalls(&mut stage).first(), Some(&(true, Hop::Mirrored)));
    hub(&mut stage, &online, Some("true"));
    assert_eq!(stalls(&mut stage), [(false, Hop::Mirrored)]);
    stage.pass_to(600_000 + 3 * HOUR);
    stage.assert_no_action();
    hub(&mut stage, &online, None);
    // A refusal before the pause does not delay the write after it.
    let mirror = stage.only_action();
    assert_eq!(stalls(&mut stage), []);
    stage.finish(&mirror, forbidden());
    stage.pass_to(600_000 + 3 * HOUR + 60_000);
    assert_eq!(stalls(&mut stage), [(true, Hop::Mirrored)]);
}

/// Whoever pauses an object may write its annotation. That is no contention.
#[test]
fn what_a_person_writes_during_a_pause_is_put_right_after_it() {
    let (mut stage, online) = (settled(), status(Some("n1")));
    for _ in 0..20 {
        hub(&mut stage, "{}", Some("true"));
        hub(&mut stage, &online, Some("true"));
    }
    hub(&mut stage, "{}", Some("true"));
    assert_eq!(stage.problems(), []);
    hub(&mut stage, "{}", None);
    assert_eq!(stage.only_action().action.annotations[0].1, Some(online));
}

#[test]
fn a_removal_is_not_carried_out_nor_counted_during_a_pause() {
    let (mut stage, online) = (settled(), status(Some("n1")));
    hub(&mut stage, &online, Some("true"));
    stage.upstream(None);
    stage.pass_to(600_000 + HOUR);
    stage.assert_no_action();
    hub(&mut stage, &online, None);
    let removals = stage.settle_to(600_000 + HOUR + 60_000);
    assert_eq!(removals[0].action.annotations, [(STATUS.to_owned(), None)]);
}

#[test]
fn a_paused_route_is_never_deleted() {
    let mut settings = Settings::default();
    settings.orphans.mode = OrphanMode::Delete;
    let mut stage = Stage::new(settings);
    let route = |stage: &mut Stage, is_paused: bool| {
        let version = stage.version().to_string();
        let text = stage::route_object(START, "u-r", &version, "gone");
        let mut object: Value = serde_json::from_str(&text).unwrap();
        if is_paused {
            object["metadata"]["annotations"] = json!({ PAUSED: "true" });
        }
        stage.applied("hub", &object.to_string());
    };
    route(&mut stage, true);
    stage.pass_to(HOUR);
    stage.assert_no_action();
    assert_eq!(paused_objects(&stage), [("hub".to_owned(), Kind::HttpRoute, 1)]);
    route(&mut stage, false);
    let deletes = stage.settle_to(HOUR + 60_000);
    assert_eq!(deletes[0].action.verb, Verb::Delete, "after the settling time");
}
