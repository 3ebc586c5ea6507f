//! The event log, plain and compressed.

use std::io::{BufRead, BufReader, Cursor, Read, Write};

use throughline::event_log::{LogEntry, LogError, LogReader, LogWriter};
use throughline::inspect::log::{LogMoment, fleet};

use super::{check_message, piece_sizes};

const NAME: &str = "x.jsonl";

/// The bytes after which a log that grows by decompression is not followed further.
const READ_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// What reading a log gave.
#[derive(Debug, Default, PartialEq, Eq)]
struct ReadLog {
    /// The entries, written again after the header.
    written: Vec<u8>,
    warnings: Vec<String>,
    error: Option<String>,
    entries: usize,
    has_gaps: bool,
}

fn read<R: BufRead>(reader: Result<LogReader<R>, LogError>) -> ReadLog {
    let mut log = ReadLog::default();
    let mut reader = match reader {
        Ok(reader) => reader,
        Err(error) => return ReadLog { error: Some(error.to_string()), ..log },
    };
    let mut writer = LogWriter::of_replay(Vec::new(), reader.header()).unwrap();
    while reader.bytes_read() < READ_BYTES_MAX {
        match reader.next_line() {
            Ok(Some(LogEntry::Event(event))) => writer.event(&event).unwrap(),
            Ok(Some(LogEntry::Action(decision))) => writer.action(&decision).unwrap(),
            Ok(Some(LogEntry::Retired)) => continue,
            Ok(None) => break,
            Err(error) => {
                log.error = Some(error.to_string());
                break;
            }
        }
        log.entries += 1;
    }
    log.warnings.extend(reader.warnings().iter().map(ToString::to_string));
    if log.error.is_some() {
        assert!(reader.next_line().unwrap().is_none(), "an entry comes after an error");
    }
    log.has_gaps = !reader.gaps().is_empty();
    log.written = writer.into_inner();
    log
}

fn check(log: &ReadLog) {
    log.warnings.iter().chain(&log.error).for_each(|message| check_message(message));
    if let Some(error) = &log.error {
        assert!(error.starts_with(NAME), "{error}");
    }
    if !log.written.is_empty() {
        let again = read(LogReader::new(NAME, &log.written[..]));
        assert_eq!((&again.error, again.entries), (&None, log.entries), "{log:?}");
        assert_eq!(again.written, log.written);
        // Of the gaps only the one is kept behind which there are clusters that no line named.
        assert!(again.warnings.len() <= usize::from(log.has_gaps), "{:?}", again.warnings);
    }
}

/// A log reads the same however its bytes arrive, and what was read of it can be written and read again.
pub(super) fn event_log(data: &[u8]) {
    let whole = read(LogReader::new(NAME, data));
    check(&whole);
    for size in piece_sizes(data) {
        let in_pieces = read(LogReader::new(NAME, BufReader::with_capacity(size, data)));
        assert_eq!(in_pieces, whole);
    }
}

/// A compressed log reads as the plain one, up to a cut; bytes that only look compressed are an error.
pub(super) fn compressed_log(data: &[u8]) {
    let any = |bytes: Vec<u8>| read(LogReader::decompressing(NAME, Cursor::new(bytes)));
    check(&any(data.to_vec()));
    let plain = read(LogReader::new(NAME, data));
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(data).unwrap();
    let compressed = encoder.finish().unwrap();
    let cut = data.len() % compressed.len();
    let torn = any(compressed[..cut].to_vec());
    assert_eq!(any(compressed), plain);
    check(&torn);
    assert!(torn.entries <= plain.entries, "{torn:?}");
    if torn.error.is_none() {
        assert!(plain.written.starts_with(&torn.written), "{torn:?}");
    }
}

/// Whatever a log holds, a machine can be fed with it, and shows its state.
pub(super) fn log_fleet(data: &[u8]) {
    let Ok(mut reader) = LogReader::new(NAME, data.take(64 * 1024)) else { return };
    let moment =
        if data.len().is_multiple_of(2) { LogMoment::End } else { LogMoment::Offset(60_000) };
    match fleet(&mut reader, moment, data.len() % 4 < 2) {
        Ok((fleet, _)) => super::inputs::check_fleet(&fleet),
        Err(error) => check_message(&format!("{error:#}")),
    }
}
