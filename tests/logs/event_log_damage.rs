//! Compressed, cut-off and damaged event logs, long and odd lines: nothing is lost that is readable.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use throughline::core::contract::event::{Event, EventKind};
use throughline::core::data::objects::WireObject;
use throughline::core::data::time::UnixMillis;
use throughline::event_log::{LogReader, LogWriter, holds_outcomes};

use crate::read_log::gzip;
use crate::reading::*;

#[test]
fn a_cut_off_compressed_log_is_read_up_to_the_cut() {
    let bytes = gzip(SAMPLE);
    for cut in 5..bytes.len() {
        let result = read(&bytes[..cut]);
        // The cut may be in the header.
        if let Some(error) = result.error {
            assert!(error.starts_with("x.jsonl:1: can't read further: "), "{error}");
            continue;
        }
        let at = [result.lines + 1, result.lines + 2].map(|line| {
            format!("x.jsonl:{line}: warning: the compressed stream is cut off in this line")
        });
        assert_eq!(result.warnings.len(), 1, "{result:?}");
        assert!(at.iter().any(|at| result.warnings[0].starts_with(at)), "{result:?}");
        assert!(SAMPLE.starts_with(&result.written));
    }
    assert!(read(gzip("")).error.unwrap().starts_with("x.jsonl:1: the log is empty"));
    // Only the end of the stream is missing.
    let result = read(&bytes[..bytes.len() - 4]);
    assert_eq!((result.lines, result.error, result.warnings.len()), (LINES.len(), None, 1));
    assert_eq!(result.written, SAMPLE);
    // Of two gzip members, the first is whole.
    let second = gzip(LINES[0]);
    let result = read([&bytes, &second[..second.len() / 2]].concat());
    assert_eq!((result.lines >= LINES.len(), result.error, result.warnings.len()), (true, None, 1));
}

#[test]
fn a_file_has_a_progress_and_its_outcomes_are_found() {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("progress");
    let name = path.to_str().unwrap();
    for bytes in [SAMPLE.into(), gzip(SAMPLE)] {
        fs::write(&path, bytes).unwrap();
        let mut reader = LogReader::open(name).unwrap();
        assert_eq!(reader.line_number(), 1);
        assert!(reader.progress().is_some_and(|p| (0.0..=1.0).contains(&p)));
        while reader.next_line().unwrap().is_some() {}
        assert_eq!(reader.line_number(), LINES.len() as u64 + 1);
        assert_eq!(reader.progress(), Some(1.0));
        assert_eq!(holds_outcomes(name).unwrap(), Some(true));
    }
    // They are found in a file that can be read again, but not in a text.
    let outcome = r#"{"at_ms":1763715601000,"event":"action_finished","id":1,"outcome":"dropped"}"#;
    let text = r#"{"at_ms":1763715601000,"event":"timed_out","m":"\"action_finished\""}"#;
    for (lines, expected) in [(text.to_owned(), false), (format!("{text}\n{outcome}"), true)] {
        fs::write(&path, format!("{HEADER}\n{lines}\n")).unwrap();
        assert_eq!(holds_outcomes(name).unwrap(), Some(expected));
    }
    fs::remove_file(&path).unwrap();
    assert_eq!(holds_outcomes("-").unwrap(), None);
    assert!(holds_outcomes(name).is_err());
}

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
fn long_lines_are_read() {
    let long = LINES[3].replace("größer", &"ä".repeat(5_000_000));
    let result = read_lines(&format!("{long}\n"));
    check_silent(&result, 1);
    assert!(result.written.ends_with(&format!("{long}\n")));
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
