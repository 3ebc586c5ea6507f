//! Each fixture replays to its golden. `UPDATE_EXPECT=1` rewrites the goldens.

mod golden;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use expect_test::expect_file;
use golden::rendered;
use similar::TextDiff;
use throughline::core::contract::settings::Settings;
use throughline::event_log::LogReader;
use throughline::replay::{Replay, ReplayMode};

use crate::read_log;
use crate::reading::read;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures")
}

pub(crate) fn names(extension: &str) -> BTreeSet<String> {
    let files = fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path());
    let of_kind = files.filter(|p| p.extension().is_some_and(|e| e == extension));
    of_kind.map(|p| p.file_stem().unwrap().to_str().unwrap().to_owned()).collect()
}

/// Replays a fixture in what-if mode; returns the log of that, too.
pub(crate) fn replayed(name: &str, change: impl Fn(&mut Settings)) -> (Replay, String) {
    let path = folder().join(format!("{name}.jsonl"));
    let reader = LogReader::open(path.to_str().unwrap());
    let (replay, log) = read_log::replayed(reader, ReplayMode::WhatIf, change);
    assert_eq!(replay.warnings, Vec::<String>::new(), "{name}");
    (replay, log)
}

#[test]
fn every_fixture_replays_to_its_golden() {
    let replays = names("jsonl").into_iter().map(|name| {
        let golden = expect_file![folder().join(format!("{name}.expected"))];
        // A person writes the first line: what the fixture shows.
        let data = golden.data();
        let title = data.lines().next().filter(|line| line.starts_with("# "));
        let title = title.unwrap_or_else(|| panic!("{name}.expected has no `# what it shows`"));
        let actual = format!("{title}\n{}", rendered(&replayed(&name, |_| {}).0));
        // `assert_eq` stops at the first golden that differs; these lines show all of them.
        let diff = TextDiff::from_lines(&data, &actual);
        print!("{}", diff.unified_diff().context_radius(0).header(&name, "its replay"));
        (golden, actual)
    });
    let replays: Vec<_> = replays.collect();
    assert!(replays.len() >= 26, "{} fixtures", replays.len());
    replays.iter().for_each(|(golden, actual)| golden.assert_eq(actual));
    assert_eq!(names("expected"), names("jsonl"), "goldens and fixtures");
}

/// A what-if's log verifies: fed the same events, the machine decides the same. Read and written, it is the same
/// to the byte.
#[test]
fn the_log_of_each_fixtures_replay_verifies_and_is_read_back_to_the_byte() {
    for name in names("jsonl") {
        let (first, log) = replayed(&name, |_| {});
        assert_eq!(read(&log).written, log, "{name}");
        let again = LogReader::new(&name, log.as_bytes());
        let (second, _) = read_log::replayed(again, ReplayMode::Verify, |_| {});
        assert_eq!(second.problems, Vec::<String>::new(), "{name}");
        assert_eq!(second.actions.len(), first.actions.len(), "{name}");
    }
}
