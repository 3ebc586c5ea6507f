//! Where a log's bytes come from: plain, gzip or zstd, told apart by their first bytes.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Larger reads than the default, of which there are fewer; small enough for the cache.
const BUFFER_BYTES: usize = 64 * 1024;

/// How much of a regular file was read.
#[derive(Debug)]
pub(super) struct Progress {
    read_bytes: Arc<AtomicU64>,
    total_bytes: u64,
}

impl Progress {
    /// From 0 to 1. A file that is being written to while it is read stays at 1.
    pub(super) fn fraction(&self) -> f64 {
        let read = self.read_bytes.load(Ordering::Relaxed);
        if read >= self.total_bytes { 1.0 } else { read as f64 / self.total_bytes as f64 }
    }
}

struct Counting<R> {
    input: R,
    read_bytes: Arc<AtomicU64>,
}

impl<R: Read> Read for Counting<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.input.read(buffer)?;
        self.read_bytes.fetch_add(n as u64, Ordering::Relaxed);
        Ok(n)
    }
}

/// Opens a file, and says how far it was read where its length is known (not of a pipe).
pub(super) fn open(path: &str) -> io::Result<(Box<dyn BufRead + Send>, Option<Progress>)> {
    let file = File::open(path)?;
    let metadata = file.metadata()?;
    let read_bytes = Arc::new(AtomicU64::new(0));
    let progress = metadata
        .is_file()
        .then(|| Progress { read_bytes: read_bytes.clone(), total_bytes: metadata.len() });
    Ok((decompressing(Counting { input: file, read_bytes })?, progress))
}

/// Reads on, decompressed where the first bytes say gzip (RFC 1952) or zstd (RFC 8878); both may
/// hold several members or frames, as logs that were appended to do.
pub(super) fn decompressing(
    mut input: impl Read + Send + 'static,
) -> io::Result<Box<dyn BufRead + Send>> {
    let mut magic = Vec::with_capacity(4);
    input.by_ref().take(4).read_to_end(&mut magic)?;
    let is_gzip = magic.starts_with(&[0x1f, 0x8b]);
    // A frame, or a skippable frame, with which parallel compressors start.
    let is_zstd = matches!(magic[..], [0x28, 0xb5, 0x2f, 0xfd] | [0x50..=0x5f, 0x2a, 0x4d, 0x18]);
    let input = BufReader::with_capacity(BUFFER_BYTES, io::Cursor::new(magic).chain(input));
    let buffered = |input: Box<dyn Read + Send>| BufReader::with_capacity(BUFFER_BYTES, input);
    Ok(if is_gzip {
        Box::new(buffered(Box::new(flate2::bufread::MultiGzDecoder::new(input))))
    } else if is_zstd {
        Box::new(buffered(Box::new(zstd::stream::read::Decoder::with_buffer(input)?)))
    } else {
        Box::new(input)
    })
}

/// The name of the event that brings an outcome, as a JSON string. Inside another string its
/// quotes would be escaped, so these bytes are found nowhere else.
const OUTCOME: &[u8] = b"\"action_finished\"";

/// Whether the log at `path` holds outcomes: throughline was acting when it was written. `None`
/// where only reading it in full can tell (standard input, a pipe).
///
/// # Errors
/// It can't be opened. What can't be read on counts as ended, and is the reader's to tell.
pub fn holds_outcomes(path: &str) -> io::Result<Option<bool>> {
    if path == "-" || !std::fs::metadata(path)?.is_file() {
        return Ok(None);
    }
    if let Ok(reader) = super::Reader::open(path) {
        for file in reader.files() {
            if one_holds_outcomes(file)? {
                return Ok(Some(true));
            }
        }
        return Ok(Some(false));
    }
    one_holds_outcomes(path).map(Some)
}

fn one_holds_outcomes(path: &str) -> io::Result<bool> {
    let (mut input, _) = open(path)?;
    let finder = memchr::memmem::Finder::new(OUTCOME);
    let mut block = Vec::with_capacity(2 * BLOCK_BYTES);
    loop {
        // What the blocks' border cuts apart is looked at again with the next one.
        let kept = block.len().saturating_sub(OUTCOME.len());
        block.drain(..kept);
        let read = input.by_ref().take(BLOCK_BYTES as u64).read_to_end(&mut block);
        if finder.find(&block).is_some() {
            return Ok(true);
        }
        if read.map_or(true, |n| n == 0) {
            return Ok(false);
        }
    }
}

/// How much is searched at once.
const BLOCK_BYTES: usize = 256 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_are_found_wherever_they_stand() {
        let path = std::env::temp_dir().join(format!("throughline-input-{}", std::process::id()));
        let name = path.to_str().unwrap();
        for before in [0, 10, BLOCK_BYTES - 8, BLOCK_BYTES - 17, BLOCK_BYTES, 3 * BLOCK_BYTES + 5] {
            let mut log = vec![b' '; before];
            log.extend(OUTCOME);
            std::fs::write(&path, &log).unwrap();
            assert_eq!(holds_outcomes(name).unwrap(), Some(true), "{before}");
            log[before + 1] = b'x';
            std::fs::write(&path, &log).unwrap();
            assert_eq!(holds_outcomes(name).unwrap(), Some(false), "{before}");
        }
        std::fs::write(&path, br#"{"m":"\"action_finished\""}"#).unwrap();
        assert_eq!(holds_outcomes(name).unwrap(), Some(false));
        std::fs::remove_file(&path).unwrap();
        assert_eq!(holds_outcomes("-").unwrap(), None);
        assert!(holds_outcomes(name).is_err());
    }
}
