//! Writes that an API server did not carry out: when they are tried again, and when all of them are.
//! The cause of a failure may end before the pauses do, and what is refused must not be asked for again
//! and again.

use std::collections::BTreeMap;

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

/// Lets time pass, and ends each action with what `outcome` says. Returns when each was decided, in
/// milliseconds after the start.
fn run(
    stage: &mut Stage,
    to_ms: u64,
    mut outcome: impl FnMut(&Decision) -> Outcome,
) -> Vec<(u64, String)> {
    let mut tried = Vec::new();
    loop {
        let decisions = stage.actions();
        for decision in &decisions {
            tried.push((decision.at.0 - START, decision.action.object.name.to_string()));
            stage.finish(decision, outcome(decision));
        }
        match stage.machine.poll_deadline() {
            // An outcome may have let others go.
            _ if !decisions.is_empty() => {}
            Some((at, _)) if at.0 <= START + to_ms => stage.pass_to(at.0.max(stage.now) - START),
            _ => break,
        }
    }
    stage.pass_to(to_ms);
    tried
}

/// The most of these that fall into one second.
fn most_in_a_second(tried: &[(u64, String)]) -> usize {
    let within =
        |i: usize| tried[i..].iter().take_while(|(at, _)| *at < tried[i].0 + 1_000).count();
    (0..tried.len()).map(within).max().unwrap_or_default()
}

/// For two minutes everything is refused, and then nothing.
#[test]
fn of_200_refused_ones_the_first_is_written_within_150_ms_and_all_others_with_it() {
    for (outcome, lifted_at) in [(forbidden(), 120_000), (Outcome::NotFound, 101_234)] {
        let mut stage = waiting(200, &outcome);
        let tried = run(&mut stage, lifted_at, |_| outcome.clone());
        assert!(most_in_a_second(&tried) <= 20, "{}", most_in_a_second(&tried));

        let applied = |_: &Decision| Outcome::Applied { resource_version: None };
        let written = run(&mut stage, lifted_at + 10 * MINUTE, applied);
        let first_at = written[0].0;
        assert!(first_at - lifted_at <= 150, "{outcome:?}: after {} ms", first_at - lifted_at);
        assert!(written.iter().all(|(at, _)| *at == first_at), "{outcome:?}: all at once");
        assert_eq!(written.len(), 200);
        assert_eq!(stage.machine.poll_deadline(), None, "nothing is left that would wake it");
    }
}

#[test]
fn what_stays_refused_is_tried_every_30_s_and_at_most_twenty_times_a_second() {
    let mut stage = waiting(100, &forbidden());
    let tried = run(&mut stage, 5 * MINUTE, |_| forbidden());
    assert_eq!((tried[0].0, most_in_a_second(&tried)), (300, 4));
    let mut times = BTreeMap::<_, Vec<_>>::new();
    for (at, name) in &tried {
        times.entry(name).or_default().push(*at);
    }
    assert_eq!(times.len(), 100);
    for times in times.values() {
        assert!(times[0] <= 30_000 && times.windows(2).all(|w| w[1] - w[0] == 30_000), "{times:?}");
    }

    let mut stage = waiting(2_000, &forbidden());
    let tried = run(&mut stage, MINUTE, |_| forbidden());
    // As many may be tried at once as in a second.
    assert!(most_in_a_second(&tried) <= 40 && tried.len() <= 60 * 20 + 20, "{}", tried.len());
}

#[test]
fn after_130_s_of_503s_the_first_success_comes_within_30_s_and_releases_all() {
    let mut stage = waiting(100, &unavailable());
    let tried = run(&mut stage, 130_000, |_| unavailable());
    assert!(most_in_a_second(&tried) <= 40, "{}", most_in_a_second(&tried));
    let written = run(&mut stage, 160_000, |_| Outcome::Applied { resource_version: None });
    assert_eq!(written.len(), 100);
    assert!(written.iter().all(|(at, _)| *at == written[0].0));
}

#[test]
fn one_error_in_passing_costs_a_second() {
    let mut stage = waiting(1, &unavailable());
    let tried = run(&mut stage, MINUTE, |_| Outcome::Applied { resource_version: None });
    assert_eq!(tried, [(1_000, "c0".to_owned())]);
}

#[test]
fn a_retry_after_counts_up_to_30_s() {
    for (asked_ms, waited_ms) in [(500, 1_000), (7_000, 7_000), (86_400_000, 30_000)] {
        let error = RequestFailure::new(ErrorCause::Throttled, "429 TooManyRequests: no");
        let mut stage = waiting(1, &Outcome::Failed { error, retry_after_ms: Some(asked_ms) });
        let tried = run(&mut stage, MINUTE, |_| Outcome::Applied { resource_version: None });
        assert_eq!(tried, [(waited_ms, "c0".to_owned())]);
    }
}

/// Where objects are refused for reasons of their own, a success of a lesser reason says nothing about
/// them.
#[test]
fn successes_elsewhere_do_not_release_what_is_refused() {
    let mut stage = waiting(50, &forbidden());
    let mut failed = Vec::new();
    for n in 0..7 {
        add(&mut stage, 1_000 + n);
        // Every second one fails in passing and then succeeds.
        let tried = run(&mut stage, 2_000 * (n + 1), |decision| {
            let name = decision.action.object.name.to_string();
            let is_fresh = name.starts_with("c100");
            match is_fresh && (n % 2 == 1 || failed.contains(&name)) {
                true => Outcome::Applied { resource_version: None },
                false if is_fresh => {
                    failed.push(name);
                    unavailable()
                }
                false => forbidden(),
            }
        });
        let refused = tried.iter().filter(|(_, name)| !name.starts_with("c100")).count();
        assert!(refused <= 4, "{refused} of 50 in 2 s, though each waits 30 s");
    }
}

