//! A log with one line of each sort, and reading of logs that are made of its parts.

use std::io::Cursor;
use std::sync::LazyLock;

use throughline::event_log::LogReader;

use crate::read_log::{ReadResult, drain};

pub(crate) const HEADER: &str = r#"{"log":"throughline","version":1,"clusters":[{"name":"org/team-1","roles":["upstream"]},{"name":"hub","roles":["downstream","edge"]}]}"#;

/// A time at which logs of these tests begin.
pub(crate) const START_MS: u64 = 1_763_715_600_000;

/// A log with one line of each sort, as the writer writes it.
pub(crate) const SAMPLE: &str = include_str!("event_log/sample.jsonl");

/// Its lines after the header.
pub(crate) static LINES: LazyLock<Vec<&str>> = LazyLock::new(|| SAMPLE.lines().skip(1).collect());

pub(crate) fn read(bytes: impl AsRef<[u8]>) -> ReadResult {
    drain(LogReader::decompressing("x.jsonl", Cursor::new(bytes.as_ref().to_vec())))
}

/// Lines after the sample header.
pub(crate) fn read_lines(lines: &str) -> ReadResult {
    read(format!("{HEADER}\n{lines}"))
}

#[track_caller]
pub(crate) fn check_silent(result: &ReadResult, lines: usize) {
    assert_eq!((result.lines, &result.error, &result.warnings), (lines, &None, &vec![]));
}
