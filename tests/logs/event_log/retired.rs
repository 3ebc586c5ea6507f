//! A log with an event that no machine has any longer: it is replayed without that event, and a verification
//! compares what comes before. `tests/commands/surface/corpus` has a log with each of them.

use throughline::replay::ReplayMode;

use crate::reading::replayed_log;

const OURS: &str = env!("CARGO_PKG_VERSION");
const INCIDENT: &str = include_str!("../../../fixtures/incident-503.jsonl");

/// The log of a run through the incident, with `retry_requested` after its second action and once more
/// at its end; and the number of the line.
fn acted() -> (Vec<String>, usize) {
    let (_, log) = replayed_log(INCIDENT, ReplayMode::WhatIf);
    let mut lines: Vec<_> = log.lines().map(str::to_owned).collect();
    let actions = lines.iter().enumerate().filter(|(_, line)| line.contains(r#""action":{"#));
    let (at, action) = actions.map(|(at, line)| (at + 1, line)).nth(1).unwrap();
    let retired = |like: &str| {
        let (time, _) = like.split_once(',').unwrap();
        format!(r#"{time},"event":"retry_requested"}}"#)
    };
    let (first, last) = (retired(action), retired(lines.last().unwrap()));
    lines.insert(at, first);
    lines.push(last);
    (lines, at)
}

#[test]
fn a_verification_stops_comparing_at_a_retired_event_and_names_the_release() {
    let (mut lines, at) = acted();
    let text = |release: &str| {
        format!(
            "run.jsonl:{}: throughline {release} wrote \"retry_requested\", an event that this release \
             does not have: such lines are skipped, and from here on no action is compared",
            at + 1
        )
    };
    let verify = |lines: &[String]| replayed_log(&lines.join("\n"), ReplayMode::Verify).0;
    let replay = verify(&lines);
    assert_eq!((&replay.verdict.problems, replay.verdict.good), (&vec![text(OURS)], false));
    assert_eq!(replay.warnings, [text(OURS).replacen(": ", ": warning: ", 1)]);
    assert!(replay.actions.len() > 10, "the rest is replayed");

    // A later action that differs is not compared, an earlier one is.
    let is_action = |line: &&mut String| line.contains(r#""action":{"#);
    let alter = |line: &mut String| *line = line.replacen(r#""name":""#, r#""name":"other-"#, 1);
    alter(lines.iter_mut().rfind(|line| is_action(line)).unwrap());
    assert_eq!(verify(&lines).verdict.problems, [text(OURS)]);
    alter(lines.iter_mut().find(|line| is_action(line)).unwrap());
    let problems = verify(&lines).verdict.problems;
    assert_eq!((problems.len(), &problems[0]), (2, &text(OURS)));
    assert!(problems[1].starts_with("action 1: the log has "), "{problems:?}");

    let (mut lines, _) = acted();
    lines[0] = lines[0].replacen(OURS, "9.2.3", 1);
    assert_eq!(verify(&lines).verdict.problems, [text("9.2.3")]);
}

#[test]
fn a_what_if_is_the_same_without_the_retired_event() {
    let (lines, at) = acted();
    let mut without = lines.clone();
    without.remove(at);
    without.pop();
    let [with, without] =
        [lines, without].map(|lines| replayed_log(&lines.join("\n"), ReplayMode::WhatIf));
    assert_eq!((with.1, with.0.verdict.good), (without.1, true));
    assert_eq!((with.0.warnings.len(), without.0.warnings.len()), (1, 0));
}
