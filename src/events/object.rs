//! A `core/v1` Event in JSON, with the fields that client-go sets.

use serde_json::{Value, json};

use crate::core::data::time::UnixMillis;
use crate::core::view::involved_object::InvolvedObject;

/// The Event's source.
const COMPONENT: &str = "throughline";

/// `events.k8s.io/v1` accepts no longer message.
const MESSAGE_BYTES_MAX: usize = 1024;

/// How much of the object's name the Event's name keeps before the number: a name may have 253
/// characters.
const NAME_CHARS_MAX: usize = 236;

/// The object that an Event is about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectReference {
    pub api_version: String,
    pub kind: String,
    /// Also the Event's own namespace.
    pub namespace: String,
    pub name: String,
    /// Empty where it is not known.
    pub uid: String,
}

impl From<InvolvedObject> for ObjectReference {
    fn from(object: InvolvedObject) -> Self {
        Self {
            api_version: object.kind.api_version().to_owned(),
            kind: object.kind.as_str().to_owned(),
            namespace: object.object.namespace,
            name: object.object.name,
            uid: object.uid.unwrap_or_default(),
        }
    }
}

/// The `type` of an Event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventType {
    Normal,
    /// A person may have to do something.
    Warning,
}

/// An Event to create, or to patch if it exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventWrite {
    /// The Event's own name.
    name: String,
    pub(super) object: ObjectReference,
    event_type: EventType,
    /// In CamelCase: `NotMirrored`.
    reason: String,
    pub(super) message: String,
    first_at: UnixMillis,
    last_at: UnixMillis,
    /// How often it was posted; above 1 it exists already.
    pub(super) count: u32,
}

impl EventWrite {
    pub(super) fn new(
        at: UnixMillis,
        object: ObjectReference,
        (event_type, reason): (EventType, String),
        message: &str,
        number: u64,
    ) -> Self {
        let name: String = object.name.chars().take(NAME_CHARS_MAX).collect();
        let name = format!("{}.{number:016x}", name.trim_end_matches(['.', '-']));
        let (message, count) = (shortened(message), 1);
        Self { name, object, event_type, reason, message, first_at: at, last_at: at, count }
    }

    /// The same Event, once more.
    #[must_use]
    pub fn again(&self, at: UnixMillis, message: &str) -> Self {
        let count = self.count.saturating_add(1);
        Self { message: shortened(message), last_at: at, count, ..self.clone() }
    }

    /// Where to patch it.
    pub(super) fn path(&self) -> String {
        format!("{}/{}", self.collection(), self.name)
    }

    /// Where to create it.
    pub(super) fn collection(&self) -> String {
        format!("/api/v1/namespaces/{}/events", self.object.namespace)
    }

    /// The body of a POST.
    pub(super) fn event(&self) -> Value {
        let Self { object, .. } = self;
        let mut involved = json!({
            "apiVersion": object.api_version,
            "kind": object.kind,
            "namespace": object.namespace,
            "name": object.name,
        });
        if !object.uid.is_empty() {
            involved["uid"] = object.uid.as_str().into();
        }
        json!({
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": self.name, "namespace": object.namespace},
            "involvedObject": involved,
            "reason": self.reason,
            "message": self.message,
            "type": format!("{:?}", self.event_type),
            "source": {"component": COMPONENT},
            "reportingComponent": COMPONENT,
            "firstTimestamp": to_seconds(self.first_at),
            "lastTimestamp": to_seconds(self.last_at),
            "count": self.count,
        })
    }

    /// The body of a PATCH: the fields that change.
    pub(super) fn patch(&self) -> Value {
        json!({
            "count": self.count,
            "lastTimestamp": to_seconds(self.last_at),
            "message": self.message,
        })
    }
}

pub(super) fn shortened(message: &str) -> String {
    message[..message.floor_char_boundary(MESSAGE_BYTES_MAX)].to_owned()
}

/// RFC 3339 in whole seconds, which is the precision of an Event's times.
fn to_seconds(at: UnixMillis) -> String {
    let text = at.to_string();
    format!("{}Z", text.split('.').next().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(name: String, message: &str, number: u64) -> EventWrite {
        let object = ObjectReference { name, uid: "u-1".into(), ..ObjectReference::default() };
        let about = (EventType::Warning, "NotMirrored".to_owned());
        EventWrite::new(UnixMillis(1_795_252_712_865), object, about, message, number)
    }

    #[test]
    fn an_event_has_client_gos_fields() {
        let event = event("home-lab".into(), "m", 255);
        let event = event.again(UnixMillis(1_795_252_772_865), &"ä".repeat(1_000));
        let created = event.event();
        assert_eq!(created["metadata"]["name"], "home-lab.00000000000000ff");
        assert_eq!(created["firstTimestamp"], "2026-11-21T09:18:32Z");
        assert_eq!(created["lastTimestamp"], "2026-11-21T09:19:32Z");
        assert_eq!((&created["type"], &created["count"]), (&json!("Warning"), &json!(2)));
        assert_eq!(created["involvedObject"]["uid"], "u-1");
        assert_eq!(created["message"].as_str().map(str::len), Some(MESSAGE_BYTES_MAX));
        let patch = event.patch();
        let fields = patch.as_object().map(serde_json::Map::len);
        assert_eq!((&patch["count"], fields), (&json!(2), Some(3)));
    }

    #[test]
    fn names_are_valid_for_an_api_server() {
        assert!(event("a".repeat(253), "m", u64::MAX).name.len() <= 253);
        assert!(!event(format!("{}.b", "a".repeat(235)), "m", 1).name.contains(".."));
    }
}
