//! The reader. It parses each line once, from its bytes straight into its fields.

use std::collections::VecDeque;
use std::io::{self, BufRead, Read};

use super::header::read_header;
use super::input::{self, Progress};
use super::line_text::content;
use super::parse::Parser;
use super::{Header, LINE_BYTES_MAX, LineError, LogEntry, LogError, LogPart, Warning};

/// Reads an event log line by line, in memory bounded by its longest line.
///
/// After an error it behaves as at the end of the log.
pub struct LogReader<'a> {
    input: Box<dyn BufRead + Send + 'a>,
    progress: Option<Progress>,
    buffer: Vec<u8>,
    line_number: u64,
    /// Whether the input has no more lines.
    is_exhausted: bool,
    is_done: bool,
    header: Header,
    part: Option<LogPart>,
    parser: Parser,
    /// The later files of a rotated log, each read up to the end of its header.
    later: VecDeque<Self>,
    files_read: usize,
}

enum LineEnd {
    Newline,
    EndOfInput,
    /// The compressed stream is truncated here, and so is the input.
    Truncated(io::Error),
}

impl LogReader<'static> {
    /// Opens the log at `path`, `-` for stdin, and reads its header. Gzip is detected by its first
    /// bytes, whatever the name.
    ///
    /// The older files of a rotated log, `path.1` and so on, are read first. If one of them is missing,
    /// reading starts after it, and a [`Warning`] says that.
    pub fn open(path: &str) -> Result<Self, LogError> {
        let mut reader = Self::open_file(path)?;
        let mut name = path.to_owned();
        while let Some(part) = reader.part.filter(|part| part.number > 1) {
            let mut reasons = Vec::new();
            let found = previous_files(&name).into_iter().find_map(|name| {
                match Self::open_file(&name) {
                    Ok(other) if other.part == Some(part.previous()) => return Some((name, other)),
                    opened => reasons.push(why_not(&name, opened.err().as_ref())),
                }
                None
            });
            let Some((found, previous)) = found else {
                reader.parser.gap(1, &missing_part_warning(part, &reasons));
                break;
            };
            reader = previous.followed_by(reader);
            name = found;
        }
        Ok(reader)
    }

    fn open_file(path: &str) -> Result<Self, LogError> {
        if path == "-" {
            return Self::decompressing("stdin", io::stdin());
        }
        let (input, progress) =
            input::open(path).map_err(|error| LogError::Open { file: path.into(), error })?;
        Self::start(path, input, progress)
    }

    /// Reads a log, plain or compressed, from any source; messages call it `name`.
    pub fn decompressing(name: &str, input: impl Read + Send + 'static) -> Result<Self, LogError> {
        let input = input::decompressing(input)
            .map_err(|error| LogError::Open { file: name.into(), error })?;
        Self::start(name, input, None)
    }
}

impl<'a> LogReader<'a> {
    /// Reads an uncompressed log, its header immediately; messages call it `name`.
    pub fn new(name: &str, input: impl BufRead + Send + 'a) -> Result<Self, LogError> {
        Self::start(name, Box::new(input), None)
    }

    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The next entry; `None` at the end of the log. Skips lines about kinds that throughline does not
    /// use.
    pub fn next_line(&mut self) -> Result<Option<LogEntry>, LogError> {
        if self.is_done {
            return Ok(None);
        }
        let line = self.read_line();
        if !matches!(line, Ok(Some(_))) {
            self.is_done = true;
        }
        line
    }

    /// The number of the last line read, counted from 1, including the header.
    pub fn line_number(&self) -> u64 {
        self.line_number
    }

    /// How much of a regular file has been read, from 0 to 1; it is one buffer ahead of the lines.
    /// `None` for other inputs, whose size is unknown. Every file of a rotated log has the same weight.
    pub fn progress(&self) -> Option<f64> {
        let files = self.files_read + 1 + self.later.len();
        let read = self.files_read as f64 + self.progress.as_ref()?.fraction();
        Some(read / files as f64)
    }

    /// The current file and the remaining ones.
    pub fn files(&self) -> impl Iterator<Item = &str> {
        let later = self.later.iter().map(|reader| &*reader.parser.file);
        std::iter::once(&*self.parser.file).chain(later)
    }

    /// The warnings since the last call. There are few: one for each kind or cause, not for each line.
    /// Warnings about the whole log come at its end.
    pub fn warnings(&mut self) -> Vec<Warning> {
        std::mem::take(&mut self.parser.warnings)
    }

    /// Queues `later` to be read after this file.
    fn followed_by(mut self, mut later: Self) -> Self {
        self.later.append(&mut later.later);
        self.later.push_front(later);
        self
    }

    /// Continues with the next file, if one remains. After a gap its header may name new clusters.
    fn next_file(&mut self) -> bool {
        let Some(mut next) = self.later.pop_front() else { return false };
        self.parser.warnings.append(&mut next.parser.warnings);
        self.parser.add_clusters(&next.header);
        self.parser.file = next.parser.file;
        self.input = next.input;
        self.progress = next.progress;
        self.line_number = next.line_number;
        self.is_exhausted = next.is_exhausted;
        self.files_read += 1;
        true
    }

