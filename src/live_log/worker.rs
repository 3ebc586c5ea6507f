//! The thread that owns the files: it writes the queued lines, and retries when the disk fails.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::Instant;

use super::files::Files;
use crate::core::contract::action::Decision;
use crate::core::contract::event::{Event, EventKind};
use crate::core::data::time::UnixMillis;
use crate::environment::disk_ready;
use crate::event_log::redact::Redactor;
use crate::event_log::{ClusterSpec, Header, LogWriter};
use crate::metrics::Metrics;

/// While lines arrive faster than they are written, this many bytes are written at once.
const FLUSH_BYTES: usize = 64 * 1024;
/// The pause after a failed write. It doubles with each further failure.
pub(super) const PAUSE_MIN: Duration = Duration::from_secs(1);
pub(super) const PAUSE_MAX: Duration = Duration::from_secs(60);

pub(super) struct QueuedLine {
    /// What it counts for in the queue.
    pub(super) bytes: usize,
    pub(super) content: QueuedContent,
}

pub(super) enum QueuedContent {
    Event(Event),
    Action(Box<Decision>),
    /// So many lines were not queued.
    Gap(u64),
}

/// A line in the buffer.
enum BufferedLine {
    Content,
    /// A `log_gap` line for so many missing lines.
    Gap(u64),
}

pub(super) struct Worker {
    files: Files,
    /// Names the clusters as they are now.
    header: Header,
    metrics: Arc<Metrics>,
    queued_bytes: Arc<AtomicUsize>,
    /// Lines that are not written yet.
    buffer: LogWriter<Vec<u8>>,
    buffered: Vec<BufferedLine>,
    /// Lines that are missing since the last one in the buffer.
    gap: u64,
    last_at: UnixMillis,
    /// The shortest and the longest.
    pauses: (Duration, Duration),
    retry: Option<WriteRetry>,
}

/// Set while writes fail.
struct WriteRetry {
    kind: io::ErrorKind,
    pause: Duration,
    at: Instant,
}

impl Worker {
    pub(super) fn new(
        files: Files,
        header: Header,
        redactor: Option<Redactor>,
        metrics: Arc<Metrics>,
        queued_bytes: Arc<AtomicUsize>,
        pauses: (Duration, Duration),
    ) -> io::Result<Self> {
        let header = Header { redacted: Some(redactor.is_some()), ..header };
        let mut buffer = LogWriter::new(Vec::new(), &header)?.redacting(redactor);
        // `Files` writes the headers.
        buffer.sink_mut().clear();
        Ok(Self {
            files,
            header,
            metrics,
            queued_bytes,
            buffer,
            buffered: Vec::new(),
            gap: 0,
            last_at: UnixMillis(0),
            pauses,
            retry: None,
        })
    }

    /// Runs until the loop drops the log.
    pub(super) fn run(mut self, mut lines: UnboundedReceiver<QueuedLine>) {
        self.write();
        loop {
            let next = lines.try_recv().ok().or_else(|| {
                // No line is waiting: write now, so that those who follow the file see everything.
                self.flush();
                lines.blocking_recv()
            });
            let Some(line) = next else { break };
            self.take(line);
        }
        self.add_gap_line();
        self.write();
    }

    /// As [`Worker::run`], in a task: a simulation has one thread.
    pub(super) async fn run_as_task(mut self, mut lines: UnboundedReceiver<QueuedLine>) {
        self.write();
        loop {
            disk_ready().await;
            let mut next = lines.try_recv().ok();
            if next.is_none() {
                self.flush();
                next = lines.recv().await;
            }
            let Some(line) = next else { break };
            self.take(line);
        }
        self.add_gap_line();
        self.write();
    }

    fn take(&mut self, line: QueuedLine) {
        self.add(line.content);
        self.queued_bytes.fetch_sub(line.bytes, Ordering::Relaxed);
    }

