//! Connects: TCP, TLS, and the choice of the HTTP version.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use http::Uri;
use hyper_util::client::legacy::connect::{Connected, Connection, HttpConnector};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tower::{BoxError, Service};

use super::CONNECT_TIMEOUT;
use crate::environment::{self, Connected as Simulated};

/// The ALPN name of HTTP/2.
pub(super) const H2: &[u8] = b"h2";

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
#[derive(Clone)]
pub(super) struct Target {
    pub(super) url: Uri,
    /// `None`: no TLS.
    pub(super) tls: Option<TargetTls>,
}

#[derive(Clone)]
pub(super) struct TargetTls {
    pub(super) server_name: ServerName<'static>,
    /// Offers no protocol by ALPN, which means HTTP/1.1.
    pub(super) http1: Arc<ClientConfig>,
    /// Offers HTTP/2 and HTTP/1.1.
    pub(super) both: Arc<ClientConfig>,
}

/// Why connecting failed. All callers that waited for the connection get it.
#[derive(Clone)]
pub(super) struct DialError(Arc<dyn std::error::Error + Send + Sync>);

impl DialError {
    pub(super) fn new(error: impl Into<BoxError>) -> Self {
        Self(error.into().into())
    }
}

impl fmt::Debug for DialError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for DialError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for DialError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source()
    }
}

/// The error of a connection that took too long.
pub(super) fn too_slow() -> DialError {
    DialError::new(format!("no connection within {} s", CONNECT_TIMEOUT.as_secs()))
}

impl Target {
    /// Connects, offering HTTP/2 if asked to.
    pub(super) async fn dial(&self, offers_h2: bool) -> Result<Stream, DialError> {
        let host = self.url.host().unwrap_or_default();
        let port = self.url.port_u16();
        if let Some(connecting) = environment::connect(host, port.unwrap_or(80)) {
            let stream = connecting.await.map_err(DialError::new)?;
            return Ok(Stream::new(Transport::Simulated(stream)));
        }
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_keepalive(Some(KEEPALIVE_AFTER));
        tcp.set_keepalive_interval(Some(KEEPALIVE_INTERVAL));
        tcp.set_keepalive_retries(Some(KEEPALIVE_PROBES));
        #[cfg(target_os = "linux")]
        tcp.set_tcp_user_timeout(Some(UNACKNOWLEDGED_MAX));
        let stream = tcp.call(self.url.clone()).await.map_err(DialError::new)?.into_inner();
        let Some(TargetTls { server_name, http1, both }) = &self.tls else {
            return Ok(Stream::new(Transport::Plain(stream)));
        };
        let config = if offers_h2 { both } else { http1 };
        let connecting = TlsConnector::from(config.clone()).connect(server_name.clone(), stream);
        let stream = connecting.await.map_err(DialError::new)?;
        Ok(Stream::new(Transport::Tls(Box::new(stream))))
    }
}

enum Transport {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
    Simulated(Box<dyn Simulated>),
}

/// A connection.
pub(super) struct Stream {
    transport: Transport,
    failure: Arc<OnceLock<String>>,
}

impl Stream {
    fn new(transport: Transport) -> Self {
        Self { transport, failure: Arc::default() }
    }

    /// Whether the server chose HTTP/2.
    pub(super) fn is_h2(&self) -> bool {
        match &self.transport {
            Transport::Plain(_) | Transport::Simulated(_) => false,
            Transport::Tls(stream) => stream.get_ref().1.alpn_protocol() == Some(H2),
        }
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
        let polled = match &mut self.transport {
            Transport::Plain(stream) => Pin::new(stream).poll_read(cx, buf),
            Transport::Tls(stream) => Pin::new(stream).poll_read(cx, buf),
            Transport::Simulated(stream) => Pin::new(stream).poll_read(cx, buf),
        };
        self.note(polled)
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = match &mut self.transport {
            Transport::Plain(stream) => Pin::new(stream).poll_write(cx, buf),
            Transport::Tls(stream) => Pin::new(stream).poll_write(cx, buf),
            Transport::Simulated(stream) => Pin::new(stream).poll_write(cx, buf),
        };
        self.note(polled)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = match &mut self.transport {
            Transport::Plain(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
            Transport::Tls(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
            Transport::Simulated(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
        };
        self.note(polled)
    }

    fn is_write_vectored(&self) -> bool {
        match &self.transport {
            Transport::Plain(stream) => stream.is_write_vectored(),
            Transport::Tls(stream) => stream.is_write_vectored(),
            Transport::Simulated(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.transport {
            Transport::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Transport::Tls(stream) => Pin::new(stream).poll_flush(cx),
            Transport::Simulated(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.transport {
            Transport::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Transport::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
            Transport::Simulated(stream) => Pin::new(stream).poll_shutdown(cx),
        }
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
        let stream = target.dial(false).await.unwrap();
        let Transport::Plain(tcp) = &stream.transport else { panic!("it has no TLS") };
        let local = format!(":{:04X}", tcp.local_addr().unwrap().port());
        let sockets = std::fs::read_to_string("/proc/self/net/tcp").unwrap();
        let mut sockets = sockets.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        let socket = sockets.find(|fields| fields[1].ends_with(&local)).unwrap();
        let (timer, until) = socket[5].split_once(':').unwrap();
        let until = Duration::from_millis(10 * u64::from_str_radix(until, 16).unwrap());
        assert_eq!(timer, "02", "{socket:?}");
        assert!(until <= KEEPALIVE_AFTER, "{socket:?}");
    }
}
