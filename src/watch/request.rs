//! The request that opens a watch.

use http::HeaderValue;
use http::header::ACCEPT_ENCODING;
use kube::api::WatchParams;
use kube::core::Request;

use crate::client::{CallError, no_request, path};
use crate::core::data::ids::Kind;

/// kube's own, in a request's parameters.
const KUBE_SECONDS: &str = "timeoutSeconds=290";

/// Asks for no compression: Kubernetes 1.37 may gzip each watch event as a gzip member of its own
/// (`WatchListCompression`, kubernetes/kubernetes#139308), which decoders of one member can't read.
/// kube's `request_events` does the same. Without the header a proxy could ask for compression.
pub(super) fn watch_request(
    kind: Kind,
    version: &str,
    seconds: u32,
) -> Result<http::Request<Vec<u8>>, CallError> {
    let params = WatchParams::default();
    let request = Request::new(path(kind, None)).watch(&params, version);
    let mut request = request.map_err(|e| no_request(&e))?;
    // kube refuses more than 294 s, for the sake of clients that don't resume.
    let uri = request.uri().to_string();
    let uri = uri.replace(KUBE_SECONDS, &format!("timeoutSeconds={seconds}"));
    *request.uri_mut() = uri.parse().map_err(|e: http::uri::InvalidUri| no_request(&e))?;
    request.headers_mut().insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    Ok(request)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watches_ask_for_no_compression_and_for_their_own_time() {
        let request = watch_request(Kind::Gateway, "7", 300).unwrap();
        assert_eq!(request.headers()[ACCEPT_ENCODING], "identity");
        let query = request.uri().query().unwrap();
        assert!(query.split('&').any(|pair| pair == "timeoutSeconds=300"), "{query}");
    }
}
