//! The event log: every promise of its reader and writer.

#![allow(missing_docs, clippy::unwrap_used)]

use std::io::{self, BufReader, Cursor, Read, Write};

use proptest::prelude::*;
use throughline::core::event::{Event, Happened, Outcome};
use throughline::core::settings::{OrphanMode, Settings};
use throughline::event_log::{
    ClusterSpec, EVENT_NAMES, Header, LINE_BYTES_MAX, Line, LogError, OUTCOME_NAMES, Problem,
    Reader, Writer,
};

const HEADER: &str = r#"{"log":"throughline","version":1,"clusters":[{"name":"org/team-1","roles":["upstream"]},{"name":"hub","roles":["downstream","edge"]}]}"#;

/// One line of each sort, as the writer spells them.
const LINES: &[&str] = &[
    r#"{"at_ms":1000,"event":"list_started","cluster":"hub","kind":"Namespace"}"#,
    r#"{"at_ms":1001,"event":"listed","cluster":"hub","object":{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"ns-1","uid":"1bd25ce7-9471-4bb4-a47a-641621928b1a","resourceVersion":"265","creationTimestamp":"2026-11-21T09:21:58.000Z","labels":{"meta.datumapis.com/upstream-cluster-name":"cluster-org_team-1"}}}}"#,
    r#"{"at_ms":1002,"event":"list_finished","cluster":"hub","kind":"Namespace"}"#,
    r#"{"at_ms":1003,"event":"applied","cluster":"org/team-1","object":{"apiVersion":"networking.datumapis.com/v1alpha1","kind":"Connector","metadata":{"namespace":"shop","name":"home-lab","uid":"u1","resourceVersion":"267","managedFields":[{"manager":"agent","time":"2026-11-21T09:22:00.000Z"}]},"status":{"conditions":[{"type":"Ready","status":"True","message":"größer \"als\" sonst"}],"n":1.50}}}"#,
    r#"{"at_ms":1004,"event":"applied","cluster":"hub","object":{"apiVersion":"networking.datumapis.com/v1alpha","kind":"HTTPProxy","metadata":{"namespace":"ns-1","name":"p"},"spec":{"rules":[{"backends":[{"connector":{"name":"home-lab"}}]}]}}}"#,
    r#"{"at_ms":1005,"event":"applied","cluster":"hub","object":{"apiVersion":"gateway.networking.k8s.io/v1","kind":"Gateway","metadata":{"namespace":"ns-1","name":"g","annotations":{"a/b":"c"}},"spec":{"gatewayClassName":"eg"}}}"#,
    r#"{"at_ms":1006,"event":"deleted","cluster":"hub","object":{"apiVersion":"gateway.networking.k8s.io/v1","kind":"HTTPRoute","metadata":{"namespace":"ns-1","name":"r","deletionTimestamp":"2026-11-21T09:22:00.000Z"},"spec":{"parentRefs":[{"name":"g"}]}}}"#,
    r#"{"at_ms":1007,"event":"watch_lost","cluster":"hub","kind":"HTTPProxy","error":"410 Gone\n\"too old\""}"#,
    r#"{"at_ms":1008,"event":"leadership_acquired"}"#,
    r#"{"at_ms":1008,"action":{"id":7,"type":"mirror","cluster":"hub","kind":"Connector","namespace":"ns-1","name":"home-lab","annotations":{"a":"{\"x\":1}","b":null},"precondition":{"uid":"u1","resourceVersion":"12","absent":{"cluster":"org/team-1","namespace":"shop","names":["g"]}},"connectors":[{"namespace":"shop","name":"home-lab"}]},"because":"the status changed"}"#,
    r#"{"at_ms":1009,"event":"action_finished","id":7,"outcome":"applied","resourceVersion":"13"}"#,
    r#"{"at_ms":1009,"event":"action_finished","id":8,"outcome":"applied"}"#,
    r#"{"at_ms":1009,"event":"action_finished","id":9,"outcome":"unchanged"}"#,
    r#"{"at_ms":1009,"event":"action_finished","id":10,"outcome":"superseded"}"#,
    r#"{"at_ms":1009,"event":"action_finished","id":11,"outcome":"refused","error":"403"}"#,
    r#"{"at_ms":1009,"event":"action_finished","id":12,"outcome":"failed","error":"429","retry_after_ms":2000}"#,
    r#"{"at_ms":1009,"event":"action_finished","id":13,"outcome":"failed","error":"timed out"}"#,
    r#"{"at_ms":1009,"event":"action_finished","id":14,"outcome":"conflict","error":"409"}"#,
    r#"{"at_ms":1009,"event":"action_finished","id":15,"outcome":"not_found"}"#,
    r#"{"at_ms":1009,"event":"action_finished","id":16,"outcome":"dropped"}"#,
    r#"{"at_ms":1010,"event":"leadership_lost"}"#,
    r#"{"at_ms":1011,"event":"cluster_added","cluster":"org/team-2","roles":["upstream"]}"#,
    r#"{"at_ms":1012,"event":"list_started","cluster":"org/team-2","kind":"Connector"}"#,
    r#"{"at_ms":1013,"event":"cluster_removed","cluster":"org/team-2"}"#,
    r#"{"at_ms":1014,"event":"timed_out"}"#,
];