    fn add(&mut self, content: QueuedContent) {
        match &content {
            QueuedContent::Event(event) => {
                self.last_at = event.at;
                self.update_header(&event.kind);
            }
            QueuedContent::Action(decision) => self.last_at = decision.at,
            QueuedContent::Gap(lines) => {
                self.gap += lines;
                return;
            }
        }
        if self.retry.as_ref().is_some_and(|retry| Instant::now() < retry.at) {
            self.count_lost(1);
            return;
        }
        self.add_gap_line();
        let before = self.buffer.sink_mut().len();
        let written = match &content {
            QueuedContent::Event(event) => self.buffer.event(event),
            QueuedContent::Action(decision) => self.buffer.action(decision),
            QueuedContent::Gap(_) => Ok(()),
        };
        match written {
            Ok(()) => {
                if !self.write_before(before) {
                    return;
                }
                self.buffered.push(BufferedLine::Content);
            }
            Err(error) => {
                self.buffer.sink_mut().truncate(before);
                tracing::warn!(%error, "event log: cannot encode a line; it is left out");
                self.count_lost(1);
            }
        }
        if self.retry.is_some() || self.buffer.sink_mut().len() >= FLUSH_BYTES {
            self.flush();
        }
    }

    /// If the buffer's last line, which starts at `start`, belongs in the next file, writes the
    /// lines before it to this one. `false` when that failed: the line must not follow without them.
    fn write_before(&mut self, start: usize) -> bool {
        let lines = self.buffer.sink_mut();
        if start == 0 || !self.files.is_full(lines.len()) {
            return true;
        }
        let last = lines.split_off(start);
        self.write();
        if self.retry.is_some() {
            self.count_lost(1);
            return false;
        }
        self.buffer.sink_mut().extend(last);
        true
    }

    /// Keeps the clusters of the next file's header up to date.
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

    fn add_gap_line(&mut self) {
        // Writing to memory can't fail.
        if self.gap > 0 && self.buffer.gap(self.last_at, self.gap).is_ok() {
            self.buffered.push(BufferedLine::Gap(std::mem::take(&mut self.gap)));
        }
    }

    fn flush(&mut self) {
        if !self.buffer.sink_mut().is_empty() {
            self.write();
        }
    }

    /// Writes the buffer, and first the header if the file is new.
    fn write(&mut self) {
        let lines = self.buffer.sink_mut();
        if self.files.is_full(lines.len())
            && let Err(error) = self.files.rotate()
        {
            tracing::warn!(
                file = %self.files.path.display(), %error,
                "event log: cannot rotate the file, which keeps growing; allow this user to rename \
                 and create files in its folder"
            );
        }
        self.files.prune_if_due();
        let written = self.files.append(&self.header, lines);
        lines.clear();
        // The room of one large line is given back.
        lines.shrink_to(2 * FLUSH_BYTES);
        let buffered = std::mem::take(&mut self.buffered);
        match written {
            Ok(()) => {
                let gaps = buffered
                    .iter()
                    .map(|line| if let BufferedLine::Gap(n) = line { *n } else { 0 });
                if self.retry.take().is_some() {
                    tracing::info!(
                        file = %self.files.path.display(), lines_lost = gaps.sum::<u64>(),
                        "event log: writing works again; a log_gap line marks the lost lines"
                    );
                }
            }
            Err((in_the_file, error)) => {
                for line in buffered.iter().skip(in_the_file) {
                    match line {
                        BufferedLine::Content => self.count_lost(1),
                        BufferedLine::Gap(lines) => self.gap += lines,
                    }
                }
                self.schedule_retry(&error);
            }
        }
    }

    fn schedule_retry(&mut self, error: &io::Error) {
        let (pause_min, pause_max) = self.pauses;
        let before = self.retry.take();
        let kind = error.kind();
        let pause = before.as_ref().map_or(pause_min, |retry| (retry.pause * 2).min(pause_max));
        if before.is_none_or(|retry| retry.kind != kind) {
            tracing::warn!(
                file = %self.files.path.display(), %error, retry_in_s = pause.as_secs(),
                "event log: cannot write; losing log lines until it works again; nothing else is \
                 affected; free space on the disk, or check it"
            );
        }
        self.retry = Some(WriteRetry { kind, pause, at: Instant::now() + pause });
    }
}
