//! Liveness: the part of a Connector's status that routing depends on, read exactly as the edge's
//! extension server reads it.
//!
//! The extension server decodes with Go's `encoding/json` into a struct. Go decodes a repeated key
//! *into the value that the first one left*, so one status may be composed of several parts, and Go
//! refuses the whole document if any known field has a wrong type. This decoder does the same in
//! one pass: it keeps the fields that liveness depends on, and checks the types of the others.

use crate::data::time::go_rfc3339_millis;
use crate::status::digest::Digest;
use crate::status::go_json::{GO_DEPTH_MAX, Reader};
use crate::status::trigger::connector_part;

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Liveness {
    /// Whether the condition of type `Ready` has status `True`.
    pub online: bool,
    /// The id of the tunnel node; empty when offline, or when the connection's type is not
    /// `PublicKey`.
    pub node_id: Box<str>,
}

/// A hash of a liveness; equal if two route alike. One in 4 thousand million changes is not
/// recognized, and then is late by `mirror.deferMs`. It is short because tables hold two for each
/// hub Connector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Routing(u32);

/// A status or a status annotation without its text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StatusDigest {
    /// All fields.
    pub(crate) all: Digest,
    /// The fields that edges route by; `None` if the status cannot be decoded.
    pub(crate) routing: Option<Routing>,
}

impl Liveness {
    pub(crate) fn routing(&self) -> Routing {
        // Half of a good hash is a good hash.
        Routing(connector_part("", self.online, &self.node_id) as u32)
    }
}

/// Reads the annotation if it is present and can be decoded, else the live status. Without either,
/// the connector is offline.
pub fn read(annotation: Option<&str>, live: Option<&str>) -> Liveness {
    annotation.and_then(decode).or_else(|| live.and_then(decode)).unwrap_or_default()
}

/// Decodes one Connector status document; `None` when Go's `encoding/json` would refuse it.
pub fn decode(document: &str) -> Option<Liveness> {
    let mut reader = Reader::new(document, GO_DEPTH_MAX);
    let mut status = Status::default();
    status.decode(&mut reader)?;
    reader.end()?;
    Some(status.liveness())
}

/// The fields of a ConnectorStatus that liveness depends on.
#[derive(Default)]
struct Status {
    conditions: Conditions,
    details: Option<Details>,
}

/// A Go slice of conditions. Go keeps the elements beyond `len`: they reappear when a repeated key
/// makes the slice longer again.
#[derive(Default)]
struct Conditions {
    list: Vec<Condition>,
    len: usize,
}

#[derive(Clone, Copy, Default)]
struct Condition {
    is_ready: bool,
    is_true: bool,
}

#[derive(Default)]
struct Details {
    is_public_key: bool,
    /// `publicKey.id`; `None` without a public key.
    node_id: Option<Box<str>>,
}

impl Status {
    fn liveness(self) -> Liveness {
        let conditions = self.conditions.list.get(..self.conditions.len).unwrap_or_default();
        let online = conditions.iter().find(|c| c.is_ready).is_some_and(|c| c.is_true);
        let details = self.details.filter(|details| online && details.is_public_key);
        Liveness { online, node_id: details.and_then(|d| d.node_id).unwrap_or_default() }
    }

    fn decode(&mut self, reader: &mut Reader<'_>) -> Option<()> {
        const FIELDS: &[&str] = &["conditions", "connectionDetails", "capabilities", "leaseRef"];
        if null(reader)? {
            return Some(());
        }
        reader.object(|r, key| match field(&key, FIELDS) {
            "conditions" => self.conditions.decode(r),
            "connectionDetails" => Details::decode(&mut self.details, r),
            "capabilities" => list(r, |r, _| {
                structure(r, |r, key| match field(key, &["type", "conditions"]) {
                    "type" => string(r),
                    "conditions" => list(r, |r, _| Condition::default().decode(r)),
                    _ => r.skip().map(drop),
                })
            }),
            "leaseRef" => structure(r, |r, key| match field(key, &["name"]) {
                "name" => string(r),
                _ => r.skip().map(drop),
            }),
            _ => r.skip().map(drop),
        })
    }
}

impl Conditions {
    /// `decodeState.array` of `encoding/json/decode.go`.
    fn decode(&mut self, reader: &mut Reader<'_>) -> Option<()> {
        self.len = 0;
        list(reader, |r, i| {
            if i == self.list.len() {
                self.list.push(Condition::default());
            }
            self.len = i + 1;
            self.list.get_mut(i)?.decode(r)
        })?;
        if self.len == 0 {
            // After `null` and `[]`, Go starts with a new slice.
            self.list.clear();
        }
        Some(())
    }
}

