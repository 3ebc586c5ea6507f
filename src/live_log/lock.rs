//! The lock that lets only one process write an event log, and files that are not links.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Opens a regular file to append to it, and creates it with access for its owner only: the log may
/// contain names of customers. Refuses a symbolic link, dangling or not, because its creator would
/// choose the file that is written.
pub(crate) fn open_append(path: &Path) -> io::Result<File> {
    // The system follows no link when it must create the file.
    match OpenOptions::new().append(true).create_new(true).mode(0o600).open(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        created => return created,
    }
    let found = fs::symlink_metadata(path)?;
    if found.is_symlink() {
        return Err(io::Error::other("it is a symbolic link, which is never followed"));
    }
    let file = OpenOptions::new().append(true).open(path)?;
    let opened = file.metadata()?;
    if (opened.dev(), opened.ino()) != (found.dev(), found.ino()) {
        return Err(io::Error::other("it was replaced while it was opened"));
    }
    Ok(file)
}

/// Held while a process writes an event log; released when the process ends, in whatever way.
#[derive(Debug)]
pub(super) struct WriteLock {
    path: PathBuf,
    _file: File,
}

impl WriteLock {
    /// Locks `FILE.lock`, a separate file because `FILE` itself is renamed when it is rotated.
    ///
    /// # Errors
    /// `WouldBlock`: another process holds it. The text says what to do.
    pub(super) fn acquire(log: &Path) -> io::Result<Self> {
        let path = super::with_suffix(log, ".lock");
        let failed =
            |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
        loop {
            let file = open_append(&path).map_err(failed)?;
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => {
                    let held = format!(
                        "another process writes this event log (it holds {}); give each process a \
                         file of its own, or end that process first",
                        path.display()
                    );
                    return Err(io::Error::new(io::ErrorKind::WouldBlock, held));
                }
                // Some network file systems do not support locks.
                Err(TryLockError::Error(error)) => tracing::warn!(
                    file = %path.display(), %error,
                    "event log: cannot lock the file; make sure that no other process writes it"
                ),
            }
            // Its last owner may have removed it since it was opened.
            let ours = file.metadata().map_err(failed)?;
            let there = fs::symlink_metadata(&path);
            if there.is_ok_and(|there| (there.dev(), there.ino()) == (ours.dev(), ours.ino())) {
                return Ok(Self { path, _file: file });
            }
        }
    }
}

impl Drop for WriteLock {
    fn drop(&mut self) {
        // Before it is unlocked: a process that opened it meanwhile finds that it is gone, and retries.
        let _ = fs::remove_file(&self.path);
    }
}
