//! The reader: each line is parsed once, straight from its bytes into its members.

use std::collections::VecDeque;
use std::io::{self, BufRead, Read};
use std::sync::Arc;

use super::header::read_header;
use super::input::{self, Progress};
use super::parse::{Parser, content};
use super::parts;
use super::{Header, LINE_BYTES_MAX, Line, LogError, Part, Problem, Warning};

/// Reads an event log line by line, in memory bounded by its longest line.
///
/// After an error, and after the end, there is nothing more to read.
pub struct Reader<R> {
    name: Arc<str>,
    input: R,
    progress: Option<Progress>,
    buffer: Vec<u8>,
    line_number: u64,
    bytes_read: u64,
    /// The input has no more lines.
    is_exhausted: bool,
    is_done: bool,
    header: Header,
    part: Option<Part>,
    parser: Parser,
    /// What earlier files gave cause to.
    warnings: Vec<Warning>,
    gaps: Vec<Warning>,
    /// The later files of a rotated log, at their first line after the header.
    later: VecDeque<Self>,
    files_read: usize,
}

/// How a line ended.
enum Ending {
    Newline,
    EndOfInput,
    /// A compressed stream without its end; the input ends there, too.
    BrokenOff(io::Error),
}

impl Reader<Box<dyn BufRead + Send>> {
    /// Opens the log at `path`, `-` for stdin, and reads its header. Gzip and zstd are recognised
    /// by their first bytes, whatever the name.
    ///
    /// Of a log that was rotated, the files before `path` are read first: `path.1` and so on. Where
    /// one of them is missing, reading begins after it, and [`Reader::gaps`] tells.
    pub fn open(path: &str) -> Result<Self, LogError> {
        let mut reader = Self::open_one(path)?;
        let mut name = path.to_owned();
        while let Some(part) = reader.part.filter(|part| part.number > 1) {
            name = parts::before(&name);
            match Self::open_one(&name) {
                Ok(before) if before.part == Some(part.before()) => reader = before.then(reader),
                other => {
                    reader.parser.gap(1, parts::missing(part, &name, other.err().as_ref()));
                    break;
                }
            }
        }
        Ok(reader)
    }

    fn open_one(path: &str) -> Result<Self, LogError> {
        let (name, opened) = if path == "-" {
            ("stdin", input::decompressing(io::stdin()).map(|input| (input, None)))
        } else {
            (path, input::open(path))
        };
        let (input, progress) =
            opened.map_err(|source| LogError::Open { file: name.into(), source })?;
        Reader { progress, ..Reader::headless(name, input) }.with_header()
    }

    /// Reads a log, plain or compressed, from anywhere; `name` stands for it in messages.
    pub fn decompressing(name: &str, input: impl Read + Send + 'static) -> Result<Self, LogError> {
        let input = input::decompressing(input)
            .map_err(|source| LogError::Open { file: name.into(), source })?;
        Reader::new(name, input)
    }
}

impl<R: BufRead> Reader<R> {
    /// Reads a log that is not compressed, its header at once; `name` stands for it in messages.
    pub fn new(name: &str, input: R) -> Result<Self, LogError> {
        Self::headless(name, input).with_header()
    }

    /// The header.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The next line that matters; `None` at the end of the log.
    pub fn next_line(&mut self) -> Result<Option<Line>, LogError> {
        if self.is_done {
            return Ok(None);
        }
        let line = self.read_line();
        if !matches!(line, Ok(Some(_))) {
            self.is_done = true;
        }
        line
    }

    /// The number of the line that was read last, counted from 1; the header is one of them.
    pub fn line_number(&self) -> u64 {
        self.line_number
    }

    /// How many bytes the lines read so far have, decompressed.
    pub fn bytes_read(&self) -> u64 {
        self.bytes_read
    }

    /// How much of a regular file was read, from 0 to 1, a buffer ahead of the lines; `None` for
    /// other inputs, whose size is not known. Of a rotated log each file counts alike.
    pub fn progress(&self) -> Option<f64> {
        let files = self.files_read + 1 + self.later.len();
        let read = self.files_read as f64 + self.progress.as_ref()?.fraction();
        Some(read / files as f64)
    }

    /// The files that are read, the one at hand first.
    pub fn files(&self) -> impl Iterator<Item = &str> {
        std::iter::once(&*self.name).chain(self.later.iter().map(|reader| &*reader.name))
    }

    /// The warnings since the last call. There are few: one a kind or a cause, not one a line.
    /// Those about the log as a whole come with its end.
    pub fn warnings(&mut self) -> Vec<Warning> {
        self.take_told();
        std::mem::take(&mut self.warnings)
    }

    /// The gaps since the last call, of which there were warnings as well: lines that could not be
    /// written, and beginnings that were rotated away.
    pub fn gaps(&mut self) -> Vec<Warning> {
        self.take_told();
        std::mem::take(&mut self.gaps)
    }

    fn take_told(&mut self) {
        let warning = |(line, text)| Warning { file: self.name.clone(), line, text };
        self.warnings.extend(self.parser.take_warnings().into_iter().map(warning));
        self.gaps.extend(self.parser.take_gaps().into_iter().map(warning));
    }

