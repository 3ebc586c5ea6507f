//! One HTTP/2 connection: its requests, and whether it takes another.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::time::Duration;

use h2::Reason;
use http::{Request, Response};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioIo, TokioTimer};
use kube::client::Body;
use tokio::time::{Instant, sleep};
use tower::BoxError;

use super::dial::{DialError, Stream, dial_error};
use super::{PoolBody, STREAMS_MAX, STREAMS_SPARE};
use crate::client::error::causes;
use crate::clock::millis;
use crate::environment::HereExecutor;

/// A ping is sent after this long without data.
pub(super) const PING_AFTER: Duration = Duration::from_secs(10);

/// The connection counts as dead if no data follows within this time.
pub(super) const PING_TIMEOUT: Duration = Duration::from_secs(8);

/// A request given up after this long makes its connection suspect.
const DOUBT_AFTER: Duration = Duration::from_secs(1);

/// How often the connection's usability and the server's stream limit are checked.
const CHECK_EVERY: Duration = Duration::from_secs(10);

/// A connection with its requests.
pub(super) struct Http2 {
    sender: SendRequest<Body>,
    /// Requests without a response, and responses not read to the end.
    streams: AtomicUsize,
    /// The server's limit of parallel streams.
    allowed: AtomicUsize,
    /// Whether it takes no further requests.
    retired: AtomicBool,
    opened: Instant,
    /// Milliseconds after `opened`: when the server last answered, when a request was last given up,
    /// when the last stream ended.
    heard_ms: AtomicU64,
    doubted_ms: AtomicU64,
    idle_ms: AtomicU64,
}

/// A slot for one request on a connection, until its response has been read or dropped.
pub(super) struct Slot {
    connection: Arc<Http2>,
    /// When the request was sent, while it has no response.
    waiting_since: Option<Instant>,
}

/// A request that got no response.
pub(super) struct Failed {
    pub(super) error: hyper::Error,
    pub(super) retry: Retry,
}

/// Whether a request may be sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Retry {
    /// The server may have handled it.
    Never,
    /// The connection takes no more requests and did not carry this one: another connection may, at
    /// once.
    Elsewhere,
    /// The server refused the stream, as an overloaded one does: wait first, on any connection.
    Later,
}

/// How many bytes the server may send ahead of the reader. They take memory here.
pub(super) struct Windows {
    pub(super) stream: u32,
    pub(super) connection: u32,
}

/// A connection and its driver.
pub(super) type Connection = http2::Connection<TokioIo<Stream>, Body, HereExecutor>;

/// Begins HTTP/2 and waits for the server's settings.
///
/// # Errors
/// The server closed the connection; with TLS 1.3 this may mean that it rejects the client certificate.
pub(super) async fn begin(
    stream: Stream,
    windows: Windows,
) -> Result<(Arc<Http2>, Connection), DialError> {
    let failure = stream.failure();
    let begun = http2::Builder::new(HereExecutor)
        .timer(TokioTimer::new())
        .initial_stream_window_size(windows.stream)
        .initial_connection_window_size(windows.connection)
        .keep_alive_interval(PING_AFTER)
        .keep_alive_timeout(PING_TIMEOUT)
        .keep_alive_while_idle(true)
        // With no streams allowed, nothing is sent before the server's settings, so the limit shows
        // that they have arrived.
        .initial_max_send_streams(0)
        .handshake(TokioIo::new(stream));
    let (sender, mut connection) = begun.await.map_err(dial_error)?;
    let mut pause = Duration::from_millis(1);
    while connection.current_max_send_streams() == 0 {
        let ended = tokio::select! {
            ended = &mut connection => ended.err(),
            () = sleep(pause) => {
                pause = (pause * 2).min(Duration::from_millis(20));
                continue;
            }
        };
        let failure = failure.get().cloned().or(ended.map(|error| error.to_string()));
        let closed = "the server closed the connection at once".to_owned();
        return Err(dial_error(failure.unwrap_or(closed)));
    }
    let http2 = Http2 {
        sender,
        streams: AtomicUsize::new(0),
        allowed: AtomicUsize::new(connection.current_max_send_streams()),
        retired: AtomicBool::new(false),
        opened: Instant::now(),
        heard_ms: AtomicU64::new(1),
        doubted_ms: AtomicU64::new(0),
        idle_ms: AtomicU64::new(0),
    };
    Ok((Arc::new(http2), connection))
}

