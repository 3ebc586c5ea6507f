//! The event log: what its writer writes and what its reader does with plain text.

mod layout;
mod retired;
mod withheld;

use std::io::{self, BufReader, Cursor, Read};
use std::path::Path;

use expect_test::expect_file;
use throughline::core::contract::event::{ClusterSpec, Event, EventKind};
use throughline::core::contract::settings::{OrphanMode, Settings};
use throughline::core::data::ids::Role;
use throughline::event_log::{
    Header, LINE_BYTES_MAX, LogReader, LogWriter, event_names, outcome_names,
};

use crate::reading::*;

#[test]
fn a_log_that_is_read_and_written_again_is_the_same() {
    let result = read(SAMPLE);
    check_silent(&result, LINES.len());
    assert_eq!(result.written, SAMPLE);
}

#[test]
fn the_sample_has_every_event_and_every_outcome() {
    // The reader returns no entry to write for a gap or a retired event, so the sample can't contain
    // one.
    let others = "log_gap retry_requested settings_changed shard_followed shard_left lease_api_lost \
                  lease_api_reachable";
    for name in event_names().into_iter().filter(|name| !others.contains(name)) {
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
fn reads_logs_of_other_tools() {
    // Fields in another order, and many that throughline does not use.
    let lines = r#"{"at_ms":1795252938338,"event":"listed","cluster":"hub","object":{"metadata":{"name":"default","uid":"21e52144-8819-4412-baf2-7ca32cfde264","resourceVersion":"23","creationTimestamp":"2026-11-21T09:21:45Z","labels":{"kubernetes.io/metadata.name":"default"}},"spec":{"finalizers":["kubernetes"]},"status":{"phase":"Active"},"kind":"Namespace","apiVersion":"v1"},"extra":{"deep":[1,{"x":null}]}}
{"cluster":"org\/team-1","object":null,"because":null,"kind":"Connector","event":"list_started","at_ms":1795252938339}
"#;
    let result = read_lines(lines);
    check_silent(&result, 2);
    let rest = result.written.split_once('\n').unwrap().1;
    assert_eq!(
        rest,
        r#"{"at_ms":1795252938338,"event":"listed","cluster":"hub","object":{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"default","uid":"21e52144-8819-4412-baf2-7ca32cfde264","resourceVersion":"23","creationTimestamp":"2026-11-21T09:21:45.000Z","labels":{"kubernetes.io/metadata.name":"default"}}}}
{"at_ms":1795252938339,"event":"list_started","cluster":"org/team-1","kind":"Connector"}
"#
    );
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
}

#[test]
fn the_role_hub_is_read_and_written_as_downstream() {
    let log = HEADER.replace("downstream", "hub");
    assert_eq!(read(&log).written, format!("{HEADER}\n"));
}

/// A golden has each refused text behind `>`, and the error below it. `UPDATE_EXPECT=1` rewrites the errors.
fn assert_refused(golden: &str, refused: impl Fn(&str) -> String) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/logs/event_log");
    let golden = expect_file![folder.join(golden)];
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

#[test]
fn bytes_that_are_not_utf8_are_refused() {
    let mut log = format!("{HEADER}\n{{\"at_ms\":1763715600001,\"event\":\"timed_out\",\"x\":\"")
        .into_bytes();
    log.extend_from_slice(b"\xff\"}\n");
    let error = read(&log).error.unwrap();
    assert!(error.starts_with("x.jsonl:2: column 49: not UTF-8, near `{\"at_ms\""), "{error}");
    assert!(read(b"\xff\xfe{\0").error.unwrap().starts_with("x.jsonl:1: column 1: not UTF-8"));
}