fn sample() -> String {
    format!("{HEADER}\n{}\n", LINES.join("\n"))
}

/// What reading came to: what was read, written again; the warnings; and the error that ended it.
#[derive(Debug, Default)]
struct Came {
    lines: usize,
    written: String,
    warnings: Vec<String>,
    error: Option<String>,
}

fn drain<R: io::BufRead>(reader: Result<Reader<R>, LogError>) -> Came {
    let mut came = Came::default();
    let mut reader = match reader {
        Ok(reader) => reader,
        Err(error) => return Came { error: Some(error.to_string()), ..came },
    };
    let mut writer = Writer::new(Vec::new(), reader.header()).unwrap();
    loop {
        match reader.next_line() {
            Ok(Some(Line::Event(event))) => writer.event(&event).unwrap(),
            Ok(Some(Line::Action(decision))) => writer.action(&decision).unwrap(),
            Ok(None) => break,
            Err(error) => {
                came.error = Some(error.to_string());
                break;
            }
        }
        came.lines += 1;
    }
    assert!(reader.next_line().unwrap().is_none(), "nothing comes after the end or an error");
    came.warnings = reader.warnings().iter().map(ToString::to_string).collect();
    assert!(reader.warnings().is_empty(), "warnings are drained");
    came.written = String::from_utf8(writer.into_inner()).unwrap();
    came
}

fn read(bytes: impl AsRef<[u8]>) -> Came {
    drain(Reader::new("x.jsonl", Cursor::new(bytes.as_ref())))
}

fn read_any(bytes: impl Into<Vec<u8>>) -> Came {
    drain(Reader::decompressing("x.jsonl", Cursor::new(bytes.into())))
}

/// Lines after the sample header.
fn read_lines(lines: &str) -> Came {
    read(format!("{HEADER}\n{lines}"))
}

#[track_caller]
fn check_silent(came: &Came, lines: usize) {
    assert_eq!((came.lines, &came.error, &came.warnings), (lines, &None, &vec![]));
}

#[test]
fn what_is_written_reads_back_to_the_same_bytes() {
    let came = read(sample());
    check_silent(&came, LINES.len());
    assert_eq!(came.written, sample());
}

