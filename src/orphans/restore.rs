//! Reads the deleted routes from `FILE.deleted.jsonl`, as manifests that create them again.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context;
use serde_json::Value;

use crate::core::contract::cause::Cause;
use crate::core::contract::route_origin::origin_of;
use crate::core::data::ids::{Kind, NamespacedName, Uid};
use crate::core::data::objects::{Object, WireObject};
use crate::core::data::time::UnixMillis;
use crate::live_log::{DeletedRouteLine, deleted_routes_file};
use crate::outside_text::brief;

/// Members of `metadata` in a manifest. The API server sets the others.
const METADATA: [&str; 5] = ["namespace", "name", "labels", "annotations", "ownerReferences"];

#[derive(Clone, Debug, PartialEq)]
pub struct DeletedRoute {
    /// The route without the fields that API servers set; `kubectl create -f` accepts it.
    pub manifest: Value,
    pub deleted_at: UnixMillis,
    /// Whether the API server confirmed the delete. If not, the route may still exist.
    pub confirmed: bool,
}

/// The deleted routes in a file.
#[derive(Debug, Default)]
pub struct DeletedRoutesFound {
    /// The last version of each route.
    pub routes: BTreeMap<NamespacedName, DeletedRoute>,
    /// Lines that throughline does not write, each with the reason.
    pub skipped: Vec<String>,
}

/// Every route whose delete is recorded in `file`, or in the backup beside the event log `file`.
///
/// # Errors
/// The backup can't be read.
pub fn deleted_routes(file: &str) -> anyhow::Result<DeletedRoutesFound> {
    let is_backup = file.ends_with(".deleted.jsonl");
    let file = Path::new(file);
    let file = if is_backup { file.to_owned() } else { deleted_routes_file(file) };
    let bytes = std::fs::read(&file).with_context(|| file.display().to_string())?;
    let mut found = DeletedRoutesFound::default();
    let mut deletes = BTreeMap::new();
    for (number, line) in String::from_utf8_lossy(&bytes).lines().enumerate() {
        let skip = |why: String| format!("{}:{}: {}", file.display(), number + 1, brief(&why));
        match serde_json::from_str::<DeletedRouteLine<'_>>(line) {
            Ok(DeletedRouteLine { at_ms, deleted: Some(route), .. }) => match manifest(route.get())
            {
                Ok((uid, key, manifest)) => drop(deletes.insert(uid, (key, manifest, at_ms, None))),
                Err(why) => found.skipped.push(skip(why)),
            },
            Ok(DeletedRouteLine { uid: Some(uid), outcome: Some(outcome), .. }) => {
                if let Some((_, _, _, end)) = deletes.get_mut(&*uid) {
                    *end = Some(outcome.into_owned());
                }
            }
            Ok(_) => found.skipped.push(skip("it holds neither a route nor an outcome".to_owned())),
            Err(_) if line.trim().is_empty() => {}
            Err(why) => found.skipped.push(skip(why.to_string())),
        }
    }
    for (key, manifest, deleted_at, outcome) in deletes.into_values() {
        let confirmed = match outcome.as_deref() {
            Some("applied") => true,
            Some("unanswered") | None => false,
            // The API server stated that the route stays, or nothing was sent.
            Some(_) => continue,
        };
        if found.routes.get(&key).is_none_or(|known| known.deleted_at <= deleted_at) {
            found.routes.insert(key, DeletedRoute { manifest, deleted_at, confirmed });
        }
    }
    Ok(found)
}

/// Uid, name and manifest of a route that throughline may have deleted. The file may come from another
/// writer, and only such routes may reach `kubectl create`.
fn manifest(text: &str) -> Result<(String, NamespacedName, Value), String> {
    let mut value: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let text_of = |member: &Value| member.as_str().unwrap_or("?").to_owned();
    let metadata = &value["metadata"];
    let uid = text_of(&metadata["uid"]);
    let key = NamespacedName::new(text_of(&metadata["namespace"]), text_of(&metadata["name"]));
    let name = format!("{} {key}", text_of(&value["kind"]));
    let wire: Result<WireObject, _> = serde_json::from_str(text);
    let route = wire.map_err(|error| format!("{name}: {error}"))?;
    let route = Object::try_from(route).map_err(|error| format!("{name}: {error}"))?;
    if route.kind() != Kind::HttpRoute {
        return Err(format!("{name}: throughline deletes only HTTPRoutes"));
    }
    if !Uid::names_hub_namespace(key.namespace()) {
        return Err(format!("{name}: throughline deletes only in namespaces ns-<uid>"));
    }
    origin_of(&route).map_err(|cause| {
        let cause = cause.unwrap_or(Cause::RouteNotOrphaned).as_str();
        format!("{name}: throughline deletes no such route: {cause}")
    })?;
    if let Some(metadata) = value["metadata"].as_object_mut() {
        metadata.retain(|member, _| METADATA.contains(&member.as_str()));
    }
    let members = ["apiVersion", "kind", "metadata", "spec"];
    let members = members.map(|member| (member.to_owned(), value[member].take()));
    Ok((uid, key, members.into_iter().collect()))
}
