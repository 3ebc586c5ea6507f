//! The files of a live log: the one at hand, and those that were rotated away.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::event_log::{Header, Part, Writer};

/// A file that lines are appended to.
pub(super) trait LogFile: Write + Send {
    fn set_len(&self, bytes: u64) -> io::Result<()>;
}

impl LogFile for File {
    fn set_len(&self, bytes: u64) -> io::Result<()> {
        File::set_len(self, bytes)
    }
}

pub(super) type Create = Box<dyn FnMut(&Path) -> io::Result<Box<dyn LogFile>> + Send>;

/// `FILE`, `FILE.1` and so on.
pub(super) struct Files {
    pub(super) path: PathBuf,
    max_bytes: u64,
    keep: u32,
    create: Create,
    file: Option<Box<dyn LogFile>>,
    part: Part,
    /// How long the file is, in whole lines; a new file gets its header with the first lines.
    bytes: u64,
    /// Something stands after the whole lines.
    is_torn: bool,
    /// Pipes and devices are neither renamed nor cut.
    is_regular: bool,
    /// Where the file is rotated; later than wished where that failed.
    rotate_at_bytes: u64,
}

/// For its owner alone: the log may hold names of customers.
pub(super) fn create(path: &Path) -> io::Result<Box<dyn LogFile>> {
    Ok(Box::new(OpenOptions::new().append(true).create(true).mode(0o600).open(path)?))
}

/// As `write_all`, and says how far it came.
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
    /// Starts a log. What stands at `path` is rotated away, and what is beyond `keep` is deleted.
    pub(super) fn start(
        path: &Path,
        max_bytes: u64,
        keep: u32,
        part: Part,
        create: Create,
    ) -> io::Result<Self> {
        let is_regular = fs::metadata(path).map_or(true, |metadata| metadata.is_file());
        let mut files = Self {
            path: path.to_owned(),
            max_bytes,
            keep,
            create,
            file: None,
            part,
            bytes: 0,
            is_torn: false,
            is_regular,
            rotate_at_bytes: max_bytes,
        };
        if is_regular {
            match fs::metadata(path) {
                Ok(metadata) if metadata.len() == 0 => fs::remove_file(path)?,
                _ => files.shift()?,
            }
            let mut beyond = keep.saturating_add(1);
            while files.name(beyond).try_exists()? {
                fs::remove_file(files.name(beyond))?;
                beyond += 1;
            }
        }
        files.open()?;
        Ok(files)
    }

    /// Whether so many bytes more are for the next file.
    pub(super) fn is_full(&self, more: usize) -> bool {
        self.is_regular && self.bytes > 0 && self.bytes + more as u64 > self.rotate_at_bytes
    }

    /// Ends the file; the next one begins with the next lines. After an error the file at hand is
    /// filled for as much again.
    pub(super) fn rotate(&mut self) -> io::Result<()> {
        self.shift().inspect_err(|_| {
            self.rotate_at_bytes = self.bytes.saturating_add(self.max_bytes);
        })?;
        self.file = None;
        self.bytes = 0;
        self.is_torn = false;
        self.part.number += 1;
        self.rotate_at_bytes = self.max_bytes;
        Ok(())
    }

    /// Writes whole lines. A new file gets `header` before them. With an error comes how many of
    /// the lines are in the file all the same.
    pub(super) fn append(
        &mut self,
        header: &Header,
        lines: &[u8],
    ) -> Result<(), (usize, io::Error)> {
        self.repair().map_err(|error| (0, error))?;
        let mut whole = Vec::new();
        if self.bytes == 0 {
            let writer = Writer::part(Vec::new(), header, self.part);
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
            // At once, so that who reads the log now finds whole lines; else the next time.
            if self.cut().is_ok() && self.is_regular {
                // Held open, a file that somebody deletes to make room would take it up for ever.
                self.file = None;
            }
            let headers = usize::from(bytes.len() > lines.len());
            let written = whole.iter().filter(|byte| is_end(byte)).count();
            (written.saturating_sub(headers), error)
        })
    }

    /// Makes sure that lines may be appended. Half a line is cut off, or left behind by a new file,
    /// in which it does not matter.
    fn repair(&mut self) -> io::Result<()> {
        if self.is_regular && self.file.is_none() && self.bytes > 0 {
            match fs::metadata(&self.path).map(|metadata| metadata.len()) {
                Ok(bytes) if bytes == self.bytes => {}
                // Deleted or emptied: this part is no more.
                Ok(0) | Err(_) => {
                    self.bytes = 0;
                    self.part.number += 1;
                }
                Ok(_) => self.rotate()?,
            }
        }
        match self.cut() {
            Err(_) if self.is_regular && self.bytes > 0 => self.rotate(),
            Err(_) if self.is_regular => {
                // Not even a header to keep.
                fs::remove_file(&self.path)?;
                self.file = None;
                self.is_torn = false;
                Ok(())
            }
            cut => cut,
        }
    }

    fn cut(&mut self) -> io::Result<()> {
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

    /// Makes room for a new `FILE`.
    fn shift(&self) -> io::Result<()> {
        if !self.path.try_exists()? {
            return Ok(());
        }
        if self.keep == 0 {
            return fs::remove_file(&self.path);
        }
        let mut free = 1;
        while free < self.keep && self.name(free).try_exists()? {
            free += 1;
        }
        for number in (0..free).rev() {
            fs::rename(self.name(number), self.name(number + 1))?;
        }
        Ok(())
    }

    fn name(&self, number: u32) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        if number > 0 {
            name.push(format!(".{number}"));
        }
        name.into()
    }
}
