//! The connections of the admin port: few and short, so that they never disturb those to clusters.
//!
//! Any client that reaches the pod can use the port, so slow or hostile clients must not use up the
//! process's descriptors. A connection carries one request, whose head must arrive soon. At the limit,
//! the oldest connection without a complete request is closed, or else the oldest whose answer is not
//! read in whole, so that a probe gets its answer at once, whatever the other clients do.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};
use std::time::Duration;

use axum::Router;
use axum::extract::ConnectInfo;
use futures::FutureExt;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{sleep, timeout};

use crate::metrics::max_fds;

/// The most parallel connections.
const CONNECTIONS_MAX: usize = 64;

/// One in this many of the process's descriptors may serve the admin port; clusters need the others.
const DESCRIPTORS_SHARE: usize = 4;

/// The longest time for a request's head.
const HEAD_WITHIN: Duration = Duration::from_secs(5);

/// The longest time of a connection: the answer to a slow reader is cut off.
const CONNECTION_WITHIN: Duration = Duration::from_secs(60);

/// The pause after a failed accept: usually no descriptor is free.
const ACCEPT_PAUSE: Duration = Duration::from_secs(1);

/// The most bytes of a request's head.
const HEAD_BYTES_MAX: usize = 64 * 1024;

/// Serves until `stop` resolves, and then until the requests received are answered.
pub(super) async fn serve(
    listener: TcpListener,
    router: Router,
    stop: impl Future<Output = ()> + Send,
) {
    let mut connections = Connections::new(router, limit());
    let mut stop = pin!(stop);
    loop {
        tokio::select! {
            () = &mut stop => break,
            accepted = listener.accept(), if connections.make_room() => match accepted {
                Ok((stream, peer)) => connections.add(stream, peer),
                Err(_) => sleep(ACCEPT_PAUSE).await,
            },
            Some(_) = connections.tasks.join_next() => {}
            () = connections.answered.notified() => {}
        }
    }
    drop(listener);
    connections.finish().await;
}

/// One in this many connections may be a page, and as many may wait for a scrape: probes need the
/// others.
const SHARE: usize = 4;

/// The most connections that may be pages, or wait for a scrape.
pub(super) fn share() -> usize {
    limit() / SHARE
}

/// The most connections.
pub(super) fn limit() -> usize {
    limit_of(max_fds())
}

/// The most connections, given the process's limit of descriptors.
fn limit_of(descriptors: Option<u64>) -> usize {
    let descriptors = descriptors.and_then(|n| usize::try_from(n).ok()).unwrap_or(usize::MAX);
    (descriptors / DESCRIPTORS_SHARE).clamp(1, CONNECTIONS_MAX)
}

struct Connections {
    router: Router,
    limit: usize,
    tasks: JoinSet<()>,
    /// Oldest first.
    open: VecDeque<Connection>,
    /// An answer was made, so there may be room.
    answered: Arc<Notify>,
}

struct Connection {
    task: AbortHandle,
    /// A [`Phase`].
    phase: Arc<AtomicU8>,
}

/// Where a connection's request is.
enum Phase {
    /// The client has not sent all of it.
    Arriving,
    /// It has arrived, and its answer is being made.
    Answering,
    /// The client has not read all of the answer.
    Sending,
}

impl Connection {
    fn is_arriving(&self) -> bool {
        self.phase.load(Relaxed) == Phase::Arriving as u8
    }

    /// Whether the client, and not this process, is what it waits for.
    fn may_be_closed(&self) -> bool {
        self.phase.load(Relaxed) != Phase::Answering as u8
    }
}

impl Connections {
    fn new(router: Router, limit: usize) -> Self {
        let answered = Arc::default();
        Self { router, limit, tasks: JoinSet::new(), open: VecDeque::new(), answered }
    }

    /// Whether one more may be accepted, now or in exchange for one that may be closed.
    fn make_room(&mut self) -> bool {
        self.open.retain(|connection| !connection.task.is_finished());
        self.open.len() < self.limit || self.open.iter().any(Connection::may_be_closed)
    }

    fn add(&mut self, stream: TcpStream, peer: SocketAddr) {
        if self.open.len() >= self.limit {
            let arriving = self.open.iter().position(Connection::is_arriving);
            let oldest = arriving.or_else(|| self.open.iter().position(Connection::may_be_closed));
            match oldest.and_then(|at| self.open.remove(at)) {
                Some(oldest) => oldest.task.abort(),
                // All have sent their requests meanwhile: this client may retry.
                None => return,
            }
        }
        let phase = Arc::new(AtomicU8::new(Phase::Arriving as u8));
        let answered = self.answered.clone();
        let served = one_request(stream, peer, self.router.clone(), phase.clone(), answered);
        let task = self.tasks.spawn(async {
            // If it was cut off or failed, it is over; the client sees that itself.
            let _ = timeout(CONNECTION_WITHIN, served).await;
        });
        self.open.push_back(Connection { task, phase });
    }

    async fn finish(mut self) {
        self.open.iter().filter(|c| c.is_arriving()).for_each(|c| c.task.abort());
        while self.tasks.join_next().await.is_some() {}
    }
}

async fn one_request(
    stream: TcpStream,
    peer: SocketAddr,
    router: Router,
    phase: Arc<AtomicU8>,
    answered: Arc<Notify>,
) -> hyper::Result<()> {
    // Without it, small answers wait for each other; the server works nevertheless.
    let _ = stream.set_nodelay(true);
    let router = TowerToHyperService::new(router);
    let service = service_fn(move |mut request: Request<Incoming>| {
        phase.store(Phase::Answering as u8, Relaxed);
        request.extensions_mut().insert(ConnectInfo(peer));
        let phase = phase.clone();
        let answered = answered.clone();
        router.call(request).inspect(move |_| {
            phase.store(Phase::Sending as u8, Relaxed);
            answered.notify_one();
        })
    });
    http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_WITHIN)
        .keep_alive(false)
        .max_buf_size(HEAD_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), service)
        .await
}

#[cfg(test)]
mod tests {
    use axum::body::Bytes;
    use axum::routing::get;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test]
    async fn who_does_not_read_an_answer_makes_room_for_others() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        // More than the system buffers.
        let large = Bytes::from(vec![b'x'; 32 << 20]);
        let answer = move || async move {
            sleep(Duration::from_millis(100)).await;
            large
        };
        let router = Router::new().route("/", get(answer));
        tokio::spawn(serve(listener, router, std::future::pending()));
        let request = async || {
            let mut client = TcpStream::connect(address).await.unwrap();
            client.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
            client
        };
        let mut clients = Vec::new();
        for _ in 0..limit() {
            clients.push(request().await);
        }
        // It is turned away while all answers are being made.
        let answered = async { while request().await.read_u8().await.is_err() {} };
        timeout(HEAD_WITHIN, answered).await.expect("an answer");
    }

    #[test]
    fn most_descriptors_stay_for_clusters() {
        for (descriptors, connections) in
            [(None, 64), (Some(1_048_576), 64), (Some(256), 64), (Some(100), 25), (Some(3), 1)]
        {
            assert_eq!(limit_of(descriptors), connections, "{descriptors:?}");
        }
    }
}
