//! Copies an event log, all of its parts in order, into one stream, while it may be written and
//! rotated.
//!
//! A part that is open stays readable when it is renamed or deleted. So all parts up to the one that is
//! written now are opened first, told apart by their headers and not by their names, and then copied.
//! Only whole lines are copied, and of the headers only the first: the copy reads as one log.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufRead, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::header::read_header;
use super::{LINE_BYTES_MAX, LineError, LogError, LogPart, input};
use crate::live_log::numbered;

/// How often the folder is read again while a rotation hides parts.
const PASSES_MAX: usize = 100;

/// The pause between two looks at a folder in which parts are missing.
const PAUSE: Duration = Duration::from_millis(5);

/// As `zstd` compresses by default.
const LEVEL: i32 = 3;

/// The parts of an event log, open to be copied.
#[derive(Debug)]
pub struct LogExport {
    name: Arc<str>,
    /// Oldest first.
    parts: Vec<File>,
    /// The number of the oldest part; later than 1 if retention has deleted those before it.
    first: u64,
    /// How many parts are missing between the first and the last.
    missing: u64,
}

impl LogExport {
    /// Opens the log at `path`: that part and the earlier ones.
    ///
    /// # Errors
    /// There is no log, or its first line is not a header.
    pub fn open(path: &Path) -> Result<Self, LogError> {
        let name: Arc<str> = path.display().to_string().into();
        let mut passes = 0;
        let (newest, file) = loop {
            match open_part(path) {
                Ok(Some(found)) => break found,
                // Begun a moment ago: it has no header yet.
                Ok(None) if passes < PASSES_MAX => {
                    passes += 1;
                    std::thread::sleep(PAUSE);
                }
                // Rotated a moment ago: the new file is not there yet.
                Err(_) if passes < PASSES_MAX && earlier(path).next().is_some() => {
                    passes += 1;
                    std::thread::sleep(PAUSE);
                }
                Ok(None) => {
                    let error = Box::new(LineError::Empty);
                    return Err(LogError::BadLine { file: name, line: 1, error });
                }
                Err(PartError::Io(source)) => return Err(LogError::Open { file: name, source }),
                Err(PartError::Header(error)) => {
                    return Err(LogError::BadLine { file: name, line: 1, error });
                }
            }
        };
        // A log that is not rotated has one part.
        let Some(newest) = newest else {
            return Ok(Self { name, parts: vec![file], first: 1, missing: 0 });
        };
        let mut parts = BTreeMap::from([(newest.number, file)]);
        for _ in 0..PASSES_MAX {
            let before = names_of_parts(path);
            let mut oldest = newest.number;
            for path in earlier(path) {
                if let Ok(Some((Some(part), file))) = open_part(&path)
                    && part.started == newest.started
                    && part.number < newest.number
                {
                    oldest = oldest.min(part.number);
                    parts.entry(part.number).or_insert(file);
                }
            }
            // A rotation renames every part, one after the other: a pass beside it may miss some.
            let is_undisturbed = before.is_some() && before == names_of_parts(path);
            if is_undisturbed && missing(&parts) > 0 {
                // Retention deletes the oldest first: what an earlier pass opened and this one does not
                // find is gone, and the log begins after it.
                parts.retain(|number, _| *number >= oldest);
            }
            if is_undisturbed || (parts.contains_key(&1) && missing(&parts) == 0) {
                break;
            }
            std::thread::sleep(PAUSE);
        }
        let first = parts.keys().next().copied().unwrap_or(1);
        let missing = missing(&parts);
        Ok(Self { name, parts: parts.into_values().collect(), first, missing })
    }

    /// The number of the oldest part that there is; 1 if none was deleted.
    pub fn first_part(&self) -> u64 {
        self.first
    }

    /// How many parts are missing after the oldest.
    pub fn missing_parts(&self) -> u64 {
        self.missing
    }

