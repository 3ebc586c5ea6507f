//! Create, update, patch and delete, with the preconditions and errors of API servers.

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{Request, Response};
use serde_json::{Value, json};

use super::body::Body;
use super::json_patch;
use super::request::RequestTarget;
use super::resource::Resource;
use super::status::{Failure, FieldError, details, json_response};
use super::store::{LockedCluster, ServedObject, metadata};
use crate::ANNOTATION_LIMIT_BYTES;
use throughline_core::data::objects::{Body as ObjectBody, Object, WireObject};
use throughline_core::data::time::UnixMillis;

const MODIFIED: &str = "the object has been modified; please apply your changes to the latest \
                        version and try again";

/// A write request for one object.
pub(super) struct ObjectWrite<'a> {
    pub(super) target: &'a RequestTarget,
    /// The field manager.
    pub(super) manager: String,
}

type WriteResult = Result<Response<Body>, Failure>;

impl ObjectWrite<'_> {
    fn resource(&self) -> Resource {
        self.target.resource
    }

    pub(super) fn create(&self, cluster: &mut LockedCluster<'_>, body: &Bytes) -> WriteResult {
        let mut object = self.parse(body)?;
        let name = metadata(&object, "name").to_owned();
        let mut target = self.target.clone();
        target.name = Some(name.clone());
        if let Some(namespace) = &target.namespace {
            let given = metadata(&object, "namespace");
            if !given.is_empty() && given != namespace {
                return Err(Failure::bad_request(
                    "the namespace of the provided object does not match the namespace sent on \
                     the request",
                ));
            }
            if !cluster.has_namespace(namespace) {
                return Err(Failure::not_found(Resource::Namespaces, namespace));
            }
        }
        if name.is_empty() {
            let why = FieldError {
                reason: "FieldValueRequired",
                field: "metadata.name",
                message: "Required value: name or generateName is required",
            };
            return Err(Failure::invalid_object(self.resource(), self.resource().kind(), "", &why));
        }
        let key = target.key();
        if cluster.get(self.resource(), &key).is_some() {
            return Err(Failure::already_exists(self.resource(), &name));
        }
        let now = cluster.sim.now();
        let created = UnixMillis(now.0 / 1000 * 1000).to_string();
        let meta = &mut object["metadata"];
        for (member, value) in [
            ("namespace", key.namespace()),
            ("uid", ""),
            ("resourceVersion", ""),
            ("creationTimestamp", &created),
        ] {
            meta[member] = value.into();
        }
        for member in ["managedFields", "deletionTimestamp"] {
            meta[member] = Value::Null;
        }
        if self.resource() == Resource::Namespaces {
            if !meta["labels"].is_object() {
                meta["labels"] = json!({});
            }
            meta["labels"]["kubernetes.io/metadata.name"] = name.as_str().into();
        }
        if let Some(members) = object.as_object_mut() {
            // `status` is a subresource: only a write to `…/status` sets it.
            members.remove("status");
        }
        self.store(cluster, &target, object).map(|stored| json_response(201, &stored.to_value()))
    }

    pub(super) fn update(&self, cluster: &mut LockedCluster<'_>, body: &Bytes) -> WriteResult {
        let new = self.parse(body)?;
        let key = self.target.key();
        let resource = self.resource();
        let old = cluster.get(resource, &key);
        if old.is_none() && resource != Resource::Leases {
            return Err(Failure::not_found(resource, key.name()));
        }
        self.check_name(&new)?;
        let uid = metadata(&new, "uid");
        let old_uid = old.as_ref().map_or("", ServedObject::uid);
        if !uid.is_empty() && uid != old_uid {
            let why = format!(
                "Precondition failed: UID in precondition: {uid}, UID in object meta: {old_uid}"
            );
            return Err(Failure::conflict(resource, resource.plural(), key.name(), &why));
        }
        let Some(old) = old else {
            let stored = cluster.put_raw(resource, key, new);
            return Ok(json_response(201, &stored.to_value()));
        };
        if metadata(&new, "resourceVersion").is_empty() {
            let why = FieldError {
                reason: "FieldValueInvalid",
                field: "metadata.resourceVersion",
                message: "Invalid value: 0: must be specified for an update",
            };
            return Err(Failure::invalid_object(resource, resource.plural(), key.name(), &why));
        }
        self.replace(cluster, &old, new)
    }

    pub(super) fn patch(
        &self,
        cluster: &mut LockedCluster<'_>,
        request: &Request<Bytes>,
    ) -> WriteResult {
        let content_type = request.headers().get(CONTENT_TYPE).and_then(|t| t.to_str().ok());
        let content_type = content_type.and_then(|t| t.split(';').next()).unwrap_or_default();
        let is_json_patch = match content_type.trim() {
            "application/merge-patch+json" => false,
            "application/json-patch+json" => true,
            _ => return Err(Failure::unsupported_media_type(self.target.resource)),
        };
        let key = self.target.key();
        let Some(old) = cluster.get(self.resource(), &key) else {
            return Err(Failure::not_found(self.resource(), key.name()));
        };
        let undecodable = |error| Failure::bad_request(format!("error decoding patch: {error}"));
        let mut new = old.to_value();
        if is_json_patch {
            let operations: Vec<json_patch::Operation> =
                serde_json::from_slice(request.body()).map_err(undecodable)?;
            new = json_patch::apply(&new, &operations).ok_or_else(Failure::patch_does_not_apply)?;
        } else {
            merge(&mut new, serde_json::from_slice(request.body()).map_err(undecodable)?);
        }
        self.check_name(&new)?;
        self.replace(cluster, &old, new)
    }

    pub(super) fn delete(&self, cluster: &mut LockedCluster<'_>, body: &Bytes) -> WriteResult {
        let options: Value = match body.is_empty() {
            true => Value::Null,
            false => serde_json::from_slice(body)
                .map_err(|error| Failure::bad_request(error.to_string()))?,
        };
        let key = self.target.key();
        let resource = self.resource();
        let Some(old) = cluster.get(resource, &key) else {
            return Err(Failure::not_found(resource, key.name()));
        };
        let conflict = |why: &str| Failure::conflict(resource, resource.kind(), key.name(), why);
        if let Some(uid) = options["preconditions"]["uid"].as_str().filter(|u| *u != old.uid()) {
            return Err(conflict(&format!(
                "the UID in the precondition ({uid}) does not match the UID in record ({}). The \
                 object might have been deleted and then recreated",
                old.uid()
            )));
        }
        let version = options["preconditions"]["resourceVersion"].as_str();
        if let Some(version) = version.filter(|v| *v != old.version()) {
            return Err(conflict(&format!(
                "the ResourceVersion in the precondition ({version}) does not match the \
                 ResourceVersion in record ({}). The object might have been modified",
                old.version()
            )));
        }
        cluster.remove(resource, &key);
        let mut details = details(resource, resource.plural(), key.name());
        details["uid"] = old.uid().into();
        let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {},
            "status": "Success", "details": details});
        Ok(json_response(200, &status))
    }

    /// Parses a body as an object of this resource.
    fn parse(&self, body: &Bytes) -> Result<Value, Failure> {
        let object: Value = serde_json::from_slice(body)
            .map_err(|error| Failure::bad_request(format!("the body is not JSON: {error}")))?;
        let kind = self.resource().kind();
        let version = self.resource().api_version();
        // Built-in kinds may omit both.
        let may_omit = self.resource().is_built_in();
        let matches = |member: &str, want: &str| match object[member].as_str() {
            Some(text) => text == want,
            None => may_omit && object[member].is_null(),
        };
        if !object.is_object() || object["kind"].is_null() && !may_omit {
            let text = format!("the object provided is unrecognized (must be of type {kind})");
            return Err(Failure::bad_request(text));
        }
        for (what, member, want) in [("API version", "apiVersion", version), ("kind", "kind", kind)]
        {
            if !matches(member, want) {
                return Err(Failure::bad_request(format!(
                    "the {what} in the data ({}) does not match the expected {what} ({want})",
                    object[member].as_str().unwrap_or_default()
                )));
            }
        }
        Ok(object)
    }

    fn check_name(&self, object: &Value) -> Result<(), Failure> {
        let key = self.target.key();
        for (what, given, want) in [
            ("name", metadata(object, "name"), key.name()),
            ("namespace", metadata(object, "namespace"), key.namespace()),
        ] {
            let absent = given.is_empty() && what == "namespace";
            if !absent && given != want {
                return Err(Failure::bad_request(format!(
                    "the {what} of the object ({given}) does not match the {what} on the URL \
                     ({want})"
                )));
            }
        }
        Ok(())
    }

    /// Replaces `old` by `new` if the preconditions hold and something differs.
    fn replace(
        &self,
        cluster: &mut LockedCluster<'_>,
        old: &ServedObject,
        new: Value,
    ) -> WriteResult {
        let resource = self.resource();
        let key = old.key();
        let name = key.name();
        let before = old.to_value();
        let version = metadata(&new, "resourceVersion");
        if !version.is_empty() {
            version.parse::<u64>().map_err(|_| Failure::bad_version(version, false))?;
            if version != old.version() {
                return Err(Failure::conflict(resource, resource.plural(), name, MODIFIED));
            }
        }
        let uid = metadata(&new, "uid");
        if !uid.is_empty() && uid != old.uid() {
            let why = FieldError {
                reason: "FieldValueInvalid",
                field: "metadata.uid",
                message: &format!("Invalid value: {uid:?}: field is immutable"),
            };
            return Err(Failure::invalid_object(resource, resource.kind(), name, &why));
        }
        let mut new = new;
        if self.target.is_status {
            let status = new["status"].take();
            new = before.clone();
            new["status"] = status;
        } else {
            // Only the server sets these, and only `…/status` sets the status.
            for member in
                ["uid", "creationTimestamp", "deletionTimestamp", "managedFields", "namespace"]
            {
                new["metadata"][member] = before["metadata"][member].clone();
            }
            if resource.sim_kind().is_some() {
                new["status"] = before["status"].clone();
            }
        }
        new["metadata"]["resourceVersion"] = old.version().into();
        remove_empty(&mut new);
        if new == before {
            return Ok(json_response(200, &before));
        }
        let stored = self.store(cluster, self.target, new)?;
        Ok(json_response(200, &stored.to_value()))
    }

    fn store(
        &self,
        cluster: &mut LockedCluster<'_>,
        target: &RequestTarget,
        mut object: Value,
    ) -> Result<ServedObject, Failure> {
        let resource = target.resource;
        let key = target.key();
        remove_empty(&mut object);
        object["apiVersion"] = resource.api_version().into();
        object["kind"] = resource.kind().into();
        if resource.sim_kind().is_none() {
            return Ok(cluster.put_raw(resource, key, object));
        }
        let parsed: Result<WireObject, _> = serde_json::from_str(&object.to_string());
        let object = parsed
            .map_err(|e| e.to_string())
            .and_then(|wire| Object::try_from(wire).map_err(|error| error.to_string()));
        let mut object = object.map_err(|error| self.unreadable(&error))?;
        if object.meta.annotations.bytes() > ANNOTATION_LIMIT_BYTES {
            let why = FieldError {
                reason: "FieldValueTooLong",
                field: "metadata.annotations",
                message: &format!("Too long: may not be more than {ANNOTATION_LIMIT_BYTES} bytes"),
            };
            return Err(Failure::invalid_object(resource, resource.kind(), key.name(), &why));
        }
        if !target.is_status
            && let Some(ServedObject::Sim(old)) = cluster.get(resource, &key)
            && let ObjectBody::Connector { .. } = old.body
        {
            // A status keeps its exact text, including the order of its keys.
            object.body = old.body.clone();
        }
        cluster.put(object, &self.manager).ok_or_else(Failure::no_such_path)
    }

    fn unreadable(&self, error: &str) -> Failure {
        if self.target.name.is_none() {
            return Failure::bad_request(error);
        }
        let message = &format!("Invalid value: {error}");
        let why = FieldError { reason: "FieldValueInvalid", field: "patch", message };
        // API servers do not name an object that they cannot parse.
        Failure::invalid("", "", json!({}), &why)
    }
}

