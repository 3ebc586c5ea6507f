//! A small map from strings to strings.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};

/// Labels or annotations.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct StringMap(BTreeMap<Box<str>, Box<str>>);

impl StringMap {
    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(|value| &**value)
    }

    /// Sets `key`, or removes it if `value` is `None`.
    pub fn set(&mut self, key: &str, value: Option<&str>) {
        match value {
            Some(value) => self.0.insert(key.into(), value.into()),
            None => self.0.remove(key),
        };
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

/// `null` is the empty string, or no entry at all, as in Go.
impl<'de> Deserialize<'de> for StringMap {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let entries = Option::<BTreeMap<Box<str>, Option<Box<str>>>>::deserialize(deserializer)?;
        let entries = entries.into_iter().flatten();
        Ok(Self(entries.map(|(key, value)| (key, value.unwrap_or_default())).collect()))
    }
}
