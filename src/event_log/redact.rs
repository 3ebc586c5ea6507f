//! Redaction: stand-ins for addresses and keys, such that the log leads to the same decisions.
//!
//! | what | where | its stand-in |
//! |---|---|---|
//! | a node id | `id` within `connectionDetails`; after the `/` of the platform's key | `redacted-` and the hash that a digest takes of it, so that triggers stay what they are ([`node_stand_in`]) |
//! | an address, a relay | any other text within `connectionDetails`, but its `type` and `discoveryMode`; `address`, `addresses`, `homeRelay`, `publicKey` anywhere in a status | `~` and a hash with a key that this process draws |
//! | a URL, an IP address, a host with its port | texts called `error` | the same |
//! | an annotation that is no JSON object | the status annotation | the same, and undecodable as well |
//!
//! A status is rewritten in place, be it a Connector's own or the text of an annotation: the order
//! of its members, blanks and all other bytes stay. Equal values have equal stand-ins and others
//! have others. A stand-in is spelled as long as its value, because the limit of annotations counts
//! bytes; only a value shorter than 7 bytes, or a node id shorter than 41, gets a longer one. Ports stay, as
//! does all that is not named here: names, namespaces, clusters, uids, messages of conditions.
//!
//! Whoever knows a node id can find it in a redacted log. Whoever does not can't tell it from its
//! hash, because it is a public key: 256 bits that nobody can guess.

use std::borrow::Cow;
use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use serde_json::value::RawValue;

use crate::core::action::Decision;
use crate::core::event::{Event, Happened, Outcome};
use crate::core::liveness::folds_to;
use crate::core::objects::{Body, Object, PLATFORM_KEY, UPSTREAM_STATUS};
use crate::core::spelling::{self, GO_DEPTH_MAX, Reader, SPELL_DEPTH_MAX};
use crate::core::trigger::node_stand_in;

/// Members of a status below which every text is an address or a key …
const HIDING: [&str; 5] = ["connectionDetails", "publicKey", "addresses", "address", "homeRelay"];
/// … but for these, on which decoding and people depend.
const SHOWN: [&str; 2] = ["type", "discoveryMode"];

/// How many characters of 6 bits stand for a hash of 64: all of them, and at least so many.
const HASH_CHARS: (usize, usize) = (6, 11);
const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// Replaces addresses and keys by stand-ins. Two redactors give the same address different ones.
#[derive(Debug, Default)]
pub struct Redactor {
    key: RandomState,
}

/// What a text at some place of a status is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Text {
    Shown,
    NodeId,
    Address,
}

impl Text {
    /// Of what stands below the member `key`.
    fn below(self, key: &str) -> Self {
        let is = |names: &[&str]| names.iter().any(|name| folds_to(key, name));
        match self {
            Text::Shown if !is(&HIDING) => Text::Shown,
            Text::Shown => Text::Address,
            _ if is(&SHOWN) => Text::Shown,
            _ if is(&["id"]) => Text::NodeId,
            _ => Text::Address,
        }
    }
}

impl Redactor {
    /// With a key of its own.
    pub fn new() -> Self {
        Self::default()
    }

