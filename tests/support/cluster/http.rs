//! What the proxies of the tests share.

use std::convert::Infallible;

use bytes::Bytes;
use http::{HeaderMap, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};

pub(super) fn full(bytes: Bytes) -> UnsyncBoxBody<Bytes, std::io::Error> {
    Full::new(bytes).map_err(|never: Infallible| match never {}).boxed_unsync()
}

/// Removes the headers that belong to one connection only.
pub(super) fn remove_connection_headers(headers: &mut HeaderMap) {
    for name in
        [header::HOST, header::CONNECTION, header::CONTENT_LENGTH, header::TRANSFER_ENCODING]
    {
        headers.remove(name);
    }
}
