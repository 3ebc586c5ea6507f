//! Failures in the API servers' form: a `metav1.Status` with code, reason, message and details. The
//! messages are those of kube-apiserver 1.36.

use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, Response, StatusCode};
use serde::Serialize;
use serde_json::{Value, json};

use super::body::{Body, whole};
use super::resource::Resource;

/// Why a request was not executed.
#[derive(Clone, Debug)]
pub(super) struct Failure {
    code: u16,
    /// Empty if API servers give none.
    reason: &'static str,
    message: String,
    /// `null` if absent.
    details: Value,
    metadata: Value,
    retry_after_s: Option<u32>,
    /// Plain text instead of a Status.
    is_plain: bool,
    /// The request was executed nevertheless.
    is_executed: bool,
}

/// A field with an invalid value.
pub(super) struct FieldError<'a> {
    pub(super) reason: &'a str,
    pub(super) field: &'a str,
    pub(super) message: &'a str,
}

/// The API servers' usual reason for a code; empty if there is none.
pub fn reason_of(code: u16) -> &'static str {
    match code {
        400 => "BadRequest",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "NotFound",
        409 => "Conflict",
        410 => "Expired",
        422 => "Invalid",
        429 => "TooManyRequests",
        500 => "InternalError",
        503 => "ServiceUnavailable",
        504 => "Timeout",
        _ => "",
    }
}

impl Failure {
    fn new(code: u16, reason: &'static str, message: impl Into<String>, details: Value) -> Self {
        Self {
            code,
            reason,
            message: message.into(),
            details,
            metadata: json!({}),
            retry_after_s: None,
            is_plain: false,
            is_executed: false,
        }
    }

    /// A failure without a real cause, for tests.
    pub(super) fn injected(code: u16, retry_after_s: Option<u32>) -> Self {
        let details =
            retry_after_s.map_or(Value::Null, |seconds| json!({"retryAfterSeconds": seconds}));
        let message = format!("injected failure {code}");
        Self { retry_after_s, ..Self::new(code, reason_of(code), message, details) }
    }

    /// The response while the storage of a resource is initialized.
    pub(super) fn initializing() -> Self {
        let message = "storage is (re)initializing";
        let details = json!({"retryAfterSeconds": 1});
        Self { retry_after_s: Some(1), ..Self::new(429, "TooManyRequests", message, details) }
    }

    pub(super) fn code(&self) -> u16 {
        self.code
    }

    /// The response to a request that was executed nevertheless.
    pub(super) fn but_executed(self) -> Self {
        Self { is_executed: true, ..self }
    }

    pub(super) fn is_executed(&self) -> bool {
        self.is_executed
    }

