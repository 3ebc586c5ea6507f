//! Lists and watches as they are on the wire.

use kube::core::Status;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

use crate::client::CallError;
use crate::core::data::ids::{Kind, ObjectKey};
use crate::core::data::objects::{Object, WireObject};

/// No object is longer than this in JSON: etcd accepts at most 1.5 MiB, an API server takes requests of
/// at most 3 MiB.
pub const OBJECT_BYTES_MAX: usize = 8 * 1024 * 1024;

/// The type of a watch event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum WatchEventType {
    Added,
    Modified,
    Deleted,
    /// Nothing changed up to the resourceVersion of its object.
    Bookmark,
    /// Its object is a Status; the watch ends.
    Error,
}

/// One line of a watch.
#[derive(Debug, Deserialize)]
pub struct WatchEvent<'a> {
    #[serde(rename = "type")]
    pub event_type: WatchEventType,
    #[serde(borrow)]
    pub object: &'a RawValue,
}

fn unreadable(what: &str, error: &serde_json::Error) -> CallError {
    CallError::Unreadable(format!("{what}: {error}"))
}

pub fn watch_event(line: &[u8]) -> Result<WatchEvent<'_>, CallError> {
    serde_json::from_slice(line).map_err(|e| unreadable("a watch event", &e))
}

/// An object whose kind is known from the request: in lists of built-in kinds, the items do not name
/// theirs.
pub fn object(text: &str, kind: Kind) -> Result<Object, CallError> {
    let wire: WireObject = serde_json::from_str(text).map_err(|e| unreadable(kind.as_str(), &e))?;
    wire.into_object_of(kind).map_err(|e| CallError::Unreadable(e.to_string()))
}

/// An item of a list, as [`object`].
///
/// # Errors
/// The list is broken. An object that can't be read is the inner error.
pub fn item(text: &str, kind: Kind) -> Result<Result<Object, CallError>, CallError> {
    let object = object(text, kind);
    if object.is_err() {
        // Nothing but quotes and brackets was looked at before.
        let _: IgnoredAny = serde_json::from_str(text).map_err(|e| unreadable("a list", &e))?;
    }
    Ok(object)
}

/// Namespace and name of an object that can't be read otherwise; empty where not even they can.
pub fn key(object: &str) -> ObjectKey {
    #[derive(Deserialize)]
    struct Named {
        metadata: ObjectName,
    }
    #[derive(Deserialize)]
    struct ObjectName {
        #[serde(default)]
        namespace: String,
        #[serde(default)]
        name: String,
    }
    let named = serde_json::from_str::<Named>(object).ok().map(|named| named.metadata);
    named.map_or_else(|| ObjectKey::new("", ""), |key| ObjectKey::new(key.namespace, key.name))
}

pub fn version(object: &str) -> Result<String, CallError> {
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
pub fn status(object: &str) -> CallError {
    match serde_json::from_str::<Status>(object) {
        Ok(status) => CallError::of_status(status, None),
        Err(error) => unreadable("an ERROR event", &error),
    }
}

/// Room for more than this is given back once its lines were taken: a watch may bring nothing for an hour
/// after one large object.
const KEPT_BYTES: usize = 64 * 1024;

/// Splits a stream of byte chunks into lines.
#[derive(Debug, Default)]
pub struct Lines {
    buffer: Vec<u8>,
    /// How much of the buffer has been returned.
    taken: usize,
    /// How much of the buffer has been searched for line breaks.
    searched: usize,
}

impl Lines {
    pub fn push(&mut self, chunk: &[u8]) {
        self.buffer.drain(..self.taken);
        self.searched -= self.taken;
        self.taken = 0;
        self.buffer.extend_from_slice(chunk);
    }

    /// The next complete line; `None` until more chunks arrive.
    pub fn next_line(&mut self) -> Result<Option<&[u8]>, CallError> {
        match memchr::memchr(b'\n', &self.buffer[self.searched..]) {
            Some(at) => {
                let start = self.taken;
                let end = self.searched + at;
                self.taken = end + 1;
                self.searched = self.taken;
                Ok(Some(&self.buffer[start..end]))
            }
            None if self.buffer.len() - self.taken > OBJECT_BYTES_MAX => {
                let error = format!("a watch event of more than {OBJECT_BYTES_MAX} bytes");
                Err(CallError::Unreadable(error))
            }
            None if self.taken == self.buffer.len() && self.buffer.capacity() > KEPT_BYTES => {
                *self = Self::default();
                Ok(None)
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
    fn lines_are_complete_however_the_stream_is_cut() {
        let text = b"{\"a\":1}\n\n{\"b\":22}\n{\"c";
        for size in 1..=text.len() {
            let mut lines = Lines::default();
            let mut seen = Vec::new();
            for chunk in text.chunks(size) {
                lines.push(chunk);
                while let Some(line) = lines.next_line().unwrap() {
                    seen.push(String::from_utf8(line.to_vec()).unwrap());
                }
            }
            assert_eq!(seen, ["{\"a\":1}", "", "{\"b\":22}"], "chunks of {size} bytes");
        }
    }

    #[test]
    fn a_large_line_holds_no_room_once_it_was_taken() {
        let mut lines = Lines::default();
        lines.push(&[vec![b'x'; 200_000], b"\n".to_vec()].concat());
        assert_eq!(lines.next_line().unwrap().map(<[u8]>::len), Some(200_000));
        assert_eq!(lines.next_line().unwrap(), None);
        assert!(lines.buffer.capacity() <= KEPT_BYTES, "{}", lines.buffer.capacity());
        lines.push(b"next\n");
        assert_eq!(lines.next_line().unwrap(), Some(&b"next"[..]));
    }
}