    /// What entered the machine, redacted.
    pub fn event<'a>(&self, event: &'a Event) -> Cow<'a, Event> {
        let what = match &event.what {
            Happened::Listed { cluster, object } => self
                .object(object)
                .map(|object| Happened::Listed { cluster: cluster.clone(), object }),
            Happened::Applied { cluster, object } => self
                .object(object)
                .map(|object| Happened::Applied { cluster: cluster.clone(), object }),
            Happened::Deleted { cluster, object } => self
                .object(object)
                .map(|object| Happened::Deleted { cluster: cluster.clone(), object }),
            Happened::WatchLost { cluster, kind, error } => Some(Happened::WatchLost {
                cluster: cluster.clone(),
                kind: *kind,
                error: self.error(error),
            }),
            Happened::ActionFinished { id, outcome } => {
                self.outcome(outcome).map(|outcome| Happened::ActionFinished { id: *id, outcome })
            }
            Happened::ClusterAdded { .. }
            | Happened::ClusterRemoved { .. }
            | Happened::ListStarted { .. }
            | Happened::ListFinished { .. }
            | Happened::WatchResumed { .. }
            | Happened::WatchHeard { .. }
            | Happened::WentBack { .. }
            | Happened::LeadershipAcquired
            | Happened::LeadershipLost
            | Happened::TimedOut => None,
        };
        what.map_or(Cow::Borrowed(event), |what| Cow::Owned(Event { at: event.at, what }))
    }

    /// What left the machine, redacted: exactly what the machine decides on redacted events.
    pub fn decision<'a>(&self, decision: &'a Decision) -> Cow<'a, Decision> {
        let mut redacted = Cow::Borrowed(decision);
        for (i, (key, value)) in decision.action.annotations.iter().enumerate() {
            if let Some(value) = value
                && let Some(stand_in) = self.annotation(key, value)
                && let Some(place) = redacted.to_mut().action.annotations.get_mut(i)
            {
                place.1 = Some(stand_in);
            }
        }
        redacted
    }

    /// A status as JSON text, rewritten in place. What is no JSON, or nested 10,000 deep, becomes
    /// a text that is no JSON either.
    pub fn status(&self, text: &str) -> String {
        self.json(text).unwrap_or_else(|| self.stand_in(text, 0))
    }

    /// A text for people that may hold URLs, IP addresses and hosts with ports.
    pub fn error(&self, text: &str) -> String {
        let ends = |c: char| c.is_whitespace() || "\"'`<>".contains(c);
        let ends_no_url = |c: char| "(){},;=|".contains(c);
        let mut redacted = String::with_capacity(text.len());
        for piece in text.split_inclusive(ends) {
            if piece.contains("://") {
                self.word(piece, ends, &mut redacted);
            } else {
                for piece in piece.split_inclusive(ends_no_url) {
                    self.word(piece, |c| ends(c) || ends_no_url(c), &mut redacted);
                }
            }
        }
        redacted
    }

    fn word(&self, word: &str, ends: impl Fn(char) -> bool, redacted: &mut String) {
        // What a sentence puts after an address.
        let inner = word.trim_end_matches(|c| ends(c) || ".:-!?),;".contains(c));
        match address_in(inner).and_then(|address| Some((address, word.split_once(address)?))) {
            Some((address, (before, after))) => {
                redacted.push_str(before);
                redacted.push_str(&self.stand_in(address, address.len()));
                redacted.push_str(after);
            }
            None => redacted.push_str(word),
        }
    }

    fn object(&self, object: &Object) -> Option<Arc<Object>> {
        let mut redacted = Cow::Borrowed(object);
        if let Body::Connector { status: Some(status) } = &object.body {
            let text = status.get();
            let text = self.json(text).unwrap_or_else(|| self.without_meaning(text));
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

    fn outcome(&self, outcome: &Outcome) -> Option<Outcome> {
        match outcome {
            Outcome::Refused { error } => Some(Outcome::Refused { error: self.error(error) }),
            Outcome::Conflict { error } => Some(Outcome::Conflict { error: self.error(error) }),
            // The object is kept whole: it is there to be brought back.
            Outcome::Unanswered { error, deleted } => {
                Some(Outcome::Unanswered { error: self.error(error), deleted: deleted.clone() })
            }
            Outcome::Failed { error, retry_after_ms } => {
                Some(Outcome::Failed { error: self.error(error), retry_after_ms: *retry_after_ms })
            }
            Outcome::Applied { .. }
            | Outcome::Unchanged
            | Outcome::Superseded
            | Outcome::NotFound
            | Outcome::Dropped
            | Outcome::DryRun => None,
        }
    }

    fn annotation(&self, key: &str, value: &str) -> Option<String> {
        match key {
            UPSTREAM_STATUS => Some(self.status(value)),
            PLATFORM_KEY => Some(match value.split_once('/') {
                Some((online @ ("true" | "false"), id)) => format!("{online}/{}", node_id(id)),
                _ => self.text(Text::Address, value),
            }),
            _ => None,
        }
    }

    /// `None` when it is not JSON.
    fn json(&self, text: &str) -> Option<String> {
        let mut reader = Reader::new(text, GO_DEPTH_MAX);
        let first = reader.peek()?;
        if first == b'{' {
            let mut rewriter =
                Rewriter { redactor: self, text, out: String::with_capacity(text.len()), done: 0 };
            rewriter.value(&mut reader, Text::Shown, 0)?;
            reader.end()?;
            return Some(rewriter.finish());
        }
        let whole = reader.skip()?;
        reader.end()?;
        // No status, but a text or an array may hold anything. `null`, numbers and words may stay.
        Some(match spelling::spell(whole) {
            _ if !matches!(first, b'"' | b'[') => text.to_owned(),
            Some(spelled) => format!("\"{}\"", self.stand_in(&spelled, spelled.len() - 2)),
            None => self.without_meaning(whole),
        })
    }

    /// JSON that does not decode, and that can't be spelled as the mirror spells (its number is
    /// out of range): for what has no meaning either.
    fn without_meaning(&self, text: &str) -> String {
        format!("[1e999,\"{}\"]", self.stand_in(text, 0))
    }

    fn text(&self, what: Text, text: &str) -> String {
        match what {
            Text::Shown => text.to_owned(),
            Text::NodeId => node_id(text),
            Text::Address if text.is_empty() => String::new(),
            Text::Address => self.stand_in(text, spelled_bytes(text)),
        }
    }

    /// What stands for `text`: `bytes` long, if that is enough.
    fn stand_in(&self, text: &str, bytes: usize) -> String {
        let hash = self.key.hash_one(text);
        let (least, most) = HASH_CHARS;
        let chars = if bytes == 0 { most } else { bytes.saturating_sub(1).clamp(least, most) };
        let mut stand_in = String::from("~");
        for i in 0..chars {
            let six = (hash.rotate_left(6 * i as u32) & 63) as usize;
            stand_in.push(char::from(ALPHABET[six]));
        }
        format!("{stand_in:~<bytes$}")
    }
}

fn node_id(id: &str) -> String {
    if id.is_empty() { String::new() } else { node_stand_in(id, spelled_bytes(id)) }
}

/// How many bytes a text has as the mirror spells it, without its quotes.
fn spelled_bytes(text: &str) -> usize {
    let spelled = serde_json::to_string(text).ok().and_then(|json| spelling::spell(&json));
    spelled.map_or(text.len(), |spelled| spelled.len() - 2)
}

/// The part of a word that is a URL, an IP address or a host with its port.
fn address_in(word: &str) -> Option<&str> {
    if let Some(at) = word.find("://") {
        let scheme = |b: &u8| b.is_ascii_alphanumeric() || b"+-.".contains(b);
        let scheme = word.as_bytes().get(..at)?.iter().rev().take_while(|b| scheme(b)).count();
        return word.get(at - scheme..);
    }
    let bare = word.trim_matches(['[', ']', '-']);
    let is_ip = |text: &str| {
        let ip = text.split(['/', '%']).next().unwrap_or_default();
        ip.parse::<IpAddr>().is_ok()
    };
    if is_ip(bare) {
        return Some(bare);
    }
    let (host, port) = word.rsplit_once(':')?;
    let is_port = !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit());
    let is_host = host == "localhost"
        || (host.contains(['.', '-']) && host.contains(|c: char| c.is_ascii_alphanumeric()))
        || host.starts_with('[');
    (word.parse::<SocketAddr>().is_ok() || (is_port && is_host)).then_some(word)
}

