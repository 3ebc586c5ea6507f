//! Writes that an API server did not carry out: when they are tried again, and when all of them are.
//! The cause of a failure may end before the pauses do, and what is refused must not be asked for again
//! and again.

use crate::stage::*;

/// A hub whose Connectors all wait: each write ended with `outcome`, at the start.
fn waiting(count: u64, outcome: &Outcome) -> Stage {
    let mut stage = Stage::default();
    for name in (0..count).map(|n| format!("c{n}")) {
        stage.applied("up", UP.connector(&name, N1)).applied("hub", UP.copy(&name, None));
    }
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

        let written = run(&mut stage, lifted_at + 10 * MINUTE, |_| applied(None));
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

    let ends = |name: &str| if name == "c0" { unavailable(None) } else { forbidden() };
    let tried = run(&mut waiting(2_000, &forbidden()), 5 * MINUTE, |m| ends(name_of(m)));
    // As many may be tried at once as in a second.
    let all = 5 * 60 * 20..=5 * 60 * 20 + 20;
    assert!(most_in_a_second(&tried) <= 40 && all.contains(&tried.len()), "{}", tried.len());
    // What failed otherwise waits for none of them.
    assert!(by_name(&tried)["c0"].windows(2).all(|two| two[1] - two[0] <= 30_100));
}

#[test]
fn after_130_s_of_503s_the_first_success_comes_within_30_s_and_releases_all() {
    let mut stage = waiting(100, &unavailable(None));
    let tried = run(&mut stage, 130_000, |_| unavailable(None));
    assert!(most_in_a_second(&tried) <= 40, "{}", most_in_a_second(&tried));
    let written = run(&mut stage, 160_000, |_| applied(None));
    assert_eq!(written.len(), 100);
    assert!(written.iter().all(|(at, _)| *at == written[0].0));
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
