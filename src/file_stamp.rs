//! Whether a file changed.

use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

/// Distinguishes a file from its earlier version without reading it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileStamp {
    device: u64,
    inode: u64,
    bytes: u64,
    /// When the content or the inode changed, in seconds and nanoseconds; no program can set it.
    changed: (i64, i64),
}

impl FileStamp {
    /// The stamp of a file, or of the file that a link leads to. `None` while it can't be read.
    pub(crate) fn of(path: &Path) -> Option<Self> {
        Some(Self::from(&fs::metadata(path).ok()?))
    }

    /// When the file changed, since 1970.
    pub(crate) fn changed_at(&self) -> Duration {
        let seconds = u64::try_from(self.changed.0).unwrap_or(0);
        let nanoseconds = u32::try_from(self.changed.1).unwrap_or(0);
        Duration::new(seconds, nanoseconds)
    }
}

impl From<&Metadata> for FileStamp {
    fn from(file: &Metadata) -> Self {
        let changed = (file.ctime(), file.ctime_nsec());
        Self { device: file.dev(), inode: file.ino(), bytes: file.len(), changed }
    }
}
