//! A `core/v1` Event in JSON, with the fields that client-go sets.

use serde_json::{Value, json};

use crate::core::data::time::UnixMillis;
use crate::core::view::involved_object::InvolvedObject;

/// The Event's source.
const COMPONENT: &str = "throughline";

/// The longest message, in characters: `events.k8s.io/v1` accepts no more.
const MESSAGE_CHARS_MAX: usize = 1024;

/// How much of the object's name the Event's name keeps before the number: a name may have 253
/// characters.
const NAME_CHARS_MAX: usize = 236;

/// The object that an Event is about.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ObjectReference {
    pub api_version: String,
    pub kind: String,
    /// Also the Event's own namespace.
    pub namespace: String,
    pub name: String,
    /// Empty where it is not known.
    pub uid: String,
    /// Empty where it is not known.
    pub resource_version: String,
}

impl From<InvolvedObject> for ObjectReference {
    fn from(subject: InvolvedObject) -> Self {
        Self {
            api_version: subject.kind.api_version().to_owned(),
            kind: subject.kind.as_str().to_owned(),
            namespace: subject.object.namespace,
            name: subject.object.name,
            uid: subject.uid.unwrap_or_default(),
            resource_version: subject.resource_version.unwrap_or_default(),
        }
    }
}

/// The `type` of an Event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Severity {
    Normal,
    /// A person may have to do something.
    Warning,
}

impl Severity {
    pub const fn as_str(self) -> &'static str {
        match self {
            Severity::Normal => "Normal",
            Severity::Warning => "Warning",
        }
    }
}

/// An occurrence to report on an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventReport {
    pub at: UnixMillis,
    pub object: ObjectReference,
    pub severity: Severity,
    /// In CamelCase: `StalledMirror`.
    pub reason: &'static str,
    /// For people; without addresses and node ids.
    pub message: String,
}

/// An Event to create, or to update if it exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventWrite {
    /// The Event's own name.
    pub name: String,
    pub first_at: UnixMillis,
    /// The number of occurrences; above 1 the Event exists already.
    pub count: u32,
    /// The latest occurrence.
    pub report: EventReport,
}

impl EventWrite {
    /// The body of a POST.
    pub(super) fn event(&self) -> Value {
        let EventReport { at, object, severity, reason, .. } = &self.report;
        let mut involved = json!({
            "apiVersion": object.api_version,
            "kind": object.kind,
            "namespace": object.namespace,
            "name": object.name,
        });
        let known = [("uid", &object.uid), ("resourceVersion", &object.resource_version)];
        for (member, value) in known.into_iter().filter(|(_, value)| !value.is_empty()) {
            involved[member] = value.as_str().into();
        }
        json!({
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": self.name, "namespace": object.namespace},
            "involvedObject": involved,
            "reason": reason,
            "message": self.message(),
            "type": severity.as_str(),
            "source": {"component": COMPONENT},
            "reportingComponent": COMPONENT,
            "firstTimestamp": to_seconds(self.first_at),
            "lastTimestamp": to_seconds(*at),
            "count": self.count,
        })
    }

    /// The body of a PATCH: the fields that another occurrence changes.
    pub(super) fn patch(&self) -> Value {
        json!({
            "count": self.count,
            "lastTimestamp": to_seconds(self.report.at),
            "message": self.message(),
        })
    }

    fn message(&self) -> String {
        self.report.message.chars().take(MESSAGE_CHARS_MAX).collect()
    }
}

/// An Event's name: the object's name and a number that no other Event of the object has.
pub(super) fn event_name(object: &ObjectReference, number: u64) -> String {
    let name: String = object.name.chars().take(NAME_CHARS_MAX).collect();
    format!("{}.{number:016x}", name.trim_end_matches(['.', '-']))
}

/// RFC 3339 in whole seconds, which is the precision of an Event's times.
fn to_seconds(at: UnixMillis) -> String {
    let text = at.to_string();
    format!("{}Z", text.split('.').next().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_has_client_gos_fields() {
        let object = ObjectReference {
            api_version: "networking.datumapis.com/v1alpha1".into(),
            kind: "Connector".into(),
            namespace: "ns-1".into(),
            name: "home-lab".into(),
            uid: "u-1".into(),
            resource_version: "7".into(),
        };
        let at = UnixMillis(1_795_252_772_865);
        let severity = Severity::Warning;
        let message = "x".repeat(2_000);
        let report = EventReport { at, object, severity, reason: "StalledMirror", message };
        let name = event_name(&report.object, 255);
        let write = EventWrite { name, first_at: UnixMillis(at.0 - 60_000), count: 2, report };
        let event = write.event();
        assert_eq!(event["metadata"]["name"], "home-lab.00000000000000ff");
        assert_eq!(event["firstTimestamp"], "2026-11-21T09:18:32Z");
        assert_eq!(event["lastTimestamp"], "2026-11-21T09:19:32Z");
        assert_eq!(event["involvedObject"]["uid"], "u-1");
        assert_eq!(event["message"].as_str().map(str::len), Some(MESSAGE_CHARS_MAX));
        let patch = write.patch();
        assert_eq!(
            (&patch["count"], patch.as_object().map(serde_json::Map::len)),
            (&json!(2), Some(3))
        );
    }

    #[test]
    fn names_are_valid_for_an_api_server() {
        let object = |name: String| ObjectReference { name, ..ObjectReference::default() };
        assert!(event_name(&object("a".repeat(253)), u64::MAX).len() <= 253);
        assert_eq!(event_name(&object(format!("{}.b", "a".repeat(235))), 1).find(".."), None);
    }
}
