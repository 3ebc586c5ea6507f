//! Event logs of version 1, in which every event and every outcome of that version occurs. Their events are
//! never rewritten: a later release reads what an earlier one wrote. Its actions, and the ids by which
//! outcomes name them, follow where a change of behaviour decides otherwise.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use expect_test::expect_file;
use serde_json::Value;
use throughline::event_log::{LogEntry, LogReader};
use throughline::replay::ReplayMode;

use crate::read_log::replayed;

/// Events that no machine acts on any longer: a log with one is read, and compared no further.
pub(crate) const RETIRED: &str = "retry_requested settings_changed shard_followed shard_left \
    lease_api_lost lease_api_reachable";

/// Each log, with the lines of its text.
fn logs() -> Vec<(String, Vec<Value>)> {
    let files = fs::read_dir("tests/logs/corpus").unwrap();
    let files = files.map(|file| file.unwrap().path());
    let log = |path: PathBuf| {
        let text = fs::read_to_string(&path).unwrap();
        let lines = text.lines().filter_map(|line| serde_json::from_str(line).ok());
        (path.display().to_string(), lines.collect())
    };
    files.map(log).collect()
}

fn names<'a>(lines: &'a [Value], member: &'a str) -> impl Iterator<Item = &'a str> {
    lines.iter().filter_map(move |line| line[member].as_str())
}

/// The golden has the names of version 1, whatever today's machine makes of them.
#[test]
fn every_event_and_every_outcome_of_version_1_occurs() {
    let lines: Vec<_> = logs().into_iter().flat_map(|(_, lines)| lines).collect();
    let found = ["event", "outcome"].map(|member| {
        let names: BTreeSet<_> = names(&lines, member).collect();
        format!("{member}: {}\n", names.into_iter().collect::<Vec<_>>().join(" "))
    });
    expect_file!["corpus.txt"].assert_eq(&found.concat());
}

#[test]
fn every_log_of_version_1_replays_to_its_actions() {
    for (path, lines) in logs() {
        // Each line is read as what it is.
        let mut read = [0; 3];
        for entry in LogReader::open(&path).unwrap() {
            read[match entry.unwrap() {
                LogEntry::Event(_) => 0,
                LogEntry::Action(_) => 1,
                LogEntry::Retired => 2,
            }] += 1;
        }
        let events = names(&lines, "event").filter(|name| *name != "log_gap");
        let (retired, events): (Vec<_>, Vec<_>) = events.partition(|name| RETIRED.contains(*name));
        let actions = lines.iter().filter(|line| line["action"].is_object()).count();
        assert_eq!(read, [events.len(), actions, retired.len()], "{path}");
        if actions == 0 {
            continue;
        }

        let (replay, _) = replayed(LogReader::open(&path), ReplayMode::Verify, |_| {});
        let problems = &replay.problems;
        match retired.first() {
            None => assert_eq!(problems, &Vec::<String>::new(), "{path}"),
            // Equal up to there, and no further compared.
            Some(name) => assert!(
                problems.len() == 1 && problems[0].contains(&format!("0.1.0 wrote {name:?}")),
                "{path}: {problems:?}"
            ),
        }
    }
}
