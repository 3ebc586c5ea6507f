//! Redaction: no address, key or token of a status or an error text is left.

use std::fmt;

use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use throughline::core::status::go_json::{canonical, reduce};
use throughline::core::status::liveness::{Liveness, decode};
use throughline::core::status::trigger::NodeIds;
use throughline::event_log::redact::Redactor;
use throughline::outside_text::{lines, one_line, without_secrets};

use super::json::fold;

/// One of each sort that error texts hold. None looks like a name.
const SECRETS: [&str; 8] = [
    "https://user:hunter2@198.51.100.7:6443/apis?x=1",
    "198.51.100.231:52344",
    "[2001:db8::7:42]:443",
    "connector-7.example.test:7443",
    "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJ4In0.c2lnbmF0dXJl",
    "ae58ff8833241ac82d6ff7611046ed67b5072d142c588d0063e942d9a75502b6",
    "AKIAIOSFODNN7EXAMPLE",
    "xoxb-2048-4096-AbCdEf",
];

/// Fields of a status below which every text is an address or a key, but for the two after them.
const HIDDEN: [&str; 5] = ["connectiondetails", "publickey", "addresses", "address", "homerelay"];
const PUBLIC: [&str; 2] = ["type", "discoverymode"];

pub(super) fn redaction(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    status(text);
    error_text(text);
}

fn status(text: &str) {
    let redactor = Redactor::new();
    let hidden = redactor.status(text);
    if let Ok(before @ Tree::Object(_)) = serde_json::from_str(text) {
        let after =
            serde_json::from_str(&hidden).unwrap_or_else(|_| panic!("{text} became {hidden}"));
        check_hidden(&redactor, &before, &after, false);
    }
    let shown = canonical(text);
    assert_eq!(canonical(&hidden), shown.as_deref().map(|text| redactor.status(text)), "{text}");
    assert_eq!(reduce(&hidden), reduce(text).map(|text| redactor.status(&text)), "{text}");
    let (shown, routes) = (decode(text), decode(&hidden));
    let part = |node_ids: NodeIds, live: Option<Liveness>| {
        live.map(|live| (live.online, node_ids.connector_part("lab", live.online, &live.node_id)))
    };
    let (shown, routes) = (part(NodeIds::Real, shown), part(NodeIds::Redacted, routes));
    assert_eq!(shown, routes, "{text} became {hidden}");
}

/// Compares two trees of the same form.
fn check_hidden(redactor: &Redactor, before: &Tree, after: &Tree, is_hidden: bool) {
    match (before, after) {
        (Tree::Object(before), Tree::Object(after)) if before.len() == after.len() => {
            for ((key, before), (same_key, after)) in before.iter().zip(after) {
                assert_eq!(key, same_key);
                let folded = fold(key);
                let is_public = is_hidden && PUBLIC.contains(&&*folded);
                let is_hidden = !is_public && (is_hidden || HIDDEN.contains(&&*folded));
                check_hidden(redactor, before, after, is_hidden);
            }
        }
        (Tree::List(before), Tree::List(after)) if before.len() == after.len() => {
            before.iter().zip(after).for_each(|(b, a)| check_hidden(redactor, b, a, is_hidden));
        }
        // A stand-in of an earlier redaction stays.
        (Tree::Text(before), Tree::Text(after)) if is_hidden => {
            let is_left = before == after && !before.is_empty() && !before.starts_with("redacted-");
            assert!(!is_left, "{before:?} is left");
        }
        (Tree::Text(before), Tree::Text(after)) => assert_eq!(&*redactor.error(before), after),
        // What is nested too deep is replaced as a whole, and so it has another form.
        (before, Tree::List(_)) if !matches!(before, Tree::List(_)) => {}
        (before, after) => {
            let is_replaced = matches!(after, Tree::List(after) if after.len() == 2);
            assert!(is_replaced || before == after || is_hidden, "{before:?} became {after:?}");
        }
    }
}

fn error_text(text: &str) {
    let redactor = Redactor::new();
    let half = (0..=text.len() / 2).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    let (before, after) = text.split_at(half);
    for secret in SECRETS.iter().filter(|secret| !text.contains(**secret)) {
        let text = format!("{before} {secret} {after}");
        for hidden in [without_secrets(&text), redactor.error(&text)] {
            assert!(!hidden.contains(secret), "{hidden:?} of {text:?}");
        }
    }
    let line = one_line(text);
    assert!(!line.contains(throughline::outside_text::is_deceptive), "{line:?}");
    assert_eq!(one_line(&line), line);
    assert_eq!(lines(text).replace('\n', "\\n"), line);
}

/// A JSON value, with every key of an object, repeated ones too. serde_json refuses a lone surrogate, and
/// what is nested deeper than 128 levels.
#[derive(Debug, PartialEq, serde::Deserialize)]
#[serde(untagged)]
enum Tree {
    Text(String),
    List(Vec<Tree>),
    Object(#[serde(deserialize_with = "entries")] Vec<(String, Tree)>),
    /// `null`, a number, `true` or `false`.
    Other(IgnoredAny),
}

fn entries<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<(String, Tree)>, D::Error> {
    struct Entries;
    impl<'de> Visitor<'de> for Entries {
        type Value = Vec<(String, Tree)>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            std::iter::from_fn(|| map.next_entry().transpose()).collect()
        }
    }
    deserializer.deserialize_map(Entries)
}
