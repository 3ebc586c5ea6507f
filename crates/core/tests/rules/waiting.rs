//! Writes that an API server did not carry out: when they are tried again, and when all of them are.
//! The cause of a failure may end before the pauses do, and what is refused must not be asked for again
//! and again.

use crate::stage::*;

/// Connectors upstream, and their hub Connectors without an annotation.
fn add(stage: &mut Stage, name: &str) {
    stage.applied("up", UP.connector(name, N1)).applied("hub", UP.copy(name, None));
}

/// A hub whose Connectors all wait: each write ended with `outcome`, at the start.
fn waiting(count: u64, outcome: &Outcome) -> Stage {
    let mut stage = Stage::default();
    (0..count).for_each(|n| add(&mut stage, &format!("c{n}")));
    let mirrors = stage.actions();
    assert_eq!(mirrors.len() as u64, count);
    mirrors.iter().for_each(|mirror| _ = stage.finish(mirror, outcome.clone()));
    stage
}

/// Lets time pass, and ends each action with what `outcome` says. Returns when each was decided, in
/// milliseconds after the start.
fn run(
    stage: &mut Stage,
    to_ms: u64,
    mut outcome: impl FnMut(&Decision) -> Outcome,
) -> Vec<(u64, String)> {
    let mut tried = Vec::new();
    stage.run_to(to_ms, |stage, decision| {
        tried.push((time_of(decision), name_of(decision).to_owned()));
        stage.finish(decision, outcome(decision));
    });
    tried
}

/// The same while each ends well.
fn run_well(stage: &mut Stage, to_ms: u64) -> Vec<(u64, String)> {
    run(stage, to_ms, |_| applied(None))
}

/// The most of these that fall into one second.
fn most_in_a_second(tried: &[(u64, String)]) -> usize {
    let within =
        |i: usize| tried[i..].iter().take_while(|(at, _)| *at < tried[i].0 + 1_000).count();
    (0..tried.len()).map(within).max().unwrap_or_default()
}

/// When each was tried, by name.
fn by_name(tried: &[(u64, String)]) -> BTreeMap<&str, Vec<u64>> {
    let mut times = BTreeMap::<_, Vec<_>>::new();
    tried.iter().for_each(|(at, name)| times.entry(name.as_str()).or_default().push(*at));
    times
}

/// For two minutes everything is refused, and then nothing.
#[test]
fn of_200_refused_ones_the_first_is_written_within_150_ms_and_all_others_with_it() {
    for (outcome, lifted_at) in [(forbidden(), 120_000), (Outcome::NotFound, 101_234)] {
        let mut stage = waiting(200, &outcome);
        let tried = run(&mut stage, lifted_at, |_| outcome.clone());
        assert!(most_in_a_second(&tried) <= 20, "{}", most_in_a_second(&tried));

        let written = run_well(&mut stage, lifted_at + 10 * MINUTE);
        let first_at = written[0].0;
        assert!(first_at - lifted_at <= 150, "{outcome:?}: after {} ms", first_at - lifted_at);
        assert!(written.iter().all(|(at, _)| *at == first_at), "{outcome:?}: all at once");
        assert_eq!(written.len(), 200);
        assert_eq!(stage.machine.poll_deadline(), None, "nothing is left that would wake it");
    }
}

#[test]
fn what_stays_refused_is_tried_every_30_s_and_at_most_twenty_times_a_second() {
    let tried = run(&mut waiting(100, &forbidden()), 5 * MINUTE, |_| forbidden());
    assert_eq!((tried[0].0, most_in_a_second(&tried)), (300, 4));
    let times = by_name(&tried);
    assert_eq!(times.len(), 100);
    for times in times.values() {
        assert!(times[0] <= 30_000 && times.windows(2).all(|w| w[1] - w[0] == 30_000), "{times:?}");
    }

    let tried = run(&mut waiting(2_000, &forbidden()), MINUTE, |_| forbidden());
    // As many may be tried at once as in a second.
    assert!(most_in_a_second(&tried) <= 40 && tried.len() <= 60 * 20 + 20, "{}", tried.len());
}

#[test]
fn after_130_s_of_503s_the_first_success_comes_within_30_s_and_releases_all() {
    let mut stage = waiting(100, &unavailable(None));
    let tried = run(&mut stage, 130_000, |_| unavailable(None));
    assert!(most_in_a_second(&tried) <= 40, "{}", most_in_a_second(&tried));
    let written = run_well(&mut stage, 160_000);
    assert_eq!(written.len(), 100);
    assert!(written.iter().all(|(at, _)| *at == written[0].0));
}

#[test]
fn one_error_in_passing_costs_a_second_and_a_retry_after_counts_up_to_30_s() {
    let throttled = |asked_ms| {
        let error = RequestFailure::new(ErrorCause::Throttled, "429 TooManyRequests: no");
        Outcome::Failed { error, retry_after_ms: Some(asked_ms) }
    };
    for (outcome, waited_ms) in [
        (unavailable(None), 1_000),
        (throttled(500), 1_000),
        (throttled(7_000), 7_000),
        (throttled(86_400_000), 30_000),
    ] {
        let tried = run_well(&mut waiting(1, &outcome), MINUTE);
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
        add(&mut stage, &format!("fresh-{n}"));
        // Every second one fails in passing and then succeeds.
        let tried = run(&mut stage, 2_000 * (n + 1), |decision| {
            let name = name_of(decision).to_owned();
            if !name.starts_with("fresh") {
                return forbidden();
            }
            if n % 2 == 1 || failed.contains(&name) {
                return applied(None);
            }
            failed.push(name);
            unavailable(None)
        });
        let refused = tried.iter().filter(|(_, name)| !name.starts_with("fresh")).count();
        assert!(refused <= 4, "{refused} of 50 in 2 s, though each waits 30 s");
    }
}

