//! Reads the deleted routes from the backup, as manifests that create them again.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Map, Value};

use crate::core::data::ids::Kind;
use crate::core::data::objects::{Object, WireObject};
use crate::core::data::time::UnixMillis;
use crate::core::orphans::route::origin_of;
use crate::event_log::DeletedRouteEntry;
use crate::live_log::deleted_routes_file;

/// What a manifest has; a status, for example, is the API server's.
const MEMBERS: [&str; 4] = ["apiVersion", "kind", "metadata", "spec"];

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
pub struct DeletedRoute {
    /// The route without the fields that API servers set, as `kubectl create -f` accepts it.
    pub manifest: Value,
    pub deleted_at: UnixMillis,
    /// Whether the API server confirmed the delete. If not, the route may still exist.
    pub confirmed: bool,
}

/// What was found.
#[derive(Debug, Default)]
pub struct DeletedRoutesFound {
    /// Each as it was last, by namespace and name.
    pub routes: Vec<DeletedRoute>,
    /// Objects that throughline does not delete, each with the reason: none of them is printed.
    pub skipped: Vec<String>,
    pub warnings: Vec<String>,
}

/// Every route whose delete is recorded in a backup: `file` is one, or the event log beside it.
///
/// # Errors
/// The backup can't be read.
pub fn deleted_routes(file: &str) -> anyhow::Result<DeletedRoutesFound> {
    let mut collected = Collected::default();
    if file.ends_with(".deleted.jsonl") {
        collected.read_backup(Path::new(file))?;
    } else {
        collected.read_backup(&deleted_routes_file(Path::new(file)))?;
    }
    Ok(collected.finish())
}

/// A delete, as far as it is known.
struct RecordedDelete {
    at: UnixMillis,
    text: String,
    /// The outcome's name; `None` if it is not known.
    outcome: Option<String>,
}

/// What the files say, by the route's uid.
#[derive(Default)]
struct Collected {
    deletes: BTreeMap<String, RecordedDelete>,
    warnings: Vec<String>,
}

impl Collected {
    fn read_backup(&mut self, file: &Path) -> anyhow::Result<()> {
        let bytes = std::fs::read(file)
            .map_err(|error| anyhow::anyhow!("{}: can't be read: {error}", file.display()))?;
        for (i, line) in bytes.split(|byte| *byte == b'\n').enumerate() {
            let line = line.trim_ascii();
            if line.is_empty() {
                continue;
            }
            let text = String::from_utf8_lossy(line);
            match DeletedRouteEntry::parse(&text) {
                Ok(DeletedRouteEntry::Route { at, text }) => self.add(at, text, None),
                Ok(DeletedRouteEntry::End { uid, outcome }) => {
                    if let Some(delete) = self.deletes.get_mut(&uid) {
                        delete.outcome = Some(outcome);
                    }
                }
                Err(error) => self.warnings.push(format!(
                    "{}:{}: this line can't be read, and is left out: {error}",
                    file.display(),
                    i + 1
                )),
            }
        }
        Ok(())
    }

    fn add(&mut self, at: UnixMillis, text: String, outcome: Option<String>) {
        let key = uid_of(&text).unwrap_or_else(|| text.clone());
        let delete = RecordedDelete { at, text, outcome };
        match self.deletes.get_mut(&key) {
            // A uid is deleted only once.
            Some(known) if known.outcome.as_deref() == Some("applied") => {}
            Some(known) => *known = delete,
            None => drop(self.deletes.insert(key, delete)),
        }
    }

    fn finish(self) -> DeletedRoutesFound {
        let (mut routes, mut skipped) = (BTreeMap::<_, DeletedRoute>::new(), Vec::new());
        for RecordedDelete { at, text, outcome } in self.deletes.into_values() {
            let confirmed = match outcome.as_deref() {
                Some("applied") => true,
                Some("unanswered") | None => false,
                // The API server said that the route stays, or nothing was sent.
                Some(_) => continue,
            };
            match manifest(&text) {
                Ok(manifest) => {
                    let name =
                        |member: &str| manifest["metadata"][member].as_str().map(str::to_owned);
                    let key = (name("namespace"), name("name"));
                    let route = DeletedRoute { manifest, deleted_at: at, confirmed };
                    if routes.get(&key).is_none_or(|known| known.deleted_at <= at) {
                        routes.insert(key, route);
                    }
                }
                Err(why) => skipped.push(why),
            }
        }
        let routes = routes.into_values().collect();
        DeletedRoutesFound { routes, skipped, warnings: self.warnings }
    }
}

fn uid_of(text: &str) -> Option<String> {
    let object: Value = serde_json::from_str(text).ok()?;
    object["metadata"]["uid"].as_str().map(str::to_owned)
}

/// The manifest of a route that throughline may have deleted. A log can hold anything; nothing else
/// may reach `kubectl create`. The error names the object.
fn manifest(text: &str) -> Result<Value, String> {
    let Ok(Value::Object(mut object)) = serde_json::from_str::<Value>(text) else {
        return Err("an object that is not JSON".to_owned());
    };
    let name = name_of(&object);
    let wire: Result<WireObject, _> = serde_json::from_str(text);
    let route = wire.map_err(|error| format!("{name}: {error}"))?;
    let route = Object::try_from(route).map_err(|error| format!("{name}: {error}"))?;
    if route.kind() != Kind::HttpRoute {
        return Err(format!("{name}: throughline deletes only HTTPRoutes"));
    }
    origin_of(&route)
        .map_err(|keep| format!("{name}: throughline deletes no such route: {keep}"))?;
    object.retain(|member, _| MEMBERS.contains(&member.as_str()));
    if let Some(Value::Object(metadata)) = object.get_mut("metadata") {
        metadata.retain(|member, _| !SET_BY_SERVERS.contains(&member.as_str()));
    }
    Ok(object.into())
}

/// Kind and name, with whatever a terminal would act on escaped.
fn name_of(object: &Map<String, Value>) -> String {
    let text = |value: Option<&Value>| {
        let text = value.and_then(Value::as_str).unwrap_or("?");
        text.chars().take(253).collect::<String>().escape_debug().to_string()
    };
    let metadata = |member: &str| object.get("metadata").and_then(|metadata| metadata.get(member));
    let namespace =
        metadata("namespace").map(|namespace| text(Some(namespace)) + "/").unwrap_or_default();
    format!("{} {namespace}{}", text(object.get("kind")), text(metadata("name")))
}
