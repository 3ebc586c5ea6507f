//! Reads the log, in a thread beside the machine's.

use std::sync::mpsc::SyncSender;

use super::recording::Recording;
use crate::event_log::{LogEntry, LogError, LogReader};

/// The number of lines in one message.
const BATCH_LEN: usize = 256;
/// The most batches that the reader may be ahead.
pub(super) const BATCHES_MAX: usize = 16;

pub(super) type LineBatch = Vec<Result<LogEntry, LogError>>;

/// Reads the log to its end; `ahead` are lines that were already read. Returns the recording's own
/// content.
pub(super) fn read_batches(
    reader: &mut LogReader<'_>,
    ahead: Vec<LogEntry>,
    mut recording: Recording,
    batches: &SyncSender<LineBatch>,
    progress: &mut impl FnMut(&LogReader<'_>),
) -> Recording {
    ahead.iter().for_each(|line| recording.add(line));
    let mut batch: LineBatch = ahead.into_iter().map(Ok).collect();
    loop {
        let next = reader.next();
        progress(reader);
        let is_over = !matches!(next, Some(Ok(_)));
        if let Some(Ok(line)) = &next {
            recording.add(line);
        }
        batch.extend(next);
        if is_over || batch.len() >= BATCH_LEN {
            let full = std::mem::replace(&mut batch, Vec::with_capacity(BATCH_LEN));
            if batches.send(full).is_err() || is_over {
                return recording;
            }
        }
    }
}
