//! Copies an event log, all of its parts in order, into one stream, while a run may write and rotate
//! it.
//!
//! An open part stays readable when it is renamed or deleted. So all parts are opened first, and
//! identified by their headers. Rotation only raises the number in a part's name, so opening the names
//! in rising order misses none.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, Write};
use std::path::Path;
use std::time::Duration;

use super::header::read_header;
use super::{LINE_BYTES_MAX, LineError, LogError, LogPart};
use crate::core::data::time::UnixMillis;
use crate::live_log::numbered;

/// How often to retry while the newest part is being replaced.
const LOOKS_MAX: u32 = 100;
const PAUSE: Duration = Duration::from_millis(5);

/// A rotation leaves one name free for a moment. After this many free names there are no parts.
const FREE_NAMES_MAX: u32 = 10;

/// The open parts of an event log, by number.
#[derive(Debug)]
pub struct LogExport(BTreeMap<u64, File>);

impl LogExport {
    /// Opens the log whose newest part is `path`.
    ///
    /// # Errors
    /// There is no log, or its first line is not a header.
    pub fn open(path: &Path) -> Result<Self, LogError> {
        let mut looks = 1;
        let (newest, file) = loop {
            match open_part(path) {
                Err(_) if looks < LOOKS_MAX => std::thread::sleep(PAUSE),
                opened => break opened?,
            }
            looks += 1;
        };
        let mut parts = BTreeMap::from([(newest.number, file)]);
        loop {
            let opened = parts.len();
            let mut number = 1;
            let mut free_names = 0;
            while free_names < FREE_NAMES_MAX {
                let part = open_part(&numbered(path, number));
                let is_free = matches!(part, Err(LogError::Open { .. }));
                free_names = if is_free { free_names + 1 } else { 0 };
                number += 1;
                // Parts of other logs may be there, too.
                if let Ok((part, file)) = part
                    && part.started == newest.started
                    && part.number < newest.number
                {
                    parts.entry(part.number).or_insert(file);
                }
            }
            if parts.len() == opened {
                return Ok(Self(parts));
            }
        }
    }

    /// The number of the oldest part; 1 if none was deleted.
    pub fn first_part(&self) -> u64 {
        self.0.keys().next().copied().unwrap_or(1)
    }

    /// The number of parts missing after the oldest.
    pub fn missing_parts(&self) -> u64 {
        let newest = self.0.keys().next_back().copied().unwrap_or(1);
        newest - self.first_part() - (self.0.len() as u64 - 1)
    }

    /// Writes the whole lines of all parts, with the first header only: the copy reads as one log.
    ///
    /// # Errors
    /// Those of reading and of `out`.
    pub fn write_to(self, mut out: impl Write) -> io::Result<()> {
        let first = self.first_part();
        for (number, file) in self.0 {
            // The limit excludes lines appended from now on, which could prevent the end.
            let bytes = file.metadata()?.len();
            let mut input = BufReader::new(file.take(bytes));
            let mut line = Vec::new();
            let mut is_header = true;
            while input.read_until(b'\n', &mut line)? > 0 && line.ends_with(b"\n") {
                if !is_header || number == first {
                    out.write_all(&line)?;
                }
                is_header = false;
                line.clear();
            }
        }
        Ok(())
    }
}

/// Opens a file, and reads its part number: the first if its header has none.
fn open_part(path: &Path) -> Result<(LogPart, File), LogError> {
    let name = || path.display().to_string().into();
    let failed = |error| LogError::Open { file: name(), error };
    let mut file = File::open(path).map_err(failed)?;
    let mut line = Vec::new();
    let head = (&file).take(LINE_BYTES_MAX as u64);
    BufReader::new(head).read_until(b'\n', &mut line).map_err(failed)?;
    let bad = |error| LogError::BadLine { file: name(), line: 1, error: Box::new(error) };
    // The part may have been created a moment ago.
    let header = line.strip_suffix(b"\n").ok_or_else(|| bad(LineError::Empty))?;
    let (_, part) = read_header(header).map_err(bad)?;
    file.rewind().map_err(failed)?;
    Ok((part.unwrap_or(LogPart { number: 1, started: UnixMillis(0) }), file))
}
