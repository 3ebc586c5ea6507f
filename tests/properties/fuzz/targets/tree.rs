//! JSON with every key of an object, repeated ones too.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};

/// A key as Go compares it with the name of a field.
pub(super) fn fold(key: &str) -> String {
    key.replace('\u{17f}', "s").replace('\u{212a}', "k").to_ascii_lowercase()
}

/// A JSON value.
#[derive(Debug, PartialEq)]
pub(super) enum Tree {
    Text(String),
    List(Vec<Tree>),
    Object(Vec<(String, Tree)>),
    /// `null`, a number, `true` or `false`.
    Other,
}

impl Tree {
    /// `None` where serde_json refuses the text, which it does with a lone surrogate and below 128
    /// levels, too.
    pub(super) fn read(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    /// Whether this holds for the keys of every object.
    pub(super) fn all_keys(&self, holds: &impl Fn(&[&str]) -> bool) -> bool {
        match self {
            Tree::Object(entries) => {
                let keys: Vec<_> = entries.iter().map(|(key, _)| key.as_str()).collect();
                holds(&keys) && entries.iter().all(|(_, value)| value.all_keys(holds))
            }
            Tree::List(values) => values.iter().all(|value| value.all_keys(holds)),
            Tree::Text(_) | Tree::Other => true,
        }
    }
}

impl<'de> Deserialize<'de> for Tree {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct AnyValue;
        impl<'de> Visitor<'de> for AnyValue {
            type Value = Tree;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("JSON")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Tree, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(Tree::Object(entries))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Tree, A::Error> {
                let mut values = Vec::new();
                while let Some(value) = seq.next_element()? {
                    values.push(value);
                }
                Ok(Tree::List(values))
            }

            fn visit_str<E>(self, text: &str) -> Result<Tree, E> {
                Ok(Tree::Text(text.to_owned()))
            }

            fn visit_unit<E>(self) -> Result<Tree, E> {
                Ok(Tree::Other)
            }

            fn visit_bool<E>(self, _: bool) -> Result<Tree, E> {
                Ok(Tree::Other)
            }

            fn visit_i64<E>(self, _: i64) -> Result<Tree, E> {
                Ok(Tree::Other)
            }

            fn visit_u64<E>(self, _: u64) -> Result<Tree, E> {
                Ok(Tree::Other)
            }

            fn visit_f64<E>(self, _: f64) -> Result<Tree, E> {
                Ok(Tree::Other)
            }
        }
        deserializer.deserialize_any(AnyValue)
    }
}