impl Condition {
    fn decode(&mut self, reader: &mut Reader<'_>) -> Option<()> {
        const FIELDS: &[&str] =
            &["type", "status", "reason", "message", "lastTransitionTime", "observedGeneration"];
        structure(reader, |r, key| match field(key, FIELDS) {
            "type" => text(r, |text| self.is_ready = text == "Ready"),
            "status" => text(r, |text| self.is_true = text == "True"),
            "reason" | "message" => string(r),
            "lastTransitionTime" => {
                let mut is_time = true;
                text(r, |text| is_time = go_rfc3339_millis(text).is_some())?;
                is_time.then_some(())
            }
            "observedGeneration" => integer::<i64>(r),
            _ => r.skip().map(drop),
        })
    }
}

impl Details {
    fn decode(details: &mut Option<Self>, reader: &mut Reader<'_>) -> Option<()> {
        if null(reader)? {
            *details = None;
            return Some(());
        }
        let details = details.get_or_insert_default();
        structure(reader, |r, key| match field(key, &["type", "publicKey"]) {
            "type" => text(r, |text| details.is_public_key = text == "PublicKey"),
            "publicKey" => public_key(&mut details.node_id, r),
            _ => r.skip().map(drop),
        })
    }
}

fn public_key(node_id: &mut Option<Box<str>>, reader: &mut Reader<'_>) -> Option<()> {
    const FIELDS: &[&str] = &["id", "discoveryMode", "homeRelay", "addresses"];
    if null(reader)? {
        *node_id = None;
        return Some(());
    }
    let node_id = node_id.get_or_insert_default();
    structure(reader, |r, key| match field(key, FIELDS) {
        "id" => text(r, |text| *node_id = text.into()),
        "discoveryMode" | "homeRelay" => string(r),
        "addresses" => list(r, |r, _| {
            structure(r, |r, key| match field(key, &["address", "port"]) {
                "address" => string(r),
                "port" => integer::<i32>(r),
                _ => r.skip().map(drop),
            })
        }),
        _ => r.skip().map(drop),
    })
}

/// The struct field that a key selects, exactly or by Go's case folding; empty if there is none.
fn field(key: &str, fields: &[&'static str]) -> &'static str {
    let exact = fields.iter().find(|field| **field == key);
    exact.or_else(|| fields.iter().find(|field| folds_to(key, field))).copied().unwrap_or_default()
}

/// `foldName` of `encoding/json/fold.go`: letters match in either case, and in all of Unicode only
/// U+017F (ſ) and U+212A (the Kelvin sign) also fold to ASCII letters.
pub fn folds_to(key: &str, field: &str) -> bool {
    let folded = key.chars().map(|c| match c {
        '\u{17f}' => 's',
        '\u{212a}' => 'k',
        c => c.to_ascii_lowercase(),
    });
    folded.eq(field.chars().map(|c| c.to_ascii_lowercase()))
}

/// Reads a `null` if it comes next; returns whether it did.
fn null(reader: &mut Reader<'_>) -> Option<bool> {
    Some(reader.peek()? == b'n' && reader.word().map(|_| true)?)
}

/// A struct, or `null`.
fn structure(
    reader: &mut Reader<'_>,
    mut each: impl FnMut(&mut Reader<'_>, &str) -> Option<()>,
) -> Option<()> {
    if null(reader)? { Some(()) } else { reader.object(|r, key| each(r, &key)) }
}

/// A slice, or `null`.
fn list(
    reader: &mut Reader<'_>,
    each: impl FnMut(&mut Reader<'_>, usize) -> Option<()>,
) -> Option<()> {
    if null(reader)? { Some(()) } else { reader.array(each) }
}

/// A string, which is passed to `then`, or `null`, which changes nothing.
fn text(reader: &mut Reader<'_>, then: impl FnOnce(&str)) -> Option<()> {
    if !null(reader)? {
        then(&reader.string()?);
    }
    Some(())
}

/// A string that liveness does not depend on, or `null`.
fn string(reader: &mut Reader<'_>) -> Option<()> {
    text(reader, |_| ())
}

/// An integer in the range of `T`, or `null`. Go refuses `1.0` and `1e3` as integers.
fn integer<T: std::str::FromStr>(reader: &mut Reader<'_>) -> Option<()> {
    if null(reader)? { Some(()) } else { reader.number()?.parse::<T>().ok().map(drop) }
}
