//! What the proxies of the tests share.

use std::convert::Infallible;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, Request, Response, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use kube::Client;
use kube::client::Body;

pub(super) fn full(bytes: Bytes) -> UnsyncBoxBody<Bytes, std::io::Error> {
    Full::new(bytes).map_err(|never: Infallible| match never {}).boxed_unsync()
}

/// Sends a request on to `backend`. The answer's body is not read.
pub(super) async fn forward(
    parts: &Parts,
    path_and_query: &str,
    body: Bytes,
    backend: &Client,
) -> Result<Response<Body>, kube::Error> {
    let mut request = Request::builder().method(&parts.method).uri(path_and_query);
    let mut headers = parts.headers.clone();
    remove_connection_headers(&mut headers);
    *request.headers_mut().unwrap() = headers;
    let mut answer = backend.send(request.body(Body::from(body)).unwrap()).await?;
    remove_connection_headers(answer.headers_mut());
    Ok(answer)
}

/// Removes the headers that belong to one connection only.
fn remove_connection_headers(headers: &mut HeaderMap) {
    for name in
        [header::HOST, header::CONNECTION, header::CONTENT_LENGTH, header::TRANSFER_ENCODING]
    {
        headers.remove(name);
    }
}
