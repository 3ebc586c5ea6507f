//! The rotated files of a log, those of earlier runs included: which are ours, and which are kept.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Every file that this writer makes begins like this. Any other file is somebody else's.
const BEGINNING: &[u8] = br#"{"log":"throughline","version":1,"part":"#;

const DAY: Duration = Duration::from_secs(86_400);

/// How much of the past is kept.
#[derive(Clone, Copy, Debug)]
pub(super) struct Retention {
    /// A file that would grow past this is rotated.
    pub(super) max_bytes: u64,
    /// All files together, the current one at its largest included.
    pub(super) keep_bytes: u64,
    pub(super) keep_days: u32,
}

/// A rotated file that this writer made.
#[derive(Clone, Copy, Debug)]
struct RotatedFile {
    bytes: u64,
    /// When its last line was written.
    written: SystemTime,
}

/// The files `FILE.1`, `FILE.2` and so on.
#[derive(Debug, Default)]
pub(super) struct RotatedFiles {
    ours: BTreeMap<u32, RotatedFile>,
    /// Names that something else has: it is neither renamed nor deleted.
    foreign: BTreeSet<u32>,
}

impl RotatedFiles {
    pub(super) fn find(log: &Path) -> io::Result<Self> {
        let mut found = Self::default();
        let folder = log.parent().filter(|parent| !parent.as_os_str().is_empty());
        let name = log.file_name().unwrap_or_default().as_encoded_bytes();
        for entry in fs::read_dir(folder.unwrap_or(Path::new(".")))? {
            let entry = entry?;
            let Some(number) = number_of(entry.file_name().as_encoded_bytes(), name) else {
                continue;
            };
            let path = numbered(log, number);
            // Not of the target, if it is a link.
            match fs::symlink_metadata(&path) {
                Ok(metadata) if metadata.is_file() && is_ours(&path) => {
                    let written = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
                    found.ours.insert(number, RotatedFile { bytes: metadata.len(), written });
                }
                _ => {
                    found.foreign.insert(number);
                }
            }
        }
        Ok(found)
    }

    /// The renames that free `FILE.1`, and let `FILE` have that name: from and to, to be made in this
    /// order. Each goes to a name that nothing has, so that nothing is ever overwritten.
    pub(super) fn renames(&self) -> Vec<(u32, u32)> {
        let mut chain = vec![0];
        let mut number = 1;
        while self.foreign.contains(&number) || self.ours.contains_key(&number) {
            if self.ours.contains_key(&number) {
                chain.push(number);
            }
            number += 1;
        }
        chain.push(number);
        chain.windows(2).rev().map(|pair| (pair[0], pair[1])).collect()
    }

    /// The files that retention no longer covers, oldest first.
    pub(super) fn expired(&self, retention: Retention, now: SystemTime) -> Vec<u32> {
        let mut bytes: u64 = self.ours.values().map(|file| file.bytes).sum();
        let room = retention.keep_bytes.saturating_sub(retention.max_bytes);
        // Age counts back from the newest file, so that neither a long pause nor a clock that is
        // ahead makes the last that is known too old.
        let newest = self.ours.values().map(|file| file.written).max().unwrap_or(now).min(now);
        let age_max = DAY * retention.keep_days;
        let mut expired = Vec::new();
        for (number, file) in self.ours.iter().rev() {
            let age = newest.duration_since(file.written).unwrap_or_default();
            if bytes > room || age > age_max {
                expired.push(*number);
                bytes -= file.bytes;
            }
        }
        expired
    }
}

fn number_of(name: &[u8], log: &[u8]) -> Option<u32> {
    let number = std::str::from_utf8(name.strip_prefix(log)?.strip_prefix(b".")?).ok()?;
    // Not `FILE.007`: this writer never made that.
    number.parse().ok().filter(|n: &u32| *n > 0 && n.to_string() == number)
}

fn is_ours(path: &Path) -> bool {
    let mut beginning = Vec::new();
    let read = File::open(path)
        .and_then(|file| file.take(BEGINNING.len() as u64).read_to_end(&mut beginning));
    read.is_ok() && beginning == BEGINNING
}

/// Whether the file holds nothing but a header of ours, whole or torn: nothing entered or left the
/// machine while it was written.
pub(super) fn holds_only_a_header(path: &Path) -> io::Result<bool> {
    let mut file = BufReader::new(File::open(path)?);
    let mut header = Vec::new();
    let most = crate::event_log::LINE_BYTES_MAX as u64;
    file.by_ref().take(most).read_until(b'\n', &mut header)?;
    let shared = header.len().min(BEGINNING.len());
    Ok(header[..shared] == BEGINNING[..shared] && file.fill_buf()?.is_empty())
}

/// The part of the log `file` with this number: 0 is the one being written, 1 the one before it.
pub(crate) fn numbered(file: &Path, number: u32) -> PathBuf {
    if number == 0 { file.to_owned() } else { super::with_suffix(file, &format!(".{number}")) }
}
