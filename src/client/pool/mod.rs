//! Connections to API servers: HTTP/2 if a server offers it, else HTTP/1.1.
//!
//! hyper-util's pool keeps *one* HTTP/2 connection for each host, and a request beyond the server's
//! limit of streams (100 in API servers and in Envoy) waits there without a limit: with 34 projects and
//! three watches each, no write would ever be sent. client-go opens a further connection instead. So
//! does this pool:
//!
//! - A connection carries at most [`STREAMS_MAX`] streams, and always [`STREAMS_SPARE`] less than the
//!   server allows, so that a stream that only one side has closed never makes a request wait.
//! - Watches and short requests have separate connections. A watch whose reader is slow fills its
//!   connection's window, and a write must not wait for that.
//! - A connection that got a GOAWAY, or has not answered lately, takes no new requests; those on it
//!   finish. Pings find a dead one within 20 s.
//! - Of the requests that wait for a connection, one connects.
//! - A request is sent again only if the server cannot have handled it: it was never sent, or the
//!   server said so (a GOAWAY with a lower stream, or REFUSED_STREAM). A refused request waits first,
//!   and its connection stays in use for the others.
//!
//! HTTP/1.1 needs none of this, and uses hyper-util's pool. It also has no pings: a [`probe`] finds a
//! failure of all connections of a host, and the kernel's keepalives find a single one whose packets
//! are lost. A proxy that drops one connection's data and still acknowledges its packets is found only
//! because a watch is silent.

mod dial;
mod host;
mod http1;
mod http2;
mod lane;
mod probe;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use kube::client::Body;
use tower::BoxError;

pub(super) use host::Host;

/// A response body; over HTTP/2 its stream counts until it is dropped.
type PoolBody = UnsyncBoxBody<Bytes, BoxError>;

/// The longest time for connecting, including TLS and the server's HTTP/2 settings.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// The most streams on one connection.
const STREAMS_MAX: usize = 90;

/// The streams below the server's limit that stay unused.
const STREAMS_SPARE: usize = 10;

/// Sends a request over the connections of the [`Host`] in its extensions.
pub(super) async fn send(mut request: Request<Body>) -> Result<Response<PoolBody>, BoxError> {
    let host = request.extensions_mut().remove::<Arc<Host>>();
    host.ok_or("the request names no host")?.send(request).await
}