#[test]
fn the_sample_has_every_event_and_every_outcome() {
    for name in EVENT_NAMES {
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
            r#"x.jsonl:3: event "renamed" is not known; version 1 has cluster_added, cluster_removed, list_started, listed, list_finished, applied, deleted, watch_lost, leadership_acquired, leadership_lost, action_finished, timed_out"#,
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

fn gzip(data: &str) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(data.as_bytes()).unwrap();
    encoder.finish().unwrap()
}

fn zstd(data: &str) -> Vec<u8> {
    zstd::stream::encode_all(data.as_bytes(), 3).unwrap()
}

#[test]
fn compressed_logs_read_as_plain_ones() {
    let whole = sample();
    let (first, second) = whole.split_at(700);
    let skippable =
        [&[0x50, 0x2a, 0x4d, 0x18, 4, 0, 0, 0, 1, 2, 3, 4][..], &zstd(&sample())].concat();
    for bytes in [
        sample().into_bytes(),
        gzip(&sample()),
        zstd(&sample()),
        [gzip(first), gzip(second)].concat(),
        [zstd(first), zstd(second)].concat(),
        skippable,
    ] {
        let came = read_any(bytes);
        check_silent(&came, LINES.len());
        assert_eq!(came.written, sample());
    }
}

#[test]
fn a_compressed_log_without_its_end_is_read_as_far_as_it_goes() {
    for (bytes, empty) in [(gzip(&sample()), gzip("")), (zstd(&sample()), zstd(""))] {
        for cut in 5..bytes.len() {
            let came = read_any(&bytes[..cut]);
            match came.error {
                // It breaks off in the header.
                Some(error) => assert!(error.starts_with("x.jsonl:1: can't read on: "), "{error}"),
                None => {
                    assert_eq!(came.warnings.len(), 1, "{came:?}");
                    let n = came.lines + 1;
                    let about = |line| {
                        format!(
                            "x.jsonl:{line}: warning: the compressed stream breaks off in this line"
                        )
                    };
                    let at = [about(n), about(n + 1)];
                    assert!(at.iter().any(|at| came.warnings[0].starts_with(at)), "{came:?}");
                    assert!(sample().starts_with(&came.written));
                }
            }
        }
        assert!(read_any(empty).error.unwrap().starts_with("x.jsonl:1: the log is empty"));
    }
    // All lines were flushed, and only the stream's own end is missing.
    let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 3).unwrap();
    for line in sample().lines() {
        writeln!(encoder, "{line}").unwrap();
        encoder.flush().unwrap();
    }
    let gzip_without_length = gzip(&sample());
    let gzip_without_length = gzip_without_length[..gzip_without_length.len() - 4].to_vec();
    for bytes in [encoder.get_ref().clone(), gzip_without_length] {
        let came = read_any(bytes);
        assert_eq!((came.lines, came.error, came.warnings.len()), (LINES.len(), None, 1));
        assert_eq!(came.written, sample());
    }
    // Members that follow each other: the first is whole.
    let second = gzip(LINES[0]);
    let bytes = [gzip(&sample()), second[..second.len() / 2].to_vec()].concat();
    let came = read_any(bytes);
    assert_eq!((came.lines >= LINES.len(), came.error, came.warnings.len()), (true, None, 1));
}

#[test]
fn a_damaged_compressed_log_is_an_error_with_its_place() {
    let mut bytes = gzip(&sample());
    let n = bytes.len();
    bytes[n - 6] ^= 1; // the checksum
    let came = read_any(bytes);
    assert_eq!(came.lines, LINES.len());
    let error = came.error.unwrap();
    assert!(error.starts_with(&format!("x.jsonl:{}: can't read on: ", LINES.len() + 2)), "{error}");
}

#[test]
fn files_are_opened_by_path_and_their_progress_is_known() {
    let base = std::env::temp_dir().join(format!("throughline-event-log-{}", std::process::id()));
    std::fs::create_dir_all(&base).unwrap();
    for (name, bytes) in
        [("a.jsonl", sample().into_bytes()), ("b.jsonl", gzip(&sample())), ("c", zstd(&sample()))]
    {
        let path = base.join(name);
        std::fs::write(&path, bytes).unwrap();
        let mut reader = Reader::open(path.to_str().unwrap()).unwrap();
        assert_eq!(reader.line_number(), 1);
        assert_eq!(reader.bytes_read(), HEADER.len() as u64 + 1);
        assert!(reader.progress().is_some_and(|p| (0.0..=1.0).contains(&p)));
        while reader.next_line().unwrap().is_some() {}
        assert_eq!(reader.line_number(), LINES.len() as u64 + 1);
        assert_eq!((reader.bytes_read(), reader.progress()), (sample().len() as u64, Some(1.0)));
    }
    let none = base.join("none").to_str().unwrap().to_owned();
    for path in [none.as_str(), base.to_str().unwrap()] {
        let error = Reader::open(path).map(|_| ()).unwrap_err();
        assert!(matches!(&error, LogError::Open { .. }) && error.problem().is_none());
        assert!(error.to_string().starts_with(&format!("{path}: can't open the event log: ")));
    }
    std::fs::remove_dir_all(&base).unwrap();
    assert_eq!(Reader::new("x", HEADER.as_bytes()).unwrap().progress(), None);
}

