//! Reads the deleted objects from an event log, as manifests that create them again.

use std::collections::BTreeMap;
use std::io::BufRead;

use serde_json::{Map, Value};

use crate::core::contract::event::{Event, EventKind, Outcome};
use crate::event_log::{LogEntry, LogError, LogReader};

/// Members of `metadata` that the API server sets itself.
const SET_BY_SERVERS: [&str; 8] = [
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "managedFields",
    "selfLink",
];

#[derive(Clone, Debug, PartialEq)]
pub struct DeletedObject {
    /// The object without the fields that API servers set, as `kubectl create -f` accepts it.
    pub manifest: Value,
    /// Whether the API server confirmed the delete. If not, the object may still exist.
    pub confirmed: bool,
}

/// Every object whose delete the log records, as it was last, by namespace and name.
///
/// # Errors
/// The log can't be read.
pub fn deleted_objects<R: BufRead>(
    reader: &mut LogReader<R>,
) -> Result<Vec<DeletedObject>, LogError> {
    let mut found = BTreeMap::new();
    while let Some(line) = reader.next_line()? {
        let LogEntry::Event(Event { kind: EventKind::ActionFinished { outcome, .. }, .. }) = line
        else {
            continue;
        };
        let (text, confirmed) = match outcome {
            Outcome::Applied { deleted: Some(text), .. } => (text, true),
            Outcome::Unanswered { deleted: Some(text), .. } => (text, false),
            _ => continue,
        };
        let Ok(Value::Object(object)) = serde_json::from_str(&text) else { continue };
        let manifest = manifest(object);
        let name = |member: &str| manifest["metadata"][member].as_str().map(str::to_owned);
        let key = (name("namespace"), name("name"));
        found.insert(key, DeletedObject { manifest, confirmed });
    }
    Ok(found.into_values().collect())
}

fn manifest(mut object: Map<String, Value>) -> Value {
    object.remove("status");
    if let Some(Value::Object(metadata)) = object.get_mut("metadata") {
        metadata.retain(|member, _| !SET_BY_SERVERS.contains(&member.as_str()));
    }
    object.into()
}
