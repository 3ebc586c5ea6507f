//! The parts of a live log: `FILE`, the current one, and before it `FILE.1`, `FILE.2` and so on,
//! including the parts of earlier runs. A part is a quarter of the total size limit.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::lock::{WriteLock, open_append};
use crate::environment;
use crate::event_log::{Header, LINE_BYTES_MAX, LogPart, header_line};

/// The first bytes of every part.
const BEGINNING: &[u8] = br#"{"log":"throughline","version":1,"#;

/// Opens a file to append to. Tests replace it to make writes fail.
pub(super) type Create = Box<dyn FnMut(&Path) -> io::Result<Box<dyn Write + Send>> + Send>;

/// Opens a log file, and creates it if necessary. A link is followed only to a pipe or a device.
pub(super) fn create(path: &Path) -> io::Result<Box<dyn Write + Send>> {
    match is_regular(path)? {
        true => Ok(Box::new(open_append(path)?)),
        false => Ok(Box::new(OpenOptions::new().append(true).open(path)?)),
    }
}

/// The device and the number of a file.
fn inode(path: &Path) -> io::Result<(u64, u64)> {
    let file = fs::symlink_metadata(path)?;
    Ok((file.dev(), file.ino()))
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

pub(super) struct Files {
    pub(super) path: PathBuf,
    part_bytes: u64,
    create: Create,
    /// `None`: the next lines start a part.
    file: Option<Box<dyn Write + Send>>,
    /// Distinguishes it from another file of its name.
    inode: Option<(u64, u64)>,
    part: LogPart,
    /// The size of the part; 0 before it has its header.
    bytes: u64,
    /// Whether a line follows the header, or a part of one.
    has_lines: bool,
    /// False for pipes and devices, which are not rotated.
    is_regular: bool,
    /// For a pipe: whether its last line was cut off.
    is_torn: bool,
    /// The size at which the next part is started; larger after a failed rotation.
    full_at_bytes: u64,
    /// `None` for pipes and devices, and while the disk is full.
    lock: Option<WriteLock>,
}

impl Files {
    /// Starts a log of at most `size` bytes. A file at `path` becomes `FILE.1`. If the disk is full, the
    /// first lines start it.
    pub(super) fn start(path: &Path, size: u64, part: LogPart, create: Create) -> io::Result<Self> {
        let mut files = Self::new(path, size, part, create);
        files.is_regular = is_regular(path)?;
        let started = files.next_part().and_then(|()| files.open().map(|_| ()));
        started.or_else(|error| match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Ok(()),
            _ => Err(error),
        })?;
        Ok(files)
    }

    /// Starts a log on a simulated computer. Like a pipe, it is never rotated.
    pub(super) fn simulated(path: &Path, part: LogPart) -> Self {
        let create = |path: &Path| Ok(Box::new(SimulatedFile(path.to_owned())) as Box<_>);
        Self::new(path, u64::MAX, part, Box::new(create))
    }

    fn new(path: &Path, size: u64, part: LogPart, create: Create) -> Self {
        let part_bytes = (size / 4).max(1);
        Self {
            path: path.to_owned(),
            part_bytes,
            create,
            file: None,
            inode: None,
            part,
            bytes: 0,
            has_lines: false,
            is_regular: false,
            is_torn: false,
            full_at_bytes: part_bytes,
            lock: None,
        }
    }

    /// The most bytes to write at once.
    pub(super) fn flush_bytes(&self, most: usize) -> usize {
        usize::try_from(self.part_bytes / 8).map_or(most, |bytes| bytes.min(most))
    }

    /// Writes whole lines; in a new part, `header` first. An error includes the number of lines that
    /// were written, and ends the part: a line that is cut off is the last of its part.
    pub(super) fn append(
        &mut self,
        header: &Header,
        lines: &[u8],
    ) -> Result<(), (usize, io::Error)> {
        let is_full = self.has_lines && self.bytes + lines.len() as u64 > self.full_at_bytes;
        if self.is_regular && (self.file.is_none() || self.is_gone()) {
            self.next_part().map_err(|error| (0, error))?;
        } else if self.is_regular && is_full {
            self.rotate();
        }
        let mut text = Vec::new();
        if self.bytes == 0 {
            text = header_line(header, Some(self.part)).map_err(|error| (0, error))?;
        } else if std::mem::take(&mut self.is_torn) {
            text.push(b'\n');
        }
        let before_lines = text.len();
        text.extend_from_slice(lines);
        let file = self.open().map_err(|error| (0, error))?;
        let (written, ended) = write(file, &text);
        self.bytes += written as u64;
        // A line that lacks only its line break is whole.
        let whole = text.get(before_lines..text.len().min(written + 1)).unwrap_or_default();
        let whole = whole.iter().filter(|byte| **byte == b'\n').count();
        // The part is kept if anything follows the header, so the next one needs another number.
        self.has_lines |= written > before_lines;
        ended.map_err(|error| {
            self.is_torn = written > 0 && text[written - 1] != b'\n';
            if self.is_regular {
                // If the file is deleted to free space, an open handle would keep that space.
                self.file = None;
            }
            (whole, error)
        })
    }

    fn open(&mut self) -> io::Result<&mut dyn Write> {
        match &mut self.file {
            Some(file) => Ok(&mut **file),
            file => {
                let file = file.insert((self.create)(&self.path)?);
                self.inode = inode(&self.path).ok();
                Ok(&mut **file)
            }
        }
    }

    /// Whether somebody deleted or moved the open file, whose next lines nobody would find.
    fn is_gone(&self) -> bool {
        match inode(&self.path) {
            Ok(inode) => self.inode.is_some_and(|opened| opened != inode),
            Err(error) => error.kind() == io::ErrorKind::NotFound,
        }
    }

    /// Starts the next part. After an error the current one may grow by the size of another.
    fn rotate(&mut self) {
        if let Err(error) = self.next_part() {
            self.full_at_bytes = self.bytes.saturating_add(self.part_bytes);
            tracing::warn!(
                file = %self.path.display(), %error,
                "event log: cannot rotate the file, which keeps growing; allow this user to rename \
                 and create files in its folder"
            );
        }
    }

    /// Renames `FILE` to `FILE.1`, and earlier parts accordingly. Discards a file with no more than a
    /// header: nothing entered or left the machine while it was current.
    fn next_part(&mut self) -> io::Result<()> {
        if self.is_regular && self.lock.is_none() {
            self.lock = Some(WriteLock::acquire(&self.path)?);
        }
        if self.is_regular && self.path.try_exists()? {
            if holds_only_a_header(&self.path)? {
                fs::remove_file(&self.path)?;
            } else {
                // An interrupted rotation left a free name, and this one fills it.
                for number in (0..count(&self.path)).rev() {
                    fs::rename(numbered(&self.path, number), numbered(&self.path, number + 1))?;
                }
                self.delete_oldest();
            }
        }
        self.part.number += u64::from(self.has_lines);
        self.file = None;
        self.bytes = 0;
        self.has_lines = false;
        self.is_torn = false;
        self.full_at_bytes = self.part_bytes;
        Ok(())
    }

    /// Deletes the oldest parts until there is room for the next.
    fn delete_oldest(&self) {
        let room = self.part_bytes.saturating_mul(3);
        let size =
            |number| fs::symlink_metadata(numbered(&self.path, number)).map_or(0, |m| m.len());
        let mut bytes: u64 = (1..count(&self.path)).map(size).sum();
        for number in (1..count(&self.path)).rev() {
            if bytes <= room {
                return;
            }
            bytes -= size(number);
            if let Err(error) = fs::remove_file(numbered(&self.path, number)) {
                tracing::warn!(
                    file = %self.path.display(), %error,
                    "event log: cannot delete an old part; allow this user to delete files in its folder"
                );
                return;
            }
        }
    }
}

/// As `write_all`, and returns the number of bytes written.
fn write(file: &mut dyn Write, bytes: &[u8]) -> (usize, io::Result<()>) {
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

/// The first number without a part.
fn count(log: &Path) -> u32 {
    let is_there = |number: &u32| fs::symlink_metadata(numbered(log, *number)).is_ok();
    (1..).find(|number| !is_there(number)).unwrap_or(1)
}

/// Whether the file contains only a header, whole or cut off.
fn holds_only_a_header(path: &Path) -> io::Result<bool> {
    let mut file = BufReader::new(File::open(path)?);
    let mut header = Vec::new();
    file.by_ref().take(LINE_BYTES_MAX as u64).read_until(b'\n', &mut header)?;
    let shared = header.len().min(BEGINNING.len());
    Ok(header[..shared] == BEGINNING[..shared] && file.fill_buf()?.is_empty())
}

/// The part of the log `file` with this number: 0 is the current one, 1 the one before it.
pub(crate) fn numbered(file: &Path, number: u32) -> PathBuf {
    if number == 0 { file.to_owned() } else { super::with_suffix(file, &format!(".{number}")) }
}
