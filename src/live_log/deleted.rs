//! The backup of deleted routes: `FILE.deleted.jsonl` beside the event log, never rotated.
//!
//! A route is on the disk before its delete is sent; if it can't be written, nothing is deleted. A
//! second line gives the outcome of the delete. The file is opened for each line: deletes are rare, and
//! this detects that the file was moved away.

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio::sync::Mutex;

use super::lock::open_append;
use crate::clock::wall_clock_now;
use crate::core::data::time::UnixMillis;
use crate::environment::{self, disk_ready, is_simulated};
use crate::event_log::one_line;

/// A line of the backup: a route about to be deleted, or the outcome of its delete.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct DeletedRouteLine<'a> {
    pub at_ms: UnixMillis,
    /// The hub.
    pub cluster: Cow<'a, str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uid: Option<Cow<'a, str>>,
    /// The outcome's name in the event log.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<Cow<'a, str>>,
    /// The whole route, as just read.
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    pub deleted: Option<&'a RawValue>,
}

/// The path of an event log's backup.
pub fn deleted_routes_file(event_log: &Path) -> PathBuf {
    super::with_suffix(event_log, ".deleted.jsonl")
}

/// Appends to the backup of deleted routes. Clones write to the same file, one line at a time.
#[derive(Clone, Debug)]
pub struct DeletedRoutes {
    file: Arc<Mutex<PathBuf>>,
}

impl DeletedRoutes {
    /// The backup beside this event log. No file is opened before the first delete.
    pub fn beside(event_log: &Path) -> Self {
        Self { file: Arc::new(Mutex::new(deleted_routes_file(event_log))) }
    }

    /// Writes a route that is about to be deleted from `cluster`; returns once it is on the disk. The
    /// route is never redacted: it must be restorable.
    ///
    /// # Errors
    /// The route may not be on the disk; the text names the file.
    pub async fn record(&self, cluster: &str, route: &str) -> Result<(), String> {
        let route: &RawValue = serde_json::from_str(route).map_err(|error| error.to_string())?;
        let at_ms = wall_clock_now();
        let cluster = cluster.into();
        let line = DeletedRouteLine { at_ms, cluster, deleted: Some(route), ..Default::default() };
        self.append(&line).await
    }

    /// Writes the outcome of the delete of the route with this uid. Without this line it is unknown
    /// whether the route was deleted.
    pub async fn record_end(&self, cluster: &str, uid: &str, outcome: &str) {
        let line = DeletedRouteLine {
            at_ms: wall_clock_now(),
            cluster: cluster.into(),
            uid: Some(uid.into()),
            outcome: Some(outcome.into()),
            deleted: None,
        };
        if let Err(error) = self.append(&line).await {
            tracing::warn!(%error, outcome, "cannot record how the delete of a route ended");
        }
    }

    async fn append(&self, line: &DeletedRouteLine<'_>) -> Result<(), String> {
        let mut line = serde_json::to_vec(line).map_err(|error| error.to_string())?;
        one_line(&mut line);
        if is_simulated() {
            disk_ready().await;
            let path = self.file.lock().await;
            let written = environment::append(&path, &line).unwrap_or(Ok(()));
            return written.map_err(|error| format!("{}: {error}", path.display()));
        }
        // Whoever waits for a disk that hangs waits without a thread, as there are few.
        let path = self.file.clone().lock_owned().await;
        let written = tokio::task::spawn_blocking(move || {
            append(&path, &line).map_err(|error| format!("{}: {error}", path.display()))
        });
        written.await.map_err(|error| error.to_string())?
    }
}

fn append(path: &Path, line: &[u8]) -> io::Result<()> {
    let is_new = !path.try_exists()?;
    let mut file = open_append(path)?;
    let bytes = file.metadata()?.len();
    let written = end_line(path, bytes, &mut file)
        .and_then(|()| file.write_all(line))
        .and_then(|()| file.sync_all());
    if let Err(error) = written {
        // A partial write counts as none.
        let _ = file.set_len(bytes);
        return Err(error);
    }
    if is_new {
        // The file's name is on the disk only once its folder is.
        let folder = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        File::open(folder.unwrap_or(Path::new(".")))?.sync_all()?;
    }
    Ok(())
}

/// Ends a line truncated by a crash.
fn end_line(path: &Path, bytes: u64, file: &mut File) -> io::Result<()> {
    if bytes == 0 {
        return Ok(());
    }
    let mut last = [0];
    let mut reading = File::open(path)?;
    reading.seek(SeekFrom::Start(bytes - 1))?;
    reading.read_exact(&mut last)?;
    if last == *b"\n" { Ok(()) } else { file.write_all(b"\n") }
}
