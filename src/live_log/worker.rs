//! The thread that owns the files: takes lines, writes them, and bears with a disk that fails.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::{Duration, Instant};

use super::files::Files;
use crate::core::action::Decision;
use crate::core::event::{Event, Happened};
use crate::core::time::UnixMillis;
use crate::event_log::redact::Redactor;
use crate::event_log::{ClusterSpec, Header, Writer};
use crate::metrics::Metrics;

/// So many bytes are written at once when lines come faster than they are written.
const FLUSH_BYTES: usize = 64 * 1024;
/// After a failed write the next one is tried so much later, then twice that, and so on.
pub(super) const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// What the loop hands over, and how many bytes that is held to be.
pub(super) struct Entry {
    pub(super) bytes: usize,
    pub(super) what: What,
}

pub(super) enum What {
    Event(Event),
    Action(Box<Decision>),
    /// So many lines were not taken.
    Gap(u64),
}

/// A line in the buffer.
enum Line {
    Said,
    /// Tells that so many are missing.
    Gap(u64),
}

/// Owns the files.
pub(super) struct Worker {
    files: Files,
    /// With the clusters as they are now.
    header: Header,
    redactor: Option<Redactor>,
    metrics: Arc<Metrics>,
    waiting_bytes: Arc<AtomicUsize>,
    /// Lines that are yet to be written.
    buffer: Writer<Vec<u8>>,
    buffered: Vec<Line>,
    /// Lines that are missing since the last whole line.
    gap: u64,
    last_at: UnixMillis,
    pauses: (Duration, Duration),
    failing: Option<Failing>,
}

/// Since a write failed, and until one succeeds.
struct Failing {
    kind: io::ErrorKind,
    pause: Duration,
    again_at: Instant,
}

impl Worker {
    pub(super) fn new(
        files: Files,
        header: Header,
        redactor: Option<Redactor>,
        metrics: Arc<Metrics>,
        waiting_bytes: Arc<AtomicUsize>,
        pauses: (Duration, Duration),
    ) -> io::Result<Self> {
        let mut buffer = Writer::new(Vec::new(), &header)?;
        // Headers are the files' to write.
        buffer.sink_mut().clear();
        Ok(Self {
            files,
            header,
            redactor,
            metrics,
            waiting_bytes,
            buffer,
            buffered: Vec::new(),
            gap: 0,
            last_at: UnixMillis(0),
            pauses,
            failing: None,
        })
    }

    /// Until the loop lets go of the log.
    pub(super) fn run(mut self, entries: &Receiver<Entry>) {
        self.write();
        loop {
            let next = entries.try_recv().or_else(|ended| {
                // Nothing more to come for now: who follows the file sees all there is.
                self.flush();
                match ended {
                    TryRecvError::Empty => entries.recv().map_err(|_| ()),
                    TryRecvError::Disconnected => Err(()),
                }
            });
            let Ok(entry) = next else { break };
            self.take(entry.what);
            self.waiting_bytes.fetch_sub(entry.bytes, Ordering::Relaxed);
        }
        self.tell_gap();
        self.write();
    }

    fn take(&mut self, what: What) {
        match &what {
            What::Event(event) => {
                self.last_at = event.at;
                self.follow(&event.what);
            }
            What::Action(decision) => self.last_at = decision.at,
            What::Gap(lines) => {
                self.gap += lines;
                return;
            }
        }
        if self.failing.as_ref().is_some_and(|failing| Instant::now() < failing.again_at) {
            self.lose(1);
            return;
        }
        self.tell_gap();
        let before = self.buffer.sink_mut().len();
        let written = match (&what, &self.redactor) {
            (What::Event(event), None) => self.buffer.event(event),
            (What::Event(event), Some(redactor)) => self.buffer.event(&redactor.event(event)),
            (What::Action(decision), None) => self.buffer.action(decision),
            (What::Action(decision), Some(redactor)) => {
                self.buffer.action(&redactor.decision(decision))
            }
            (What::Gap(_), _) => Ok(()),
        };
        match written {
            Ok(()) => {
                if !self.fits(before) {
                    return;
                }
                self.buffered.push(Line::Said);
            }
            Err(error) => {
                self.buffer.sink_mut().truncate(before);
                tracing::warn!(%error, "event log: a line can't be spelled and is left out");
                self.lose(1);
            }
        }
        if self.failing.is_some() || self.buffer.sink_mut().len() >= FLUSH_BYTES {
            self.flush();
        }
    }

