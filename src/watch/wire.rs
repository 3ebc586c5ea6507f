//! What a list and a watch bring, as it stands on the wire.

use std::borrow::Cow;

use bytes::Bytes;
use kube::core::Status;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::client::CallError;
use crate::core::ids::Kind;
use crate::core::objects::{Object, Wire};

/// A longer line, in bytes, is no watch event: etcd takes objects of 1.5 MiB.
const LINE_BYTES_MAX: usize = 64 * 1024 * 1024;

/// One page of a list.
#[derive(Debug, Deserialize)]
pub(super) struct Page<'a> {
    #[serde(borrow)]
    pub(super) metadata: PageMeta<'a>,
    #[serde(borrow)]
    pub(super) items: Vec<&'a RawValue>,
}

/// A page's own metadata.
#[derive(Debug, Deserialize)]
pub(super) struct PageMeta<'a> {
    #[serde(borrow, rename = "resourceVersion")]
    pub(super) resource_version: Cow<'a, str>,
    /// Where the next page begins; empty or absent on the last.
    #[serde(borrow, rename = "continue", default)]
    pub(super) next: Option<Cow<'a, str>>,
}

/// One line of a watch.
#[derive(Debug, Deserialize)]
pub(super) struct Change<'a> {
    #[serde(borrow, rename = "type")]
    pub(super) what: Cow<'a, str>,
    #[serde(borrow)]
    pub(super) object: &'a RawValue,
}

fn unreadable(what: &str, error: &serde_json::Error) -> CallError {
    CallError::Unreadable(format!("{what}: {error}"))
}

pub(super) fn page(bytes: &Bytes) -> Result<Page<'_>, CallError> {
    serde_json::from_slice(bytes).map_err(|e| unreadable("a list", &e))
}

pub(super) fn change(line: &[u8]) -> Result<Change<'_>, CallError> {
    serde_json::from_slice(line).map_err(|e| unreadable("a watch event", &e))
}

/// An object of a kind that is known from the request; items of built-in lists do not name it.
pub(super) fn object(text: &str, kind: Kind) -> Result<Object, CallError> {
    let wire: Wire = serde_json::from_str(text).map_err(|e| unreadable(kind.as_str(), &e))?;
    wire.into_object_of(kind).map_err(|e| CallError::Unreadable(e.to_string()))
}

pub(super) fn version(object: &str) -> Result<String, CallError> {
    #[derive(Deserialize)]
    struct Versioned {
        metadata: Meta,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Meta {
        resource_version: String,
    }
    let object: Versioned =
        serde_json::from_str(object).map_err(|e| unreadable("a resourceVersion", &e))?;
    Ok(object.metadata.resource_version)
}

/// The error that an `ERROR` event carries.
pub(super) fn status(object: &str) -> CallError {
    match serde_json::from_str::<Status>(object) {
        Ok(status) => CallError::of_status(status, None),
        Err(error) => unreadable("an ERROR event", &error),
    }
}

/// `text` as a query's value.
pub(crate) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            escaped.push(char::from(byte));
        } else {
            escaped.push_str(&format!("%{byte:02X}"));
        }
    }
    escaped
}

/// Lines out of pieces.
#[derive(Debug, Default)]
pub(super) struct Lines {
    buffer: Vec<u8>,
    /// What of the buffer was given out already.
    taken: usize,
    /// What of the buffer holds no line break, as far as it was looked at.
    searched: usize,
}

impl Lines {
    pub(super) fn push(&mut self, piece: &[u8]) {
        self.buffer.drain(..self.taken);
        self.searched -= self.taken;
        self.taken = 0;
        if self.buffer.is_empty() && self.buffer.capacity() > 64 * 1024 {
            // One large object must not hold its room for ever.
            self.buffer = Vec::new();
        }
        self.buffer.extend_from_slice(piece);
    }

    /// The next whole line.
    pub(super) fn next(&mut self) -> Result<Option<&[u8]>, CallError> {
        match memchr::memchr(b'\n', &self.buffer[self.searched..]) {
            Some(at) => {
                let start = self.taken;
                let end = self.searched + at;
                self.taken = end + 1;
                self.searched = self.taken;
                Ok(Some(&self.buffer[start..end]))
            }
            None if self.buffer.len() - self.taken > LINE_BYTES_MAX => {
                let error = format!("a watch event of more than {LINE_BYTES_MAX} bytes");
                Err(CallError::Unreadable(error))
            }
            None => {
                self.searched = self.buffer.len();
                Ok(None)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_whole_whatever_the_pieces() {
        let text = b"{\"a\":1}\n\n{\"b\":22}\n{\"c";
        for size in 1..=text.len() {
            let mut lines = Lines::default();
            let mut seen = Vec::new();
            for piece in text.chunks(size) {
                lines.push(piece);
                while let Some(line) = lines.next().unwrap() {
                    seen.push(String::from_utf8(line.to_vec()).unwrap());
                }
            }
            assert_eq!(seen, ["{\"a\":1}", "", "{\"b\":22}"], "pieces of {size}");
        }
    }

    #[test]
    fn a_continue_token_survives_the_query() {
        assert_eq!(escape("a+b/c=d~e"), "a%2Bb%2Fc%3Dd~e");
    }
}