    /// Reads `later` when this file is read.
    fn then(mut self, mut later: Self) -> Self {
        self.later.append(&mut later.later);
        self.later.push_front(later);
        self
    }

    /// Goes on with the next file, if there is one. Its clusters are known from the first header
    /// and the lines since, but after a gap.
    fn next_file(&mut self) -> bool {
        let Some(next) = self.later.pop_front() else { return false };
        self.take_told();
        for cluster in &next.header.clusters {
            self.parser.add_cluster(&cluster.name);
        }
        self.name = next.name;
        self.input = next.input;
        self.progress = next.progress;
        self.line_number = next.line_number;
        self.bytes_read += next.bytes_read;
        self.is_exhausted = next.is_exhausted;
        self.files_read += 1;
        true
    }

    fn headless(name: &str, input: R) -> Self {
        Self {
            name: name.into(),
            input,
            progress: None,
            buffer: Vec::new(),
            line_number: 0,
            bytes_read: 0,
            is_exhausted: false,
            is_done: false,
            header: Header::default(),
            part: None,
            warnings: Vec::new(),
            gaps: Vec::new(),
            later: VecDeque::new(),
            files_read: 0,
            parser: Parser::default(),
        }
    }

    fn with_header(mut self) -> Result<Self, LogError> {
        loop {
            let ending = self.fill()?;
            let line = content(&self.buffer, self.line_number);
            match (line.is_empty(), ending) {
                (false, Some(ending)) => {
                    (self.header, self.part) = match (read_header(line), ending) {
                        (Ok(header), _) => header,
                        (Err(_), Ending::BrokenOff(source)) => return Err(self.unreadable(source)),
                        (Err(problem), _) => return Err(self.refused(problem)),
                    };
                    for cluster in &self.header.clusters {
                        self.parser.add_cluster(&cluster.name);
                    }
                    return Ok(self);
                }
                (true, Some(Ending::BrokenOff(source))) => return Err(self.unreadable(source)),
                (true, Some(_)) => {}
                (_, None) => {
                    self.line_number = 1;
                    return Err(self.refused(Problem::Empty));
                }
            }
        }
    }

    fn read_line(&mut self) -> Result<Option<Line>, LogError> {
        loop {
            let Some(ending) = self.fill()? else {
                if self.next_file() {
                    continue;
                }
                self.parser.sum_up(self.line_number);
                return Ok(None);
            };
            let line = content(&self.buffer, self.line_number);
            if line.is_empty() {
                continue;
            }
            match (self.parser.parse(line, self.line_number), ending) {
                (Ok(Some(line)), _) => return Ok(Some(line)),
                (Ok(None), _) => {}
                (Err(problem), Ending::EndOfInput) if problem.is_torn() => {
                    self.parser.warn(
                        self.line_number,
                        format!(
                            "the last line breaks off after {} bytes, as after a crash; it is \
                             left out",
                            self.buffer.len()
                        ),
                    );
                }
                (Err(problem), Ending::BrokenOff(_)) if problem.is_torn() => {}
                (Err(problem), _) => return Err(self.refused(problem)),
            }
        }
    }

    /// Reads a line into the buffer; `None` at the end.
    fn fill(&mut self) -> Result<Option<Ending>, LogError> {
        self.buffer.clear();
        if self.is_exhausted {
            return Ok(None);
        }
        // Room for CR and LF, which do not count.
        let bytes_max = LINE_BYTES_MAX as u64 + 2;
        let read = self.input.by_ref().take(bytes_max).read_until(b'\n', &mut self.buffer);
        self.bytes_read += self.buffer.len() as u64;
        if self.buffer.is_empty() && read.is_ok() {
            return Ok(None);
        }
        self.line_number += 1;
        match read {
            Ok(_) if self.buffer.ends_with(b"\n") => Ok(Some(Ending::Newline)),
            Ok(_) if self.buffer.len() > LINE_BYTES_MAX => Err(self.refused(Problem::TooLong)),
            Ok(_) => {
                self.is_exhausted = true;
                Ok(Some(Ending::EndOfInput))
            }
            Err(source) if source.kind() == io::ErrorKind::UnexpectedEof => {
                self.is_exhausted = true;
                let text = "the compressed stream breaks off in this line, as after a crash; what \
                            comes before it is read";
                self.parser.warn(self.line_number, text.to_owned());
                Ok(Some(Ending::BrokenOff(source)))
            }
            Err(source) => Err(self.unreadable(source)),
        }
    }

    fn refused(&self, problem: Problem) -> LogError {
        let problem = Box::new(problem);
        LogError::Refused { file: self.name.clone(), line: self.line_number, problem }
    }

    fn unreadable(&self, source: io::Error) -> LogError {
        LogError::Read { file: self.name.clone(), line: self.line_number, source }
    }
}

impl<R: BufRead> Iterator for Reader<R> {
    type Item = Result<Line, LogError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_line().transpose()
    }
}
