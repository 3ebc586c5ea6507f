//! The writer: one line at a time, in one call to the sink each.

use std::io::{self, Write};

use serde::Serialize;

use super::line::{DecisionOut, EventOut, GapOut, HeaderOut};
use super::{Header, Part};
use crate::core::action::Decision;
use crate::core::event::Event;
use crate::core::time::UnixMillis;

/// Writes an event log. Each line, its `\n` included, reaches the sink in a single `write_all`,
/// so a crash tears at most the last line. Nothing is flushed but by [`Writer::flush`].
#[derive(Debug)]
pub struct Writer<W: Write> {
    sink: W,
    line: Vec<u8>,
}

impl<W: Write> Writer<W> {
    /// Starts a log: writes the header line.
    pub fn new(sink: W, header: &Header) -> io::Result<Self> {
        Self::start(sink, header, None)
    }

    /// Starts one file of a log that is rotated.
    pub fn part(sink: W, header: &Header, part: Part) -> io::Result<Self> {
        Self::start(sink, header, Some(part))
    }

    fn start(sink: W, header: &Header, part: Option<Part>) -> io::Result<Self> {
        let mut writer = Self { sink, line: Vec::new() };
        writer.write(&HeaderOut::new(header, part))?;
        Ok(writer)
    }

    /// Writes that so many lines are missing here.
    pub fn gap(&mut self, at: UnixMillis, lines: u64) -> io::Result<()> {
        self.write(&GapOut { at_ms: at, event: "log_gap", lines })
    }

    /// Writes what entered the machine.
    pub fn event(&mut self, event: &Event) -> io::Result<()> {
        self.write(&EventOut::new(event.at, &event.what))
    }

    /// Writes what left the machine.
    pub fn action(&mut self, decision: &Decision) -> io::Result<()> {
        let Decision { at, action, because } = decision;
        self.write(&DecisionOut { at_ms: *at, action, because })
    }

    /// Flushes the sink.
    pub fn flush(&mut self) -> io::Result<()> {
        self.sink.flush()
    }

    /// The sink. What is done to it must leave whole lines there.
    pub fn sink_mut(&mut self) -> &mut W {
        &mut self.sink
    }

    /// Gives back the sink, e.g. to finish a compressed stream.
    pub fn into_inner(self) -> W {
        self.sink
    }

    fn write(&mut self, line: &impl Serialize) -> io::Result<()> {
        self.line.clear();
        serde_json::to_writer(&mut self.line, line)?;
        // A Connector's status stands here as its source spelled it. Inside a JSON string a line
        // break is always escaped; one that is not is mere layout, and would break the line.
        if self.line.contains(&b'\n') || self.line.contains(&b'\r') {
            for byte in self.line.iter_mut().filter(|byte| matches!(byte, b'\n' | b'\r')) {
                *byte = b' ';
            }
        }
        self.line.push(b'\n');
        self.sink.write_all(&self.line)
    }
}