/// A lasting refusal beside an object that alternates between refusal and success.
#[test]
fn a_failure_is_released_at_most_once_in_30_s() {
    let mut stage = waiting(10, &forbidden());
    let mut tried = Vec::new();
    let mut is_well = false;
    for n in 0..120 {
        if n % 2 == 1 {
            stage.applied("up", UP.connector("c0", Some(&status(Some(&format!("n{n}"))))));
        }
        tried.extend(run(&mut stage, 1_000 * (n + 1), |decision| {
            is_well ^= name_of(decision) == "c0";
            if is_well && name_of(decision) == "c0" { applied(None) } else { forbidden() }
        }));
    }
    for (name, times) in by_name(&tried).into_iter().filter(|(name, _)| *name != "c0") {
        assert!(times.len() <= 10, "{name}: {} times in 2 minutes", times.len());
    }
}

#[test]
fn a_refusal_is_a_problem_from_the_second_in_a_row_and_another_reason_is_news() {
    let mut stage = waiting(1, &forbidden());
    assert_eq!(stage.wrong(), []);
    let mut began = Vec::new();
    for n in 1..20 {
        let retry = stage.next_at(n * 30_000);
        began.extend(stage.finish(&retry, forbidden()).began(Cause::WriteRefused));
    }
    let [refused] = &began[..] else { panic!("{began:?}") };
    let object = refused.about.object.as_ref().unwrap();
    let expected = format!("hub refuses to patch Connector {object}: 403 Forbidden: no.");
    assert_eq!((refused.sentence(), refused.since.0), (expected, START));
    let retry = stage.action_at(20 * 30_000);
    stage.finish(&retry, Outcome::Refused { error: "403 Forbidden: a webhook".into() });
    assert_eq!(stage.began(Cause::WriteRefused).len(), 1);
}

/// What is released because another one was written, and is refused again, is no more refused than before.
#[test]
fn a_released_refusal_is_no_news() {
    let mut stage = waiting(3, &forbidden());
    run(&mut stage, 31_000, |_| forbidden());
    assert_eq!(stage.began(Cause::WriteRefused).len(), 3);
    let mut is_first = true;
    let tried = run(&mut stage, 50_000, |_| match std::mem::take(&mut is_first) {
        true => applied(None),
        false => forbidden(),
    });
    assert!(tried.len() == 3 && tried.iter().all(|(at, _)| *at == tried[0].0), "{tried:?}");
    assert_eq!(stage.causes(), [(false, Cause::WriteRefused)]);
}

/// 130 s of 503s: the pauses have grown to 30 s. The hub is healthy again, and its watch says so.
#[test]
fn a_watch_that_is_live_again_ends_the_pauses_of_what_could_not_be_reached() {
    type Again = fn(&mut Stage) -> &mut Stage;
    let resumed: Again = |stage| stage.lost("hub", "Connector").resumed("hub", "Connector");
    let listed: Again = |stage| stage.list("hub", "HTTPRoute", []);
    for again in [resumed, listed] {
        // What was refused is not released: at most the one whose turn it is goes.
        for (outcome, released) in [(unavailable(None), 30..=30), (forbidden(), 0..=1)] {
            let mut stage = waiting(30, &outcome);
            run(&mut stage, 130_500, |_| outcome.clone());
            let found = again(&mut stage).actions().len();
            assert!(released.contains(&found), "{outcome:?}: {found}");
        }
    }
}

/// A watch that comes and goes every second must not make each failing write as frequent.
#[test]
fn a_flapping_watch_does_not_hammer() {
    let mut stage = waiting(20, &unavailable(None));
    let mut attempts = 0;
    for second in 1..=120 {
        attempts += run(&mut stage, second * 1_000, |_| unavailable(None)).len();
        stage.lost("hub", "HTTPRoute").resumed("hub", "HTTPRoute");
    }
    assert!(attempts <= 20 * 12, "{attempts} attempts in 2 minutes");
}

#[test]
fn an_instance_that_does_not_lead_tries_nothing_at_a_hub() {
    let mut stage = waiting(3, &forbidden());
    stage.leads(false).quiet_to(2 * MINUTE);
    assert_eq!(stage.leads(true).actions().len(), 3, "each has waited for long enough");
}

#[test]
fn a_connector_that_goes_while_it_waits_is_forgotten() {
    let mut stage = waiting(2, &forbidden());
    stage.deleted("hub", UP.copy("c0", None)).pass_to(30_000);
    assert_eq!(names(&stage.actions()), ["c1"]);
    stage.leave("hub").quiet_to(10 * MINUTE);
    assert_eq!(stage.machine.poll_deadline(), None);
}

/// A pause that protects from another writer is no reason to believe that the API works.
#[test]
fn a_contention_goes_on_pausing_when_the_api_works_again() {
    let mut stage = Stage::default();
    stage.upstream(N1).hub(N1);
    for _ in 0..6 {
        let mirror = stage.hub(Some("{}")).pass(20_000).actions().pop().unwrap();
        stage.hub(N1).succeed(&mirror);
    }
    // The seventh overwrite brings a pause of 16 s; a write decided before fails in it.
    stage.hub(Some("{}")).lost("hub", "Connector").resumed("hub", "Connector").assert_no_action();
}
