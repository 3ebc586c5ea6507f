//! The event log: what its writer writes and what its reader does with plain text.

mod withheld;

use expect_test::expect_file;
use throughline::core::contract::event::ClusterSpec;
use throughline::core::contract::settings::{OrphanMode, Settings};
use throughline::core::data::ids::Role;
use throughline::event_log::{Header, LogReader, LogWriter, event_names, outcome_names};

use crate::corpus::RETIRED;
use crate::reading::*;

#[test]
fn the_sample_has_every_event_and_every_outcome() {
    // The reader returns no entry to write for a gap or a retired event, so the sample can't contain
    // one.
    let is_written = |name: &&str| *name != "log_gap" && !RETIRED.contains(name);
    for name in event_names().into_iter().filter(is_written) {
        assert!(SAMPLE.contains(&format!(r#""event":"{name}""#)), "{name}");
    }
    for name in outcome_names() {
        assert!(SAMPLE.contains(&format!(r#""outcome":"{name}""#)), "{name}");
    }
}

/// The page about the format mentions every event, outcome and field of the sample.
#[test]
fn the_documentation_has_every_event_outcome_and_field() {
    let page = include_str!("../../docs/reference/event-log.md");
    for line in LINES.iter() {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        let objects = [&line, &line["action"]].into_iter().filter_map(|value| value.as_object());
        let fields = objects.flat_map(|object| object.keys().map(String::as_str));
        let named = ["event", "outcome"].into_iter().filter_map(|key| line[key].as_str());
        for word in fields.chain(named) {
            let mut spellings = [format!("`{word}`"), format!("\"{word}\"")].into_iter();
            let is_mentioned = spellings.any(|word| page.contains(&word));
            assert!(is_mentioned, "docs/reference/event-log.md does not mention {word}");
        }
    }
}

#[test]
fn header_and_settings_read_back() {
    let mut settings = Settings::default();
    settings.orphans.mode = OrphanMode::Delete;
    let roles = vec![Role::Hub, Role::Edge];
    let clusters = vec![ClusterSpec { name: "b".into(), roles }];
    let header = Header { clusters, settings: Some(settings), ..Header::default() };
    let log = LogWriter::new(Vec::new(), &header).unwrap().into_inner();
    assert_eq!(LogReader::new("x", &log[..]).unwrap().header(), &header);
    let partial = HEADER.replace("]}]", r#"]}],"settings":{"orphans":{"mode":"off"}},"new":1"#);
    let reader = LogReader::new("x", partial.as_bytes()).unwrap();
    let settings = reader.header().settings.clone().unwrap();
    assert_eq!((settings.orphans.mode, settings.retry.max_ms), (OrphanMode::Off, 30_000));
    // The role `hub` is written as `downstream`.
    assert_eq!(read(HEADER.replace("downstream", "hub")).written, format!("{HEADER}\n"));
}

/// A golden has each refused text behind `>`, and the error below it. `UPDATE_EXPECT=1` rewrites the errors.
fn assert_refused(golden: &str, refused: impl Fn(&str) -> String) {
    let golden = expect_file![format!("event_log/{golden}")];
    let data = golden.data();
    let texts: Vec<_> = data.lines().filter_map(|line| line.strip_prefix('>')).collect();
    assert!(texts.len() > 20, "{} texts", texts.len());
    let with_error = |text: &&str| format!(">{text}\n{}\n", refused(text));
    golden.assert_eq(&texts.iter().map(with_error).collect::<String>());
}

#[test]
fn a_first_line_that_is_no_valid_header_is_refused() {
    assert_refused("refused_headers.expected", |text| {
        read(text.replace("\\n", "\n").replace("\\r", "\r")).error.unwrap()
    });
}

#[test]
fn bad_lines_are_refused_with_place_and_reason() {
    assert_refused("refused_lines.expected", |text| {
        // On line 3, so that a wrong number shows.
        let log = format!("{{\"at_ms\":{START_MS},\"event\":\"timed_out\"}}\n{text}\nrest");
        let result = read_lines(&log);
        let error = result.error.unwrap();
        assert!(error.starts_with("x.jsonl:3: "), "{error}");
        assert_eq!(result.lines, 1);
        let excerpt = error.split('`').nth(1).unwrap_or_default();
        assert!(error.contains("invalid type") || excerpt.chars().count() <= 60, "{error}");
        error
    });
}
