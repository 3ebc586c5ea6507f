//! The fields of a Connector that a writer owns, out of those that determine its liveness.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

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

const STATUS: &str = "f:status";
const METADATA: &str = "f:metadata";
const ANNOTATIONS: &str = "f:annotations";

impl Serialize for LivenessFields {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serde_json::Map::new();
        if self.annotation {
            let annotation = serde_json::json!({ format!("f:{UPSTREAM_STATUS}"): {} });
            fields.insert(METADATA.into(), serde_json::json!({ ANNOTATIONS: annotation }));
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
        let fields = Box::<RawValue>::deserialize(deserializer)?;
        let fields = subsets(&fields);
        let metadata = fields.get(METADATA).map(|raw| subsets(raw)).unwrap_or_default();
        let annotations = metadata.get(ANNOTATIONS).map(|raw| subsets(raw)).unwrap_or_default();
        Ok(Self {
            status: fields.contains_key(STATUS),
            annotation: annotations.contains_key(&format!("f:{UPSTREAM_STATUS}")),
        })
    }
}

/// The fields in a set, each with its own subset as text. Any other value has none.
fn subsets(fields: &RawValue) -> BTreeMap<String, &RawValue> {
    serde_json::from_str(fields.get()).unwrap_or_default()
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
