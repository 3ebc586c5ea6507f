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
