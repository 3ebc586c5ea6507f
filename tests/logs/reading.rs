//! Reads a log and keeps the result.

use std::io::{self, Cursor, Write};
use std::sync::LazyLock;

use throughline::core::contract::settings::Settings;
use throughline::event_log::{LogEntry, LogError, LogReader, LogWriter};
use throughline::replay::{Replay, ReplayMode, ReplayOptions, replay};

pub(crate) const HEADER: &str = r#"{"log":"throughline","version":1,"clusters":[{"name":"org/team-1","roles":["upstream"]},{"name":"hub","roles":["downstream","edge"]}]}"#;

/// A time at which logs of these tests begin.
pub(crate) const START_MS: u64 = 1_763_715_600_000;

/// A log with one line of each sort, as the writer writes it.
pub(crate) const SAMPLE: &str = include_str!("event_log/sample.jsonl");

/// Its lines after the header.
pub(crate) static LINES: LazyLock<Vec<&str>> = LazyLock::new(|| SAMPLE.lines().skip(1).collect());

/// The result of reading a log: its entries, written again; the warnings; and the error that ended
/// it.
#[derive(Debug, Default)]
pub(crate) struct ReadResult {
    pub(crate) lines: usize,
    pub(crate) written: String,
    pub(crate) warnings: Vec<String>,
    pub(crate) error: Option<String>,
}

pub(crate) fn drain<R: io::BufRead>(reader: Result<LogReader<R>, LogError>) -> ReadResult {
    let mut result = ReadResult::default();
    let mut reader = match reader {
        Ok(reader) => reader,
        Err(error) => return ReadResult { error: Some(error.to_string()), ..result },
    };
    let mut writer = LogWriter::new(Vec::new(), reader.header()).unwrap();
    loop {
        match reader.next_line() {
            Ok(Some(LogEntry::Event(event))) => writer.event(&event).unwrap(),
            Ok(Some(LogEntry::Action(decision))) => writer.action(&decision).unwrap(),
            Ok(Some(LogEntry::Retired)) => continue,
            Ok(None) => break,
            Err(error) => {
                result.error = Some(error.to_string());
                break;
            }
        }
        result.lines += 1;
    }
    assert!(reader.next_line().unwrap().is_none(), "nothing comes after the end or an error");
    result.warnings = reader.warnings().iter().map(ToString::to_string).collect();
    assert!(reader.warnings().is_empty(), "warnings are drained");
    result.written = String::from_utf8(writer.into_inner()).unwrap();
    result
}

pub(crate) fn read(bytes: impl AsRef<[u8]>) -> ReadResult {
    drain(LogReader::decompressing("x.jsonl", Cursor::new(bytes.as_ref().to_vec())))
}

/// Lines after the sample header.
pub(crate) fn read_lines(lines: &str) -> ReadResult {
    read(format!("{HEADER}\n{lines}"))
}

/// Replays a log, and returns the log of that, too.
pub(crate) fn replayed<R: io::BufRead + Send>(
    reader: Result<LogReader<R>, LogError>,
    mode: ReplayMode,
    change: impl Fn(&mut Settings),
) -> (Replay, String) {
    let options = ReplayOptions { mode: Some(mode), ..ReplayOptions::default() };
    let settings = |settings: &mut Settings| {
        change(settings);
        Ok(())
    };
    let mut written = Vec::new();
    let log = Some(&mut written);
    let replay = replay(&mut reader.unwrap(), "log", settings, &options, log, |_| {});
    (replay.unwrap(), String::from_utf8(written).unwrap())
}

#[track_caller]
pub(crate) fn check_silent(result: &ReadResult, lines: usize) {
    assert_eq!((result.lines, &result.error, &result.warnings), (lines, &None, &vec![]));
}

pub(crate) fn gzip(data: &str) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(data.as_bytes()).unwrap();
    encoder.finish().unwrap()
}
