//! Reads an event log to its end, or replays it, and keeps what comes of that.

#![allow(dead_code, reason = "each program uses a part of it")]

use std::io::Write;

use throughline::core::contract::settings::Settings;
use throughline::event_log::{LogEntry, LogError, LogReader, LogWriter};
use throughline::replay::{Replay, ReplayMode, ReplayOptions, replay};

/// The result of reading a log: its entries, written again; the warnings; and the error that ended
/// it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct ReadResult {
    pub(crate) lines: usize,
    /// The header, and the entries after it.
    pub(crate) written: String,
    pub(crate) warnings: Vec<String>,
    pub(crate) error: Option<String>,
    pub(crate) has_gaps: bool,
}

pub(crate) fn drain(reader: Result<LogReader<'_>, LogError>) -> ReadResult {
    let mut result = ReadResult::default();
    let mut reader = match reader {
        Ok(reader) => reader,
        Err(error) => return ReadResult { error: Some(error.to_string()), ..result },
    };
    let mut writer = LogWriter::of_replay(Vec::new(), reader.header()).unwrap();
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
    let warnings = reader.warnings();
    assert!(reader.warnings().is_empty(), "warnings are drained");
    result.has_gaps = warnings.iter().any(|warning| warning.is_gap);
    result.warnings = warnings.iter().map(ToString::to_string).collect();
    result.written = String::from_utf8(writer.into_inner()).unwrap();
    result
}

/// Replays a log, and returns the log of that, too.
pub(crate) fn replayed(
    reader: Result<LogReader<'_>, LogError>,
    mode: ReplayMode,
    change: impl Fn(&mut Settings),
) -> (Replay, String) {
    let options = ReplayOptions { mode: Some(mode), ..ReplayOptions::default() };
    let settings = |settings: &mut Settings| {
        change(settings);
        Ok(())
    };
    let mut written = Vec::new();
    let log = Some(&mut written as &mut dyn Write);
    let replay = replay(&mut reader.unwrap(), "log", settings, &options, log, |_| {});
    (replay.unwrap(), String::from_utf8(written).unwrap())
}

pub(crate) fn gzip(data: impl AsRef<[u8]>) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(data.as_ref()).unwrap();
    encoder.finish().unwrap()
}