/// Applies a merge patch (RFC 7386).
fn merge(into: &mut Value, patch: Value) {
    let Value::Object(patch) = patch else {
        *into = patch;
        return;
    };
    if !into.is_object() {
        *into = json!({});
    }
    let Some(members) = into.as_object_mut() else { return };
    for (name, value) in patch {
        if value.is_null() {
            members.remove(&name);
        } else {
            merge(members.entry(name).or_insert(Value::Null), value);
        }
    }
}

/// Removes members that are equivalent to absent ones: objects are stored without them.
fn remove_empty(object: &mut Value) {
    let empty = |value: &Value| match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Object(members) => members.is_empty(),
        Value::Array(items) => items.is_empty(),
        _ => false,
    };
    if let Some(meta) = object["metadata"].as_object_mut() {
        meta.retain(|_, value| !empty(value));
    }
    if let Some(members) = object.as_object_mut() {
        members.retain(|_, value| !value.is_null());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The examples of RFC 7386, appendix A, that apply to objects.
    #[test]
    fn merge_patches_follow_the_rfc() {
        for (original, patch, result) in [
            (json!({"a": "b"}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": "b"}), json!({"b": "c"}), json!({"a": "b", "b": "c"})),
            (json!({"a": "b", "b": "c"}), json!({"a": null}), json!({"b": "c"})),
            (json!({"a": ["b"]}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": "c"}), json!({"a": ["b"]}), json!({"a": ["b"]})),
            (
                json!({"a": {"b": "c"}}),
                json!({"a": {"b": "d", "c": null}}),
                json!({"a": {"b": "d"}}),
            ),
            (json!({"e": null}), json!({"a": 1}), json!({"e": null, "a": 1})),
            (json!([1, 2]), json!({"a": "b", "c": null}), json!({"a": "b"})),
            (json!({}), json!({"a": {"bb": {"ccc": null}}}), json!({"a": {"bb": {}}})),
        ] {
            let mut into = original.clone();
            merge(&mut into, patch.clone());
            assert_eq!(into, result, "{original} with {patch}");
        }
    }
}
