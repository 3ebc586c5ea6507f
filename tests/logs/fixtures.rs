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
use throughline::replay::{Replay, ReplayMode, ReplayOptions, replay};

use crate::reading::{read, replayed_log};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures")
}

pub(crate) fn names(extension: &str) -> BTreeSet<String> {
    let files = fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path());
    let of_kind = files.filter(|p| p.extension().is_some_and(|e| e == extension));
    of_kind.map(|p| p.file_stem().unwrap().to_str().unwrap().to_owned()).collect()
}

/// The first line of a golden, which a person writes: what the fixture shows.
fn title(name: &str, golden: &str) -> String {
    let first = golden.lines().next().filter(|line| line.starts_with("# "));
    let missing = format!("the first line of fixtures/{name}.expected is not `# what it shows`");
    first.expect(&missing).to_owned()
}

/// Replays a fixture in what-if mode; `log` receives the machine's events and actions.
pub(crate) fn replayed(
    name: &str,
    change: impl Fn(&mut Settings),
    log: Option<&mut Vec<u8>>,
) -> Replay {
    let path = folder().join(format!("{name}.jsonl"));
    let mut reader = LogReader::open(path.to_str().unwrap()).unwrap();
    let options = ReplayOptions { mode: Some(ReplayMode::WhatIf), ..ReplayOptions::default() };
    let settings = |settings: &mut Settings| {
        change(settings);
        Ok(())
    };
    let replay = replay(&mut reader, name, settings, &options, log, |_| {}).unwrap();
    assert_eq!(replay.warnings, Vec::<String>::new(), "{name}");
    replay
}

#[test]
fn every_fixture_replays_to_its_golden() {
    let replays = names("jsonl").into_iter().map(|name| {
        let golden = expect_file![folder().join(format!("{name}.expected"))];
        let title = title(&name, &golden.data());
        let actual = format!("{title}\n{}", rendered(&replayed(&name, |_| {}, None)));
        (golden, name, actual)
    });
    let replays: Vec<_> = replays.collect();
    assert!(replays.len() >= 26, "{} fixtures", replays.len());
    // `assert_eq` stops at the first golden that differs; these lines show all of them.
    for (golden, name, actual) in &replays {
        let (expected, replayed) = (golden.data(), format!("replay of {name}"));
        let diff = TextDiff::from_lines(&expected, actual);
        print!("{}", diff.unified_diff().context_radius(0).header(name, &replayed));
    }
    for (golden, _, actual) in &replays {
        golden.assert_eq(actual);
    }
    assert_eq!(names("expected"), names("jsonl"), "goldens and fixtures");
}

/// A what-if's log verifies: fed the same events, the machine decides the same. Read and written, it is the same
/// to the byte.
#[test]
fn the_log_of_each_fixtures_replay_verifies_and_is_read_back_to_the_byte() {
    for name in names("jsonl") {
        let mut log = Vec::new();
        let first = replayed(&name, |_| {}, Some(&mut log));
        let log = String::from_utf8(log).unwrap();
        assert_eq!(read(&log).written, log, "{name}");
        let (second, _) = replayed_log(&log, ReplayMode::Verify);
        assert_eq!(second.verdict.problems, Vec::<String>::new(), "{name}");
        assert_eq!(second.actions.len(), first.actions.len(), "{name}");
    }
}
