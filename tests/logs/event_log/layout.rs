//! Cut-off, long and odd lines.

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