/// Drives the connection until it breaks or is unused. Calls `tidy` after each look at it.
pub(super) async fn drive(connection: Connection, http2: Weak<Http2>, tidy: impl Fn()) {
    let mut connection = pin!(connection);
    loop {
        let has_ended = tokio::select! {
            _ = &mut connection => true,
            () = sleep(CHECK_EVERY) => false,
        };
        if let Some(http2) = http2.upgrade() {
            http2.allowed.store(connection.current_max_send_streams(), Relaxed);
            if has_ended {
                http2.retire();
            }
            tidy();
        }
        if has_ended {
            return;
        }
    }
}

impl Http2 {
    fn now_ms(&self) -> u64 {
        millis(self.opened.elapsed())
    }

    /// Records that the server answered.
    fn heard(&self) {
        // At least 1 ms, so that this outweighs a request given up at the same moment.
        self.heard_ms.store(self.now_ms() + 1, Relaxed);
    }

    fn retire(&self) {
        self.retired.store(true, Relaxed);
    }

    pub(super) fn is_gone(&self) -> bool {
        self.retired.load(Relaxed) || self.sender.is_closed()
    }

    pub(super) fn streams(&self) -> usize {
        self.streams.load(Relaxed)
    }

    /// Whether it takes another request. It takes none after a request was given up until the server
    /// answers: the server may be gone, and a ping takes time to show it.
    pub(super) fn has_room(&self) -> bool {
        let is_doubted = self.doubted_ms.load(Relaxed) > self.heard_ms.load(Relaxed);
        let most = limit(self.allowed.load(Relaxed));
        !self.is_gone() && !is_doubted && self.streams() < most
    }

    /// How long it has been idle; `None` while it carries a request.
    pub(super) fn idle(&self) -> Option<Duration> {
        let idle = self.now_ms().saturating_sub(self.idle_ms.load(Relaxed));
        (self.streams() == 0).then(|| Duration::from_millis(idle))
    }

    /// Takes a slot. The caller holds the lane's lock and has checked that there is room.
    pub(super) fn take(self: &Arc<Self>) -> Slot {
        self.streams.fetch_add(1, Relaxed);
        Slot { connection: self.clone(), waiting_since: None }
    }
}

/// The most streams to use, fewer than allowed: a stream reset here may still count there.
fn limit(allowed: usize) -> usize {
    STREAMS_MAX.min(allowed.saturating_sub(STREAMS_SPARE).max(allowed / 2)).max(1)
}

impl Slot {
    /// A response body that keeps the slot until it is dropped.
    pub(super) fn body(self, body: Incoming) -> PoolBody {
        let counted = body.map_frame(move |frame| {
            self.connection.heard();
            frame
        });
        counted.map_err(BoxError::from).boxed_unsync()
    }

    /// Sends the request and waits for the response's head.
    pub(super) async fn send(
        &mut self,
        request: Request<Body>,
    ) -> Result<Response<Incoming>, Failed> {
        self.waiting_since = Some(Instant::now());
        let response = self.connection.sender.clone().try_send_request(request).await;
        self.waiting_since = None;
        match response {
            Ok(response) => {
                self.connection.heard();
                Ok(response)
            }
            Err(mut error) => {
                let is_unsent = error.take_message().is_some();
                let error = error.into_error();
                let retry = if is_unsent { Retry::Elsewhere } else { retry(&error) };
                match retry {
                    Retry::Elsewhere => self.connection.retire(),
                    Retry::Later => self.connection.heard(),
                    Retry::Never => {}
                }
                Err(Failed { error, retry })
            }
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let connection = &self.connection;
        if self.waiting_since.is_some_and(|since| since.elapsed() >= DOUBT_AFTER) {
            connection.doubted_ms.store(connection.now_ms(), Relaxed);
        }
        connection.idle_ms.store(connection.now_ms(), Relaxed);
        connection.streams.fetch_sub(1, Relaxed);
    }
}

/// Whether the server states that it has not handled the request (RFC 9113, section 8.7): its GOAWAY
/// names a lower stream as its last, or it refused the stream.
fn retry(error: &hyper::Error) -> Retry {
    let error = causes(error).find_map(|cause| cause.downcast_ref::<h2::Error>());
    let Some(error) = error.filter(|error| error.is_remote()) else { return Retry::Never };
    match error.reason() {
        _ if error.is_go_away() => Retry::Elsewhere,
        Some(Reason::REFUSED_STREAM) if error.is_reset() => Retry::Later,
        _ => Retry::Never,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_streams_stay_free() {
        let limits = [1, 2, 15, 20, 100, 250, usize::MAX].map(limit);
        assert_eq!(limits, [1, 1, 7, 10, 90, 90, 90]);
    }
}
