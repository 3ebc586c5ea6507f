//! The event log: what its writer writes and what its reader does with plain text.

mod layout;
mod retired;
mod round_trip;
mod withheld;

use std::io::{self, BufReader, Cursor, Read};

use throughline::core::contract::event::{ClusterSpec, Event, EventKind, Outcome};
use throughline::core::contract::settings::{OrphanMode, Settings};
use throughline::event_log::{
    Header, LINE_BYTES_MAX, LogEntry, LogReader, LogWriter, event_names, outcome_names,
};

use crate::reading::*;

#[test]
fn a_log_that_is_read_and_written_again_is_the_same() {
    let result = read(sample());
    check_silent(&result, LINES.len());
    assert_eq!(result.written, sample());
}

#[test]
fn the_sample_has_every_event_and_every_outcome() {
    // The reader returns no entry to write for a gap or a retired event, so the sample can't contain
    // one.
    let others = "log_gap retry_requested settings_changed shard_followed shard_left lease_api_lost \
                  lease_api_reachable";
    for name in event_names().into_iter().filter(|name| !others.contains(name)) {
        assert!(sample().contains(&format!(r#""event":"{name}""#)), "{name}");
    }
    for name in outcome_names() {
        assert!(sample().contains(&format!(r#""outcome":"{name}""#)), "{name}");
    }
}

/// The page about the format mentions every event, outcome and field of the sample.
#[test]
fn the_documentation_has_every_event_outcome_and_field() {
    let page = include_str!("../../docs/reference/event-log.md");
    for line in LINES {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        let fields = line
            .as_object()
            .unwrap()
            .keys()
            .chain(line["action"].as_object().into_iter().flat_map(serde_json::Map::keys));
        let named = [&line["event"], &line["outcome"]].into_iter().filter_map(|word| word.as_str());
        for word in fields.map(String::as_str).chain(named) {
            let is_mentioned =
                page.contains(&format!("`{word}`")) || page.contains(&format!("\"{word}\""));
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
    let cluster = |name: &str, roles: &str| ClusterSpec {
        name: name.into(),
        roles: serde_json::from_str(roles).unwrap(),
    };
    let clusters = vec![cluster("a", r#"["upstream"]"#), cluster("b", r#"["downstream","edge"]"#)];
    for settings in [None, Some(settings)] {
        let header = Header { clusters: clusters.clone(), settings, ..Header::default() };
        let log = LogWriter::new(Vec::new(), &header).unwrap().into_inner();
        assert_eq!(log.last(), Some(&b'\n'));
        let text = String::from_utf8(log.clone()).unwrap();
        assert_eq!(text.contains(r#""settings":{"mirror":"#), header.settings.is_some());
        assert_eq!(LogReader::new("x", &log[..]).unwrap().header(), &header);
    }
    let partial = HEADER.replace("]}]", r#"]}],"settings":{"orphans":{"mode":"off"}},"new":1"#);
    let reader = LogReader::new("x", partial.as_bytes()).unwrap();
    let settings = reader.header().settings.clone().unwrap();
    assert_eq!((settings.orphans.mode, settings.retry.max_ms), (OrphanMode::Off, 30_000));
}

#[test]
fn a_cluster_that_could_not_join_may_be_removed() {
    let lines = concat!(
        r#"{"at_ms":1795252938338,"event":"cluster_offered","source":"milo","cluster":"p","uid":"1","roles":["upstream"],"state":"ready"}"#,
        "\n",
        r#"{"at_ms":1795252938338,"event":"cluster_removed","cluster":"p"}"#,
        "\n"
    );
    let result = read_lines(lines);
    check_silent(&result, 2);
    assert_eq!(result.written.split_once('\n').unwrap().1, lines);
}

#[test]
fn the_role_hub_is_read_and_written_as_downstream() {
    let log = HEADER.replace("downstream", "hub");
    assert_eq!(read(&log).written, format!("{HEADER}\n"));
}

#[test]
fn refuses_a_first_line_that_is_not_a_valid_header() {
    const LIKE: &str = r#"such as {"log":"throughline","version":1,"clusters":[{"name":"up","roles":["upstream"]}]}"#;
    let head = |rest: &str| format!(r#"{{"log":"throughline",{rest}}}"#);
    let clusters = |c: &str| head(&format!(r#""version":1,"clusters":{c}"#));
    let long = format!("{HEADER}{}", "x".repeat(100));
    for (log, expected) in [
        (String::new(), vec!["x.jsonl:1: the log is empty", LIKE]),
        ("\n \r\n".into(), vec!["x.jsonl:1: the log is empty", LIKE]),
        ("y".repeat(100), vec![&*format!("but it is `{}`", "y".repeat(60))]),
        ("hello".into(), vec!["x.jsonl:1: not a throughline event log", LIKE, "but it is `hello`"]),
        ("\n[1]\n".into(), vec!["x.jsonl:2: not a throughline event log", "`[1]`"]),
        ("[null,null,null,null,null]".into(), vec!["x.jsonl:1: not a throughline event log"]),
        (HEADER[..40].into(), vec!["x.jsonl:1: column 40: invalid JSON: EOF while parsing"]),
        (long, vec!["x.jsonl:1: column 135: invalid JSON: trailing characters", "xxxx`"]),
        (
            r#"{"type":"ADDED","object":{"kind":"Connector"}}"#.into(),
            vec![LIKE, "looks like what kubectl get --watch prints", r#""event":"applied""#],
        ),
        (r#"{"kind":"Connector"}"#.into(), vec!["looks like what kubectl get --watch prints"]),
        ("{\n  \"kind\": 1\n}".into(), vec!["looks like indented JSON"]),
        (LINES[0].into(), vec!["looks like a log without its header"]),
        (r#"{"log":"other","version":1}"#.into(), vec!["not a throughline event log"]),
        (
            head(r#""version":2,"clusters":7"#),
            vec!["x.jsonl:1: the log has version 2", "reads only version 1"],
        ),
        (head(r#""clusters":[]"#), vec!["version null"]),
        (head(r#""version":"1""#), vec!["version \"1\""]),
        (head(r#""version":1"#), vec!["x.jsonl:1: invalid header", "missing or empty"]),
        (clusters("[]"), vec!["missing or empty"]),
        (clusters(r#"[{"name":"a","roles":[]}]"#), vec!["\"a\" has no roles; give it upstream"]),
        (clusters(r#"[{"name":"","roles":["edge"]}]"#), vec!["an empty name"]),
        (
            clusters(r#"[{"name":"a","roles":["middle"]}]"#),
            vec!["unknown variant `middle`", "`downstream`"],
        ),
        (
            clusters(r#"[{"name":"a","roles":["edge"]},{"name":"a","roles":["edge"]}]"#),
            vec!["x.jsonl:1: invalid header: cluster \"a\" is listed twice"],
        ),
        (
            clusters(r#"[{"name":"a","roles":["edge"]}],"settings":{"orphans":{"mode":"x"}}"#),
            vec!["unknown variant `x`", "`report`"],
        ),
    ] {
        let error = read(&log).error.unwrap();
        for part in expected {
            assert!(error.contains(part), "{log}\n{error}\nhas no {part}");
        }
    }
}

#[test]
fn refuses_bad_lines_with_place_and_reason() {
    let far =
        format!(r#"{{"at_ms":1763715600001,"event":"timed_out","x":"{}",nope}}"#, "ü".repeat(500));
    for (line, expected) in [
        ("hello", "x.jsonl:3: column 1: invalid JSON: expected value, near `hello`; each line"),
        (
            r#"{"at_ms":1763715600001,}"#,
            r#"column 24: invalid JSON: trailing comma, near `{"at_ms":1763715600001,}`"#,
        ),
        (r#"{"at_ms":1763715600001} {"#, "column 25: invalid JSON: trailing characters"),
        (&far, r#"column 1051: invalid JSON: key must be a string, near `ü"#),
        ("[]", "the line is JSON, but not an object: `[]`; each line must be one JSON object"),
        (r#"[null,1,"timed_out"]"#, "the line is JSON, but not an object"),
        ("12", "the line is JSON, but not an object: `12`"),
        (
            r#"{"at_ms":1763715600001,"event":"renamed"}"#,
            r#"x.jsonl:3: unknown event "renamed"; the events of version 1 are cluster_added, cluster_removed, list_started, listed, list_finished, applied, deleted, unreadable, watch_lost, watch_resumed, watch_heard, went_back, leadership_pending, leadership_acquired, leadership_lost, action_finished, discovery_started, cluster_offered, cluster_withdrawn, discovery_finished, discovery_lost, discovery_resumed, cluster_gone, timed_out, recording_ended, retry_requested, settings_changed, shard_followed, shard_left, lease_api_lost, lease_api_reachable, log_gap"#,
        ),
        (r#"{"event":"timed_out"}"#, r#"this "timed_out" line has no "at_ms" field"#),
        (r#"{"at_ms":null,"event":"timed_out"}"#, r#"this "timed_out" line has no "at_ms" field"#),
        (
            r#"{"action":{"id":1,"type":"touch","cluster":"hub","kind":"Gateway","namespace":"n","name":"g"}}"#,
            r#"this action's line has no "at_ms" field"#,
        ),
        (r#"{"at_ms":1763715600001,"event":null}"#, r#"the line has no "event" field"#),
        ("{}", r#"the line has no "at_ms" field"#),
        (
            r#"{"at_ms":1.5,"event":"timed_out"}"#,
            "invalid field: invalid type: floating point `1.5`, expected u64, near `{",
        ),
        (r#"{"at_ms":-1,"event":"timed_out"}"#, "expected u64"),
        (
            r#"{"at_ms":1763715600001,"at_ms":1763715600001,"event":"timed_out"}"#,
            "duplicate field `at_ms`",
        ),
        (
            r#"{"at_ms":1763715600001,"event":"listed","object":{}}"#,
            r#"this "listed" line has no "cluster" field"#,
        ),
        (
            r#"{"at_ms":1763715600001,"event":"listed","cluster":"hub"}"#,
            r#"this "listed" line has no "object" field"#,
        ),
        (
            r#"{"at_ms":1763715600001,"event":"applied","cluster":"hub","object":null}"#,
            r#"this "applied" line has no "object" field"#,
        ),
        (
            r#"{"at_ms":1763715600001,"event":"deleted","cluster":"hub","kind":"Connector"}"#,
            r#"this "deleted" line has no "object" field"#,
        ),
        (
            r#"{"at_ms":1763715600001,"event":"listed","cluster":"hub","object":{"apiVersion":"v1","metadata":{"name":"a"}}}"#,
            r#"this "listed" line has no "object.kind" field"#,
        ),
        (
            r#"{"at_ms":1763715600001,"event":"listed","cluster":"hub","object":{"kind":"Namespace"}}"#,
            "x.jsonl:3: the object has no metadata.name",
        ),
        (
            r#"{"at_ms":1763715600001,"event":"listed","cluster":"hub","object":{"kind":"Namespace","metadata":{"uid":"1"}}}"#,
            "x.jsonl:3: the object has no metadata.name",
        ),
        (
            r#"{"at_ms":1763715600001,"event":"listed","cluster":"hub","object":{"kind":"HTTPRoute","metadata":{"name":"a"},"spec":{"parentRefs":"x"}}}"#,
            "invalid type: string \"x\", expected a sequence",
        ),
        (
            r#"{"at_ms":1763715600001,"event":"list_started","cluster":"hub"}"#,
            r#"this "list_started" line has no "kind" field"#,
        ),
        (
            r#"{"at_ms":1763715600001,"event":"list_finished","cluster":"hub"}"#,
            r#"this "list_finished" line has no "kind" field"#,
        ),
        (
            r#"{"at_ms":1763715600001,"event":"watch_lost","cluster":"hub"}"#,
            r#"this "watch_lost" line has no "kind" field"#,
        ),
        (
            r#"{"at_ms":1763715600001,"event":"list_started","kind":"Connector"}"#,
            r#"this "list_started" line has no "cluster" field"#,
        ),
        (
            r#"{"at_ms":1763715600001,"event":"list_started","cluster":"edge-1","kind":"Connector"}"#,
            r#"x.jsonl:3: unknown cluster "edge-1"; the log declares hub, org/team-1; add it"#,
        ),
        (
            r#"{"at_ms":1763715600001,"event":"cluster_removed"}"#,
            r#"this "cluster_removed" line has no "cluster" field"#,
        ),
        (
            r#"{"at_ms":1763715600001,"event":"cluster_added","roles":["edge"]}"#,
            r#"this "cluster_added" line has no "cluster" field"#,
        ),
        (
            r#"{"at_ms":1763715600001,"event":"cluster_added","cluster":"","roles":["edge"]}"#,
            r#"has no "cluster" field"#,
        ),
        (
            r#"{"at_ms":1763715600001,"event":"cluster_added","cluster":"e"}"#,
            r#"has no "roles" field"#,
        ),
        (
            r#"{"at_ms":1763715600001,"event":"cluster_added","cluster":"e","roles":[]}"#,
            r#"cluster "e" has no roles"#,
        ),
        (
            r#"{"at_ms":1763715600001,"event":"action_finished","outcome":"applied"}"#,
            r#"has no "id" field"#,
        ),
        (
            r#"{"at_ms":1763715600001,"event":"action_finished","id":1}"#,
            r#"has no "outcome" field"#,
        ),
        (
            r#"{"at_ms":1763715600001,"event":"action_finished","id":1,"outcome":"won"}"#,
            r#"unknown outcome "won"; expected one of applied, unchanged"#,
        ),
        (
            r#"{"at_ms":1763715600001,"action":{"id":1,"type":"explode"}}"#,
            "unknown variant `explode`",
        ),
        (
            r#"{"at_ms":1763715600001,"event":"timed_out","action":{"id":1,"type":"touch","cluster":"hub","kind":"Gateway","namespace":"n","name":"g"}}"#,
            "has both",
        ),
        (HEADER, "x.jsonl:3: a second header; if several logs were concatenated"),
    ] {
        // On line 3, so that a wrong number shows.
        let result = read_lines(&format!(
            "{{\"at_ms\":1763715600000,\"event\":\"timed_out\"}}\n{line}\nrest"
        ));
        let error = result.error.unwrap_or_default();
        assert!(error.contains(expected), "{line}\n{error}\nhas no {expected}");
        assert!(error.starts_with("x.jsonl:3: "), "{error}");
        assert_eq!(result.lines, 1);
        let excerpt = error.split('`').nth(1).unwrap_or_default();
        assert!(error.contains("invalid type") || excerpt.chars().count() <= 60, "{error}");
    }
}

#[test]
fn an_error_lists_only_some_of_many_clusters() {
    let many: Vec<_> =
        (0..12).map(|i| format!(r#"{{"name":"c{i:02}","roles":["edge"]}}"#)).collect();
    let header = format!(r#"{{"log":"throughline","version":1,"clusters":[{}]}}"#, many.join(","));
    let result = read(format!("{header}\n{}\n", LINES[0]));
    assert!(
        result
            .error
            .unwrap()
            .contains("declares c00, c01, c02, c03, c04, c05, c06, c07, c08, c09 and 2 more;")
    );
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