    /// Where the buffer's last line, which starts at `start`, is for the next file, writes the
    /// lines before it to this one. `false` when that failed: the line may not come without them.
    fn fits(&mut self, start: usize) -> bool {
        let lines = self.buffer.sink_mut();
        if start == 0 || !self.files.is_full(lines.len()) {
            return true;
        }
        let last = lines.split_off(start);
        self.write();
        if self.failing.is_some() {
            self.lose(1);
            return false;
        }
        self.buffer.sink_mut().extend(last);
        true
    }

    /// Keeps the clusters that the next file's header names.
    fn follow(&mut self, what: &Happened) {
        let clusters = &mut self.header.clusters;
        match what {
            Happened::ClusterAdded { cluster, roles } => {
                clusters.retain(|known| known.name != *cluster);
                clusters.push(ClusterSpec { name: cluster.clone(), roles: roles.clone() });
            }
            // A header names at least one.
            Happened::ClusterRemoved { cluster } if clusters.len() > 1 => {
                clusters.retain(|known| known.name != *cluster);
            }
            _ => {}
        }
    }

    fn lose(&mut self, lines: u64) {
        self.gap += lines;
        self.metrics.log_lines_lost(lines);
    }

    fn tell_gap(&mut self) {
        // To memory, which can't fail.
        if self.gap > 0 && self.buffer.gap(self.last_at, self.gap).is_ok() {
            self.buffered.push(Line::Gap(std::mem::take(&mut self.gap)));
        }
    }

    fn flush(&mut self) {
        if !self.buffer.sink_mut().is_empty() {
            self.write();
        }
    }

    /// Writes the buffer and, to a new file, its header.
    fn write(&mut self) {
        let lines = self.buffer.sink_mut();
        if self.files.is_full(lines.len())
            && let Err(error) = self.files.rotate()
        {
            tracing::warn!(
                file = %self.files.path.display(), %error,
                "event log: can't be rotated, and grows on; it needs the right to rename files and \
                 to make new ones in its folder"
            );
        }
        let written = self.files.append(&self.header, lines);
        lines.clear();
        let buffered = std::mem::take(&mut self.buffered);
        match written {
            Ok(()) => {
                let gaps = buffered.iter().map(|line| if let Line::Gap(n) = line { *n } else { 0 });
                if self.failing.take().is_some() {
                    tracing::info!(
                        file = %self.files.path.display(), lines_lost = gaps.sum::<u64>(),
                        "event log: it can be written again; a log_gap line stands for what is lost"
                    );
                }
            }
            Err((in_the_file, error)) => {
                for line in buffered.iter().skip(in_the_file) {
                    match line {
                        Line::Said => self.lose(1),
                        Line::Gap(lines) => self.gap += lines,
                    }
                }
                self.failed(&error);
            }
        }
    }

    fn failed(&mut self, error: &io::Error) {
        let (first, longest) = self.pauses;
        let before = self.failing.take();
        let kind = error.kind();
        if before.as_ref().is_none_or(|failing| failing.kind != kind) {
            tracing::warn!(
                file = %self.files.path.display(), %error,
                "event log: can't be written; lines are lost until it can, and nothing else is; \
                 make room, or see to the disk"
            );
        }
        let pause = before.map_or(first, |failing| (failing.pause * 2).min(longest));
        self.failing = Some(Failing { kind, pause, again_at: Instant::now() + pause });
    }
}
