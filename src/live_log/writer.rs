//! The thread that owns the files: it writes the queued lines, and retries when the disk fails.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::Instant;

use super::files::Files;
use crate::clock::wall_clock_now;
use crate::core::contract::action::Decision;
use crate::core::contract::cause::{About, Cause, Problem};
use crate::core::contract::event::{ClusterSpec, Event, EventKind};
use crate::core::data::ids::ClusterName;
use crate::core::data::time::UnixMillis;
use crate::environment::disk_ready;
use crate::event_log::redact::Redactor;
use crate::event_log::{Header, LogWriter};
use crate::metrics::Metrics;
use crate::problems::Outside;

/// How many bytes to write at once while lines arrive faster than they are written.
const FLUSH_BYTES: usize = 64 * 1024;
/// The pause after a failed write. It doubles with each further failure.
const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(60);

pub(super) struct QueuedLine {
    /// Its size in the queue.
    pub(super) bytes: usize,
    pub(super) content: QueuedContent,
}

pub(super) enum QueuedContent {
    Event(Event),
    Action(Box<Decision>),
    /// This many lines were not queued.
    Gap(u64),
}

pub(super) struct Writer {
    files: Files,
    /// Contains the current clusters.
    header: Header,
    pub(super) metrics: Arc<Metrics>,
    problems: Outside,
    pub(super) queued_bytes: Arc<AtomicUsize>,
    /// Lines not written yet: one gap line for `buffered_gap` missing lines, if any, and `buffered`
    /// others.
    buffer: LogWriter<Vec<u8>>,
    buffered_gap: u64,
    buffered: u64,
    /// Missing lines since the last one in the buffer.
    gap: u64,
    last_at: UnixMillis,
    /// The shortest and the longest pause. A test has none.
    pub(super) pauses: (Duration, Duration),
    retry: Option<Retry>,
}

/// Set while writes fail.
struct Retry {
    kind: io::ErrorKind,
    pause: Duration,
    at: Instant,
}

impl Writer {
    pub(super) fn new(
        files: Files,
        header: &Header,
        redactor: Option<Redactor>,
        metrics: Arc<Metrics>,
        problems: Outside,
    ) -> Self {
        let header = Header { redacted: Some(redactor.is_some()), ..header.clone() };
        // `Files` writes the headers.
        let buffer = LogWriter::after_header(Vec::new(), &header).redacting(redactor);
        Self {
            files,
            header,
            metrics,
            problems,
            queued_bytes: Arc::default(),
            buffer,
            buffered_gap: 0,
            buffered: 0,
            gap: 0,
            last_at: UnixMillis(0),
            pauses: (PAUSE_MIN, PAUSE_MAX),
            retry: None,
        }
    }

    /// Runs until the loop drops the log. It blocks its thread while it writes.
    pub(super) async fn run(mut self, mut lines: UnboundedReceiver<QueuedLine>) {
        self.write();
        loop {
            disk_ready().await;
            let mut next = lines.try_recv().ok();
            if next.is_none() {
                // No line is waiting: write now, so that readers that follow the file see everything.
                self.flush();
                next = lines.recv().await;
            }
            let Some(line) = next else { break };
            self.take(&line);
        }
        self.add_gap();
        self.write();
    }

    fn take(&mut self, line: &QueuedLine) {
        match &line.content {
            QueuedContent::Event(event) => {
                self.update_header(&event.kind);
                self.add(event.at, |buffer| buffer.event(event));
            }
            QueuedContent::Action(decision) => {
                self.add(decision.at, |buffer| buffer.action(decision));
            }
            QueuedContent::Gap(lines) => self.gap += lines,
        }
        self.queued_bytes.fetch_sub(line.bytes, Relaxed);
    }

    fn add(
        &mut self,
        at: UnixMillis,
        write: impl FnOnce(&mut LogWriter<Vec<u8>>) -> io::Result<()>,
    ) {
        self.last_at = at;
        if self.retry.as_ref().is_some_and(|retry| Instant::now() < retry.at) {
            return self.count_lost(1);
        }
        self.add_gap();
        let before = self.buffer.sink_mut().len();
        if let Err(error) = write(&mut self.buffer) {
            self.buffer.sink_mut().truncate(before);
            tracing::warn!(%error, "event log: cannot encode a line; it is left out");
            return self.count_lost(1);
        }
        self.buffered += 1;
        let is_full = self.buffer.sink_mut().len() >= self.files.flush_bytes(FLUSH_BYTES);
        if is_full || self.retry.is_some() {
            self.flush();
        }
    }

    /// Updates the clusters in the next part's header.
    fn update_header(&mut self, kind: &EventKind) {
        let clusters = &mut self.header.clusters;
        match kind {
            EventKind::ClusterAdded { cluster, roles } => {
                clusters.retain(|known| known.name != *cluster);
                clusters.push(ClusterSpec { name: cluster.clone(), roles: roles.clone() });
            }
            // A header must name at least one cluster.
            EventKind::ClusterRemoved { cluster } if clusters.len() > 1 => {
                clusters.retain(|known| known.name != *cluster);
            }
            _ => {}
        }
    }

    fn count_lost(&mut self, lines: u64) {
        self.gap += lines;
        self.metrics.add_log_lines_lost(lines);
    }

    /// Records missing lines in the first line of the buffer.
    fn add_gap(&mut self) {
        if self.gap == 0 {
            return;
        }
        self.flush();
        // Writing to memory can't fail.
        if self.buffer.sink_mut().is_empty() && self.buffer.gap(self.last_at, self.gap).is_ok() {
            self.buffered_gap = std::mem::take(&mut self.gap);
        }
    }

    fn flush(&mut self) {
        if !self.buffer.sink_mut().is_empty() {
            self.write();
        }
    }

    /// Writes the buffer, preceded by the header if the part is new.
    fn write(&mut self) {
        let written = self.files.append(&self.header, self.buffer.sink_mut());
        let lines = self.buffer.sink_mut();
        lines.clear();
        // Free the memory of a large line.
        lines.shrink_to(2 * FLUSH_BYTES);
        let gap = std::mem::take(&mut self.buffered_gap);
        let buffered = std::mem::take(&mut self.buffered);
        match written {
            Ok(()) => {
                self.retry = None;
                self.problems.set(None);
            }
            Err((written, error)) => {
                let mut written = written as u64;
                if gap > 0 && written == 0 {
                    self.gap += gap;
                } else if gap > 0 {
                    written -= 1;
                }
                self.count_lost(buffered - written);
                self.schedule_retry(&error);
            }
        }
    }

    fn problem(&self, error: &io::Error) -> Problem {
        let about = About::cluster(&ClusterName::from(""));
        let mut problem = Problem::new(Cause::EventLogFailing, about, wall_clock_now());
        problem.facts.file = Some(self.files.path.display().to_string().into());
        problem.facts.error = Some(error.to_string().as_str().into());
        problem
    }

    fn schedule_retry(&mut self, error: &io::Error) {
        let (pause_min, pause_max) = self.pauses;
        let before = self.retry.take();
        let kind = error.kind();
        let pause = before.as_ref().map_or(pause_min, |retry| (retry.pause * 2).min(pause_max));
        if before.is_none_or(|retry| retry.kind != kind) {
            self.problems.set(Some(self.problem(error)));
        }
        self.retry = Some(Retry { kind, pause, at: Instant::now() + pause });
    }
}
