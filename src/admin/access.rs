//! Access to `/state`: the peers, and the names of this host, that are allowed.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use axum::extract::{ConnectInfo, FromRequestParts};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};

use super::Admin;
use crate::config::StateAccess;

/// Suffixes that no stranger can register; clusters and hosts use them for private names.
const PRIVATE_SUFFIXES: [&str; 3] = [".svc", ".local", ".internal"];

/// A client that may see the state. A handler with this argument refuses every other client.
pub(super) struct StateReader;

impl FromRequestParts<Arc<Admin>> for StateReader {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, admin: &Arc<Admin>) -> Result<Self, Response> {
        let peer = ConnectInfo::<SocketAddr>::from_request_parts(parts, admin).await;
        let ConnectInfo(peer) = peer.map_err(IntoResponse::into_response)?;
        match refusal(admin.access, peer.ip(), &parts.headers) {
            None => Ok(Self),
            Some(refused) => Err(refused.into_response()),
        }
    }
}

/// Why this peer may not see the state under this name of the host; `None` if it may.
pub(super) fn refusal(
    access: StateAccess,
    peer: IpAddr,
    headers: &HeaderMap,
) -> Option<(StatusCode, &'static str)> {
    match access {
        StateAccess::Off => return Some((StatusCode::NOT_FOUND, "admin.state is off\n")),
        StateAccess::Loopback if !is_this_host(peer) => {
            let why = "the state is served to this host only (kubectl port-forward counts as this \
                       host); admin.state: everyone serves it to every client of this port\n";
            return Some((StatusCode::FORBIDDEN, why));
        }
        StateAccess::Loopback | StateAccess::Everyone => {}
    }
    if !is_own_host(access, headers) {
        let why = "the state is served under this host's own addresses and names only, to keep out web \
                   pages that give themselves its address; ask for http://ADDRESS:PORT/state, or \
                   http://localhost:PORT/state through kubectl port-forward\n";
        return Some((StatusCode::MISDIRECTED_REQUEST, why));
    }
    None
}

/// Whether a peer is a client on the same host.
fn is_this_host(peer: IpAddr) -> bool {
    // A listener on [::] sees IPv4 peers as ::ffff:a.b.c.d. The rest of 127.0.0.0/8 does not count:
    // Istio's sidecar delivers the requests of other pods from 127.0.0.6.
    let peer = peer.to_canonical();
    peer == Ipv4Addr::LOCALHOST || peer == Ipv6Addr::LOCALHOST
}

/// Whether the request's `Host` is a name of this port.
///
/// A web page can make its name resolve to 127.0.0.1 and then read the answers of this port, past the
/// browser's rules (DNS rebinding). The browser still sends the page's name as `Host`. So a `Host` must
/// be an address, which cannot be rebound, or a name that no stranger can own. Only programs other than
/// browsers send none.
fn is_own_host(access: StateAccess, headers: &HeaderMap) -> bool {
    let mut hosts = headers.get_all(header::HOST).iter();
    let host = hosts.next();
    let second = hosts.next();
    let Some(host) = host else { return true };
    let Ok(host) = host.to_str() else { return false };
    second.is_none() && is_own_name(access, without_port(host))
}

fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) => name,
        _ => host,
    }
}

fn is_own_name(access: StateAccess, name: &str) -> bool {
    if let Some(inner) = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')) {
        return inner.parse::<Ipv6Addr>().is_ok();
    }
    let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
    let is_local = name == "localhost" || name.ends_with(".localhost");
    // Other hosts reach the port as a pod or a Service: by an unqualified or a private name.
    let is_private = || !name.contains('.') || PRIVATE_SUFFIXES.iter().any(|s| name.ends_with(s));
    let may_be_remote = access == StateAccess::Everyone;
    !name.is_empty()
        && (name.parse::<IpAddr>().is_ok() || is_local || (may_be_remote && is_private()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_default_only_this_host_may_see_the_state() {
        let peers = [
            ("127.0.0.1", true),
            ("127.0.0.6", false),
            ("::ffff:127.0.0.6", false),
            ("::1", true),
            ("::ffff:127.0.0.1", true),
            ("10.0.0.1", false),
            ("0.0.0.0", false),
            ("fe80::1", false),
            ("::ffff:10.0.0.1", false),
        ];
        for (peer, local) in peers {
            assert_eq!(is_this_host(peer.parse().unwrap()), local, "{peer}");
        }
    }
}
