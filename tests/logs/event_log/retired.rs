//! A log with an event that no machine has any longer: it is read and replayed without that event, and a
//! verification compares what comes before.

use throughline::core::contract::settings::Settings;
use throughline::event_log::{LogEntry, LogReader};
use throughline::replay::{Replay, ReplayMode, ReplayOptions, replay};

const INCIDENT: &str = include_str!("../../../fixtures/incident-503.jsonl");

fn run(log: &str, mode: ReplayMode) -> (Replay, String) {
    let mut reader = LogReader::new("run.jsonl", log.as_bytes()).unwrap();
    let options = ReplayOptions { mode: Some(mode), ..ReplayOptions::default() };
    let mut written = Vec::new();
    let none = |_: &mut _| Ok(());
    let replay = replay(&mut reader, "run.jsonl", none, &options, Some(&mut written), |_| {});
    (replay.unwrap(), String::from_utf8(written).unwrap())
}

/// The log of a run through the incident, with `retry_requested` after its second action and once more
/// at its end; and the number of the line.
fn acted() -> (Vec<String>, usize) {
    let (_, log) = run(INCIDENT, ReplayMode::WhatIf);
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
    let verify = |lines: &[String]| run(&lines.join("\n"), ReplayMode::Verify).0;
    let replay = verify(&lines);
    assert_eq!((&replay.verdict.problems, replay.verdict.good), (&vec![text("0.1.0")], false));
    assert_eq!(replay.warnings, [text("0.1.0").replacen(": ", ": warning: ", 1)]);
    assert!(replay.actions.len() > 10, "the rest is replayed");

    // A later action that differs is not compared, an earlier one is.
    let is_action = |line: &&mut String| line.contains(r#""action":{"#);
    let alter = |line: &mut String| *line = line.replacen(r#""name":""#, r#""name":"other-"#, 1);
    alter(lines.iter_mut().rfind(|line| is_action(line)).unwrap());
    assert_eq!(verify(&lines).verdict.problems, [text("0.1.0")]);
    alter(lines.iter_mut().find(|line| is_action(line)).unwrap());
    let problems = verify(&lines).verdict.problems;
    assert_eq!((problems.len(), &problems[0]), (2, &text("0.1.0")));
    assert!(problems[1].starts_with("action 1: the log has "), "{problems:?}");

    let (mut lines, _) = acted();
    let ours = format!(r#","release":"{}""#, env!("CARGO_PKG_VERSION"));
    lines[0] = lines[0].replacen(&ours, r#","release":"0.2.3""#, 1);
    assert_eq!(verify(&lines).verdict.problems, [text("0.2.3")]);
    // The first release wrote none.
    lines[0] = lines[0].replacen(r#","release":"0.2.3""#, "", 1);
    assert_eq!(verify(&lines).verdict.problems, [text("0.1.0")]);
}

#[test]
fn a_what_if_is_the_same_without_the_retired_event() {
    let (lines, at) = acted();
    let mut without = lines.clone();
    without.remove(at);
    without.pop();
    let [with, without] = [lines, without].map(|lines| run(&lines.join("\n"), ReplayMode::WhatIf));
    assert_eq!((with.1, with.0.verdict.good), (without.1, true));
    assert_eq!((with.0.warnings.len(), without.0.warnings.len()), (1, 0));
}

#[test]
fn a_retired_event_is_read_like_any_other_line() {
    let header = INCIDENT.lines().next().unwrap();
    let read = |line: &str| {
        let log = format!("{header}\n{line}\n");
        LogReader::new("x", log.as_bytes()).unwrap().next_line()
    };
    let line = r#"{"at_ms":1795252780000,"event":"retry_requested","later":[1]}"#;
    assert!(matches!(read(line), Ok(Some(LogEntry::Retired))));
    let error = read(r#"{"event":"retry_requested"}"#).unwrap_err().to_string();
    assert!(error.contains(r#"this "retry_requested" line has no "at_ms" field"#), "{error}");
}

/// A log of a run with several shards: their settings and numbers are skipped.
#[test]
fn what_several_shards_wrote_is_read_without_them() {
    let header = r#"{"log":"throughline","version":1,"clusters":[{"name":"hub","roles":["hub"]}],"settings":{"touch":{"standInMs":2000},"shards":8}}"#;
    let at = |line: &str| format!(r#"{{"at_ms":1795252780000,{line}}}"#);
    let lines = [
        r#""event":"shard_followed","shard":3"#,
        r#""event":"leadership_pending","wait_ms":9,"shard":3"#,
        r#""event":"leadership_acquired","shard":3"#,
        r#""action":{"id":1,"type":"mirror","cluster":"hub","kind":"Connector","namespace":"n","name":"c","annotations":{"a":"b"},"shard":3},"because":"""#,
        r#""event":"lease_api_lost""#,
        r#""event":"lease_api_reachable""#,
        r#""event":"leadership_lost","shard":3"#,
        r#""event":"shard_left","shard":3"#,
    ];
    let log = [header.to_owned()].into_iter().chain(lines.map(at)).collect::<Vec<_>>().join("\n");
    let mut reader = LogReader::new("x", log.as_bytes()).unwrap();
    assert_eq!(reader.header().settings, Some(Settings::default()));
    let mut read = String::new();
    while let Some(entry) = reader.next_line().unwrap() {
        read.push(match entry {
            LogEntry::Event(_) => 'e',
            LogEntry::Action(_) => 'a',
            LogEntry::Retired => 'r',
        });
    }
    assert_eq!(read, "reearrer");
}
