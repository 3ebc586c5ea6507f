//! Every fixture is the same log after it was read and written.

use std::fs;
use std::path::Path;

use throughline::event_log::{LogReader, event_names, holds_outcomes};
use throughline::replay::{ReplayMode, ReplayOptions, replay};

use crate::reading::*;

/// The entries of a log, in words, without the values that a log withholds and their fillers.
fn entries(log: &str) -> Vec<String> {
    let entries = LogReader::new("x", log.as_bytes()).unwrap();
    let text = entries.map(|entry| format!("{:?}", entry.unwrap()));
    text.map(|entry| without_withheld(&entry)).collect()
}

fn without_withheld(entry: &str) -> String {
    let mut kept = Vec::new();
    for (at, part) in entry.split("(\"example.").enumerate() {
        let end = if at == 0 { 0 } else { part.find("\")").unwrap() };
        kept.push(&part[end..]);
    }
    kept.concat()
}

#[test]
fn every_fixture_is_the_same_after_it_was_read_and_written() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures");
    let (mut logs, mut withheld) = (0, 0);
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "jsonl") {
            continue;
        }
        let log = fs::read_to_string(&path).unwrap();
        let result = read(&log);
        assert_eq!(result.error, None, "{}", path.display());
        logs += 1;
        withheld += result.written.matches("redacted:").count();
        assert_eq!(read(&result.written).written, result.written, "{}", path.display());
        if !log.contains("\"retry_requested\"") && !log.contains("\"settings_changed\"") {
            assert_eq!(entries(&result.written), entries(&log), "{}", path.display());
        }
        // What throughline wrote is the same to the byte.
        let acted = acted(&log);
        assert_eq!(read(&acted).written, acted, "{}", path.display());
    }
    assert!(logs > 100 && withheld > 30, "{logs} logs, {withheld} values");
}

fn acted(log: &str) -> String {
    let mut reader = LogReader::new("x", log.as_bytes()).unwrap();
    let options = ReplayOptions { mode: Some(ReplayMode::WhatIf), ..ReplayOptions::default() };
    let mut acted = Vec::new();
    replay(&mut reader, "x", |_| Ok(()), &options, Some(&mut acted), |_| {}).unwrap();
    String::from_utf8(acted).unwrap()
}

#[test]
fn outcomes_are_found_in_a_file_but_not_in_a_text() {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("outcomes");
    let name = path.to_str().unwrap();
    let outcome = r#"{"at_ms":1763715601000,"event":"action_finished","id":1,"outcome":"dropped"}"#;
    let text = r#"{"at_ms":1763715601000,"event":"timed_out","m":"\"action_finished\""}"#;
    for (log, expected) in [
        (SAMPLE.as_bytes().to_vec(), true),
        (gzip(SAMPLE), true),
        (format!("{HEADER}\n{text}\n").into_bytes(), false),
        (format!("{HEADER}\n{text}\n{outcome}").into_bytes(), true),
        (outcome.into(), true),
    ] {
        fs::write(&path, log).unwrap();
        assert_eq!(holds_outcomes(name).unwrap(), Some(expected));
    }
    fs::remove_file(&path).unwrap();
    assert_eq!(holds_outcomes("-").unwrap(), None);
    assert!(holds_outcomes(name).is_err());
}

#[test]
fn no_name_of_an_event_is_used_twice() {
    let mut names = event_names();
    assert_eq!(names.len(), 32);
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), 32);
}