    /// Reads the header.
    fn start(
        name: &str,
        input: Box<dyn BufRead + Send + 'a>,
        progress: Option<Progress>,
    ) -> Result<Self, LogError> {
        let mut reader = Self {
            input,
            progress,
            buffer: Vec::new(),
            line_number: 0,
            is_exhausted: false,
            is_done: false,
            header: Header::default(),
            part: None,
            parser: Parser::new(name),
            later: VecDeque::new(),
            files_read: 0,
        };
        loop {
            let Some(end) = reader.fill()? else {
                reader.line_number = 1;
                return Err(reader.bad_line(LineError::Empty));
            };
            let line = content(&reader.buffer, reader.line_number);
            let read = (!line.is_empty()).then(|| read_header(line));
            match (read, end) {
                (Some(Ok((header, part))), _) => {
                    reader.parser.begin(&header);
                    return Ok(Self { header, part, ..reader });
                }
                (_, LineEnd::Truncated(error)) => return Err(reader.unreadable(error)),
                (Some(Err(error)), _) => return Err(reader.bad_line(error)),
                (None, _) => {}
            }
        }
    }

    fn read_line(&mut self) -> Result<Option<LogEntry>, LogError> {
        loop {
            let Some(end) = self.fill()? else {
                if self.next_file() {
                    continue;
                }
                self.parser.add_final_warnings(self.line_number);
                return Ok(None);
            };
            let line = content(&self.buffer, self.line_number);
            if line.is_empty() {
                continue;
            }
            match (self.parser.parse(line, self.line_number), end) {
                (Ok(Some(line)), _) => return Ok(Some(line)),
                (Ok(None), _) => {}
                (Err(error), LineEnd::EndOfInput) if error.is_torn() => {
                    self.parser.warn(
                        self.line_number,
                        &format!(
                            "the last line is cut off after {} bytes, as after a crash; skipping \
                             it",
                            self.buffer.len()
                        ),
                    );
                }
                (Err(error), LineEnd::Truncated(_)) if error.is_torn() => {}
                (Err(error), _) => return Err(self.bad_line(error)),
            }
        }
    }

    /// Reads a line into the buffer; `None` at the end of the input.
    fn fill(&mut self) -> Result<Option<LineEnd>, LogError> {
        self.buffer.clear();
        if self.is_exhausted {
            return Ok(None);
        }
        // CR and LF do not count towards the limit.
        let bytes_max = LINE_BYTES_MAX as u64 + 2;
        let read = self.input.by_ref().take(bytes_max).read_until(b'\n', &mut self.buffer);
        if self.buffer.is_empty() && read.is_ok() {
            return Ok(None);
        }
        self.line_number += 1;
        match read {
            Ok(_) if self.buffer.ends_with(b"\n") => Ok(Some(LineEnd::Newline)),
            Ok(_) if self.buffer.len() > LINE_BYTES_MAX => Err(self.bad_line(LineError::TooLong)),
            Ok(_) => {
                self.is_exhausted = true;
                Ok(Some(LineEnd::EndOfInput))
            }
            Err(source) if source.kind() == io::ErrorKind::UnexpectedEof => {
                self.is_exhausted = true;
                let text = "the compressed stream is cut off in this line, as after a crash; the \
                            lines before it were read";
                self.parser.warn(self.line_number, text);
                Ok(Some(LineEnd::Truncated(source)))
            }
            Err(source) => Err(self.unreadable(source)),
        }
    }

    fn bad_line(&self, error: LineError) -> LogError {
        let error = Box::new(error);
        LogError::BadLine { file: self.parser.file.clone(), line: self.line_number, error }
    }

    fn unreadable(&self, error: io::Error) -> LogError {
        LogError::Read { file: self.parser.file.clone(), line: self.line_number, error }
    }
}

impl Iterator for LogReader<'_> {
    type Item = Result<LogEntry, LogError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_line().transpose()
    }
}

impl LogPart {
    fn previous(self) -> Self {
        Self { number: self.number.saturating_sub(1), ..self }
    }
}

/// The names that the file with the part before `file` may have, the likeliest first. A number at the end
/// counts the parts, or is part of the log's own name. A rotation in progress or interrupted leaves one
/// name free.
fn previous_files(file: &str) -> Vec<String> {
    let numbered = file.rsplit_once('.').and_then(|(name, n)| Some((name, n.parse::<u32>().ok()?)));
    let part = numbered.filter(|(_, n)| *n > 0 && *n < u32::MAX - 1);
    let names = part.into_iter().chain([(file, 0)]);
    names.flat_map(|(name, n)| [1, 2].map(|more| format!("{name}.{}", n + more))).collect()
}

/// Why `file` is not the previous part. `error`: why it cannot be opened.
fn why_not(file: &str, error: Option<&LogError>) -> String {
    match error {
        Some(LogError::Open { error, .. }) => format!("{file}: {error}"),
        Some(error) => error.to_string(),
        None => format!("{file} belongs to another log or is another part"),
    }
}

/// The warning for a `part` whose previous part is missing. `reasons`: why each of [`previous_files`] is
/// not it. Of two consecutive names, the second matters only during a rotation.
fn missing_part_warning(part: LogPart, reasons: &[String]) -> String {
    let because: Vec<_> = reasons.iter().step_by(2).map(String::as_str).collect();
    let because = because.join("; ");
    format!(
        "this is part {} of a rotated log, and the part before it is missing ({because}); reading \
         starts here, so the machine lacks the earlier events and may decide differently than it \
         did. Put the older file back, or let the log be larger",
        part.number
    )
}

#[cfg(test)]
mod tests {
    use super::previous_files;

    #[test]
    fn the_previous_file_has_the_next_higher_number() {
        for (file, previous) in [
            ("log", "log.1 log.2"),
            ("a.2/log.9", "a.2/log.10 a.2/log.11 a.2/log.9.1 a.2/log.9.2"),
            ("log.jsonl", "log.jsonl.1 log.jsonl.2"),
            ("log.0", "log.0.1 log.0.2"),
            ("log.x1", "log.x1.1 log.x1.2"),
            ("log.99999999999", "log.99999999999.1 log.99999999999.2"),
        ] {
            assert_eq!(previous_files(file).join(" "), previous);
        }
    }
}