    /// Writes the log, compressed by zstd.
    ///
    /// # Errors
    /// Those of reading and of `out`.
    pub fn write_compressed(self, out: impl Write) -> io::Result<()> {
        let mut encoder = zstd::stream::write::Encoder::new(out, LEVEL)?;
        self.write_to(&mut encoder)?;
        encoder.finish()?.flush()
    }

    /// Writes the log as text.
    ///
    /// # Errors
    /// Those of reading, with the log's name, and of `out`.
    pub fn write_to(self, mut out: impl Write) -> io::Result<()> {
        let mut line = Vec::new();
        for (at, file) in self.parts.into_iter().enumerate() {
            let failed = |error: io::Error| {
                io::Error::new(
                    error.kind(),
                    format!("{}, part {}: {error}", self.name, self.first + at as u64),
                )
            };
            // What is appended from now on would keep this from ending.
            let bytes = file.metadata().map_err(failed)?.len();
            let mut input = input::decompressing(file.take(bytes)).map_err(failed)?;
            let mut has_header = false;
            loop {
                line.clear();
                let most = LINE_BYTES_MAX as u64 + 2;
                input.by_ref().take(most).read_until(b'\n', &mut line).map_err(failed)?;
                if !line.ends_with(b"\n") {
                    // The end, or a line that is cut off: the writer has not finished it, or never will.
                    break;
                }
                let is_header = !std::mem::replace(&mut has_header, true);
                if !is_header || at == 0 {
                    out.write_all(&line)?;
                }
            }
        }
        Ok(())
    }
}

fn missing(parts: &BTreeMap<u64, File>) -> u64 {
    let ends = parts.keys().next().zip(parts.keys().next_back());
    ends.map_or(0, |(first, last)| last - first + 1 - parts.len() as u64)
}

enum PartError {
    Io(io::Error),
    Header(Box<LineError>),
}

/// Opens a file, and reads which part it is. `None`: it has no whole first line yet.
fn open_part(path: &Path) -> Result<Option<(Option<LogPart>, File)>, PartError> {
    let mut file = File::open(path).map_err(PartError::Io)?;
    let mut line = Vec::new();
    let copy = file.try_clone().map_err(PartError::Io)?;
    let mut input = input::decompressing(copy).map_err(PartError::Io)?;
    let most = LINE_BYTES_MAX as u64 + 2;
    input.by_ref().take(most).read_until(b'\n', &mut line).map_err(PartError::Io)?;
    let Some(line) = line.strip_suffix(b"\n") else { return Ok(None) };
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let (_, part) = read_header(line).map_err(|error| PartError::Header(Box::new(error)))?;
    file.rewind().map_err(PartError::Io)?;
    Ok(Some((part, file)))
}

/// Which part is written now, and under which names there may be earlier ones; `None` where the log has no
/// header just now. Each step of a rotation changes one or the other.
fn names_of_parts(log: &Path) -> Option<(LogPart, Vec<PathBuf>)> {
    let (part, _) = open_part(log).ok().flatten()?;
    Some((part?, earlier(log).collect()))
}

/// The files beside `log` that may hold earlier parts: for `FILE` `FILE.1` and so on, for `FILE.2`
/// those from `FILE.3` on.
fn earlier(log: &Path) -> impl Iterator<Item = PathBuf> {
    let name = log.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let (base, number) = match name.rsplit_once('.').map(|(base, n)| (base, n.parse::<u32>())) {
        Some((base, Ok(number))) if number > 0 => (base.to_owned(), number),
        _ => (name, 0),
    };
    let folder = log.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new(".")).to_owned();
    let prefix = format!("{base}.");
    let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
    let numbers = entries.filter_map(move |entry| {
        entry.file_name().to_str()?.strip_prefix(&prefix)?.parse::<u32>().ok()
    });
    let mut numbers: Vec<_> = numbers.filter(|n| *n > number).collect();
    numbers.sort_unstable();
    numbers.into_iter().map(move |number| numbered(&folder.join(&base), number))
}
