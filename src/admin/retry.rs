//! `POST /retry`: every write that waits is tried now. It changes no decision but its time, and is for
//! this host alone, whoever else may read `/state`.

use std::net::SocketAddr;

use axum::extract::{ConnectInfo, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};

use super::access::{is_own_host, may_see_state};
use super::{Admin, Query};
use crate::config::StateAccess;
use crate::report::count;

/// A header that no form and no image of a web page can send, and no script of another page without
/// asking first, which this port never allows.
const HEADER: &str = "x-throughline-retry";

pub(super) async fn retry(
    State(admin): State<Admin>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    headers: HeaderMap,
) -> Response {
    if let Err(refusal) = may_retry(admin.access, peer, &headers) {
        return refusal.into_response();
    }
    match admin.ask(Query::Retry).await {
        Ok(0) => "no write waits\n".into_response(),
        Ok(writes) => format!("{} tried now\n", waiting(writes)).into_response(),
        Err(error) => error.into_response(),
    }
}

fn waiting(writes: usize) -> String {
    let verb = if writes == 1 { "is" } else { "are" };
    format!("{} {verb}", count(writes, "waiting write"))
}

/// Whether the request comes from this host, and from no web page.
fn may_retry(
    access: StateAccess,
    peer: SocketAddr,
    headers: &HeaderMap,
) -> Result<(), (StatusCode, &'static str)> {
    if access == StateAccess::Off {
        return Err((StatusCode::NOT_FOUND, "admin.state is off, and /retry with it\n"));
    }
    if !may_see_state(StateAccess::Loopback, peer.ip()) {
        let why = "only this host may ask for a retry (kubectl port-forward counts as this host)\n";
        return Err((StatusCode::FORBIDDEN, why));
    }
    if !is_own_host(StateAccess::Loopback, headers) {
        let why = "a retry is asked for under this host's own addresses and names only, to keep out web \
                   pages that give themselves its address: http://localhost:PORT/retry\n";
        return Err((StatusCode::MISDIRECTED_REQUEST, why));
    }
    if !headers.contains_key(HEADER) {
        let why = "the header X-Throughline-Retry is missing; it keeps out web pages: \
                   curl -X POST -H 'X-Throughline-Retry: now' http://localhost:PORT/retry\n";
        return Err((StatusCode::FORBIDDEN, why));
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
mod tests {
    use axum::http::header::HOST;

    use super::*;

    fn status(access: StateAccess, peer: &str, headers: &[(&'static str, &str)]) -> u16 {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.insert(*name, value.parse().unwrap());
        }
        let peer = format!("{peer}:1234").parse().unwrap();
        may_retry(access, peer, &map).map_or_else(|(status, _)| status.as_u16(), |()| 200)
    }

    #[test]
    fn only_this_host_may_ask_and_no_web_page() {
        let (host, own) = ((HOST.as_str(), "localhost:8080"), (HEADER, "now"));
        let foreign = ("host", "evil.example");
        for access in [StateAccess::Loopback, StateAccess::Everyone] {
            assert_eq!(status(access, "127.0.0.1", &[("host", host.1), own]), 200);
            assert_eq!(status(access, "10.0.0.1", &[("host", host.1), own]), 403);
            assert_eq!(status(access, "127.0.0.1", &[("host", host.1)]), 403);
            assert_eq!(status(access, "127.0.0.1", &[foreign, own]), 421);
        }
        assert_eq!(status(StateAccess::Off, "127.0.0.1", &[("host", host.1), own]), 404);
    }
}
