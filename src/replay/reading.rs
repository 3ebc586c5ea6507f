//! Reads the log, in a thread beside the machine's.

use std::io::BufRead;
use std::sync::mpsc::SyncSender;

use super::recording::Recording;
use crate::event_log::{LogEntry, LogError, LogReader};

/// The number of lines in one message.
const BATCH_LEN: usize = 256;
/// The most batches that the reader may be ahead.
pub(super) const BATCHES_MAX: usize = 16;

pub(super) type LineBatch = Result<Vec<LogEntry>, LogError>;

/// Reads the log to its end; `ahead` are lines that were already read. Returns the recording's own
/// content.
pub(super) fn read_batches<R: BufRead>(
    reader: &mut LogReader<R>,
    ahead: Vec<LogEntry>,
    mut recording: Recording,
    batches: &SyncSender<LineBatch>,
    progress: &mut impl FnMut(&LogReader<R>),
) -> Recording {
    let mut batch = ahead;
    batch.iter().for_each(|line| recording.add_line(line));
    loop {
        let (end, is_over) = match reader.next_line() {
            Ok(Some(line)) => {
                recording.add_line(&line);
                batch.push(line);
                (None, false)
            }
            Ok(None) => (None, true),
            Err(error) => (Some(Err(error)), true),
        };
        progress(reader);
        if is_over || batch.len() >= BATCH_LEN {
            let full = std::mem::replace(&mut batch, Vec::with_capacity(BATCH_LEN));
            let is_sent = batches.send(Ok(full)).is_ok();
            if let Some(error) = end {
                let _ = batches.send(error);
            }
            if is_over || !is_sent {
                return recording;
            }
        }
    }
}
