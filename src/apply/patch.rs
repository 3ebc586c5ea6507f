//! A write of annotations: one request, and the outcome that its answer proves.
//!
//! Usually a merge patch with uid and resourceVersion. If the precondition is on an annotation rather
//! than on the object, it is a JSON Patch that tests the annotation's value: API servers apply it to
//! the current object, so other writers can't block it.

use std::collections::BTreeMap;
use std::time::Duration;

use http::Request;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{METADATA_ONLY, object_path, server_timeout, uid_and_version};
use crate::client::{CallError, with_body};
use crate::core::contract::action::{Action, AnnotationBefore};
use crate::core::contract::error_cause::{ErrorCause, RequestFailure};
use crate::core::contract::event::Outcome;
use crate::core::data::objects::FIELD_MANAGER;
use crate::core::status::digest::Digest;

/// Whether an object has annotations at all: no single JSON Patch covers both cases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AnnotationMap {
    Present,
    Absent,
}

pub(super) fn merge_patch(
    action: &Action,
    timeout: Duration,
) -> Result<Request<Vec<u8>>, CallError> {
    let mut metadata = uid_and_version(action);
    let annotations = action.annotations.iter().map(|(k, v)| (k.clone(), json!(v)));
    metadata.insert("annotations".to_owned(), Value::Object(annotations.collect()));
    let body = json!({ "metadata": metadata });
    patch(action, "application/merge-patch+json", &body, timeout)
}

/// A JSON Patch that fails unless the uid and the annotation match the precondition. A `test` for
/// `null` succeeds if the member is missing, but not if its parent object is missing, too.
pub(super) fn json_patch(
    action: &Action,
    before: &AnnotationBefore,
    map: AnnotationMap,
    timeout: Duration,
) -> Result<Request<Vec<u8>>, CallError> {
    let path = |key: &str| format!("/metadata/annotations/{}", escaped(key));
    let mut operations = Vec::new();
    if let Some(uid) = &action.precondition.uid {
        operations.push(json!({"op": "test", "path": "/metadata/uid", "value": uid}));
    }
    if map == AnnotationMap::Absent {
        let set =
            action.annotations.iter().filter_map(|(k, v)| Some((k.clone(), json!(v.as_ref()?))));
        let set = Value::Object(set.collect());
        operations.push(json!({"op": "test", "path": "/metadata/annotations", "value": null}));
        operations.push(json!({"op": "add", "path": "/metadata/annotations", "value": set}));
    } else {
        operations.push(json!({"op": "test", "path": path(&before.key), "value": before.value}));
        operations.extend(action.annotations.iter().map(|(key, value)| match value {
            Some(value) => json!({"op": "add", "path": path(key), "value": value}),
            None => json!({"op": "remove", "path": path(key)}),
        }));
    }
    patch(action, "application/json-patch+json", &Value::Array(operations), timeout)
}

/// A key escaped for a JSON pointer (RFC 6901).
fn escaped(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}

fn patch(
    action: &Action,
    content_type: &str,
    body: &Value,
    timeout: Duration,
) -> Result<Request<Vec<u8>>, CallError> {
    let uri = object_path(action);
    let uri = format!("{uri}?fieldManager={FIELD_MANAGER}&{}", server_timeout(timeout));
    let request =
        Request::patch(uri).header("content-type", content_type).header("accept", METADATA_ONLY);
    with_body(request, body)
}

/// Whether a JSON Patch failed because one of its tests did: a 422 that names no object. If the result
/// would be invalid, the API server names the object. If a webhook denies it with a 422, the API server
/// puts the webhook's name first.
pub(super) fn is_failed_test(error: &CallError) -> bool {
    matches!(error, CallError::Status { code: 422, about, message, .. }
        if about.is_empty() && !message.starts_with("admission webhook"))
}

/// The outcome of a patch with a 2xx answer, by the stored object in it.
///
/// # Errors
/// [`CallError::Unreadable`]: the answer contains no object, so it is not from an API server.
pub(super) fn outcome_of_answer(action: &Action, body: &[u8]) -> Result<Outcome, CallError> {
    let stored = stored_metadata(body)?;
    let annotations = stored.annotations.unwrap_or_default();
    for (key, sent) in &action.annotations {
        if let Some(what) = difference(sent.as_deref(), annotations.get(key)) {
            let text = format!(
                "the write was accepted, but {key} {what} in the answer: a webhook, a policy or a \
                 proxy changes it"
            );
            let error = RequestFailure::new(ErrorCause::NotKept, text);
            return Ok(Outcome::Refused { error });
        }
    }
    let resource_version = stored.resource_version;
    if resource_version.is_some() && resource_version == action.precondition.resource_version {
        return Ok(Outcome::Unchanged);
    }
    Ok(Outcome::Applied { resource_version })
}

/// How an annotation differs from the value sent. JSON with another spelling is equal.
fn difference(sent: Option<&str>, stored: Option<&String>) -> Option<&'static str> {
    match (sent, stored) {
        (None, None) => None,
        (None, Some(_)) => Some("is still there"),
        (Some(_), None) => Some("is missing"),
        (Some(sent), Some(stored)) => {
            let digest = |text: &str| Digest::of(text, [None, None]);
            (sent != stored && digest(sent) != digest(stored)).then_some("has another value")
        }
    }
}

/// The metadata that an answer shows of an object.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct StoredMetadata {
    pub(super) uid: Option<String>,
    resource_version: Option<String>,
    annotations: Option<BTreeMap<String, String>>,
}

pub(super) fn stored_metadata(body: &[u8]) -> Result<StoredMetadata, CallError> {
    #[derive(Deserialize)]
    struct Answer {
        metadata: StoredMetadata,
    }
    let answer: Result<Answer, _> = serde_json::from_slice(body);
    answer.map(|answer| answer.metadata).map_err(|_| no_object(body))
}

