//! A folder for the files of a test.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// The folder of this program, emptied once. Two runs of a program must not overlap.
static PROGRAM: LazyLock<PathBuf> = LazyLock::new(|| {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(env!("CARGO_CRATE_NAME"));
    let _ = fs::remove_dir_all(&folder);
    folder
});

/// A new, empty folder. It stays until the program's next run that needs a folder.
pub(crate) fn temp_folder(name: &str) -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let folder = PROGRAM.join(format!("{number}-{name}"));
    fs::create_dir_all(&folder).unwrap();
    folder
}
