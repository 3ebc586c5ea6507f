//! The files of a live log: the current one, and those that were rotated away.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use super::kept::{self, Retention, RotatedFiles, numbered};
use super::lock::{WriteLock, open_append};
use crate::environment;
use crate::event_log::{Header, LogPart, LogWriter};

/// How often files that grew too old are looked for while none is rotated.
const PRUNE_EVERY: Duration = Duration::from_secs(3_600);

/// A file that lines are appended to. A trait, so that tests can make writes fail.
pub(super) trait LogFile: Write + Send {
    fn set_len(&self, bytes: u64) -> io::Result<()>;
}

impl LogFile for File {
    fn set_len(&self, bytes: u64) -> io::Result<()> {
        File::set_len(self, bytes)
    }
}

/// A file of a simulated computer.
struct SimulatedFile(PathBuf);

impl Write for SimulatedFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        environment::append(&self.0, bytes).unwrap_or(Ok(())).map(|()| bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl LogFile for SimulatedFile {
    fn set_len(&self, _: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

pub(super) type Create = Box<dyn FnMut(&Path) -> io::Result<Box<dyn LogFile>> + Send>;

/// `FILE`, `FILE.1` and so on.
pub(super) struct Files {
    pub(super) path: PathBuf,
    retention: Retention,
    create: Create,
    file: Option<Box<dyn LogFile>>,
    part: LogPart,
    /// The file's size up to its last whole line. A new file gets its header with the first lines.
    bytes: u64,
    /// A partial line follows the last whole line.
    is_torn: bool,
    /// Pipes and devices are neither renamed nor truncated.
    is_regular: bool,
    /// The size at which the file is rotated; more than `max_bytes` after a rotation failed.
    rotate_at_bytes: u64,
    pruned: Instant,
    /// `None` for pipes and devices.
    _lock: Option<WriteLock>,
}

/// Opens a log file, and creates it if need be. A link is followed to a pipe or a device alone.
pub(super) fn create(path: &Path) -> io::Result<Box<dyn LogFile>> {
    if is_regular(path)? {
        return Ok(Box::new(open_append(path)?));
    }
    Ok(Box::new(OpenOptions::new().append(true).open(path)?))
}

/// Whether `path` is a regular file, or will be one.
fn is_regular(path: &Path) -> io::Result<bool> {
    let link = fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_symlink());
    match fs::metadata(path) {
        Ok(metadata) if !metadata.is_file() => Ok(false),
        _ if link => Err(io::Error::other("it is a symbolic link, which is never followed")),
        _ => Ok(true),
    }
}

/// As `write_all`, but also returns how many bytes were written.
fn write(file: &mut dyn LogFile, bytes: &[u8]) -> (usize, io::Result<()>) {
    let mut written = 0;
    while written < bytes.len() {
        match file.write(&bytes[written..]) {
            Ok(0) => return (written, Err(io::ErrorKind::WriteZero.into())),
            Ok(more) => written += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return (written, Err(error)),
        }
    }
    (written, Ok(()))
}

impl Files {
    /// Starts a log. Renames an existing file at `path` away, unless it holds no more than a header;
    /// deletes nothing but what retention no longer covers.
    pub(super) fn start(
        path: &Path,
        retention: Retention,
        part: LogPart,
        create: Create,
    ) -> anyhow::Result<Self> {
        let is_regular = is_regular(path)?;
        let lock = if is_regular { Some(WriteLock::acquire(path)?) } else { None };
        let mut files = Self {
            path: path.to_owned(),
            retention,
            create,
            file: None,
            part,
            bytes: 0,
            is_torn: false,
            is_regular,
            rotate_at_bytes: retention.max_bytes,
            pruned: Instant::now(),
            _lock: lock,
        };
        if is_regular {
            if path.try_exists()? && kept::holds_only_a_header(path)? {
                fs::remove_file(path)?;
            }
            files.rename_files()?;
            files.prune();
        }
        files.open()?;
        Ok(files)
    }

    /// Starts a log on a simulated computer. As of a pipe, it is never rotated.
    pub(super) fn simulated(path: &Path, retention: Retention, part: LogPart) -> Self {
        Self {
            path: path.to_owned(),
            retention,
            create: Box::new(|path| Ok(Box::new(SimulatedFile(path.to_owned())))),
            file: None,
            part,
            bytes: 0,
            is_torn: false,
            is_regular: false,
            rotate_at_bytes: retention.max_bytes,
            pruned: Instant::now(),
            _lock: None,
        }
    }

    /// Whether `more` bytes belong in the next file.
    pub(super) fn is_full(&self, more: usize) -> bool {
        self.is_regular && self.bytes > 0 && self.bytes + more as u64 > self.rotate_at_bytes
    }

    /// Ends the file; the next lines start a new one. After an error the current file may grow by
    /// `max_bytes` before the next attempt.
    pub(super) fn rotate(&mut self) -> io::Result<()> {
        self.rename_files().inspect_err(|_| {
            self.rotate_at_bytes = self.bytes.saturating_add(self.retention.max_bytes);
        })?;
        self.prune();
        self.file = None;
        self.bytes = 0;
        self.is_torn = false;
        self.part.number += 1;
        self.rotate_at_bytes = self.retention.max_bytes;
        Ok(())
    }

    /// Writes whole lines; in a new file, `header` first. An error comes with the number of lines
    /// that were written nevertheless.
    pub(super) fn append(
        &mut self,
        header: &Header,
        lines: &[u8],
    ) -> Result<(), (usize, io::Error)> {
        self.repair().map_err(|error| (0, error))?;
        let mut whole = Vec::new();
        if self.bytes == 0 {
            let writer = LogWriter::part(Vec::new(), header, self.part);
            let mut writer = writer.map_err(|error| (0, error))?;
            writer.sink_mut().extend_from_slice(lines);
            whole = writer.into_inner();
        }
        let bytes = if whole.is_empty() { lines } else { &whole };
        let file = self.open().map_err(|error| (0, error))?;
        let (written, ended) = write(file, bytes);
        let is_end = |byte: &u8| *byte == b'\n';
        let written = &bytes[..written];
        let whole = &written[..written.iter().rposition(is_end).map_or(0, |at| at + 1)];
        self.bytes += whole.len() as u64;
        self.is_torn = written.len() > whole.len();
        ended.map_err(|error| {
            // Try to cut the partial line now, so that the log can be read; else before the next write.
            if self.cut_partial_line().is_ok() && self.is_regular {
                // If somebody deletes the file to free space, an open handle would keep that space.
                self.file = None;
            }
            let headers = usize::from(bytes.len() > lines.len());
            let written = whole.iter().filter(|byte| is_end(byte)).count();
            (written.saturating_sub(headers), error)
        })
    }

    /// Makes sure that lines can be appended: cuts a partial line off, or else starts a new file,
    /// so that it is the last of its file.
    fn repair(&mut self) -> io::Result<()> {
        if self.is_regular && self.file.is_none() && self.bytes > 0 {
            match fs::metadata(&self.path).map(|metadata| metadata.len()) {
                Ok(bytes) if bytes == self.bytes => {}
                // Deleted or emptied by somebody: start the next part.
                Ok(0) | Err(_) => {
                    self.bytes = 0;
                    self.part.number += 1;
                }
                Ok(_) => self.rotate()?,
            }
        }
        match self.cut_partial_line() {
            Err(_) if self.is_regular && self.bytes > 0 => self.rotate(),
            Err(_) if self.is_regular => {
                // Nothing to keep, not even a whole header.
                fs::remove_file(&self.path)?;
                self.file = None;
                self.is_torn = false;
                Ok(())
            }
            result => result,
        }
    }

    fn cut_partial_line(&mut self) -> io::Result<()> {
        if let Some(file) = self.file.as_mut().filter(|_| self.is_torn) {
            if self.is_regular {
                file.set_len(self.bytes)?;
            } else if self.bytes > 0 {
                file.write_all(b"\n")?;
            }
            self.is_torn = false;
        }
        Ok(())
    }

    fn open(&mut self) -> io::Result<&mut dyn LogFile> {
        match &mut self.file {
            Some(file) => Ok(&mut **file),
            file => Ok(&mut **file.insert((self.create)(&self.path)?)),
        }
    }

    /// Renames `FILE` to `FILE.1`, and those before it accordingly.
    fn rename_files(&self) -> io::Result<()> {
        if self.path.try_exists()? {
            for (from, to) in RotatedFiles::find(&self.path)?.renames() {
                fs::rename(numbered(&self.path, from), numbered(&self.path, to))?;
            }
        }
        Ok(())
    }

    /// As [`Files::prune`], now and then.
    pub(super) fn prune_if_due(&mut self) {
        if self.is_regular && self.pruned.elapsed() >= PRUNE_EVERY {
            self.prune();
        }
    }

    /// Deletes the rotated files that retention no longer covers. What can't be deleted stays.
    fn prune(&mut self) {
        self.pruned = Instant::now();
        let expired = RotatedFiles::find(&self.path)
            .map(|found| found.expired(self.retention, SystemTime::now()));
        let deleted = expired.and_then(|expired| {
            expired.into_iter().try_for_each(|n| fs::remove_file(numbered(&self.path, n)))
        });
        if let Err(error) = deleted {
            tracing::warn!(
                file = %self.path.display(), %error,
                "event log: cannot delete an old part; allow this user to delete files in its folder"
            );
        }
    }
}
