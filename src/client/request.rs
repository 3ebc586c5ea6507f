//! Requests as they are built: paths, and bodies in JSON.

use http::Request;
use http::header::CONTENT_TYPE;

use super::CallError;
use crate::core::ids::Kind;

/// The type of a whole object.
pub const JSON: &str = "application/json";

/// A GET, of whatever `accept` says.
///
/// # Errors
/// [`CallError::Unreadable`]: names that make no path.
pub fn get(uri: &str, accept: &str) -> Result<Request<Vec<u8>>, CallError> {
    Request::get(uri).header("accept", accept).body(Vec::new()).map_err(|e| no_request(&e))
}

/// A request with a body, which is JSON unless the builder says what kind of a patch it is.
///
/// # Errors
/// As [`get`].
pub fn with_body(
    request: http::request::Builder,
    body: &serde_json::Value,
) -> Result<Request<Vec<u8>>, CallError> {
    let is_named = request.headers_ref().is_some_and(|h| h.contains_key(CONTENT_TYPE));
    let request = if is_named { request } else { request.header(CONTENT_TYPE, JSON) };
    request.body(body.to_string().into_bytes()).map_err(|e| no_request(&e))
}

/// No request could be made of what it was to be about.
pub fn no_request(error: &dyn std::error::Error) -> CallError {
    CallError::Unreadable(format!("no request: {error}"))
}

/// The path of a kind's objects: all of them, or those of one namespace.
pub fn path(kind: Kind, namespace: Option<&str>) -> String {
    let version = kind.api_version();
    let root = if version.contains('/') { "/apis" } else { "/api" };
    let plural = kind.plural();
    match namespace {
        Some(namespace) if !namespace.is_empty() => {
            format!("{root}/{version}/namespaces/{namespace}/{plural}")
        }
        _ => format!("{root}/{version}/{plural}"),
    }
}