    pub(super) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message, Value::Null)
    }

    pub(super) fn no_such_path() -> Self {
        Self { is_plain: true, ..Self::new(404, "", "404 page not found\n", Value::Null) }
    }

    /// A resource that is not served.
    pub(super) fn unknown_resource(api_version: &str) -> Self {
        if Resource::ALL.iter().any(|r| r.is_built_in() && r.api_version() == api_version) {
            let message = "the server could not find the requested resource";
            return Self::new(404, "NotFound", message, json!({}));
        }
        Self::no_such_path()
    }

    pub(super) fn method_not_allowed() -> Self {
        let message = "the server does not allow this method on the requested resource";
        Self::new(405, "MethodNotAllowed", message, json!({}))
    }

    pub(super) fn unsupported_media_type(resource: Resource) -> Self {
        if resource.is_built_in() {
            let message = "415: Unsupported Media Type";
            return Self::new(415, "UnsupportedMediaType", message, json!({}));
        }
        let message = "the body of the request was in an unknown format - accepted media types \
                       include: application/json-patch+json, application/merge-patch+json";
        Self::new(415, "UnsupportedMediaType", message, Value::Null)
    }

    /// A JSON Patch with an operation that fails. API servers do not report which one.
    pub(super) fn patch_does_not_apply() -> Self {
        let message = "the server rejected our request due to an error in our request";
        Self::new(422, "Invalid", message, json!({}))
    }

    /// The time limit of the request is over.
    pub(super) fn timed_out() -> Self {
        let message = "Timeout: request did not complete within the allotted timeout";
        Self::new(504, "Timeout", message, json!({}))
    }

    pub(super) fn too_large(limit: usize) -> Self {
        let message = format!("Request entity too large: limit is {limit}");
        Self::new(413, "RequestEntityTooLarge", message, json!({}))
    }

    pub(super) fn not_found(resource: Resource, name: &str) -> Self {
        let message = format!("{} {name:?} not found", qualified(resource, resource.plural()));
        Self::new(404, "NotFound", message, details(resource, resource.plural(), name))
    }

    pub(super) fn already_exists(resource: Resource, name: &str) -> Self {
        let message = format!("{} {name:?} already exists", qualified(resource, resource.plural()));
        Self::new(409, "AlreadyExists", message, details(resource, resource.plural(), name))
    }

    /// In message and details, `kind` is the plural for updates and the kind for deletions.
    pub(super) fn conflict(resource: Resource, kind: &str, name: &str, why: &str) -> Self {
        let what = qualified(resource, kind);
        let message = format!("Operation cannot be fulfilled on {what} {name:?}: {why}");
        Self::new(409, "Conflict", message, details(resource, kind, name))
    }

    pub(super) fn invalid(what: &str, name: &str, details: Value, error: &FieldError<'_>) -> Self {
        let message = format!("{what} {name:?} is invalid: {}: {}", error.field, error.message);
        let cause = json!({"reason": error.reason, "message": error.message, "field": error.field});
        let mut details = details;
        details["causes"] = json!([cause]);
        Self::new(422, "Invalid", message, details)
    }

    /// 422 for an object; `kind` as in [`Failure::conflict`].
    pub(super) fn invalid_object(
        resource: Resource,
        kind: &str,
        name: &str,
        error: &FieldError<'_>,
    ) -> Self {
        Self::invalid(&qualified(resource, kind), name, details(resource, kind, name), error)
    }

    /// A resourceVersion that is not a number; API servers answer 500.
    pub(super) fn bad_version(text: &str, in_query: bool) -> Self {
        let parse = format!("strconv.ParseUint: parsing {text:?}: invalid syntax");
        let message = match in_query {
            true => format!("resourceVersion: Invalid value: {text:?}: {parse}"),
            false => parse,
        };
        Self::new(500, "", message, Value::Null)
    }

    /// A resourceVersion that the cluster has not reached yet.
    pub(super) fn too_new(requested: u64, current: u64) -> Self {
        let message =
            format!("Timeout: Too large resource version: {requested}, current: {current}");
        let cause =
            json!({"reason": "ResourceVersionTooLarge", "message": "Too large resource version"});
        let details = json!({"causes": [cause], "retryAfterSeconds": 1});
        Self { retry_after_s: Some(1), ..Self::new(504, "Timeout", message, details) }
    }

    /// 410 for a watch.
    pub(super) fn too_old(requested: u64, oldest: u64) -> Self {
        let message = format!("too old resource version: {requested} ({oldest})");
        Self::new(410, "Expired", message, Value::Null)
    }

    /// 410 for a list at an exact version.
    pub(super) fn list_too_old() -> Self {
        let message = "The resourceVersion for the provided list is too old.";
        Self::new(410, "Expired", message, Value::Null)
    }

    /// 410 for the next page of a list; `token` continues with the current objects.
    pub(super) fn continue_too_old(token: &str) -> Self {
        let message = "The provided continue parameter is too old to display a consistent list \
            result. You can start a new list without the continue parameter, or use the continue \
            token in this response to retrieve the remainder of the results. Continuing with the \
            provided token results in an inconsistent list - objects that were created, modified, \
            or deleted between the time the first chunk was returned and now may show up in the \
            list.";
        let metadata = json!({"continue": token});
        Self { metadata, ..Self::new(410, "Expired", message, Value::Null) }
    }

    /// The `metav1.Status`.
    pub(super) fn to_value(&self) -> Value {
        let mut status = json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": self.metadata,
            "status": "Failure",
            "message": self.message,
            "code": self.code,
        });
        if !self.reason.is_empty() {
            status["reason"] = self.reason.into();
        }
        if !self.details.is_null() {
            status["details"] = self.details.clone();
        }
        status
    }

    pub(super) fn response(&self) -> Response<Body> {
        let mut response = if self.is_plain {
            let mut response = Response::new(whole(self.message.clone()));
            let plain = HeaderValue::from_static("text/plain; charset=utf-8");
            response.headers_mut().insert(CONTENT_TYPE, plain);
            response
        } else {
            json_response(200, &self.to_value())
        };
        *response.status_mut() =
            StatusCode::from_u16(self.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        if let Some(seconds) = self.retry_after_s {
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}

/// `connectors.networking.datumapis.com`; `namespaces`.
fn qualified(resource: Resource, kind: &str) -> String {
    match resource.group() {
        "" => kind.to_owned(),
        group => format!("{kind}.{group}"),
    }
}

pub(super) fn details(resource: Resource, kind: &str, name: &str) -> Value {
    let mut details = json!({"name": name, "kind": kind});
    if !resource.group().is_empty() {
        details["group"] = resource.group().into();
    }
    details
}

pub(super) fn json_response(code: u16, body: &impl Serialize) -> Response<Body> {
    let (code, body) = match serde_json::to_vec(body) {
        Ok(body) => (code, body),
        Err(error) => (500, error.to_string().into_bytes()),
    };
    let mut response = Response::new(whole(body));
    *response.status_mut() =
        StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
