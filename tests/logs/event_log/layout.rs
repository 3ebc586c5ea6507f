//! Cut-off, long and odd lines; times that go back; skipped kinds.

use std::sync::Arc;

use throughline::core::data::objects::WireObject;
use throughline::core::data::time::UnixMillis;

use super::*;

#[test]
fn a_last_line_cut_off_anywhere_is_a_warning() {
    let whole = LINES[3];
    let start = format!("{HEADER}\n{}\n", LINES[0]).into_bytes();
    for cut in 1..whole.len() {
        let mut log = start.clone();
        log.extend_from_slice(&whole.as_bytes()[..cut]);
        let result = read(&log);
        let expected = format!(
            "x.jsonl:3: warning: the last line is cut off after {cut} bytes, as after a crash; skipping it"
        );
        assert_eq!((result.lines, result.error, result.warnings), (1, None, vec![expected]));
    }
    // After a crash the file system may know the line's length but not its bytes.
    assert_eq!(read([&start[..], &[0; 100]].concat()).warnings.len(), 1);
    // The same line, but not at the end.
    let result = read_lines(&format!("{}\n{}\n", &whole[..50], LINES[0]));
    assert!(
        result.error.unwrap().starts_with("x.jsonl:2: column 50: invalid JSON: EOF while parsing")
    );
    // A last line that is whole but wrong.
    assert!(read_lines(r#"{"at_ms":1763715600001,"event":"x"}"#).error.is_some());
}

#[test]
fn white_space_and_a_byte_order_mark_are_ignored() {
    check_silent(&read(SAMPLE.trim_end()), LINES.len());
    check_silent(&read(SAMPLE.replace('\n', "\r\n")), LINES.len());
    check_silent(&read(SAMPLE.replace('\n', "\r\n").trim_end_matches('\n')), LINES.len());
    check_silent(&read(SAMPLE.replace('\n', "\n\n \t\r\n")), LINES.len());
    check_silent(&read(format!("\u{feff}{SAMPLE}")), LINES.len());
    check_silent(&read(HEADER), 0);
    assert!(read(SAMPLE.replacen('\n', "\n\u{feff}", 1)).error.is_some());
}

#[test]
fn unused_kinds_are_skipped_with_one_warning_each() {
    let line = |event: &str, rest: &str| {
        format!(r#"{{"at_ms":1763715600001,"event":"{event}","cluster":"hub",{rest}}}"#)
    };
    let object = |kind: &str, rest: &str| {
        line("applied", &format!(r#""object":{{"metadata":{{"name":"a"}}{rest},{kind}}}"#))
    };
    let istio = r#""apiVersion":"networking.istio.io/v1","kind":"Gateway""#;
    let lease = r#""apiVersion":"coordination.k8s.io/v1","kind":"Lease""#;
    let lines = [
        line("list_started", r#""kind":"Lease""#),
        object(lease, ""),
        line("list_finished", r#""kind":"Lease""#),
        object(istio, ""),
        object(istio, ""),
        // As objects of a kind that throughline uses, these would be refused.
        object(istio, r#","spec":{"gatewayClassName":{"a":1}}"#),
        object(r#""kind":"Odd""#, r#","spec":{"rules":"none","parentRefs":{}}"#),
        object(r#""kind":"Odd""#, r#","spec":7"#),
        object(r#""kind":"Namespace""#, ""),
    ];
    let result = read_lines(&lines.join("\n"));
    assert_eq!((result.lines, result.error), (1, None));
    assert_eq!(
        result.warnings,
        [
            r#"x.jsonl:2: warning: throughline does not use kind "Lease"; skipping all its lines"#,
            r#"x.jsonl:5: warning: throughline does not use kind "networking.istio.io/v1 Gateway"; skipping all its lines"#,
            r#"x.jsonl:8: warning: throughline does not use kind "Odd"; skipping all its lines"#,
        ]
    );
}

#[test]
fn time_never_goes_back() {
    let lines = |times: &[u64]| -> String {
        let line = |t: &u64| format!("{{\"at_ms\":{},\"event\":\"timed_out\"}}\n", START_MS + t);
        times.iter().map(line).collect()
    };
    let result = read_lines(&lines(&[10, 7, 12, 12]));
    let first = |at, by, latest| {
        format!(
            "x.jsonl:{at}: warning: at_ms goes back by {by} ms; the line counts as {}, the latest time before it",
            START_MS + latest
        )
    };
    assert_eq!(result.warnings, [first(3, 3, 10)]);
    assert_eq!(result.written, format!("{HEADER}\n{}", lines(&[10, 10, 12, 12])));
    let result = read_lines(&lines(&[10, 7, 12, 2, 13, 12]));
    assert_eq!(result.written, format!("{HEADER}\n{}", lines(&[10, 10, 12, 12, 13, 13])));
    let sum = "x.jsonl:7: warning: at_ms goes back on 3 lines in total, by up to 10 ms; each line counts as the latest time before it";
    assert_eq!(result.warnings, [first(3, 3, 10), sum.to_owned()]);
    let ten_years = 3_653 * 86_400_000;
    check_silent(&read_lines(&lines(&[0, ten_years, ten_years])), 3);
    for at_the_limit in [946_684_800_000_u64, 7_258_118_400_000] {
        let line = format!(r#"{{"at_ms":{at_the_limit},"event":"timed_out"}}"#);
        check_silent(&read_lines(&line), 1);
    }
    let first = read_lines(&format!(r#"{{"at_ms":{},"event":"timed_out"}}"#, u64::MAX));
    assert!(first.error.unwrap().starts_with("x.jsonl:2: column 10: at_ms is "));
}

#[test]
fn long_lines_are_read_and_endless_ones_refused() {
    let long = LINES[3].replace("größer", &"ä".repeat(5_000_000));
    let result = read_lines(&format!("{long}\n"));
    check_silent(&result, 1);
    assert!(result.written.ends_with(&format!("{long}\n")));

    let start = Cursor::new(format!("{HEADER}\n").into_bytes());
    let endless = BufReader::new(start.chain(io::repeat(b' ')));
    let error = drain(LogReader::new("x.jsonl", endless)).error.unwrap();
    assert!(
        error.starts_with(&format!("x.jsonl:2: the line is longer than {LINE_BYTES_MAX} bytes"))
    );
}

#[test]
fn a_status_with_line_breaks_stays_one_line() {
    let object =
        "{\"kind\":\"Connector\",\"metadata\":{\"name\":\"a\"},\"status\":{\n\"a\":\r\n\"b\\n\"}}";
    let wire: WireObject = serde_json::from_str(object).unwrap();
    let object = Arc::new(wire.try_into().unwrap());
    let kind = EventKind::Applied { cluster: "hub".into(), object };
    let header = LogReader::new("x", HEADER.as_bytes()).unwrap().header().clone();
    let mut writer = LogWriter::new(Vec::new(), &header).unwrap();
    writer.event(&Event { at: UnixMillis(START_MS), kind }).unwrap();
    let log = String::from_utf8(writer.into_inner()).unwrap();
    assert_eq!(log.lines().count(), 2);
    assert!(log.contains(r#""status":{ "a":  "b\n"}"#), "{log}");
    check_silent(&read(log), 1);
}

#[test]
fn missing_texts_are_empty() {
    let result = read_lines(
        r#"{"at_ms":1763715600001,"event":"watch_lost","cluster":"hub","kind":"Connector"}
{"at_ms":1763715600001,"event":"action_finished","id":1,"outcome":"failed","error":null}
{"at_ms":1763715600001,"action":{"id":1,"type":"touch","cluster":"hub","kind":"Gateway","namespace":"n","name":"g"}}"#,
    );
    check_silent(&result, 3);
    let lines: Vec<_> = result.written.lines().collect();
    assert!(lines[1].ends_with(r#""kind":"Connector","error":""}"#), "{}", lines[1]);
    assert!(lines[2].ends_with(r#""outcome":"failed","error":""}"#), "{}", lines[2]);
    assert!(lines[3].ends_with(r#","because":""}"#), "{}", lines[3]);
}
