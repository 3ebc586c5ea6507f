//! Builds requests: paths, and bodies in JSON.

use http::Request;
use http::header::CONTENT_TYPE;

use super::CallError;
use crate::core::data::ids::Kind;

/// The media type of a whole object.
pub const JSON: &str = "application/json";

/// A GET that asks for the media type `accept`.
///
/// # Errors
/// [`CallError::Unreadable`]: a name that can't be part of a path.
pub fn get(uri: &str, accept: &str) -> Result<Request<Vec<u8>>, CallError> {
    Request::get(uri).header("accept", accept).body(Vec::new()).map_err(|e| no_request(&e))
}

/// A request with a JSON body. The content type is JSON unless the builder names a kind of patch.
///
/// # Errors
/// As [`get`].
pub fn with_body(
    request: http::request::Builder,
    body: &serde_json::Value,
) -> Result<Request<Vec<u8>>, CallError> {
    let has_content_type = request.headers_ref().is_some_and(|h| h.contains_key(CONTENT_TYPE));
    let request = if has_content_type { request } else { request.header(CONTENT_TYPE, JSON) };
    request.body(body.to_string().into_bytes()).map_err(|e| no_request(&e))
}

/// The error of a request that could not be built.
pub fn no_request(error: &dyn std::error::Error) -> CallError {
    CallError::Unreadable(format!("the request could not be built: {error}"))
}

/// The path of a kind's objects: in all namespaces, or in one.
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
