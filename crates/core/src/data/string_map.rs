//! A small map from strings to strings.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Labels or annotations, in the order of the object. A lookup scans them, as they are few.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StringMap(Vec<(Box<str>, Box<str>)>);

impl StringMap {
    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.iter().find(|(k, _)| **k == *key).map(|(_, v)| &**v)
    }

    /// Sets `key`, or removes it if `value` is `None`.
    pub fn set(&mut self, key: &str, value: Option<&str>) {
        let at = self.0.iter().position(|(k, _)| **k == *key);
        match (at, value) {
            (Some(i), Some(value)) => self.0[i].1 = value.into(),
            (Some(i), None) => drop(self.0.remove(i)),
            (None, Some(value)) => self.0.push((key.into(), value.into())),
            (None, None) => {}
        }
    }

    /// Replaces each value for which `by` returns another one.
    pub fn replace_values(&mut self, mut by: impl FnMut(&str, &str) -> Option<Box<str>>) {
        for (key, value) in &mut self.0 {
            if let Some(new) = by(key, value) {
                *value = new;
            }
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(k, v)| (&**k, &**v))
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The size of all keys and values, as the API server counts it for its limit.
    pub fn bytes(&self) -> usize {
        self.iter().map(|(k, v)| k.len() + v.len()).sum()
    }
}

impl<'a> FromIterator<(&'a str, &'a str)> for StringMap {
    fn from_iter<I: IntoIterator<Item = (&'a str, &'a str)>>(entries: I) -> Self {
        Self(entries.into_iter().map(|(k, v)| (k.into(), v.into())).collect())
    }
}

impl Serialize for StringMap {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}

impl<'de> Deserialize<'de> for StringMap {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl<'de> serde::de::Visitor<'de> for Visitor {
            type Value = StringMap;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a map of strings")
            }
            fn visit_unit<E>(self) -> Result<StringMap, E> {
                Ok(StringMap::default())
            }
            fn visit_map<A: serde::de::MapAccess<'de>>(
                self,
                mut map: A,
            ) -> Result<StringMap, A::Error> {
                let mut entries = Vec::new();
                // `null` is the empty string, as in Go.
                while let Some((key, value)) = map.next_entry::<_, Option<Box<str>>>()? {
                    entries.push((key, value.unwrap_or_default()));
                }
                Ok(StringMap(entries))
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}