/// A lasting refusal beside an object that alternates between refusal and success.
#[test]
fn a_failure_is_released_at_most_once_in_30_s() {
    let mut stage = waiting(10, &forbidden());
    let (mut tried, mut is_well) = (Vec::new(), false);
    for n in 0..120 {
        if n % 2 == 1 {
            let upstream = format!("n{n}");
            let v = stage.version();
            let status = status(Some(&upstream));
            stage.applied("up", &format!(r#"{{"kind":"Connector","metadata":{{"namespace":"default","name":"c0","uid":"u-up-0","resourceVersion":"{v}"}},"status":{status}}}"#));
        }
        tried.extend(run(&mut stage, 1_000 * (n + 1), |decision| {
            if &*decision.action.object.name != "c0" {
                return forbidden();
            }
            is_well = !is_well;
            if is_well { Outcome::Applied { resource_version: None } } else { forbidden() }
        }));
    }
    for n in 1..10 {
        let name = format!("c{n}");
        let times = tried.iter().filter(|(_, other)| *other == name).count();
        assert!(times <= 10, "{name}: {times} times in 2 minutes");
    }
}

#[test]
fn a_refused_write_says_when_the_next_attempt_is_and_says_it_once() {
    let mut stage = waiting(1, &forbidden());
    assert_eq!(
        refusals(&mut stage),
        [
            "mirror refused: 403 Forbidden: no; fix the permission or webhook; next attempt in 30 s, or \
          when upstream changes"
        ]
    );
    for n in 1..20 {
        stage.pass_to(n * 30_000 - 1);
        stage.assert_no_action();
        stage.pass_to(n * 30_000);
        let retry = stage.only_action();
        stage.finish(&retry, forbidden());
    }
    assert_eq!(refusals(&mut stage), [""; 0]);
    // Another reason is news.
    stage.pass_to(20 * 30_000);
    let retry = stage.only_action();
    stage.finish(&retry, Outcome::Refused { error: "403 Forbidden: a webhook".into() });
    assert_eq!(refusals(&mut stage).len(), 1);
}

/// What is released because another one was written, and is refused again, was said before.
#[test]
fn a_released_refusal_is_no_news() {
    let mut stage = waiting(3, &forbidden());
    assert_eq!(refusals(&mut stage).len(), 3);
    stage.pass_to(10_000);
    let first = stage.only_action();
    stage.succeed(&first);
    let others = stage.actions();
    assert_eq!(others.len(), 2);
    others.iter().for_each(|other| stage.finish(other, forbidden()));
    assert_eq!(refusals(&mut stage), [""; 0]);
}

/// 130 s of 503s: the pauses have grown to 30 s. The hub is healthy again, and its watch says so.
#[test]
fn a_watch_that_is_live_again_ends_the_pauses_of_what_could_not_be_reached() {
    for again in ["resumed", "listed"] {
        // What was refused is not released: at most the one whose turn it is goes.
        for (outcome, released) in [(unavailable(), 30..=30), (forbidden(), 0..=1)] {
            let mut stage = waiting(30, &outcome);
            run(&mut stage, 130_500, |_| outcome.clone());
            match again {
                "resumed" => {
                    stage.lost("hub", "Connector");
                    stage.resumed("hub", "Connector");
                }
                _ => stage.list("hub", "HTTPRoute", &[]),
            }
            let found = stage.actions().len();
            assert!(released.contains(&found), "{again} {outcome:?}: {found}");
        }
    }
}

/// A watch that comes and goes every second must not make each failing write as frequent.
#[test]
fn a_flapping_watch_does_not_hammer() {
    let mut stage = waiting(20, &unavailable());
    let mut attempts = 0;
    for second in 1..=120 {
        attempts += run(&mut stage, second * 1_000, |_| unavailable()).len();
        stage.lost("hub", "HTTPRoute");
        stage.resumed("hub", "HTTPRoute");
    }
    assert!(attempts <= 20 * 12, "{attempts} attempts in 2 minutes");
}

#[test]
fn an_instance_that_does_not_lead_tries_nothing_at_a_hub() {
    let mut stage = waiting(3, &forbidden());
    stage.event(EventKind::LeadershipLost);
    stage.pass_to(2 * MINUTE);
    stage.assert_no_action();
    stage.event(EventKind::LeadershipAcquired);
    assert_eq!(stage.actions().len(), 3, "each has waited for long enough");
}

#[test]
fn a_connector_that_goes_while_it_waits_is_forgotten() {
    let mut stage = waiting(2, &forbidden());
    stage.deleted("hub", &format!(r#"{{"kind":"Connector","metadata":{{"namespace":"ns-{UID}","name":"c0","uid":"u-hub-0","resourceVersion":"99"}}}}"#));
    stage.pass_to(30_000);
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
fn a_touch_that_was_refused_is_tried_within_30_s_too() {
    let mut stage = Stage::settled(Settings::default());
    stage.edge(Some(&status(None)));
    stage.pass_to(601_000);
    let touch = stage.only_action();
    stage.finish(&touch, forbidden());
    let mut touched = Vec::new();
    while stage.now < START + 10 * MINUTE + 33_000 {
        stage.pass_to(stage.now - START + 100);
        let touches = stage.actions().into_iter().filter(|a| a.action.verb == Verb::Touch);
        touched.extend(touches.map(|touch| touch.at.0 - START));
    }
    assert_eq!(touched, [631_000], "30 s after it was refused");
}
