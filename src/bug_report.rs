//! One archive of what is known about a problem, to be attached to a report. Addresses, keys and
//! tokens are replaced in every file of it.

use std::io::{self, Cursor, Write};

use flate2::Compression;
use flate2::write::GzEncoder;
use serde::Serialize;
use serde_json::Value;
use tar::{Builder, Header};

use crate::build_info;
use crate::core::data::time::UnixMillis;
use crate::event_log::redact::Redactor;
use crate::event_log::{LogEntry, LogReader, LogWriter};
use crate::outside_text::plain_json::plain_yaml;

/// All files are in this folder of the archive.
const FOLDER: &str = "throughline-bug-report";

const LOG_LEVEL: i32 = 3;

/// An archive that is being put together. What cannot be obtained is in it as the text of the error.
#[derive(Debug)]
pub struct BugReport {
    at: UnixMillis,
    redactor: Redactor,
    parts: Vec<ReportPart>,
}

/// A file of the archive.
#[derive(Clone, Debug)]
pub struct ReportPart {
    pub name: String,
    pub what: &'static str,
    bytes: Vec<u8>,
    /// Why it is not there, or not whole.
    pub error: Option<String>,
}

impl ReportPart {
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }
}

impl BugReport {
    pub fn new(at: UnixMillis) -> Self {
        Self { at, redactor: Redactor::of_messages(), parts: Vec::new() }
    }

    pub fn parts(&self) -> &[ReportPart] {
        &self.parts
    }

    /// Adds a text.
    pub fn text(&mut self, name: &str, what: &'static str, text: anyhow::Result<String>) {
        match text {
            Ok(text) => self.add(name, what, self.redactor.error(&text).into_bytes()),
            Err(error) => self.fail(name, what, &error),
        }
    }

    /// Adds a value as YAML.
    pub fn value(&mut self, name: &str, what: &'static str, value: anyhow::Result<impl Serialize>) {
        let yaml = value.and_then(|value| {
            let mut value = serde_json::to_value(value)?;
            self.redact(&mut value);
            plain_yaml(&value)
        });
        match yaml {
            Ok(yaml) => self.add(name, what, yaml.into_bytes()),
            Err(error) => self.fail(name, what, &error),
        }
    }

    /// Adds an event log, which is given compressed.
    pub fn event_log(&mut self, name: &str, what: &'static str, log: anyhow::Result<Vec<u8>>) {
        let redacted = log.and_then(|log| Ok(self.redacted_log(log)?));
        match redacted {
            Ok((log, damage)) => {
                self.add(name, what, log);
                if let Some(damage) = damage {
                    self.fail(name, what, &damage);
                }
            }
            Err(error) => self.fail(name, what, &error),
        }
    }

    /// Says that a part was not asked for, and how to have it.
    pub fn leave_out(&mut self, name: &str, what: &'static str, why: &str) {
        self.fail(name, what, &anyhow::anyhow!("{why}"));
    }

    fn add(&mut self, name: &str, what: &'static str, bytes: Vec<u8>) {
        self.parts.push(ReportPart { name: name.to_owned(), what, bytes, error: None });
    }

    fn fail(&mut self, name: &str, what: &'static str, error: &anyhow::Error) {
        let error = self.redactor.error(&format!("{error:#}"));
        let bytes = format!("{error}\n").into_bytes();
        let name = format!("{name}.error.txt");
        self.parts.push(ReportPart { name, what, bytes, error: Some(error) });
    }

    /// Replaces what must not leave in all strings of a value.
    fn redact(&self, value: &mut Value) {
        match value {
            Value::String(text) => *text = self.redactor.error(text),
            Value::Array(items) => items.iter_mut().for_each(|item| self.redact(item)),
            Value::Object(members) => {
                let redacted = std::mem::take(members).into_iter().map(|(key, mut value)| {
                    self.redact(&mut value);
                    (self.redactor.error(&key), value)
                });
                *members = redacted.collect();
            }
            _ => {}
        }
    }

    /// The log without addresses and keys, compressed, and why it ends early.
    fn redacted_log(&self, log: Vec<u8>) -> io::Result<(Vec<u8>, Option<anyhow::Error>)> {
        let mut out = zstd::stream::write::Encoder::new(Vec::new(), LOG_LEVEL)?;
        let damage = self.copy_log(log, &mut out).err();
        Ok((out.finish()?, damage))
    }

    fn copy_log(&self, log: Vec<u8>, out: impl Write) -> anyhow::Result<()> {
        let mut reader = LogReader::decompressing("the event log", Cursor::new(log))?;
        let mut writer = LogWriter::new(out, reader.header())?;
        while let Some(entry) = reader.next_line()? {
            let at = match &entry {
                LogEntry::Event(event) => event.at,
                LogEntry::Action(decision) => decision.at,
            };
            if !reader.gaps().is_empty() {
                // The number of the lines that are missing is no longer known here.
                writer.gap(at, 1)?;
            }
            match entry {
                LogEntry::Event(event) => writer.event(&self.redactor.event(&event))?,
                LogEntry::Action(mut decision) => {
                    decision.because = self.redactor.error(&decision.because);
                    writer.action(&self.redactor.decision(&decision))?;
                }
            }
        }
        Ok(())
    }

    /// A line for each part with its size: what the archive holds.
    pub fn contents(&self) -> String {
        let mut text = String::new();
        for ReportPart { name, what, bytes, error } in &self.parts {
            let size = bytes.len();
            let what = if error.is_some() { "why this is missing or not whole" } else { what };
            text += &format!("{size:>10} bytes  {name:<34}  {what}\n");
        }
        text
    }

    /// Writes the archive: tar, compressed by gzip.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write_to(&self, out: impl Write) -> io::Result<()> {
        let mut archive = Builder::new(GzEncoder::new(out, Compression::default()));
        let read_me = format!(
            "Made by throughline {} (commit {}) at {}.\nAddresses, keys and tokens are replaced; \
             names of clusters, namespaces and objects are not.\nThe event log is for `throughline \
             replay`, the rest is text.\n\n{}",
            build_info::VERSION,
            build_info::COMMIT,
            self.at,
            self.contents()
        );
        self.append(&mut archive, "README.txt", read_me.as_bytes())?;
        for part in &self.parts {
            self.append(&mut archive, &part.name, &part.bytes)?;
        }
        archive.into_inner()?.finish()?.flush()
    }

    fn append(
        &self,
        archive: &mut Builder<impl Write>,
        name: &str,
        bytes: &[u8],
    ) -> io::Result<()> {
        let mut header = Header::new_gnu();
        header.set_size(bytes.len() as u64);
        header.set_mode(0o600);
        header.set_mtime(self.at.0 / 1_000);
        archive.append_data(&mut header, format!("{FOLDER}/{name}"), bytes)
    }
}
