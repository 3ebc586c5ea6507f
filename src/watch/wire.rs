//! The wire format of lists and watches.

use kube::core::Status;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::client::{CallError, OBJECT_BYTES_MAX};
use crate::core::data::ids::{Kind, NamespacedName};
use crate::core::data::objects::{Object, WireObject};

/// The type of a watch event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum WatchEventType {
    Added,
    Modified,
    Deleted,
    /// Nothing else changed up to the resourceVersion of its object.
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

/// Why a JSON text is no object of the requested kind.
#[derive(Debug, thiserror::Error)]
pub enum NoObject {
    /// It names another kind or apiVersion. The request names the version, so another version of the
    /// same group is wrong, too: this is not the requested stream.
    #[error("{0}")]
    OtherType(CallError),
    /// Its name is empty if even that can't be read.
    #[error("{1}")]
    Unreadable(NamespacedName, Box<CallError>),
}

/// # Errors
/// The object names another type than `kind`. Items of built-in lists name no type.
pub fn check_type(object: &str, kind: Kind) -> Result<(), CallError> {
    #[derive(Default, Deserialize)]
    #[serde(default, rename_all = "camelCase")]
    struct Named {
        api_version: Value,
        kind: Value,
    }
    let named: Named = serde_json::from_str(object).unwrap_or_default();
    let asked_version = kind.api_version();
    let asked = kind.as_str();
    let version = named.api_version.as_str().unwrap_or(asked_version);
    let found = named.kind.as_str().filter(|kind| !kind.is_empty()).unwrap_or(asked);
    if (version, found) == (asked_version, asked) {
        return Ok(());
    }
    Err(CallError::Unreadable(format!(
        "{found} of {version} came where {asked} of {asked_version} was asked for; a proxy may mix answers"
    )))
}

/// Namespace and name of an otherwise unreadable object; empty if they can't be read either.
fn key(object: &str) -> NamespacedName {
    #[derive(Deserialize)]
    struct Named {
        metadata: ObjectName,
    }
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct ObjectName {
        namespace: String,
        name: String,
    }
    let named = serde_json::from_str(object).map(|Named { metadata }| metadata);
    let ObjectName { namespace, name } = named.unwrap_or_default();
    NamespacedName::new(namespace, name)
}

/// An object of the requested kind.
pub fn object(text: &str, kind: Kind) -> Result<Object, NoObject> {
    let error = match serde_json::from_str::<WireObject>(text) {
        Ok(wire) if wire.is_named(kind) => match wire.into_object_of(kind) {
            Ok(object) => return Ok(object),
            Err(error) => CallError::Unreadable(error.to_string()),
        },
        Ok(_) => CallError::Unreadable("an object of another type".to_owned()),
        Err(error) => unreadable(kind.as_str(), &error),
    };
    check_type(text, kind).map_err(NoObject::OtherType)?;
    Err(NoObject::Unreadable(key(text), Box::new(error)))
}

/// A deleted object, as [`object`]. Name and version are enough.
pub fn deleted(text: &str, kind: Kind) -> Result<Object, NoObject> {
    object(text, kind).or_else(|error| {
        let NoObject::Unreadable(name, _) = &error else { return Err(error) };
        let metadata = json!({
            "namespace": name.namespace(),
            "name": name.name(),
            "resourceVersion": version(text).unwrap_or_default(),
        });
        object(&json!({ "metadata": metadata }).to_string(), kind).map_err(|_| error)
    })
}

/// An item of a list, as [`object`].
///
/// # Errors
/// The list is broken. The inner error means that the item is no object.
pub fn item(text: &str, kind: Kind) -> Result<Result<Object, NoObject>, CallError> {
    let object = object(text, kind);
    if object.is_err() {
        // So far only quotes and brackets were checked.
        let _: IgnoredAny = serde_json::from_str(text).map_err(|e| unreadable("a list", &e))?;
    }
    Ok(object)
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

/// The capacity to keep after all lines were taken: a watch may deliver nothing for an hour after one
/// large object.
const KEPT_BYTES: usize = 64 * 1024;

/// Splits a stream of byte chunks into lines.
#[derive(Debug, Default)]
pub struct Lines {
    buffer: Vec<u8>,
    /// The length of the buffer's returned part.
    taken: usize,
    /// The length of the buffer's part searched for line breaks.
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
