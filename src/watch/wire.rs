//! Lists and watches as they are on the wire.

use std::borrow::Cow;

use bytes::Bytes;
use kube::core::Status;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::client::CallError;
use crate::core::data::ids::{Kind, ObjectKey};
use crate::core::data::objects::{Object, WireObject};

/// No watch event is longer than this, in bytes: etcd accepts objects of at most 1.5 MiB.
const LINE_BYTES_MAX: usize = 64 * 1024 * 1024;

/// One page of a list.
#[derive(Debug, Deserialize)]
pub(crate) struct Page<'a> {
    #[serde(borrow)]
    pub(crate) metadata: PageMeta<'a>,
    /// `null` where a server keeps no list of nothing, as Go writes it.
    #[serde(borrow, deserialize_with = "null_as_default")]
    pub(crate) items: Vec<&'a RawValue>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct PageMeta<'a> {
    /// Never empty.
    #[serde(borrow, rename = "resourceVersion", default, deserialize_with = "null_as_default")]
    pub(crate) resource_version: Cow<'a, str>,
    /// Where the next page begins; empty or absent on the last.
    #[serde(borrow, rename = "continue", default)]
    pub(crate) next: Option<Cow<'a, str>>,
}

/// The type of a watch event. The simulated API server writes it too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub(crate) enum WatchEventType {
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
pub(crate) struct WatchEvent<'a> {
    #[serde(rename = "type")]
    pub(crate) event_type: WatchEventType,
    #[serde(borrow)]
    pub(crate) object: &'a RawValue,
}

fn unreadable(what: &str, error: &serde_json::Error) -> CallError {
    CallError::Unreadable(format!("{what}: {error}"))
}

fn null_as_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}

/// A page that says from where to watch. Without a resourceVersion a watch would begin anywhere, and
/// changes between list and watch would be missed.
pub(crate) fn page(bytes: &Bytes) -> Result<Page<'_>, CallError> {
    let page: Page<'_> = serde_json::from_slice(bytes).map_err(|e| unreadable("a list", &e))?;
    if page.metadata.resource_version.is_empty() {
        let error = "a list without metadata.resourceVersion cannot be followed; whatever answers \
                     there is no Kubernetes API server, or something between changes its answers";
        return Err(CallError::Unreadable(error.to_owned()));
    }
    Ok(page)
}

pub(crate) fn watch_event(line: &[u8]) -> Result<WatchEvent<'_>, CallError> {
    serde_json::from_slice(line).map_err(|e| unreadable("a watch event", &e))
}

/// An object whose kind is known from the request: in lists of built-in kinds, the items do not name
/// theirs.
pub(crate) fn object(text: &str, kind: Kind) -> Result<Object, CallError> {
    let wire: WireObject = serde_json::from_str(text).map_err(|e| unreadable(kind.as_str(), &e))?;
    wire.into_object_of(kind).map_err(|e| CallError::Unreadable(e.to_string()))
}

/// Namespace and name of an object that can't be read otherwise; empty where not even they can.
pub(crate) fn key(object: &str) -> ObjectKey {
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

pub(crate) fn version(object: &str) -> Result<String, CallError> {
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
pub(crate) fn status(object: &str) -> CallError {
    match serde_json::from_str::<Status>(object) {
        Ok(status) => CallError::of_status(status, None),
        Err(error) => unreadable("an ERROR event", &error),
    }
}

/// Splits a stream of byte chunks into lines.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    buffer: Vec<u8>,
    /// How much of the buffer has been returned.
    taken: usize,
    /// How much of the buffer has been searched for line breaks.
    searched: usize,
}

impl Lines {
    pub(crate) fn push(&mut self, chunk: &[u8]) {
        self.buffer.drain(..self.taken);
        self.searched -= self.taken;
        self.taken = 0;
        if self.buffer.is_empty() && self.buffer.capacity() > 64 * 1024 {
            // One large object must not hold its memory for ever.
            self.buffer = Vec::new();
        }
        self.buffer.extend_from_slice(chunk);
    }

    /// The next complete line; `None` until more chunks arrive.
    pub(crate) fn next(&mut self) -> Result<Option<&[u8]>, CallError> {
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
    fn a_list_of_nothing_may_be_null_but_must_be_there() {
        let read =
            |text: &'static str| page(&Bytes::from_static(text.as_bytes())).map(|p| p.items.len());
        let versioned = r#"{"metadata":{"resourceVersion":"7"},"items":null}"#;
        assert_eq!(read(versioned), Ok(0));
        assert!(read(r#"{"metadata":{"resourceVersion":"7"}}"#).is_err());
        for text in [
            r#"{"metadata":{},"items":[]}"#,
            r#"{"metadata":{"resourceVersion":""},"items":[]}"#,
            r#"{"metadata":{"resourceVersion":null},"items":[]}"#,
        ] {
            let error = read(text).unwrap_err().to_string();
            assert!(error.contains("resourceVersion"), "{error}");
        }
    }

    #[test]
    fn lines_are_complete_however_the_stream_is_cut() {
        let text = b"{\"a\":1}\n\n{\"b\":22}\n{\"c";
        for size in 1..=text.len() {
            let mut lines = Lines::default();
            let mut seen = Vec::new();
            for chunk in text.chunks(size) {
                lines.push(chunk);
                while let Some(line) = lines.next().unwrap() {
                    seen.push(String::from_utf8(line.to_vec()).unwrap());
                }
            }
            assert_eq!(seen, ["{\"a\":1}", "", "{\"b\":22}"], "chunks of {size} bytes");
        }
    }
}
