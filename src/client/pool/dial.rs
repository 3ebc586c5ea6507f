//! Connects: TCP, TLS, and the choice of the HTTP version.

use std::error::Error;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use http::Uri;
use hyper_util::client::legacy::connect::{Connected, Connection, HttpConnector};
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_rustls::TlsConnector;
use tower::{BoxError, Service};

use super::CONNECT_TIMEOUT;
use crate::client::tls::Tls;
use crate::environment::{self, Connected as Transport};

/// The kernel sends a keepalive after this long without data.
const KEEPALIVE_AFTER: Duration = Duration::from_secs(5);

/// The interval of further keepalives.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(3);

/// The number of keepalives: a connection whose packets are lost ends within 15 s. A connection to a
/// proxy that acknowledges them and forwards nothing does not end.
const KEEPALIVE_PROBES: u32 = 3;

/// The same limit while sent data is not acknowledged.
#[cfg(target_os = "linux")]
const UNACKNOWLEDGED_MAX: Duration = Duration::from_secs(15);

/// The address and the TLS configuration.
pub(super) struct Target {
    pub(super) url: Uri,
    /// The name in the server's certificate, and our side; `None`: no TLS.
    pub(super) tls: Option<(ServerName<'static>, Arc<Tls>)>,
}

/// Why connecting failed. All callers that waited for the connection get it.
pub(super) type DialError = Arc<dyn Error + Send + Sync>;

pub(super) fn dial_error(error: impl Into<BoxError>) -> DialError {
    error.into().into()
}

/// The error of a connection that took too long.
pub(super) fn too_slow() -> DialError {
    dial_error(format!("no connection within {} s", CONNECT_TIMEOUT.as_secs()))
}

impl Target {
    /// Connects, offering HTTP/2 if asked to.
    pub(super) async fn dial(&self, offers_h2: bool) -> Result<Stream, DialError> {
        let host = self.url.host().unwrap_or_default();
        let port = self.url.port_u16();
        if let Some(connecting) = environment::connect(host, port.unwrap_or(80)) {
            return Ok(Stream::new(connecting.await.map_err(dial_error)?, false));
        }
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_keepalive(Some(KEEPALIVE_AFTER));
        tcp.set_keepalive_interval(Some(KEEPALIVE_INTERVAL));
        tcp.set_keepalive_retries(Some(KEEPALIVE_PROBES));
        #[cfg(target_os = "linux")]
        tcp.set_tcp_user_timeout(Some(UNACKNOWLEDGED_MAX));
        let stream = tcp.call(self.url.clone()).await.map_err(dial_error)?.into_inner();
        let Some((server_name, tls)) = &self.tls else {
            return Ok(Stream::new(Box::new(stream), false));
        };
        let config = if offers_h2 { &tls.both } else { &tls.http1 };
        let connecting = TlsConnector::from(config.clone()).connect(server_name.clone(), stream);
        let stream = connecting.await.map_err(dial_error)?;
        let is_h2 = stream.get_ref().1.alpn_protocol() == Some(b"h2".as_slice());
        Ok(Stream::new(Box::new(stream), is_h2))
    }
}

/// A connection.
pub(super) struct Stream {
    transport: Box<dyn Transport>,
    /// Whether the server chose HTTP/2.
    pub(super) is_h2: bool,
    failure: Arc<OnceLock<String>>,
}

impl Stream {
    fn new(transport: Box<dyn Transport>, is_h2: bool) -> Self {
        Self { transport, is_h2, failure: Arc::default() }
    }

    /// Will hold the first error. hyper does not return it, and it may be the server's reason to reject
    /// a client certificate: in TLS 1.3 that follows the handshake.
    pub(super) fn failure(&self) -> Arc<OnceLock<String>> {
        self.failure.clone()
    }

    fn note<T>(&self, polled: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if let Poll::Ready(Err(error)) = &polled {
            self.failure.get_or_init(|| error.to_string());
        }
        polled
    }
}

impl Connection for Stream {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.transport).poll_read(cx, buf);
        self.note(polled)
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.transport).poll_write(cx, buf);
        self.note(polled)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.transport).poll_write_vectored(cx, bufs);
        self.note(polled)
    }

    fn is_write_vectored(&self) -> bool {
        self.transport.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.transport).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.transport).poll_shutdown(cx)
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    /// Linux shows the timer of each socket: 02 is the keepalive timer, in hundredths of a second.
    #[tokio::test]
    async fn the_kernel_asks_for_a_sign_of_life() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url: Uri = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
        let target = Target { url, tls: None };
        let _stream = target.dial(false).await.unwrap();
        let (_, local) = listener.accept().await.unwrap();
        let local = format!(":{:04X}", local.port());
        let sockets = std::fs::read_to_string("/proc/self/net/tcp").unwrap();
        let mut sockets = sockets.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        let socket = sockets.find(|fields| fields[1].ends_with(&local)).unwrap();
        let (timer, until) = socket[5].split_once(':').unwrap();
        let until = Duration::from_millis(10 * u64::from_str_radix(until, 16).unwrap());
        assert_eq!(timer, "02", "{socket:?}");
        assert!(until <= KEEPALIVE_AFTER, "{socket:?}");
    }
}
