//! Compressed, cut-off and damaged event logs: the reader never panics and loses nothing that is
//! readable.

use std::io::{self, Cursor, Write};

use throughline::event_log::{LogEntry, LogError, LogReader, LogWriter};

use crate::reading::*;

#[test]
fn compressed_logs_read_like_plain_ones() {
    let (first, second) = SAMPLE.split_at(700);
    for bytes in [SAMPLE.into(), gzip(SAMPLE), [gzip(first), gzip(second)].concat()] {
        let result = read_any(bytes);
        check_silent(&result, LINES.len());
        assert_eq!(result.written, SAMPLE);
    }
}

#[test]
fn a_cut_off_compressed_log_is_read_up_to_the_cut() {
    let bytes = gzip(SAMPLE);
    for cut in 5..bytes.len() {
        let result = read_any(&bytes[..cut]);
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
    assert!(read_any(gzip("")).error.unwrap().starts_with("x.jsonl:1: the log is empty"));
    // Only the end of the stream is missing.
    let result = read_any(&bytes[..bytes.len() - 4]);
    assert_eq!((result.lines, result.error, result.warnings.len()), (LINES.len(), None, 1));
    assert_eq!(result.written, SAMPLE);
    // Of two gzip members, the first is whole.
    let second = gzip(LINES[0]);
    let result = read_any([&bytes, &second[..second.len() / 2]].concat());
    assert_eq!((result.lines >= LINES.len(), result.error, result.warnings.len()), (true, None, 1));
}

#[test]
fn a_damaged_compressed_log_is_an_error_with_its_line() {
    let mut bytes = gzip(SAMPLE);
    let n = bytes.len();
    bytes[n - 6] ^= 1; // the checksum
    let result = read_any(bytes);
    assert_eq!(result.lines, LINES.len());
    let expected = format!("x.jsonl:{}: can't read further: ", LINES.len() + 2);
    assert!(result.error.as_ref().unwrap().starts_with(&expected), "{result:?}");
}

#[test]
fn a_file_has_a_progress() {
    let base = std::env::temp_dir().join(format!("throughline-event-log-{}", std::process::id()));
    std::fs::create_dir_all(&base).unwrap();
    for (name, bytes) in [("a.jsonl", SAMPLE.into()), ("b.jsonl", gzip(SAMPLE))] {
        let path = base.join(name);
        std::fs::write(&path, bytes).unwrap();
        let mut reader = LogReader::open(path.to_str().unwrap()).unwrap();
        assert_eq!((reader.line_number(), reader.bytes_read()), (1, HEADER.len() as u64 + 1));
        assert!(reader.progress().is_some_and(|p| (0.0..=1.0).contains(&p)));
        while reader.next_line().unwrap().is_some() {}
        assert_eq!(reader.line_number(), LINES.len() as u64 + 1);
        assert_eq!((reader.bytes_read(), reader.progress()), (SAMPLE.len() as u64, Some(1.0)));
    }
    for path in [base.join("none").to_str().unwrap(), base.to_str().unwrap()] {
        let error = LogReader::open(path).map(|_| ()).unwrap_err();
        assert!(matches!(&error, LogError::Open { .. }));
        assert!(error.to_string().starts_with(&format!("{path}: can't open the event log: ")));
    }
    std::fs::remove_dir_all(&base).unwrap();
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
    let mut reader = LogReader::new("x", Cursor::new(SAMPLE)).unwrap();
    assert!(LogWriter::new(Full(10), reader.header()).is_err());
    let mut writer = LogWriter::new(Full(HEADER.len() + 1), reader.header()).unwrap();
    let Some(LogEntry::Event(event)) = reader.next_line().unwrap() else { panic!() };
    assert_eq!(writer.event(&event).unwrap_err().kind(), io::ErrorKind::StorageFull);
    assert!(writer.flush().is_err());
}

/// A replay writes what it read: clusters that only a lost line named, too.
#[test]
fn the_log_of_a_replay_of_a_log_with_a_gap_can_be_read() {
    use throughline::replay::{ReplayMode, ReplayOptions, replay};
    let lines = [
        format!(r#"{{"at_ms":{START_MS},"event":"log_gap","lines":3}}"#),
        LINES[0].to_owned(),
        LINES[0].replace("\"hub\"", "\"lost\""),
        LINES[2].replace("\"hub\"", "\"lost\""),
    ];
    let log = format!("{HEADER}\n{}\n", lines.join("\n"));
    for mode in [ReplayMode::WhatIf, ReplayMode::Verify] {
        let mut reader = LogReader::new("x.jsonl", Cursor::new(&log)).unwrap();
        let options = ReplayOptions { mode: Some(mode), ..ReplayOptions::default() };
        let mut written = Vec::new();
        replay(&mut reader, "x.jsonl", |_| Ok(()), &options, Some(&mut written), |_| {}).unwrap();
        let result = read(&written);
        assert_eq!(result.error, None, "{}", String::from_utf8_lossy(&written));
        let gap = "warning: 1 line is missing here";
        assert!(result.warnings.iter().any(|warning| warning.contains(gap)), "{result:?}");
    }
}
