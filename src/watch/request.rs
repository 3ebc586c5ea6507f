//! The request that opens a watch.

use std::time::Duration;

use http::HeaderValue;
use http::header::ACCEPT_ENCODING;
use kube::api::WatchParams;
use kube::core::Request;

use crate::client::{CallError, no_request, path};
use crate::core::data::ids::Kind;

/// Asks for no compression: Kubernetes 1.37 may gzip each watch event as a gzip member of its own
/// (`WatchListCompression`, kubernetes/kubernetes#139308), which decoders of one member can't read.
/// kube's `request_events` does the same. Without the header a proxy could ask for compression.
pub(super) fn watch_request(
    kind: Kind,
    from: &str,
    lasts: Duration,
) -> Result<http::Request<Vec<u8>>, CallError> {
    let seconds = lasts.as_secs().try_into().unwrap_or(u32::MAX);
    let params = WatchParams::default().timeout(seconds);
    let mut request =
        Request::new(path(kind, None)).watch(&params, from).map_err(|e| no_request(&e))?;
    request.headers_mut().insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    Ok(request)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watches_ask_for_no_compression_and_for_their_own_time() {
        let request = watch_request(Kind::Gateway, "7", Duration::from_secs(600)).unwrap();
        assert_eq!(request.headers()[ACCEPT_ENCODING], "identity");
        let query = request.uri().query().unwrap();
        assert!(query.split('&').any(|pair| pair == "timeoutSeconds=600"), "{query}");
    }
}
