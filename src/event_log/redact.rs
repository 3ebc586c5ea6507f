//! Redaction: replaces addresses and keys in a log without changing the machine's decisions.
//!
//! | value | place | replacement |
//! |---|---|---|
//! | a node id | `id` in `connectionDetails`; after the `/` in the platform's key | `redacted-` and the hash that enters the digest, so that triggers keep their values ([`node_stand_in`]) |
//! | an address, a relay | any other string in `connectionDetails` except `type` and `discoveryMode`; `address`, `addresses`, `homeRelay`, `publicKey` anywhere in a status | `~` and a hash, keyed with a random secret of this process |
//! | a URL, an IP address, a host with its port, the value of a name that contains secret, key, token or password | `error` texts; any other string of a status, such as a condition's message | the same |
//! | a node id | the same places | as above |
//! | an annotation that is not a JSON object | the status annotation | the same; it stays undecodable |
//!
//! A status, whether a Connector's or the text of an annotation, is rewritten in place: the order of
//! its fields, its blanks and all other bytes remain. Equal values get equal replacements, and
//! different values different ones. A replacement is as long as its value, because the size limit of
//! annotations counts bytes; only a value shorter than 7 bytes, or a node id shorter than 41, gets a
//! longer one. Ports remain, and so does everything outside the table: names, namespaces, clusters,
//! uids.
//!
//! A node id that looks like a replacement is replaced like any other: the writer of a status can
//! choose any value.
//!
//! A reader who knows a node id can find it in a redacted log. No one can recover it from its hash,
//! because it is a public key: 256 bits that can't be guessed.

use std::borrow::Cow;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use serde_json::value::RawValue;

use super::line::{Line, LineObject, Text};
use crate::core::contract::action::AnnotationBefore;
use crate::core::data::objects::{Body, Object, PLATFORM_KEY, UPSTREAM_STATUS};
use crate::core::status::go_json::{self, CANONICAL_DEPTH_MAX, GO_DEPTH_MAX, Reader};
use crate::core::status::liveness::folds_to;
use crate::core::status::trigger::{node_stand_in, padded};
use crate::outside_text::{Secret, replace_secrets};

/// In a status, every string below these fields is an address or a key …
const HIDDEN_FIELDS: [&str; 5] =
    ["connectionDetails", "publicKey", "addresses", "address", "homeRelay"];
/// … except these, which decoding and people need.
const PUBLIC_FIELDS: [&str; 2] = ["type", "discoveryMode"];

/// The fewest and the most characters, of 6 bits each, for a 64-bit hash; eleven contain all of it.
const HASH_CHARS: (usize, usize) = (6, 11);
const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// Replaces addresses and keys. Two redactors replace the same address differently.
#[derive(Debug, Default)]
pub struct Redactor {
    key: RandomState,
}

/// How to treat a string in a status, by its path.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sensitivity {
    Public,
    NodeId,
    Address,
}

impl Sensitivity {
    /// The sensitivity of strings below the field `key`.
    fn below(self, key: &str) -> Self {
        let is = |names: &[&str]| names.iter().any(|name| folds_to(key, name));
        match self {
            Sensitivity::Public if !is(&HIDDEN_FIELDS) => Sensitivity::Public,
            Sensitivity::Public => Sensitivity::Address,
            _ if is(&PUBLIC_FIELDS) => Sensitivity::Public,
            _ if is(&["id"]) => Sensitivity::NodeId,
            _ => Sensitivity::Address,
        }
    }
}

impl Redactor {
    /// A redactor with a random key.
    pub fn new() -> Self {
        Self::default()
    }

