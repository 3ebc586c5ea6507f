//! What a test's thread logs.

use std::fs::{self, File};
use std::io;
use std::path::PathBuf;
use std::sync::{Mutex, OnceLock};

use tracing::Dispatch;

use crate::temp_folder::temp_folder;
use crate::waiting::until;

/// The file that has the log.
pub(crate) struct Log(PathBuf);

impl Log {
    /// Collects from now on, until the guard is dropped.
    pub(crate) fn capture() -> (Self, tracing::subscriber::DefaultGuard) {
        // While there is one subscriber alone, a line that another test's thread comes to first counts
        // as wanted by nobody, for good.
        static OTHER: OnceLock<Dispatch> = OnceLock::new();
        OTHER.get_or_init(|| {
            Dispatch::new(tracing_subscriber::fmt().with_writer(io::sink).finish())
        });
        let path = temp_folder("log").join("log");
        let file = File::create(&path).unwrap();
        let lines = tracing_subscriber::fmt().with_ansi(false).with_writer(Mutex::new(file));
        (Self(path), tracing::subscriber::set_default(lines.finish()))
    }

    pub(crate) fn text(&self) -> String {
        fs::read_to_string(&self.0).unwrap()
    }

    pub(crate) async fn until_contains(&self, part: &str) {
        until(part, async || self.text().contains(part)).await;
    }
}
