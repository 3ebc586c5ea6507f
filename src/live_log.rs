//! The event log of a live run: written beside the loop, never in its way.
//!
//! The loop hands over what enters and leaves the machine, and a thread of its own redacts and writes it.
//! What waits for that thread is bounded in bytes: lines differ by a thousand times in size, and
//! a list of a large fleet comes all at once. When that is full, or the disk is, lines are lost,
//! counted and told, and the log says where: by a `log_gap` line.

mod files;
#[cfg(test)]
mod tests;
mod worker;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use anyhow::{Context, anyhow};

use crate::clock::wall;
use crate::config::EventLogConfig;
use crate::core::action::Decision;
use crate::core::event::{Event, Happened, Outcome};
use crate::event_log::redact::Redactor;
use crate::event_log::{Header, Part};
use crate::metrics::Metrics;
use files::Files;
use worker::{Entry, What, Worker};

/// So much may wait for the disk. A list of 5,000 connectors in three tiers fits.
const WAITING_BYTES_MAX: usize = 32 * 1024 * 1024;
/// What an entry takes beside its texts.
const ENTRY_BYTES: usize = 512;

/// The event log of a live run. Lines are taken without ever waiting for the disk.
///
/// Dropped without [`LiveLog::finish`], what waits is written if the process lives for long enough.
#[derive(Debug)]
pub struct LiveLog {
    entries: Sender<Entry>,
    waiting_bytes: Arc<AtomicUsize>,
    waiting_bytes_max: usize,
    /// Lines that were not taken since the last one that was.
    lost: u64,
    metrics: Arc<Metrics>,
    /// Never brings anything; breaks off when all is written.
    done: Receiver<()>,
}

impl LiveLog {
    /// Opens the log and starts its writer; `None` when none is configured.
    ///
    /// A file that is there already is rotated away: each run's log starts with a header of its
    /// own. Pipes and devices are written to as they are. A full disk is no error here.
    ///
    /// # Errors
    /// The file can't be created, or the one before it can't be renamed.
    pub fn start(
        config: &EventLogConfig,
        header: &Header,
        metrics: Arc<Metrics>,
    ) -> anyhow::Result<Option<Self>> {
        let Some(path) = &config.file else { return Ok(None) };
        let part = Part { number: 1, started: wall() };
        let create = Box::new(files::create);
        let files =
            Files::start(path, config.max_bytes, config.keep, part, create).map_err(|error| {
                anyhow!(
                    "eventLog.file {}: can't start the event log: {error}; give a file in a folder \
                     that is there and in which this user may make and rename files, or leave \
                     eventLog.file out",
                    path.display()
                )
            })?;
        let redactor = config.redact.then(Redactor::new);
        Self::start_on(files, redactor, header, metrics, WAITING_BYTES_MAX, worker::PAUSES)
            .map(Some)
    }

    fn start_on(
        files: Files,
        redactor: Option<Redactor>,
        header: &Header,
        metrics: Arc<Metrics>,
        waiting_bytes_max: usize,
        pauses: (Duration, Duration),
    ) -> anyhow::Result<Self> {
        let (send, receive) = channel();
        let (is_done, done) = channel();
        let waiting_bytes = Arc::new(AtomicUsize::new(0));
        let worker = Worker::new(
            files,
            header.clone(),
            redactor,
            metrics.clone(),
            waiting_bytes.clone(),
            pauses,
        )?;
        std::thread::Builder::new()
            .name("event-log".into())
            .spawn(move || {
                worker.run(&receive);
                drop(is_done);
            })
            .context("starting the event log's thread")?;
        Ok(Self { entries: send, waiting_bytes, waiting_bytes_max, lost: 0, metrics, done })
    }

    /// What entered the machine.
    pub fn event(&mut self, event: &Event) {
        let bytes = match &event.what {
            Happened::Listed { object, .. }
            | Happened::Applied { object, .. }
            | Happened::Deleted { object, .. } => {
                object.status().map_or(0, str::len) + object.meta.annotations.bytes()
            }
            Happened::WatchLost { error, .. }
            | Happened::ActionFinished {
                outcome:
                    Outcome::Refused { error }
                    | Outcome::Conflict { error }
                    | Outcome::Failed { error, .. },
                ..
            } => error.len(),
            Happened::ActionFinished {
                outcome: Outcome::Applied { deleted: Some(text), .. },
                ..
            } => text.len(),
            Happened::ActionFinished {
                outcome: Outcome::Unanswered { error, deleted }, ..
            } => error.len() + deleted.as_ref().map_or(0, |text| text.len()),
            _ => 0,
        };
        self.take(bytes, || What::Event(event.clone()));
    }

    /// What left it.
    pub fn action(&mut self, decision: &Decision) {
        let annotations = decision.action.annotations.iter();
        let bytes = annotations.map(|(_, value)| value.as_ref().map_or(0, String::len)).sum();
        self.take(bytes, || What::Action(Box::new(decision.clone())));
    }

    /// Writes what is still to be written, for as long as `grace`.
    pub fn finish(mut self, grace: Duration) {
        self.tell_lost();
        drop(self.entries);
        if self.done.recv_timeout(grace) == Err(RecvTimeoutError::Timeout) {
            tracing::warn!(
                waiting_bytes = self.waiting_bytes.load(Ordering::Relaxed),
                "event log: its disk is too slow; what still waits is lost"
            );
        }
    }

    fn take(&mut self, bytes: usize, what: impl FnOnce() -> What) {
        let bytes = bytes + ENTRY_BYTES;
        let waiting = self.waiting_bytes.load(Ordering::Relaxed);
        // Once full it has to empty by half: one long gap is better than many short ones.
        let max = self.waiting_bytes_max / if self.lost > 0 { 2 } else { 1 };
        // A line larger than all that may wait is taken by itself.
        if waiting > 0 && waiting + bytes > max {
            self.lose();
            return;
        }
        self.tell_lost();
        self.waiting_bytes.fetch_add(bytes, Ordering::Relaxed);
        if self.entries.send(Entry { bytes, what: what() }).is_err() {
            // Its thread is gone, and so is the log.
            self.lose();
        }
    }

    fn lose(&mut self) {
        if self.lost == 0 {
            tracing::warn!(
                "event log: its disk is too slow; lines are lost until it has caught up, and \
                 nothing else is"
            );
        }
        self.lost += 1;
        self.metrics.log_lines_lost(1);
    }

    fn tell_lost(&mut self) {
        if self.lost > 0
            && self.entries.send(Entry { bytes: 0, what: What::Gap(self.lost) }).is_ok()
        {
            tracing::info!(lines_lost = self.lost, "event log: it has caught up");
            self.lost = 0;
        }
    }
}