    /// Redacts a text for people: an error, or a condition's message.
    pub fn error<'a>(&self, text: &'a str) -> Cow<'a, str> {
        replace_secrets(text, |secret, part| match secret {
            // The same replacement as elsewhere in the log, so that a node can be traced.
            Secret::NodeId => node_id(part),
            Secret::Address | Secret::Value => self.stand_in(part, canonical_bytes(part)),
        })
    }

    /// Redacts a line. A redacted action equals the machine's decision on the redacted events.
    pub(super) fn line(&self, line: &mut Line<'_>) {
        if let Some(LineObject(Ok(object))) = &mut line.object
            && let Some(redacted) = self.object(object)
        {
            *object = redacted;
        }
        if let Some(action) = &mut line.action {
            let action = action.to_mut();
            for (key, value) in &mut action.annotations {
                *value = value.take().map(|value| self.annotation(key, &value).unwrap_or(value));
            }
            if let Some(AnnotationBefore { key, value, .. }) =
                action.precondition.annotation.as_deref_mut()
            {
                *value = value.take().map(|value| self.annotation(key, &value).unwrap_or(value));
            }
        }
        if let Some(Text(error)) = &mut line.error
            && let Cow::Owned(redacted) = self.error(error)
        {
            *error = Cow::Owned(redacted);
        }
    }

    /// A status as JSON text, rewritten in place. Text that is not JSON, or is nested 10,000 deep,
    /// becomes other text that is not JSON.
    pub fn status(&self, text: &str) -> String {
        self.json(text).unwrap_or_else(|| self.stand_in(text, 0))
    }

    fn object(&self, object: &Object) -> Option<Arc<Object>> {
        let mut redacted = Cow::Borrowed(object);
        if let Body::Connector { status: Some(status) } = &object.body {
            let text = status.get();
            let text = self.json(text).unwrap_or_else(|| self.undecodable(text));
            let status = RawValue::from_string(text).ok();
            redacted.to_mut().body = Body::Connector { status };
        }
        for (key, value) in object.meta.annotations.iter() {
            if let Some(stand_in) = self.annotation(key, value) {
                redacted.to_mut().meta.annotations.set(key, Some(&stand_in));
            }
        }
        match redacted {
            Cow::Borrowed(_) => None,
            Cow::Owned(object) => Some(Arc::new(object)),
        }
    }

    fn annotation(&self, key: &str, value: &str) -> Option<String> {
        match key {
            UPSTREAM_STATUS => Some(self.status(value)),
            PLATFORM_KEY => Some(match value.split_once('/') {
                Some((online @ ("true" | "false"), id)) => format!("{online}/{}", node_id(id)),
                _ => self.string(Sensitivity::Address, value),
            }),
            _ => None,
        }
    }

    /// `None` if the text is not JSON.
    fn json(&self, text: &str) -> Option<String> {
        let mut reader = Reader::new(text, GO_DEPTH_MAX);
        let first = reader.peek()?;
        if first == b'{' {
            let mut rewriter = Rewriter {
                redactor: self,
                text,
                out: String::with_capacity(text.len()),
                done_bytes: 0,
            };
            rewriter.value(&mut reader, Sensitivity::Public, 0)?;
            reader.end()?;
            return Some(rewriter.finish());
        }
        let whole = reader.skip()?;
        reader.end()?;
        // Not a status. A string or an array may contain any text; `null`, numbers and booleans remain.
        Some(match go_json::canonical(whole) {
            _ if !matches!(first, b'"' | b'[') => text.to_owned(),
            Some(text) => format!("\"{}\"", self.stand_in(&text, text.len() - 2)),
            None => self.undecodable(whole),
        })
    }

    /// JSON that neither decodes nor has a canonical form (its number is out of range), as a
    /// replacement for JSON with the same property.
    fn undecodable(&self, text: &str) -> String {
        format!("[1e999,\"{}\"]", self.stand_in(text, 0))
    }

    fn string(&self, sensitivity: Sensitivity, text: &str) -> String {
        match sensitivity {
            Sensitivity::Public => text.to_owned(),
            Sensitivity::NodeId => node_id(text),
            Sensitivity::Address if text.is_empty() => String::new(),
            Sensitivity::Address => self.stand_in(text, canonical_bytes(text)),
        }
    }

    /// A public string of a status as JSON, if it must be replaced.
    fn message(&self, text: &str) -> Option<String> {
        let Cow::Owned(redacted) = self.error(text) else { return None };
        let json = serde_json::to_string(&redacted).ok()?;
        // In the mirror's spelling.
        Some(go_json::canonical(&json).unwrap_or(json))
    }

    /// The replacement for `text`, with a length of `bytes` if that is enough.
    fn stand_in(&self, text: &str, bytes: usize) -> String {
        let hash = self.key.hash_one(text);
        let (least, most) = HASH_CHARS;
        let chars = if bytes == 0 { most } else { bytes.saturating_sub(1).clamp(least, most) };
        let mut stand_in = String::from("~");
        for i in 0..chars {
            let six = (hash.rotate_left(6 * i as u32) & 63) as usize;
            stand_in.push(char::from(ALPHABET[six]));
        }
        padded(stand_in, '~', bytes)
    }
}

fn node_id(id: &str) -> String {
    if id.is_empty() { String::new() } else { node_stand_in(id, canonical_bytes(id)) }
}

/// The length of a string in the mirror's JSON, without its quotes.
fn canonical_bytes(text: &str) -> usize {
    let canonical = serde_json::to_string(text).ok().and_then(|json| go_json::canonical(&json));
    canonical.map_or(text.len(), |canonical| canonical.len() - 2)
}

/// Copies a text with some parts replaced.
struct Rewriter<'a> {
    redactor: &'a Redactor,
    text: &'a str,
    out: String,
    /// How many bytes of `text` were copied or replaced.
    done_bytes: usize,
}

impl<'a> Rewriter<'a> {
    fn value(
        &mut self,
        reader: &mut Reader<'a>,
        sensitivity: Sensitivity,
        depth: usize,
    ) -> Option<()> {
        match reader.peek()? {
            b'{' | b'[' if depth >= CANONICAL_DEPTH_MAX => {
                // No valid status is nested so deep. One that is does not decode, so its replacement
                // must not decode either.
                let start = reader.at();
                let stand_in = self.redactor.undecodable(reader.skip()?);
                self.replace(start, reader.at(), &stand_in)
            }
            b'{' => reader.object(|r, key| self.value(r, sensitivity.below(&key), depth + 1)),
            b'[' => reader.array(|r, _| self.value(r, sensitivity, depth + 1)),
            b'"' => {
                let start = reader.at();
                let text = reader.string()?;
                if sensitivity == Sensitivity::Public {
                    let Some(message) = self.redactor.message(&text) else { return Some(()) };
                    return self.replace(start, reader.at(), &message);
                }
                let stand_in = format!("\"{}\"", self.redactor.string(sensitivity, &text));
                self.replace(start, reader.at(), &stand_in)
            }
            _ => reader.skip().map(drop),
        }
    }

    fn replace(&mut self, start: usize, end: usize, by: &str) -> Option<()> {
        self.out.push_str(self.text.get(self.done_bytes..start)?);
        self.out.push_str(by);
        self.done_bytes = end;
        Some(())
    }

    fn finish(mut self) -> String {
        self.out.push_str(self.text.get(self.done_bytes..).unwrap_or_default());
        self.out
    }
}
