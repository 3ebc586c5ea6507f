//! The input of a log: plain or gzip, detected by its first bytes.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek};
use std::sync::Arc;

use super::LINE_BYTES_MAX;

/// Larger than the default, so there are fewer reads; small enough for the CPU cache.
const BUFFER_BYTES: usize = 64 * 1024;

/// How much of a regular file has been read.
#[derive(Debug)]
pub(super) struct Progress {
    /// Shared with the reader, whose position it shows.
    file: Arc<File>,
    total_bytes: u64,
}

impl Progress {
    /// From 0 to 1. It stays at 1 if the file has grown since it was opened.
    pub(super) fn fraction(&self) -> f64 {
        let read = (&*self.file).stream_position().unwrap_or(0);
        if read >= self.total_bytes { 1.0 } else { read as f64 / self.total_bytes as f64 }
    }
}

/// Opens a file. Its progress is known only if its length is; a pipe has none.
pub(super) fn open(path: &str) -> io::Result<(Box<dyn BufRead + Send>, Option<Progress>)> {
    let file = Arc::new(File::open(path)?);
    let metadata = file.metadata()?;
    let progress = Progress { file: file.clone(), total_bytes: metadata.len() };
    Ok((decompressing(file)?, metadata.is_file().then_some(progress)))
}

/// Decompresses the input if its first bytes are those of gzip (RFC 1952). It may have several members,
/// as in logs that were appended to. Refuses zstd (RFC 8878).
pub(super) fn decompressing(
    mut input: impl Read + Send + 'static,
) -> io::Result<Box<dyn BufRead + Send>> {
    let mut magic = Vec::with_capacity(4);
    input.by_ref().take(4).read_to_end(&mut magic)?;
    let is_gzip = magic.starts_with(&[0x1f, 0x8b]);
    // A frame, or a skippable frame: parallel compressors start with one.
    let is_zstd = matches!(magic[..], [0x28, 0xb5, 0x2f, 0xfd] | [0x50..=0x5f, 0x2a, 0x4d, 0x18]);
    if is_zstd {
        let text = "it is compressed by zstd: zstd -dc FILE | throughline replay -";
        return Err(io::Error::new(io::ErrorKind::Unsupported, text));
    }
    let input = BufReader::with_capacity(BUFFER_BYTES, io::Cursor::new(magic).chain(input));
    let buffered = |input: Box<dyn Read + Send>| BufReader::with_capacity(BUFFER_BYTES, input);
    Ok(if is_gzip {
        Box::new(buffered(Box::new(flate2::bufread::MultiGzDecoder::new(input))))
    } else {
        Box::new(input)
    })
}

/// The name of the event with an outcome, as a JSON string. Inside another string its quotes would be
/// escaped, so these bytes occur nowhere else.
const OUTCOME: &[u8] = b"\"action_finished\"";

/// Whether the log at `path` contains outcomes, which means that throughline was acting when it was
/// written. `None` for standard input and pipes, which can be read only once.
///
/// # Errors
/// The file can't be opened. A file that can't be read completely counts as ending there: the
/// [`LogReader`](super::LogReader) reports that error.
pub fn holds_outcomes(path: &str) -> io::Result<Option<bool>> {
    if path == "-" || !std::fs::metadata(path)?.is_file() {
        return Ok(None);
    }
    if let Ok(reader) = super::LogReader::open(path) {
        for file in reader.files() {
            if file_holds_outcomes(file)? {
                return Ok(Some(true));
            }
        }
        return Ok(Some(false));
    }
    file_holds_outcomes(path).map(Some)
}

fn file_holds_outcomes(path: &str) -> io::Result<bool> {
    let (mut input, _) = open(path)?;
    let finder = memchr::memmem::Finder::new(OUTCOME);
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = input.by_ref().take(LINE_BYTES_MAX as u64).read_until(b'\n', &mut line);
        if finder.find(&line).is_some() {
            return Ok(true);
        }
        if read.map_or(true, |n| n == 0) {
            return Ok(false);
        }
    }
}
