//! What an event log says was deleted, as manifests that bring it back.

use std::collections::BTreeMap;
use std::io::BufRead;

use serde_json::{Map, Value};

use crate::core::event::{Event, Happened, Outcome};
use crate::event_log::{Line, LogError, Reader};

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

/// An object that was deleted.
#[derive(Clone, Debug, PartialEq)]
pub struct Deleted {
    /// The object, without what API servers set: `kubectl create -f` takes it.
    pub manifest: Value,
    /// The delete was answered; if not, it may not have been carried out.
    pub answered: bool,
}

/// Every object that the log says was deleted, as it last was, by namespace and name.
///
/// # Errors
/// The log can't be read.
pub fn restore<R: BufRead>(reader: &mut Reader<R>) -> Result<Vec<Deleted>, LogError> {
    let mut found = BTreeMap::new();
    while let Some(line) = reader.next_line()? {
        let Line::Event(Event { what: Happened::ActionFinished { outcome, .. }, .. }) = line else {
            continue;
        };
        let (text, answered) = match outcome {
            Outcome::Applied { deleted: Some(text), .. } => (text, true),
            Outcome::Unanswered { deleted: Some(text), .. } => (text, false),
            _ => continue,
        };
        let Ok(Value::Object(object)) = serde_json::from_str(&text) else { continue };
        let manifest = manifest(object);
        let name = |member: &str| manifest["metadata"][member].as_str().map(str::to_owned);
        let key = (name("namespace"), name("name"));
        found.insert(key, Deleted { manifest, answered });
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
