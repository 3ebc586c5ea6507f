//! The event log, plain and compressed.

use std::io::{BufReader, Cursor, Read};

use throughline::event_log::LogReader;
use throughline::inspect::log::{LogMoment, fleet};

use super::{check_message, piece_sizes};
use crate::read_log::{ReadResult, drain, gzip};

const NAME: &str = "x.jsonl";

fn check(log: &ReadResult) {
    log.warnings.iter().chain(&log.error).for_each(|message| check_message(message));
    if let Some(error) = &log.error {
        assert!(error.starts_with(NAME), "{error}");
    }
    if !log.written.is_empty() {
        let again = drain(LogReader::new(NAME, log.written.as_bytes()));
        assert_eq!((&again.error, again.lines), (&None, log.lines), "{log:?}");
        assert_eq!(again.written, log.written);
        // Of the gaps only the one is kept behind which there are clusters that no line named.
        assert!(again.warnings.len() <= usize::from(log.has_gaps), "{:?}", again.warnings);
    }
}

/// A log reads the same however its bytes arrive, and what was read of it can be written and read again.
pub(super) fn event_log(data: &[u8]) {
    let whole = drain(LogReader::new(NAME, data));
    check(&whole);
    for size in piece_sizes(data) {
        let in_pieces = drain(LogReader::new(NAME, BufReader::with_capacity(size, data)));
        assert_eq!(in_pieces, whole);
    }
}

/// A compressed log reads as the plain one, up to a cut; bytes that only look compressed are an error.
pub(super) fn compressed_log(data: &[u8]) {
    let any = |bytes: Vec<u8>| drain(LogReader::decompressing(NAME, Cursor::new(bytes)));
    check(&any(data.to_vec()));
    let plain = drain(LogReader::new(NAME, data));
    let compressed = gzip(data);
    let cut = data.len() % compressed.len();
    let torn = any(compressed[..cut].to_vec());
    assert_eq!(any(compressed), plain);
    check(&torn);
    assert!(torn.lines <= plain.lines, "{torn:?}");
    if torn.error.is_none() {
        assert!(plain.written.starts_with(&torn.written), "{torn:?}");
    }
}

/// Whatever a log holds, a machine can be fed with it, and shows its state.
pub(super) fn log_fleet(data: &[u8]) {
    let Ok(mut reader) = LogReader::new(NAME, data.take(64 * 1024)) else { return };
    let moment = (!data.len().is_multiple_of(2)).then_some(LogMoment::Offset(60_000));
    match fleet(&mut reader, moment, data.len() % 4 < 2) {
        Ok((fleet, _)) => super::inputs::check_fleet(&fleet),
        Err(error) => check_message(&format!("{error:#}")),
    }
}
