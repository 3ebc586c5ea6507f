//! Writes that an API server did not carry out: when they are tried again, and when all of them are.
//! The cause of a failure may end long before the pauses do, and what is refused must not be asked
//! for again and again.

use std::collections::BTreeSet;

use throughline_core::contract::action::{Decision, Verb};
use throughline_core::contract::error_cause::{ErrorCause, RequestFailure};
use throughline_core::contract::event::{EventKind, Outcome};
use throughline_core::contract::note::{Anomaly, AnomalyKind, NoteKind};
use throughline_core::contract::settings::Settings;

use crate::stage::{START, Stage, UID, status};

const MINUTE: u64 = 60_000;

fn forbidden() -> Outcome {
    Outcome::Refused { error: RequestFailure::new(ErrorCause::Forbidden, "403 Forbidden: no") }
}

fn unavailable() -> Outcome {
    Outcome::Failed {
        error: RequestFailure::new(ErrorCause::ServerError, "503 ServiceUnavailable: no"),
        retry_after_ms: None,
    }
}

/// Connector `n` upstream, with this status, and its hub Connector without an annotation.
fn add(stage: &mut Stage, n: u64) {
    let v = stage.version();
    let status = status(Some("n1"));
    stage.applied("up", &format!(r#"{{"kind":"Connector","metadata":{{"namespace":"default","name":"c{n}","uid":"u-up-{n}","resourceVersion":"{v}"}},"status":{status}}}"#));
    stage.applied("hub", &format!(r#"{{"kind":"Connector","metadata":{{"namespace":"ns-{UID}","name":"c{n}","uid":"u-hub-{n}","resourceVersion":"{v}","labels":{{"meta.datumapis.com/upstream-cluster-name":"cluster-up","meta.datumapis.com/upstream-namespace":"default","meta.datumapis.com/upstream-name":"c{n}"}}}}}}"#));
}

/// A hub whose Connectors all wait: each write ended with `outcome`, at the start.
fn waiting(count: u64, outcome: &Outcome) -> Stage {
    let mut stage = Stage::new(Settings::default());
    for n in 0..count {
        add(&mut stage, n);
    }
    let mirrors = stage.actions();
    assert_eq!(mirrors.len() as u64, count);
    mirrors.iter().for_each(|mirror| stage.finish(mirror, outcome.clone()));
    stage
}

fn names(decisions: &[Decision]) -> Vec<&str> {
    decisions.iter().map(|decision| &*decision.action.object.name).collect()
}

fn refusals(stage: &mut Stage) -> Vec<String> {
    let notes = stage.notes().into_iter().filter_map(|note| match note.kind {
        NoteKind::Anomaly(Anomaly { anomaly: AnomalyKind::Refused, detail, .. }) => Some(detail),
        _ => None,
    });
    notes.collect()
}

#[test]
fn what_was_refused_is_written_within_15_s_of_its_permission_and_then_all_at_once() {
    for outcome in [forbidden(), Outcome::NotFound] {
        let mut stage = waiting(100, &outcome);
        stage.pass_to(14_999);
        stage.assert_no_action();
        stage.pass_to(15_000);
        let probe = stage.only_action();
        stage.succeed(&probe);
        let others = stage.actions();
        assert_eq!(others.len(), 99, "{outcome:?}");
        others.iter().for_each(|other| stage.succeed(other));
        stage.pass_to(10 * MINUTE);
        stage.assert_no_action();
        assert_eq!(stage.machine.poll_deadline(), None, "nothing is left that would wake it");
    }
}

/// By then the pauses are a minute long.
#[test]
fn after_130_s_of_503s_the_first_success_comes_within_15_s_and_releases_all() {
    let mut stage = waiting(100, &unavailable());
    for second in 1..=130 {
        stage.pass_to(second * 1_000);
        for retry in stage.actions() {
            stage.finish(&retry, unavailable());
        }
    }
    let mut first = Vec::new();
    while first.is_empty() {
        stage.pass_to(stage.now - START + 1_000);
        first = stage.actions();
    }
    assert!(stage.now <= START + 145_000);
    first.iter().for_each(|probe| stage.succeed(probe));
    assert_eq!(first.len() + stage.actions().len(), 100);
}

/// One request every 15 s for the whole hub, a different object each time, and once in 5 minutes
/// each object for itself.
#[test]
fn what_stays_refused_costs_one_request_every_15_s() {
    let mut stage = waiting(100, &forbidden());
    let mut tried = BTreeSet::new();
    for n in 1..20 {
        stage.pass_to(n * 15_000 - 1);
        stage.assert_no_action();
        stage.pass_to(n * 15_000);
        let probe = stage.only_action();
        tried.insert(probe.action.object.name.clone());
        stage.finish(&probe, forbidden());
    }
    assert_eq!(tried.len(), 19);
    stage.pass_to(300_000);
    assert_eq!(stage.actions().len(), 81 + 1);
}

/// Where most objects are refused for reasons of their own, a success of another says nothing about
/// them: it lets each be tried once, no more often than the probes come.
#[test]
fn successes_elsewhere_do_not_release_what_is_refused() {
    let mut stage = waiting(50, &forbidden());
    for n in 0..7 {
        stage.pass_to(2_000 * n);
        add(&mut stage, 100 + n);
        let fresh = stage.only_action();
        // A write that fails in passing and then succeeds speaks only for those that failed like it.
        if n % 2 == 0 {
            stage.finish(&fresh, unavailable());
            stage.pass_to(2_000 * n + 1_000);
            let again = stage.only_action();
            stage.succeed(&again);
        } else {
            stage.succeed(&fresh);
        }
        stage.assert_no_action();
    }
}

#[test]
fn a_refused_write_says_when_the_next_attempt_is_and_says_it_once() {
    let mut stage = waiting(1, &forbidden());
    assert_eq!(
        refusals(&mut stage),
        [
            "mirror refused: 403 Forbidden: no; fix the permission or webhook; next attempt in 15 s, or \
          when upstream changes"
        ]
    );
    for n in 1..40 {
        stage.pass_to(n * 15_000);
        let probe = stage.only_action();
        stage.finish(&probe, forbidden());
    }
    assert_eq!(refusals(&mut stage), [""; 0]);
    // Another reason is news.
    stage.pass_to(40 * 15_000);
    let probe = stage.only_action();
    stage.finish(&probe, Outcome::Refused { error: "403 Forbidden: a webhook".into() });
    assert_eq!(refusals(&mut stage).len(), 1);
}

/// 130 s of 503s: the pauses have grown to a minute. The hub is healthy again, and its watch says so.
#[test]
fn a_watch_that_is_live_again_ends_the_pauses_of_what_could_not_be_reached() {
    // What was refused is not released: one write is tried, because none could be in the meantime.
    for (again, outcome, released) in
        [("resumed", unavailable(), 10), ("listed", unavailable(), 10), ("resumed", forbidden(), 1)]
    {
        let mut stage = waiting(10, &outcome);
        stage.pass_to(900);
        stage.lost("hub", "Connector");
        for n in 1..130 {
            stage.pass_to(n * 1_000);
            for retry in stage.actions() {
                stage.finish(&retry, outcome.clone());
            }
        }
        stage.pass_to(130_000);
        stage.actions();
        match again {
            "resumed" => stage.resumed("hub", "Connector"),
            _ => {
                stage.list_started("hub", "HTTPRoute");
                stage.resumed("hub", "Connector");
                stage.list_finished("hub", "HTTPRoute");
            }
        }
        assert_eq!(stage.actions().len(), released, "{again} {outcome:?}");
    }
}

/// A watch that comes and goes every second must not make each failing write as frequent.
#[test]
fn a_flapping_watch_does_not_hammer() {
    let mut stage = waiting(20, &unavailable());
    let mut attempts = 0;
    for second in 1..=120 {
        stage.pass_to(second * 1_000);
        stage.lost("hub", "HTTPRoute");
        stage.resumed("hub", "HTTPRoute");
        for retry in stage.actions() {
            attempts += 1;
            stage.finish(&retry, unavailable());
        }
    }
    assert!(attempts <= 20 * 24, "{attempts} attempts in 2 minutes");
}

#[test]
fn an_instance_that_does_not_lead_probes_no_hub() {
    let mut stage = waiting(3, &forbidden());
    stage.event(EventKind::LeadershipLost);
    stage.pass_to(2 * MINUTE);
    stage.assert_no_action();
    stage.event(EventKind::LeadershipAcquired);
    let probe = stage.only_action();
    stage.succeed(&probe);
    assert_eq!(stage.actions().len(), 2);
}

#[test]
fn a_connector_that_goes_while_it_waits_is_forgotten() {
    let mut stage = waiting(2, &forbidden());
    stage.deleted("hub", &format!(r#"{{"kind":"Connector","metadata":{{"namespace":"ns-{UID}","name":"c0","uid":"u-hub-0","resourceVersion":"99"}}}}"#));
    stage.pass_to(15_000);
    assert_eq!(names(&stage.actions()), ["c1"]);
    stage.event(EventKind::ClusterRemoved { cluster: "hub".into() });
    stage.pass_to(10 * MINUTE);
    stage.assert_no_action();
    assert_eq!(stage.machine.poll_deadline(), None);
}

/// A pause that protects from another writer is no reason to believe that the API works.
#[test]
fn a_contention_goes_on_pausing_when_the_api_works_again() {
    let mut stage = Stage::new(Settings::default());
    let online = status(Some("n1"));
    stage.upstream(Some(&online));
    stage.hub(Some(&online));
    for _ in 0..6 {
        stage.hub(Some("{}"));
        stage.pass_to(stage.now - START + 20_000);
        let mirror = stage.actions().pop().unwrap();
        stage.hub(Some(&online));
        stage.succeed(&mirror);
    }
    // The seventh overwrite brings a pause of 16 s; a write decided before fails in it.
    stage.hub(Some("{}"));
    stage.lost("hub", "Connector");
    stage.resumed("hub", "Connector");
    stage.assert_no_action();
}

#[test]
fn a_touch_that_was_refused_is_tried_within_15_s_too() {
    let mut stage = Stage::settled(Settings::default());
    stage.edge(Some(&status(None)));
    stage.pass_to(601_000);
    let touch = stage.only_action();
    stage.finish(&touch, forbidden());
    let mut touched = Vec::new();
    while stage.now < START + 10 * MINUTE + 17_000 {
        stage.pass_to(stage.now - START + 100);
        let touches = stage.actions().into_iter().filter(|a| a.action.verb == Verb::Touch);
        touched.extend(touches.map(|touch| touch.at.0 - START));
    }
    assert_eq!(touched, [616_000], "15 s after it was refused");
}
