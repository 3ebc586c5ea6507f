//! A `core/v1` Event, with the fields that client-go sets.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use serde_json::{Value, json};

use crate::core::data::time::UnixMillis;
use crate::core::view::involved_object::InvolvedObject;

/// The Event's source.
const COMPONENT: &str = "throughline";

/// The longest message that `events.k8s.io/v1` accepts.
const MESSAGE_BYTES_MAX: usize = 1024;

/// The characters of the object's name that the Event's name keeps before the number: an object's name
/// may have 253 characters.
const NAME_CHARS_MAX: usize = 236;

pub(super) fn reference(object: InvolvedObject) -> ObjectReference {
    ObjectReference {
        api_version: Some(object.kind.api_version().to_owned()),
        kind: Some(object.kind.as_str().to_owned()),
        namespace: Some(object.object.namespace().to_owned()),
        name: Some(object.object.name().to_owned()),
        uid: object.uid,
        ..ObjectReference::default()
    }
}

/// A new Event. `number` must be unique among the Events about the object.
pub(super) fn event(
    at: UnixMillis,
    object: ObjectReference,
    (event_type, reason): (&str, String),
    message: &str,
    number: u64,
) -> Event {
    let name: String = object.name.iter().flat_map(|n| n.chars()).take(NAME_CHARS_MAX).collect();
    let name = format!("{}.{number:016x}", name.trim_end_matches(['.', '-']));
    let source = EventSource { component: Some(COMPONENT.to_owned()), host: None };
    Event {
        metadata: ObjectMeta {
            name: Some(name),
            namespace: object.namespace.clone(),
            ..ObjectMeta::default()
        },
        involved_object: object,
        reason: Some(reason),
        message: Some(shortened(message)),
        type_: Some(event_type.to_owned()),
        source: Some(source),
        reporting_component: Some(COMPONENT.to_owned()),
        first_timestamp: Some(time(at)),
        last_timestamp: Some(time(at)),
        count: Some(1),
        ..Event::default()
    }
}

/// A repetition of the Event.
pub fn again(event: &Event, at: UnixMillis, message: &str) -> Event {
    Event {
        message: Some(shortened(message)),
        last_timestamp: Some(time(at)),
        count: event.count.map(|count| count.saturating_add(1)),
        ..event.clone()
    }
}

/// The fields that change.
pub(super) fn patch(event: &Event) -> Value {
    let Event { count, last_timestamp, message, .. } = event;
    json!({ "count": count, "lastTimestamp": last_timestamp, "message": message })
}

pub(super) fn shortened(message: &str) -> String {
    message[..message.floor_char_boundary(MESSAGE_BYTES_MAX)].to_owned()
}

fn time(at: UnixMillis) -> Time {
    let ms = i64::try_from(at.0).unwrap_or(i64::MAX);
    Time(Timestamp::from_millisecond(ms).unwrap_or(Timestamp::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_cut_between_characters_and_a_name_is_valid_for_an_api_server() {
        for name in ["a".repeat(253), format!("{}.b", "a".repeat(235))] {
            let object = ObjectReference { name: Some(name), ..ObjectReference::default() };
            let about = ("Warning", "NotMirrored".to_owned());
            let event = event(UnixMillis(0), object, about, &"€".repeat(1_000), u64::MAX);
            assert_eq!(event.message.unwrap().len(), MESSAGE_BYTES_MAX - 1);
            let name = event.metadata.name.unwrap();
            assert!(name.len() <= 253 && !name.contains(".."), "{name}");
        }
    }
}
