//! JSON with every key of an object, repeated ones too.

use std::fmt;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};

/// A key as Go compares it with the name of a field.
pub(super) fn fold(key: &str) -> String {
    key.replace('\u{17f}', "s").replace('\u{212a}', "k").to_ascii_lowercase()
}

/// A JSON value.
#[derive(Debug, PartialEq, serde::Deserialize)]
#[serde(untagged)]
pub(super) enum Tree {
    Text(String),
    List(Vec<Tree>),
    Object(Entries),
    /// `null`, a number, `true` or `false`.
    Other(IgnoredAny),
}

#[derive(Debug, PartialEq)]
pub(super) struct Entries(pub(super) Vec<(String, Tree)>);

impl Tree {
    /// `None` where serde_json refuses the text, which it does with a lone surrogate and below 128
    /// levels, too.
    pub(super) fn read(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    /// Whether this holds for the keys of every object.
    pub(super) fn all_keys(&self, holds: &impl Fn(&[&str]) -> bool) -> bool {
        match self {
            Tree::Object(Entries(entries)) => {
                let keys: Vec<_> = entries.iter().map(|(key, _)| key.as_str()).collect();
                holds(&keys) && entries.iter().all(|(_, value)| value.all_keys(holds))
            }
            Tree::List(values) => values.iter().all(|value| value.all_keys(holds)),
            Tree::Text(_) | Tree::Other(_) => true,
        }
    }
}

impl<'de> Deserialize<'de> for Entries {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct EntriesVisitor;
        impl<'de> Visitor<'de> for EntriesVisitor {
            type Value = Entries;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Entries, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(Entries(entries))
            }
        }
        deserializer.deserialize_map(EntriesVisitor)
    }
}
