//! The event log of a live run, written without ever blocking the loop.
//!
//! The loop queues what enters and leaves the machine; a thread redacts and writes it. The queue is
//! bounded in bytes, because lines differ in size by a factor of a thousand, and the list of a large
//! fleet arrives all at once. When the queue or the disk is full, lines are lost: they are counted,
//! logged, and marked in the event log by a `log_gap` line.

mod deleted;
mod files;
mod lock;
#[cfg(test)]
mod tests;
mod writer;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use anyhow::{Context, anyhow};
use tokio::runtime::Builder;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::clock::wall_clock_now;
use crate::config::EventLogConfig;
use crate::core::contract::action::Decision;
use crate::core::contract::event::{Event, EventKind};
use crate::environment::{is_simulated, spawn};
use crate::event_log::redact::Redactor;
use crate::event_log::{Header, LogPart};
use crate::metrics::Metrics;
use crate::problems::Outside;
pub use deleted::{DeletedRouteLine, DeletedRoutes, deleted_routes_file};
use files::Files;
pub(crate) use files::numbered;
use writer::{QueuedContent, QueuedLine, Writer};

/// The largest size of the queue. A list of 5,000 connectors in three tiers fits.
const QUEUE_BYTES_MAX: usize = 32 * 1024 * 1024;
/// The estimated size of a queued line without its texts.
const LINE_BYTES: usize = 512;

/// The event log of a live run. Adding a line never waits for the disk.
///
/// If it is dropped without [`LiveLog::finish`], queued lines are written only if the process lives
/// long enough.
#[derive(Debug)]
pub struct LiveLog {
    lines: UnboundedSender<QueuedLine>,
    queued_bytes: Arc<AtomicUsize>,
    /// Lines lost since the last queued one.
    lost: u64,
    metrics: Arc<Metrics>,
    /// Receives no message; closed once everything is written.
    done: oneshot::Receiver<()>,
}

impl LiveLog {
    /// Opens the log and starts its thread; `None` if no log is configured.
    ///
    /// An existing file is renamed, because each run's log starts with a new header. Pipes and devices
    /// are written to directly. A full disk is not an error here.
    ///
    /// # Errors
    /// Another process writes the log, the file is a link or can't be created, or the existing one
    /// can't be renamed.
    pub fn start(
        config: &EventLogConfig,
        header: &Header,
        metrics: Arc<Metrics>,
        problems: Outside,
    ) -> anyhow::Result<Option<Self>> {
        let Some(path) = &config.file else { return Ok(None) };
        let part = LogPart { number: 1, started: wall_clock_now() };
        let files = if is_simulated() {
            Files::simulated(path, part)
        } else {
            let started = Files::start(path, config.size.0, part, Box::new(files::create));
            started.map_err(|error| not_started(path, &error))?
        };
        let redactor = config.redact.then(Redactor::new);
        let writer = Writer::new(files, header, redactor, metrics, problems);
        Self::start_on(writer).map(Some)
    }

    fn start_on(writer: Writer) -> anyhow::Result<Self> {
        let queued_bytes = writer.queued_bytes.clone();
        let metrics = writer.metrics.clone();
        let (lines, receive) = unbounded_channel();
        let (is_done, done) = oneshot::channel();
        let run = async move {
            writer.run(receive).await;
            drop(is_done);
        };
        // A simulation has one thread.
        if is_simulated() {
            spawn(run);
        } else {
            let cannot_start = "cannot start the event log's thread";
            let runtime = Builder::new_current_thread().build().context(cannot_start)?;
            let thread = std::thread::Builder::new().name("event-log".into());
            thread.spawn(move || runtime.block_on(run)).context(cannot_start)?;
        }
        Ok(Self { lines, queued_bytes, lost: 0, metrics, done })
    }

    /// Logs an event that enters the machine.
    pub fn event(&mut self, event: &Event) {
        let bytes = match &event.kind {
            EventKind::Listed { object, .. }
            | EventKind::Applied { object, .. }
            | EventKind::Deleted { object, .. } => {
                object.status().map_or(0, str::len) + object.meta.annotations.bytes()
            }
            EventKind::WatchLost { error, .. } => error.len(),
            EventKind::ActionFinished { outcome, .. } => {
                outcome.error().map_or(0, |error| error.len())
            }
            _ => 0,
        };
        self.enqueue(bytes, || QueuedContent::Event(event.clone()));
    }

    /// Logs an action that leaves the machine.
    pub fn action(&mut self, decision: &Decision) {
        let annotations = decision.action.annotations.iter();
        let bytes = annotations.map(|(_, value)| value.as_ref().map_or(0, String::len)).sum();
        self.enqueue(bytes, || QueuedContent::Action(Box::new(decision.clone())));
    }

    /// Writes the queued lines, for at most `grace`.
    pub async fn finish(mut self, grace: Duration) {
        self.enqueue_gap();
        drop(self.lines);
        if timeout(grace, self.done).await.is_err() {
            tracing::warn!(
                waiting_bytes = self.queued_bytes.load(Relaxed),
                "event log: the disk is too slow; the lines still queued are lost"
            );
        }
    }

    fn enqueue(&mut self, bytes: usize, content: impl FnOnce() -> QueuedContent) {
        let bytes = bytes + LINE_BYTES;
        let queued = self.queued_bytes.load(Relaxed);
        // After it was full, the queue must first drain to half: one long gap is better than many short
        // ones.
        let max = QUEUE_BYTES_MAX / if self.lost > 0 { 2 } else { 1 };
        // A line larger than the whole queue is accepted when the queue is empty.
        if queued > 0 && queued + bytes > max {
            self.count_lost();
            return;
        }
        self.enqueue_gap();
        self.queued_bytes.fetch_add(bytes, Relaxed);
        if self.lines.send(QueuedLine { bytes, content: content() }).is_err() {
            // The thread has ended, and no more lines will be written.
            self.count_lost();
        }
    }

    fn count_lost(&mut self) {
        if self.lost == 0 {
            tracing::warn!(
                "event log: the disk is too slow; losing log lines until it catches up; nothing \
                 else is affected"
            );
        }
        self.lost += 1;
        self.metrics.add_log_lines_lost(1);
    }

    fn enqueue_gap(&mut self) {
        let gap = || QueuedLine { bytes: 0, content: QueuedContent::Gap(self.lost) };
        if self.lost > 0 && self.lines.send(gap()).is_ok() {
            tracing::info!(lines_lost = self.lost, "event log: the disk has caught up");
            self.lost = 0;
        }
    }
}

fn not_started(path: &Path, error: &io::Error) -> anyhow::Error {
    let path = path.display();
    if error.kind() == io::ErrorKind::WouldBlock {
        return anyhow!("eventLog.file {path}: {error}");
    }
    anyhow!(
        "eventLog.file {path}: cannot create the event log: {error}; choose a file in an existing \
         folder in which this user may create and rename files, or remove eventLog.file"
    )
}

/// `FILE` with this suffix.
pub(crate) fn with_suffix(file: &Path, suffix: &str) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}
