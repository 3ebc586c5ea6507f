//! The writer. It writes each line in one call to the sink.

use std::collections::BTreeSet;
use std::io::{self, Write};

use super::Header;
use super::header::header_line;
use super::line::{Line, LineObject, Text};
use super::line_text::one_line;
use super::redact::Redactor;
use super::withheld::ReadAnnotations;
use crate::core::contract::action::Decision;
use crate::core::contract::event::{Event, EventKind};
use crate::core::data::ids::ClusterName;
use crate::core::data::time::UnixMillis;

/// The capacity to keep after a line, so that one large object does not keep its memory forever.
const KEPT_BYTES: usize = 64 * 1024;

/// Writes an event log. Each line, with its `\n`, reaches the sink in a single `write_all`, so a
/// crash cuts off at most the last line. Only [`LogWriter::flush`] flushes.
#[derive(Debug)]
pub struct LogWriter<W: Write> {
    sink: W,
    line: Vec<u8>,
    annotations: ReadAnnotations,
    /// For the log of a replay without a gap so far: the clusters that it has named.
    named: Option<BTreeSet<ClusterName>>,
    redactor: Option<Redactor>,
}

impl<W: Write> LogWriter<W> {
    /// Starts a log by writing the header line.
    pub fn new(mut sink: W, header: &Header) -> io::Result<Self> {
        sink.write_all(&header_line(header, None)?)?;
        Ok(Self::after_header(sink, header))
    }

    /// Starts the log of a replay. If the replayed log lost the lines that named some of its clusters,
    /// the new log gets a gap, too, so that it can be read.
    pub fn of_replay(sink: W, header: &Header) -> io::Result<Self> {
        let named = header.clusters.iter().map(|cluster| cluster.name.clone()).collect();
        Ok(Self { named: Some(named), ..Self::new(sink, header)? })
    }

    /// Writes the lines that follow this header.
    pub(crate) fn after_header(sink: W, header: &Header) -> Self {
        Self {
            sink,
            line: Vec::new(),
            annotations: ReadAnnotations::of(header),
            redactor: None,
            named: None,
        }
    }

    /// Replaces addresses and keys from now on.
    #[must_use]
    pub fn redacting(mut self, redactor: Option<Redactor>) -> Self {
        self.redactor = redactor;
        self
    }

    /// Records that `lines` lines are missing here.
    pub fn gap(&mut self, at: UnixMillis, lines: u64) -> io::Result<()> {
        self.write(&Line::gap(at, lines))
    }

    pub fn event(&mut self, event: &Event) -> io::Result<()> {
        let line = Line::from(event);
        // An offer of a source declares a cluster's name; other events need one declared before.
        let cluster = line.cluster.as_ref().filter(|_| line.source.is_none());
        if let (Some(named), Some(Text(cluster))) = (&mut self.named, cluster) {
            if matches!(event.kind, EventKind::ClusterAdded { .. }) {
                named.insert(cluster.as_ref().into());
            } else if !named.contains(&**cluster) {
                self.named = None;
                self.gap(event.at, 1)?;
            }
        }
        self.line(line)
    }

    pub fn action(&mut self, decision: &Decision) -> io::Result<()> {
        self.line(Line::from(decision))
    }

    fn line(&mut self, mut line: Line<'_>) -> io::Result<()> {
        if let Some(LineObject(Ok(object))) = &mut line.object
            && let Some(withheld) = self.annotations.withhold(object)
        {
            *object = withheld;
        }
        if let Some(redactor) = &self.redactor {
            redactor.line(&mut line);
        }
        self.write(&line)
    }

    pub fn flush(&mut self) -> io::Result<()> {
        self.sink.flush()
    }

    /// The sink. Callers must leave only whole lines in it.
    pub fn sink_mut(&mut self) -> &mut W {
        &mut self.sink
    }

    /// Returns the sink, e.g. to finish a compressed stream.
    pub fn into_inner(self) -> W {
        self.sink
    }

    fn write(&mut self, line: &Line<'_>) -> io::Result<()> {
        self.line.clear();
        serde_json::to_writer(&mut self.line, line)?;
        one_line(&mut self.line);
        let written = self.sink.write_all(&self.line);
        self.line.clear();
        self.line.shrink_to(KEPT_BYTES);
        written
    }
}