/// The error of a 2xx answer that is not from an API server.
pub(super) fn no_object(body: &[u8]) -> CallError {
    let beginning: String = String::from_utf8_lossy(body).chars().take(40).collect();
    CallError::Unreadable(format!(
        "it is no Kubernetes object but begins with {beginning:?}; a proxy may answer in the API \
         server's place"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::contract::action::{Precondition, Verb};
    use crate::core::data::ids::{ActionId, Kind, NamespacedName};

    fn mirror(annotations: &[(&str, Option<&str>)]) -> Action {
        Action {
            id: ActionId(1),
            verb: Verb::Mirror,
            cluster: "hub".into(),
            kind: Kind::Connector,
            object: NamespacedName::new("n", "a"),
            annotations: annotations
                .iter()
                .map(|(k, v)| ((*k).to_owned(), v.map(str::to_owned)))
                .collect(),
            precondition: Precondition {
                uid: Some("u".to_owned()),
                resource_version: Some("7".to_owned()),
                ..Precondition::default()
            },
            connectors: Vec::new(),
        }
    }

    fn answered(annotations: &[(&str, Option<&str>)], body: &str) -> Result<Outcome, CallError> {
        outcome_of_answer(&mirror(annotations), body.as_bytes())
    }

    #[test]
    fn an_answer_proves_a_write_only_with_the_annotations_that_were_sent() {
        let set = [("a/b", Some(r#"{"x":1,"y":2}"#))];
        let applied = Outcome::Applied { resource_version: Some("8".to_owned()) };
        let same =
            r#"{"metadata":{"resourceVersion":"8","annotations":{"a/b":"{\"x\":1,\"y\":2}"}}}"#;
        assert_eq!(answered(&set, same), Ok(applied.clone()));
        let spelled = r#"{"metadata":{"resourceVersion":"8","annotations":{"a/b":"{ \"y\": 2, \"x\": 1 }"}}}"#;
        assert_eq!(answered(&set, spelled), Ok(applied.clone()));
        let unchanged = same.replace("\"8\"", "\"7\"");
        assert_eq!(answered(&set, &unchanged), Ok(Outcome::Unchanged));
        let gone = r#"{"metadata":{"resourceVersion":"8","annotations":null}}"#;
        assert_eq!(answered(&[("a/b", None)], gone), Ok(applied));
        for (sent, body, what) in [
            (&set[..], gone, "a/b is missing"),
            (&set[..], r#"{"metadata":{"annotations":{"a/b":"{}"}}}"#, "a/b has another value"),
            (&[("a/b", None)][..], same, "a/b is still there"),
        ] {
            let Ok(Outcome::Refused { error }) = answered(sent, body) else { panic!("{body}") };
            assert_eq!(error.cause, ErrorCause::NotKept);
            assert!(error.contains(what) && error.contains("policy or a proxy"), "{error}");
        }
    }

    #[test]
    fn a_webhook_that_denies_with_a_422_is_no_failed_test() {
        let denied = r#"admission webhook "policy.example.com" denied the request: no"#;
        for (message, about, is_failed_test) in [
            ("the server rejected our request due to an error in our request", "", true),
            ("Gateway \"a\" is invalid", "gateways.gateway.networking.k8s.io/a", false),
            (denied, "", false),
        ] {
            let (message, about) = (message.to_owned(), about.to_owned());
            let reason = "Invalid".to_owned();
            let error = CallError::Status { code: 422, reason, message, about, retry_after: None };
            assert_eq!(super::is_failed_test(&error), is_failed_test, "{error}");
        }
    }

    #[test]
    fn an_answer_that_is_no_object_is_a_failure() {
        for body in ["<html><body>Sign in</body></html>", "", "[]", r#"{"ok":true}"#, "\u{feff}{"] {
            let error = answered(&[("k", Some("v"))], body).unwrap_err();
            assert_eq!(error.cause(), ErrorCause::Unreadable, "{body}");
            assert!(error.to_string().contains("a proxy may answer"), "{error}");
        }
    }

    #[test]
    fn a_json_patch_tests_what_was_decided_on_and_touches_nothing_else() {
        let key = "networking.datumapis.com/upstream-status";
        let body = |old: Option<&str>, new: Option<&str>, map| {
            let before = AnnotationBefore {
                key: key.to_owned(),
                value: old.map(str::to_owned),
                no_annotations: false,
            };
            let action = mirror(&[(key, new)]);
            let request = json_patch(&action, &before, map, Duration::from_secs(5)).unwrap();
            assert_eq!(request.headers()["content-type"], "application/json-patch+json");
            serde_json::from_slice::<Value>(request.body()).unwrap()
        };
        let path = "/metadata/annotations/networking.datumapis.com~1upstream-status";
        let uid = json!({"op": "test", "path": "/metadata/uid", "value": "u"});
        assert_eq!(
            body(Some("old"), Some("new"), AnnotationMap::Present),
            json!([uid, {"op": "test", "path": path, "value": "old"},
                {"op": "add", "path": path, "value": "new"}])
        );
        assert_eq!(
            body(Some("old"), None, AnnotationMap::Present),
            json!([uid, {"op": "test", "path": path, "value": "old"},
                {"op": "remove", "path": path}])
        );
        assert_eq!(
            body(None, Some("new"), AnnotationMap::Present),
            json!([uid, {"op": "test", "path": path, "value": null},
                {"op": "add", "path": path, "value": "new"}])
        );
        assert_eq!(
            body(None, Some("new"), AnnotationMap::Absent),
            json!([uid, {"op": "test", "path": "/metadata/annotations", "value": null},
                {"op": "add", "path": "/metadata/annotations", "value": {key: "new"}}])
        );
    }
}
