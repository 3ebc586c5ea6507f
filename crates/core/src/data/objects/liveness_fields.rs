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
        let annotations = within(&fields, METADATA).and_then(|fields| within(fields, ANNOTATIONS));
        let annotation = format!("f:{UPSTREAM_STATUS}");
        Ok(Self {
            status: within(&fields, STATUS).is_some(),
            annotation: annotations.is_some_and(|fields| within(fields, &annotation).is_some()),
        })
    }
}

/// The subset of this name. The names within it are not read.
fn within<'a>(fields: &'a RawValue, name: &str) -> Option<&'a RawValue> {
    let fields: BTreeMap<String, &RawValue> = serde_json::from_str(fields.get()).ok()?;
    fields.get(name).copied()
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