#[test]
fn a_caller_can_tell_problems_apart() {
    let error = Reader::new("x", &b""[..]).map(|_| ()).unwrap_err();
    assert_eq!(error.problem(), Some(&Problem::Empty));
}

#[test]
fn the_writer_returns_the_errors_of_its_sink() {
    struct Full(usize);
    impl Write for Full {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            assert!(bytes.ends_with(b"\n"), "a line at a time");
            self.0 = self.0.checked_sub(bytes.len()).ok_or(io::ErrorKind::StorageFull)?;
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Err(io::ErrorKind::Other.into())
        }
    }
    let mut reader = Reader::new("x", Cursor::new(sample())).unwrap();
    assert!(Writer::new(Full(10), reader.header()).is_err());
    let mut writer = Writer::new(Full(HEADER.len() + 1), reader.header()).unwrap();
    let Some(Line::Event(event)) = reader.next_line().unwrap() else { panic!() };
    assert_eq!(writer.event(&event).unwrap_err().kind(), io::ErrorKind::StorageFull);
    assert!(writer.flush().is_err());
}

/// A change to a log's bytes.
#[derive(Clone, Debug)]
enum Damage {
    Flip(prop::sample::Index, u8),
    Truncate(prop::sample::Index),
    Insert(prop::sample::Index, Vec<u8>),
    Repeat(prop::sample::Index, prop::sample::Index),
}

fn damage() -> impl Strategy<Value = Damage> {
    let at = any::<prop::sample::Index>;
    let bytes = prop_oneof![
        prop::collection::vec(any::<u8>(), 1..8),
        prop::sample::select(vec!["\n", "{", "}", "[", "null", "\"", "\\u", "0", "-", "\0", "é"])
            .prop_map(|text| text.as_bytes().to_vec()),
    ];
    prop_oneof![
        4 => (at(), 1..=255u8).prop_map(|(at, mask)| Damage::Flip(at, mask)),
        1 => at().prop_map(Damage::Truncate),
        4 => (at(), bytes).prop_map(|(at, bytes)| Damage::Insert(at, bytes)),
        1 => (at(), at()).prop_map(|(from, to)| Damage::Repeat(from, to)),
    ]
}

fn damaged(mut log: Vec<u8>, damages: &[Damage]) -> Vec<u8> {
    for damage in damages {
        if log.is_empty() {
            break;
        }
        match damage {
            Damage::Flip(at, mask) => {
                let at = at.index(log.len());
                log[at] ^= mask;
            }
            Damage::Truncate(at) => log.truncate(at.index(log.len())),
            Damage::Insert(at, bytes) => {
                let at = at.index(log.len());
                log.splice(at..at, bytes.iter().copied());
            }
            Damage::Repeat(from, to) => {
                let (from, to) = (from.index(log.len()), to.index(log.len()));
                let part = log[from.min(to)..from.max(to)].to_vec();
                log.splice(to..to, part);
            }
        }
    }
    log
}

/// What could be read of a log, however damaged, reads again and says the same.
fn check_damaged(came: &Came) -> Result<(), TestCaseError> {
    if let Some(error) = &came.error {
        prop_assert!(error.starts_with("x.jsonl:"), "{}", error);
    }
    if !came.written.is_empty() {
        let again = read(&came.written);
        prop_assert_eq!((&again.error, &again.warnings), (&None, &vec![]));
        prop_assert_eq!(&again.written, &came.written);
    }
    Ok(())
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(damages in prop::collection::vec(damage(), 0..6)) {
        check_damaged(&read(damaged(sample().into_bytes(), &damages)))?;
    }

    #[test]
    fn no_damage_to_one_line_makes_it_panic(
        line in prop::sample::select(LINES),
        damages in prop::collection::vec(damage(), 1..4),
    ) {
        let line = damaged(line.as_bytes().to_vec(), &damages);
        check_damaged(&read([format!("{HEADER}\n").as_bytes(), &line, b"\n"].concat()))?;
    }

    #[test]
    fn no_compressed_bytes_make_it_panic(
        is_gzip in any::<bool>(),
        damages in prop::collection::vec(damage(), 0..4),
    ) {
        let bytes = if is_gzip { gzip(&sample()) } else { zstd(&sample()) };
        check_damaged(&read_any(damaged(bytes, &damages)))?;
    }
}
