//! The event log: every promise of its reader about plain text, and of its writer.

#![allow(missing_docs, clippy::unwrap_used)]

#[path = "event_log/reading.rs"]
mod reading;

use std::io::{self, BufReader, Cursor, Read};

use throughline::core::event::{Event, Happened, Outcome};
use throughline::core::settings::{OrphanMode, Settings};
use throughline::event_log::{
    ClusterSpec, EVENT_NAMES, Header, LINE_BYTES_MAX, Line, OUTCOME_NAMES, Reader, Writer,
};

use reading::*;

#[test]
fn what_is_written_reads_back_to_the_same_bytes() {
    let came = read(sample());
    check_silent(&came, LINES.len());
    assert_eq!(came.written, sample());
}

#[test]
fn the_sample_has_every_event_and_every_outcome() {
    // A gap is no line: the reader warns of it.
    for name in EVENT_NAMES.into_iter().filter(|name| *name != "log_gap") {
        assert!(sample().contains(&format!(r#""event":"{name}""#)), "{name}");
    }
    for name in OUTCOME_NAMES {
        assert!(sample().contains(&format!(r#""outcome":"{name}""#)), "{name}");
    }
}

#[test]
fn reads_what_other_tools_record() {
    // From a recording: members in another order, and many that mean nothing here.
    let lines = r#"{"at_ms":1795252938338,"event":"listed","cluster":"hub","object":{"metadata":{"name":"default","uid":"21e52144-8819-4412-baf2-7ca32cfde264","resourceVersion":"23","creationTimestamp":"2026-11-21T09:21:45Z","labels":{"kubernetes.io/metadata.name":"default"}},"spec":{"finalizers":["kubernetes"]},"status":{"phase":"Active"},"kind":"Namespace","apiVersion":"v1"},"extra":{"deep":[1,{"x":null}]}}
{"cluster":"org\/team-1","object":null,"because":null,"kind":"Connector","event":"list_started","at_ms":1795252938339}
"#;
    let came = read_lines(lines);
    check_silent(&came, 2);
    let rest = came.written.split_once('\n').unwrap().1;
    assert_eq!(
        rest,
        r#"{"at_ms":1795252938338,"event":"listed","cluster":"hub","object":{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"default","uid":"21e52144-8819-4412-baf2-7ca32cfde264","resourceVersion":"23","creationTimestamp":"2026-11-21T09:21:45.000Z","labels":{"kubernetes.io/metadata.name":"default"}}}}
{"at_ms":1795252938339,"event":"list_started","cluster":"org/team-1","kind":"Connector"}
"#
    );
}

#[test]
fn header_and_settings_travel() {
    let mut settings = Settings::default();
    settings.orphans.mode = OrphanMode::Delete;
    let cluster = |name: &str, roles: &str| ClusterSpec {
        name: name.into(),
        roles: serde_json::from_str(roles).unwrap(),
    };
    let clusters = vec![cluster("a", r#"["upstream"]"#), cluster("b", r#"["downstream","edge"]"#)];
    for settings in [None, Some(settings)] {
        let header = Header { clusters: clusters.clone(), settings };
        let log = Writer::new(Vec::new(), &header).unwrap().into_inner();
        assert_eq!(log.last(), Some(&b'\n'));
        let text = String::from_utf8(log.clone()).unwrap();
        assert_eq!(text.contains(r#""settings":{"mirror":"#), header.settings.is_some());
        assert_eq!(Reader::new("x", &log[..]).unwrap().header(), &header);
    }
    let partial = HEADER.replace("]}]", r#"]}],"settings":{"orphans":{"mode":"off"}},"new":1"#);
    let reader = Reader::new("x", partial.as_bytes()).unwrap();
    let settings = reader.header().settings.clone().unwrap();
    assert_eq!((settings.orphans.mode, settings.retry.max_ms), (OrphanMode::Off, 60_000));
}

#[test]
fn refuses_what_is_no_header() {
    const LIKE: &str = r#"such as {"log":"throughline","version":1,"clusters":[{"name":"up","roles":["upstream"]}]}"#;
    let head = |rest: &str| format!(r#"{{"log":"throughline",{rest}}}"#);
    let clusters = |c: &str| head(&format!(r#""version":1,"clusters":{c}"#));
    let long = format!("{HEADER}{}", "x".repeat(100));
    for (log, expected) in [
        (String::new(), vec!["x.jsonl:1: the log is empty", LIKE]),
        ("\n \r\n".into(), vec!["x.jsonl:1: the log is empty", LIKE]),
        ("y".repeat(100), vec![&*format!("but is `{}`", "y".repeat(60))]),
        ("hello".into(), vec!["x.jsonl:1: not a throughline event log", LIKE, "is `hello`"]),
        ("\n[1]\n".into(), vec!["x.jsonl:2: not a throughline event log", "`[1]`"]),
        ("[null,null,null,null,null]".into(), vec!["x.jsonl:1: not a throughline event log"]),
        (HEADER[..40].into(), vec!["x.jsonl:1: column 40: not JSON: EOF while parsing"]),
        (long, vec!["x.jsonl:1: column 135: not JSON: trailing characters", "xxxx`"]),
        (
            r#"{"type":"ADDED","object":{"kind":"Connector"}}"#.into(),
            vec![LIKE, "looks like what kubectl get --watch prints", r#""event":"applied""#],
        ),
        (r#"{"kind":"Connector"}"#.into(), vec!["looks like what kubectl get --watch prints"]),
        ("{\n  \"kind\": 1\n}".into(), vec!["looks like indented JSON"]),
        (LINES[0].into(), vec!["looks like a log that lost its header"]),
        (r#"{"log":"other","version":1}"#.into(), vec!["not a throughline event log"]),
        (
            head(r#""version":2,"clusters":7"#),
            vec!["x.jsonl:1: the log has version 2", "reads version 1"],
        ),
        (head(r#""clusters":[]"#), vec!["version null"]),
        (head(r#""version":"1""#), vec!["version \"1\""]),
        (head(r#""version":1"#), vec!["x.jsonl:1: the header can't be used", "missing or empty"]),
        (clusters("[]"), vec!["missing or empty"]),
        (clusters(r#"[{"name":"a","roles":[]}]"#), vec!["\"a\" has no roles; give upstream"]),
        (clusters(r#"[{"name":"","roles":["edge"]}]"#), vec!["an empty name"]),
        (
            clusters(r#"[{"name":"a","roles":["hub"]}]"#),
            vec!["unknown variant `hub`", "`downstream`"],
        ),
        (
            clusters(r#"[{"name":"a","roles":["edge"]},{"name":"a","roles":["edge"]}]"#),
            vec!["x.jsonl:1: the header can't be used: cluster \"a\" stands there twice"],
        ),
        (
            clusters(r#"[{"name":"a","roles":["edge"]}],"settings":{"orphans":{"mode":"x"}}"#),
            vec!["unknown variant `x`", "`report`"],
        ),
    ] {
        let error = read(&log).error.unwrap();
        for part in expected {
            assert!(error.contains(part), "{log}\n{error}\nlacks {part}");
        }
    }
}

#[test]
fn refuses_lines_and_says_where_and_why() {
    let far = format!(r#"{{"at_ms":1,"event":"timed_out","x":"{}",nope}}"#, "ü".repeat(500));
    for (line, expected) in [
        ("hello", "x.jsonl:3: column 1: not JSON: expected value, near `hello`; each line"),
        (r#"{"at_ms":1,}"#, r#"column 12: not JSON: trailing comma, near `{"at_ms":1,}`"#),
        (r#"{"at_ms":1} {"#, "column 13: not JSON: trailing characters"),
        (&far, r#"column 1039: not JSON: key must be a string, near `ü"#),
        ("[]", "the line is not a JSON object but `[]`; each line must be one object"),
        (r#"[null,1,"timed_out"]"#, "the line is not a JSON object"),
        ("12", "the line is not a JSON object but `12`"),
        (
            r#"{"at_ms":1,"event":"renamed"}"#,
            r#"x.jsonl:3: event "renamed" is not known; version 1 has cluster_added, cluster_removed, list_started, listed, list_finished, applied, deleted, watch_lost, watch_resumed, watch_heard, went_back, leadership_acquired, leadership_lost, action_finished, timed_out"#,
        ),
        (r#"{"event":"timed_out"}"#, r#"this "timed_out" line lacks "at_ms""#),
        (r#"{"at_ms":null,"event":"timed_out"}"#, r#"this "timed_out" line lacks "at_ms""#),
        (
            r#"{"action":{"id":1,"type":"touch","cluster":"hub","kind":"Gateway","namespace":"n","name":"g"}}"#,
            r#"an action's line lacks "at_ms""#,
        ),
        (r#"{"at_ms":1,"event":null}"#, r#"the line lacks "event""#),
        ("{}", r#"the line lacks "at_ms""#),
        (
            r#"{"at_ms":1.5,"event":"timed_out"}"#,
            "a member can't be used: invalid type: floating point `1.5`, expected u64, near `{",
        ),
        (r#"{"at_ms":-1,"event":"timed_out"}"#, "expected u64"),
        (r#"{"at_ms":1,"at_ms":1,"event":"timed_out"}"#, "duplicate field `at_ms`"),
        (r#"{"at_ms":1,"event":"listed","object":{}}"#, r#"this "listed" line lacks "cluster""#),
        (r#"{"at_ms":1,"event":"listed","cluster":"hub"}"#, r#"this "listed" line lacks "object""#),
        (
            r#"{"at_ms":1,"event":"applied","cluster":"hub","object":null}"#,
            r#"this "applied" line lacks "object""#,
        ),
        (
            r#"{"at_ms":1,"event":"deleted","cluster":"hub","kind":"Connector"}"#,
            r#"this "deleted" line lacks "object""#,
        ),
        (
            r#"{"at_ms":1,"event":"listed","cluster":"hub","object":{"apiVersion":"v1","metadata":{"name":"a"}}}"#,
            r#"this "listed" line lacks "object.kind""#,
        ),
        (
            r#"{"at_ms":1,"event":"listed","cluster":"hub","object":{"kind":"Namespace"}}"#,
            "x.jsonl:3: the object has no metadata.name",
        ),
        (
            r#"{"at_ms":1,"event":"listed","cluster":"hub","object":{"kind":"Namespace","metadata":{"uid":"1"}}}"#,
            "x.jsonl:3: the object has no metadata.name",
        ),
        (
            r#"{"at_ms":1,"event":"listed","cluster":"hub","object":{"kind":"HTTPRoute","metadata":{"name":"a"},"spec":{"parentRefs":"x"}}}"#,
            "invalid type: string \"x\", expected a sequence",
        ),
        (
            r#"{"at_ms":1,"event":"list_started","cluster":"hub"}"#,
            r#"this "list_started" line lacks "kind""#,
        ),
        (
            r#"{"at_ms":1,"event":"list_finished","cluster":"hub"}"#,
            r#"this "list_finished" line lacks "kind""#,
        ),
        (
            r#"{"at_ms":1,"event":"watch_lost","cluster":"hub"}"#,
            r#"this "watch_lost" line lacks "kind""#,
        ),
        (
            r#"{"at_ms":1,"event":"list_started","kind":"Connector"}"#,
            r#"this "list_started" line lacks "cluster""#,
        ),
        (
            r#"{"at_ms":1,"event":"list_started","cluster":"edge-1","kind":"Connector"}"#,
            r#"x.jsonl:3: cluster "edge-1" is not known; the log names hub, org/team-1; add it"#,
        ),
        (
            r#"{"at_ms":1,"event":"cluster_removed","cluster":"edge-1"}"#,
            r#"cluster "edge-1" is not known"#,
        ),
        (
            r#"{"at_ms":1,"event":"cluster_added","roles":["edge"]}"#,
            r#"this "cluster_added" line lacks "cluster""#,
        ),
        (
            r#"{"at_ms":1,"event":"cluster_added","cluster":"","roles":["edge"]}"#,
            r#"lacks "cluster""#,
        ),
        (r#"{"at_ms":1,"event":"cluster_added","cluster":"e"}"#, r#"lacks "roles""#),
        (
            r#"{"at_ms":1,"event":"cluster_added","cluster":"e","roles":[]}"#,
            r#"cluster "e" has no roles"#,
        ),
        (r#"{"at_ms":1,"event":"action_finished","outcome":"applied"}"#, r#"lacks "id""#),
        (r#"{"at_ms":1,"event":"action_finished","id":1}"#, r#"lacks "outcome""#),
        (
            r#"{"at_ms":1,"event":"action_finished","id":1,"outcome":"won"}"#,
            r#"outcome "won" is not known; it is one of applied, unchanged"#,
        ),
        (r#"{"at_ms":1,"action":{"id":1,"type":"explode"}}"#, "unknown variant `explode`"),
        (
            r#"{"at_ms":1,"event":"timed_out","action":{"id":1,"type":"touch","cluster":"hub","kind":"Gateway","namespace":"n","name":"g"}}"#,
            "has both",
        ),
        (HEADER, "x.jsonl:3: a second header: logs that were joined?"),
    ] {
        // On line 3, so that the number can be wrong.
        let came = read_lines(&format!("{{\"at_ms\":0,\"event\":\"timed_out\"}}\n{line}\nrest"));
        let error = came.error.unwrap_or_default();
        assert!(error.contains(expected), "{line}\n{error}\nlacks {expected}");
        assert!(error.starts_with("x.jsonl:3: "), "{error}");
        assert_eq!(came.lines, 1);
        let excerpt = error.split('`').nth(1).unwrap_or_default();
        assert!(error.contains("invalid type") || excerpt.chars().count() <= 60, "{error}");
    }
}

#[test]
fn many_clusters_are_not_all_told() {
    let many: Vec<_> =
        (0..12).map(|i| format!(r#"{{"name":"c{i:02}","roles":["edge"]}}"#)).collect();
    let header = format!(r#"{{"log":"throughline","version":1,"clusters":[{}]}}"#, many.join(","));
    let came = read(format!("{header}\n{}\n", LINES[0]));
    assert!(
        came.error
            .unwrap()
            .contains("names c00, c01, c02, c03, c04, c05, c06, c07, c08, c09 and 2 more;")
    );
}

#[test]
fn bytes_that_are_not_utf8_are_refused() {
    let mut log = format!("{HEADER}\n{{\"at_ms\":1,\"event\":\"timed_out\",\"x\":\"").into_bytes();
    log.extend_from_slice(b"\xff\"}\n");
    let error = read(&log).error.unwrap();
    assert!(error.starts_with("x.jsonl:2: column 37: not UTF-8, near `{\"at_ms\""), "{error}");
    assert!(read(b"\xff\xfe{\0").error.unwrap().starts_with("x.jsonl:1: column 1: not UTF-8"));
}

#[test]
fn a_torn_last_line_is_a_warning_wherever_it_is_torn() {
    let whole = LINES[3];
    let start = format!("{HEADER}\n{}\n", LINES[0]).into_bytes();
    for cut in 1..whole.len() {
        let mut log = start.clone();
        log.extend_from_slice(&whole.as_bytes()[..cut]);
        let came = read(&log);
        let expected = format!(
            "x.jsonl:3: warning: the last line breaks off after {cut} bytes, as after a crash; it is left out"
        );
        assert_eq!((came.lines, came.error, came.warnings), (1, None, vec![expected]));
    }
    // The file system may have had room for the line, but not its bytes.
    assert_eq!(read([&start[..], &[0; 100]].concat()).warnings.len(), 1);
    // The same, but not at the end.
    let came = read_lines(&format!("{}\n{}\n", &whole[..50], LINES[0]));
    assert!(came.error.unwrap().starts_with("x.jsonl:2: column 50: not JSON: EOF while parsing"));
    // And a last line that is whole, but wrong.
    assert!(read_lines(r#"{"at_ms":1,"event":"x"}"#).error.is_some());
}

#[test]
fn layout_that_does_not_matter() {
    check_silent(&read(sample().trim_end()), LINES.len());
    check_silent(&read(sample().replace('\n', "\r\n")), LINES.len());
    check_silent(&read(sample().replace('\n', "\r\n").trim_end_matches('\n')), LINES.len());
    check_silent(&read(sample().replace('\n', "\n\n \t\r\n")), LINES.len());
    check_silent(&read(format!("\u{feff}{}", sample())), LINES.len());
    check_silent(&read(HEADER), 0);
    assert!(read(sample().replacen('\n', "\n\u{feff}", 1)).error.is_some());
}

#[test]
fn kinds_that_mean_nothing_are_skipped_with_one_warning_each() {
    let object = |kind: &str, rest: &str| {
        format!(
            r#"{{"at_ms":1,"event":"applied","cluster":"hub","object":{{{kind},"metadata":{{"name":"a"}}{rest}}}}}"#
        )
    };
    let istio = r#""apiVersion":"networking.istio.io/v1","kind":"Gateway""#;
    let lease = r#""apiVersion":"coordination.k8s.io/v1","kind":"Lease""#;
    let lines = [
        r#"{"at_ms":1,"event":"list_started","cluster":"hub","kind":"Lease"}"#.to_owned(),
        object(lease, ""),
        r#"{"at_ms":1,"event":"list_finished","cluster":"hub","kind":"Lease"}"#.to_owned(),
        object(istio, ""),
        object(istio, ""),
        // Read as one of ours these would be refused.
        object(istio, r#","spec":{"gatewayClassName":{"a":1}}"#),
        object(r#""kind":"Odd""#, r#","spec":{"rules":"none","parentRefs":{}}"#),
        object(r#""kind":"Odd""#, r#","spec":7"#),
        object(r#""kind":"Namespace""#, ""),
    ];
    let came = read_lines(&lines.join("\n"));
    assert_eq!((came.lines, came.error), (1, None));
    assert_eq!(
        came.warnings,
        [
            r#"x.jsonl:2: warning: kind "Lease" means nothing to throughline; all its lines are skipped"#,
            r#"x.jsonl:5: warning: kind "networking.istio.io/v1 Gateway" means nothing to throughline; all its lines are skipped"#,
            r#"x.jsonl:8: warning: kind "Odd" means nothing to throughline; all its lines are skipped"#,
        ]
    );
}

#[test]
fn time_never_runs_backwards() {
    let lines = |times: &[u64]| -> String {
        times.iter().map(|t| format!("{{\"at_ms\":{t},\"event\":\"timed_out\"}}\n")).collect()
    };
    let came = read_lines(&lines(&[10, 7, 12, 12]));
    let first = |at, by, latest| {
        format!(
            "x.jsonl:{at}: warning: at_ms runs backwards by {by} ms; the line counts as of {latest}"
        )
    };
    assert_eq!(came.warnings, [first(3, 3, 10)]);
    assert_eq!(came.written, format!("{HEADER}\n{}", lines(&[10, 10, 12, 12])));
    let came = read_lines(&lines(&[10, 7, 12, 2, 13, 12]));
    assert_eq!(came.written, format!("{HEADER}\n{}", lines(&[10, 10, 12, 12, 13, 13])));
    let sum = "x.jsonl:7: warning: at_ms ran backwards on 3 lines in all, by up to 10 ms; each counts as the latest time before it";
    assert_eq!(came.warnings, [first(3, 3, 10), sum.to_owned()]);
    check_silent(&read_lines(&lines(&[0, u64::MAX, u64::MAX])), 3);
}

#[test]
fn long_lines_are_read_and_endless_ones_refused() {
    let long = LINES[3].replace("größer", &"ä".repeat(5_000_000));
    let came = read_lines(&format!("{long}\n"));
    check_silent(&came, 1);
    assert!(came.written.ends_with(&format!("{long}\n")));

    let start = Cursor::new(format!("{HEADER}\n").into_bytes());
    let endless = BufReader::new(start.chain(io::repeat(b' ')));
    let error = drain(Reader::new("x.jsonl", endless)).error.unwrap();
    assert!(
        error.starts_with(&format!("x.jsonl:2: the line is longer than {LINE_BYTES_MAX} bytes"))
    );
}

#[test]
fn a_status_with_line_breaks_stays_one_line() {
    let object =
        "{\"kind\":\"Connector\",\"metadata\":{\"name\":\"a\"},\"status\":{\n\"a\":\r\n\"b\\n\"}}";
    let reader = read_lines(&format!(
        r#"{{"at_ms":1,"event":"applied","cluster":"hub","object":{}}}"#,
        object.replace(['\n', '\r'], "")
    ));
    check_silent(&reader, 1);
    let wire: throughline::core::objects::Wire = serde_json::from_str(object).unwrap();
    let object = std::sync::Arc::new(wire.try_into().unwrap());
    let what = Happened::Applied { cluster: "hub".into(), object };
    let at = throughline::core::time::UnixMillis(1);
    let header = Reader::new("x", HEADER.as_bytes()).unwrap().header().clone();
    let mut writer = Writer::new(Vec::new(), &header).unwrap();
    writer.event(&Event { at, what }).unwrap();
    let log = String::from_utf8(writer.into_inner()).unwrap();
    assert_eq!(log.lines().count(), 2);
    assert!(log.contains(r#""status":{ "a":  "b\n"}"#), "{log}");
    check_silent(&read(log), 1);
}

#[test]
fn absent_texts_are_empty() {
    let lines = r#"{"at_ms":1,"event":"watch_lost","cluster":"hub","kind":"Connector"}
{"at_ms":1,"event":"action_finished","id":1,"outcome":"failed","error":null}
{"at_ms":1,"action":{"id":1,"type":"touch","cluster":"hub","kind":"Gateway","namespace":"n","name":"g"}}"#;
    let log = format!("{HEADER}\n{lines}");
    let lines: Vec<_> = Reader::new("x", log.as_bytes()).unwrap().map(Result::unwrap).collect();
    let [Line::Event(lost), Line::Event(failed), Line::Action(touch)] = &lines[..] else {
        panic!("{lines:?}")
    };
    assert!(matches!(&lost.what, Happened::WatchLost { error, .. } if error.is_empty()));
    assert!(matches!(&failed.what, Happened::ActionFinished {
        outcome: Outcome::Failed { error, retry_after_ms: None }, ..
    } if error.is_empty()));
    assert_eq!(touch.because, "");
}
