//! A log whose settings change on the way: a verification follows them, and what a person asks for in
//! a what-if holds throughout.

use throughline::core::contract::action::Verb;
use throughline::core::contract::settings::Settings;
use throughline::event_log::LogReader;
use throughline::replay::{Replay, ReplayMode, ReplayOptions, replay};

const LOG: &str = include_str!("../../fixtures/settings-change-while-running.jsonl");

fn run(log: &str, mode: ReplayMode, change: fn(&mut Settings)) -> (Replay, String) {
    let mut reader = LogReader::new("log", log.as_bytes()).unwrap();
    let options = ReplayOptions { mode: Some(mode), ..ReplayOptions::default() };
    let settings = |settings: &mut Settings| {
        change(settings);
        Ok(())
    };
    let mut written = Vec::new();
    let replay =
        replay(&mut reader, "log", settings, &options, Some(&mut written), |_| {}).unwrap();
    (replay, String::from_utf8(written).unwrap())
}

fn count(replay: &Replay, verb: Verb) -> usize {
    replay.actions.iter().filter(|action| action.decision.action.verb == verb).count()
}

#[test]
fn a_verification_follows_settings_that_change() {
    let (first, log) = run(LOG, ReplayMode::WhatIf, |_| ());
    let verbs = [Verb::Mirror, Verb::Touch, Verb::Delete];
    assert_eq!(verbs.map(|verb| count(&first, verb)), [2, 5, 1]);
    assert_eq!(log.matches(r#""event":"settings_changed""#).count(), 3);
    let (second, _) = run(&log, ReplayMode::Verify, |_| ());
    assert_eq!(second.verdict.problems, Vec::<String>::new());
    assert_eq!(second.actions.len(), first.actions.len());
    // Without any one of the changes the decisions are others.
    for left_out in 0..3 {
        let mut seen = 0;
        let rest = log.split_inclusive('\n').filter(|line| {
            let is_change = line.contains(r#""event":"settings_changed""#);
            seen += usize::from(is_change);
            !is_change || seen != left_out + 1
        });
        let (replay, _) = run(&rest.collect::<String>(), ReplayMode::Verify, |_| ());
        assert!(!replay.verdict.problems.is_empty(), "without change {left_out}");
    }
}

#[test]
fn what_a_person_asks_for_holds_also_where_the_settings_change() {
    let (replay, log) = run(LOG, ReplayMode::WhatIf, |settings| settings.touch.enabled = false);
    let verbs = [Verb::Mirror, Verb::Touch, Verb::Delete];
    assert_eq!(verbs.map(|verb| count(&replay, verb)), [2, 0, 1]);
    // What was not asked for changes as it did, and the log of the what-if says what held.
    assert!(!log.contains(r#""touch":{"enabled":true"#) && log.contains(r#""mode":"delete""#));
    let (second, _) = run(&log, ReplayMode::Verify, |_| ());
    assert_eq!(second.verdict.problems, Vec::<String>::new());
    // Mirrors that are never off: the offline is mirrored at once, also while the log has them off.
    let (replay, _) = run(LOG, ReplayMode::WhatIf, |settings| settings.mirror.enabled = true);
    let mirror =
        replay.actions.iter().find(|action| action.decision.action.verb == Verb::Mirror).unwrap();
    assert_eq!(mirror.decision.at.0, 1_795_334_410_000);
}