/// Copies a text, but for what it replaces.
struct Rewriter<'a> {
    redactor: &'a Redactor,
    text: &'a str,
    out: String,
    /// How much of `text` was copied or replaced.
    done: usize,
}

impl<'a> Rewriter<'a> {
    fn value(&mut self, reader: &mut Reader<'a>, what: Text, depth: usize) -> Option<()> {
        match reader.peek()? {
            b'{' | b'[' if depth >= SPELL_DEPTH_MAX => {
                // No status goes so deep, and one that does has no meaning: nor shall this one.
                let start = reader.at();
                let stand_in = self.redactor.without_meaning(reader.skip()?);
                self.replace(start, reader.at(), &stand_in)
            }
            b'{' => reader.object(|r, key| self.value(r, what.below(&key), depth + 1)),
            b'[' => reader.array(|r, _| self.value(r, what, depth + 1)),
            b'"' => {
                let start = reader.at();
                let said = reader.string()?.get();
                if what == Text::Shown {
                    return Some(());
                }
                let stand_in = format!("\"{}\"", self.redactor.text(what, &said));
                self.replace(start, reader.at(), &stand_in)
            }
            _ => reader.skip().map(drop),
        }
    }

    fn replace(&mut self, start: usize, end: usize, by: &str) -> Option<()> {
        self.out.push_str(self.text.get(self.done..start)?);
        self.out.push_str(by);
        self.done = end;
        Some(())
    }

    fn finish(mut self) -> String {
        self.out.push_str(self.text.get(self.done..).unwrap_or_default());
        self.out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_keep_their_words_and_lose_their_addresses() {
        let redactor = Redactor::new();
        for (error, addresses) in [
            ("dial tcp 10.20.0.7:6443: connect: connection refused", &["10.20.0.7:6443"][..]),
            (
                "read tcp 10.0.0.1:52344->10.96.0.1:443: i/o timeout",
                &["10.0.0.1:52344", "10.96.0.1:443"],
            ),
            (
                "Get \"https://api.example.test/apis?x=1\": EOF",
                &["https://api.example.test/apis?x=1"],
            ),
            (
                "lookup of etcd-0.etcd:2379 failed, localhost:80, [::1]:443.",
                &["etcd-0.etcd:2379", "localhost:80", "[::1]:443"],
            ),
            (
                "no route to fe80::1%eth0 (2001:db8::7), 10.0.0.0/8",
                &["fe80::1%eth0", "2001:db8::7", "10.0.0.0/8"],
            ),
            (
                "tried (https://[2001:db8::1]:6443/x), ip=10.0.0.9",
                &["https://[2001:db8::1]:6443/x", "10.0.0.9"],
            ),
            ("größer: \u{2028}192.168.7.7!", &["192.168.7.7"]),
        ] {
            let mut expected = error.to_owned();
            for address in addresses {
                expected = expected.replace(address, &redactor.stand_in(address, address.len()));
            }
            assert_eq!(redactor.error(error), expected);
        }
        for kept in [
            "",
            "410 Gone\n\"too old\": expired",
            "connectors.networking.datumapis.com \"home-lab\" is forbidden: User \"system:x\" at 10:30:00, line:7",
            "https is off; a:b, :80, -:, [",
        ] {
            assert_eq!(redactor.error(kept), kept);
        }
    }
}
