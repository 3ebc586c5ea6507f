//! The fields of a Connector that a writer owns, out of those that determine its liveness.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Serialize, Serializer};

use crate::data::objects::keys::UPSTREAM_STATUS;

/// Read from `fieldsV1` of an entry of `managedFields`, and written in the same form.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LivenessFields {
    /// `.status`, or any field in it.
    pub status: bool,
    /// The status annotation.
    pub annotation: bool,
}

impl LivenessFields {
    pub(crate) fn any(self) -> bool {
        self.status || self.annotation
    }
}

const ANNOTATION: [&str; 3] =
    ["f:metadata", "f:annotations", "f:networking.datumapis.com/upstream-status"];
const STATUS: &str = "f:status";

impl Serialize for LivenessFields {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serde_json::Map::new();
        if self.annotation {
            let annotations = serde_json::json!({ ANNOTATION[2]: {} });
            fields.insert(ANNOTATION[0].into(), serde_json::json!({ ANNOTATION[1]: annotations }));
        }
        if self.status {
            fields.insert(STATUS.into(), serde_json::json!({}));
        }
        fields.serialize(serializer)
    }
}

/// Anything but a set of fields counts as empty, so that an unexpected entry does not make the
/// object unreadable.
impl<'de> Deserialize<'de> for LivenessFields {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        debug_assert_eq!(ANNOTATION[2].strip_prefix("f:"), Some(UPSTREAM_STATUS));
        let mut fields = Self::default();
        deserializer.deserialize_any(FieldSet { path: &ANNOTATION, fields: &mut fields })?;
        Ok(fields)
    }
}

/// A set of fields at some depth. Only the first name of `path` is read, and at the top also
/// `f:status`.
struct FieldSet<'a> {
    path: &'a [&'static str],
    fields: &'a mut LivenessFields,
}

impl<'de> DeserializeSeed<'de> for FieldSet<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for FieldSet<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a set of fields")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let [name, rest @ ..] = self.path else {
            while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
            return Ok(());
        };
        let is_top = self.path.len() == ANNOTATION.len();
        while let Some(key) = map.next_key_seed(OneOf([name, STATUS]))? {
            match key {
                Some(0) if rest.is_empty() => {
                    self.fields.annotation = true;
                    map.next_value::<IgnoredAny>()?;
                }
                Some(0) => map.next_value_seed(FieldSet { path: rest, fields: self.fields })?,
                key => {
                    self.fields.status |= is_top && key == Some(1);
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }
}

/// Reads which of two names a key is.
struct OneOf([&'static str; 2]);

impl<'de> DeserializeSeed<'de> for OneOf {
    type Value = Option<usize>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for OneOf {
    type Value = Option<usize>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a field")
    }

    fn visit_str<E>(self, key: &str) -> Result<Self::Value, E> {
        Ok(self.0.iter().position(|name| *name == key))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
mod tests {
    use super::*;

    #[test]
    fn only_the_status_and_its_annotation_count() {
        let annotation = r#"{"f:metadata":{"f:annotations":{".":{},"f:networking.datumapis.com/upstream-status":{}}}}"#;
        for (text, status, annotation) in [
            (r#"{"f:status":{"f:conditions":{}}}"#, true, false),
            (r#"{"f:metadata":{"f:labels":{"f:a":{}},"f:annotations":{"f:b":{}}}}"#, false, false),
            (annotation, false, true),
            (r#"{"f:metadata":{"f:status":{}},"f:spec":{"f:annotations":{}}}"#, false, false),
            ("{}", false, false),
            ("7", false, false),
            ("[1]", false, false),
            (r#"{"f:metadata":["f:annotations"]}"#, false, false),
        ] {
            let read: LivenessFields = serde_json::from_str(text).unwrap();
            assert_eq!(read, LivenessFields { status, annotation }, "{text}");
            let again = serde_json::to_string(&read).unwrap();
            assert_eq!(serde_json::from_str::<LivenessFields>(&again).unwrap(), read, "{again}");
        }
    }
}
