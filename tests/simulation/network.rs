//! The network between instances and API servers: each pair has a link of its own, which can be slow,
//! blocked in either direction, or lose its connections, also in the middle of an answer.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use futures::future::BoxFuture;
use throughline::environment::{Connected, Environment, within};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep, sleep_until};

use crate::crash_points::CrashProbe;
use crate::random::Random;

/// What a link does at present.
#[derive(Clone, Debug)]
pub(crate) struct LinkState {
    pub(crate) to_server: bool,
    pub(crate) to_client: bool,
    /// Each piece takes a time in this range, and never overtakes.
    pub(crate) delay_ms: (u64, u64),
}

impl LinkState {
    pub(crate) fn healthy() -> Self {
        Self { to_server: true, to_client: true, delay_ms: (0, 2) }
    }
}

struct Link {
    state: LinkState,
    random: Random,
    /// Readers that wait for a blocked direction.
    wakers: Vec<Waker>,
    connections: Vec<Arc<Mutex<Connection>>>,
}

impl Link {
    fn draw_delay(&mut self) -> Duration {
        let (least, most) = self.state.delay_ms;
        Duration::from_millis(self.random.between(least, most))
    }
}

/// A client, by number, and a server, by address.
pub(crate) type LinkKey = (u32, String);

/// A connection that was quiet for so long was idle: a request that leaves on it now did not wait for it.
const IDLE: Duration = Duration::from_millis(50);

/// A write that left its instance on an idle connection: it was begun at that very moment.
#[derive(Clone, Debug)]
pub(crate) struct SentWrite {
    pub(crate) at: Instant,
    pub(crate) client: u32,
    pub(crate) host: String,
    pub(crate) path: String,
}

impl SentWrite {
    fn read((client, host): &LinkKey, bytes: &[u8]) -> Option<Self> {
        let head = std::str::from_utf8(bytes.get(..bytes.len().min(1_000))?).ok()?;
        let mut words = head.split(' ');
        words.next().filter(|method| matches!(*method, "PATCH" | "DELETE"))?;
        let path = words.next()?.split('?').next()?.to_owned();
        Some(Self { at: Instant::now(), client: *client, host: host.clone(), path })
    }
}

/// Serves a connection of a client.
pub(crate) type Serve = Arc<dyn Fn(End, u32) -> BoxFuture<'static, ()> + Send + Sync>;

type SentWrites = Arc<Mutex<Vec<SentWrite>>>;

#[derive(Clone)]
pub(crate) struct Network {
    links: Arc<Mutex<BTreeMap<LinkKey, Arc<Mutex<Link>>>>>,
    servers: Arc<Mutex<BTreeMap<String, Serve>>>,
    /// The writes that left on idle connections.
    pub(crate) sent: SentWrites,
    /// Where servers run.
    servers_at: Arc<dyn Environment>,
    seed: u64,
}

impl Network {
    pub(crate) fn new(servers_at: Arc<dyn Environment>, seed: u64) -> Self {
        let (links, servers, sent) = (Arc::default(), Arc::default(), Arc::default());
        Self { links, servers, sent, servers_at, seed }
    }

    pub(crate) fn add_server(&self, address: &str, serve: Serve) {
        self.servers.lock().unwrap().insert(address.to_owned(), serve);
    }

    fn link(&self, key: &LinkKey) -> Arc<Mutex<Link>> {
        let of_host = xxhash_rust::xxh3::xxh3_64(key.1.as_bytes());
        let seed = self.seed ^ u64::from(key.0) << 32 ^ of_host;
        let mut links = self.links.lock().unwrap();
        let new = || Link {
            state: LinkState::healthy(),
            random: Random::new(seed),
            wakers: Vec::new(),
            connections: Vec::new(),
        };
        links.entry(key.clone()).or_insert_with(|| Arc::new(Mutex::new(new()))).clone()
    }

    pub(crate) fn set(&self, key: &LinkKey, state: LinkState) {
        let link = self.link(key);
        let mut link = link.lock().unwrap();
        link.state = state;
        link.wakers.drain(..).for_each(Waker::wake);
    }

    fn for_each_connection(&self, mut then: impl FnMut(&LinkKey, &mut Connection)) {
        for (key, link) in &*self.links.lock().unwrap() {
            for connection in &link.lock().unwrap().connections {
                then(key, &mut connection.lock().unwrap());
            }
        }
    }

    /// Ends all connections of a link, after so many more bytes of answers.
    pub(crate) fn cut(&self, key: &LinkKey, after_bytes: usize) {
        self.for_each_connection(|of, connection| match after_bytes {
            _ if of != key => {}
            0 => connection.reset(),
            _ => connection.pipes[1].cut_after = Some(after_bytes),
        });
    }

    /// No answer is cut any more.
    pub(crate) fn clear_cuts(&self) {
        self.for_each_connection(|_, connection| connection.pipes[1].cut_after = None);
    }

    /// The process of a client is gone: its connections end.
    pub(crate) fn cut_client(&self, client: u32) {
        self.for_each_connection(|(of, _), connection| {
            if *of == client {
                connection.reset();
            }
        });
    }

    /// The hosts to which connections are open.
    pub(crate) fn open_connections(&self) -> Vec<String> {
        let mut open = Vec::new();
        self.for_each_connection(|(_, host), connection| {
            open.extend(connection.is_open().then(|| host.clone()));
        });
        open
    }

    pub(crate) fn connect(
        &self,
        client: u32,
        host: &str,
        probe: Arc<CrashProbe>,
    ) -> BoxFuture<'static, io::Result<Box<dyn Connected>>> {
        let (network, key) = (self.clone(), (client, host.to_owned()));
        Box::pin(async move {
            let link = network.link(&key);
            let delay = link.lock().unwrap().draw_delay();
            sleep(delay).await;
            std::future::poll_fn(|cx| {
                let mut link = link.lock().unwrap();
                if link.state.to_server && link.state.to_client {
                    return Poll::Ready(());
                }
                link.wakers.push(cx.waker().clone());
                Poll::Pending
            })
            .await;
            let server = network.servers.lock().unwrap().get(&key.1).cloned();
            let Some(server) = server else { return Err(io::ErrorKind::ConnectionRefused.into()) };
            let connection = Arc::new(Mutex::new(Connection::new()));
            {
                let mut link = link.lock().unwrap();
                link.connections.retain(|other| !other.lock().unwrap().is_over());
                link.connections.push(connection.clone());
            }
            let end = |reads| End {
                link: link.clone(),
                connection: connection.clone(),
                reads,
                sleep: None,
                probe: probe.clone(),
                key: key.clone(),
                sent: network.sent.clone(),
            };
            tokio::spawn(within(network.servers_at.clone(), server(end(0), client)));
            Ok(Box::new(end(1)) as Box<dyn Connected>)
        })
    }
}

/// One direction.
#[derive(Default)]
struct Pipe {
    pieces: VecDeque<(Instant, Vec<u8>)>,
    last_at: Option<Instant>,
    is_closed: bool,
    cut_after: Option<usize>,
    reader: Option<Waker>,
}

impl Pipe {
    fn close(&mut self) {
        self.is_closed = true;
        self.reader.take().into_iter().for_each(Waker::wake);
    }
}

/// The pipe to the server and the one to the client.
struct Connection {
    pipes: [Pipe; 2],
    is_reset: bool,
    /// When the client last sent or received something, or opened it.
    used_at: Instant,
}

impl Connection {
    fn new() -> Self {
        Self { pipes: <[Pipe; 2]>::default(), is_reset: false, used_at: Instant::now() }
    }

    fn reset(&mut self) {
        self.is_reset = true;
        for pipe in &mut self.pipes {
            pipe.pieces.clear();
            pipe.reader.take().into_iter().for_each(Waker::wake);
        }
    }

    /// Whether both ends still have it.
    fn is_open(&self) -> bool {
        !self.is_reset && self.pipes.iter().any(|pipe| !pipe.is_closed)
    }

    fn is_over(&self) -> bool {
        self.is_reset || self.pipes.iter().all(|pipe| pipe.is_closed && pipe.pieces.is_empty())
    }
}

/// One end of a connection. The server's end reads pipe 0, the client's pipe 1.
pub(crate) struct End {
    link: Arc<Mutex<Link>>,
    connection: Arc<Mutex<Connection>>,
    reads: usize,
    sleep: Option<Pin<Box<Sleep>>>,
    /// Of the client.
    probe: Arc<CrashProbe>,
    key: LinkKey,
    sent: SentWrites,
}

impl End {
    fn is_blocked(&self, cx: &mut Context<'_>) -> bool {
        let mut link = self.link.lock().unwrap();
        let is_open = if self.reads == 0 { link.state.to_server } else { link.state.to_client };
        if !is_open {
            link.wakers.push(cx.waker().clone());
        }
        !is_open
    }
}

impl AsyncRead for End {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let (is_blocked, reads) = (this.is_blocked(cx), this.reads);
        let mut connection = this.connection.lock().unwrap();
        if connection.is_reset {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        let pipe = &mut connection.pipes[reads];
        pipe.reader = Some(cx.waker().clone());
        if is_blocked {
            return Poll::Pending;
        }
        let Some((at, piece)) = pipe.pieces.front_mut() else {
            return if pipe.is_closed { Poll::Ready(Ok(())) } else { Poll::Pending };
        };
        if *at > Instant::now() {
            ready!(this.sleep.insert(Box::pin(sleep_until(*at))).as_mut().poll(cx));
        }
        if reads == 1 && !this.probe.pass() {
            return Poll::Pending;
        }
        let mut taken = piece.len().min(buf.remaining());
        if let Some(left) = &mut pipe.cut_after {
            taken = taken.min(*left);
            *left -= taken;
        }
        buf.put_slice(&piece[..taken]);
        piece.drain(..taken);
        if piece.is_empty() {
            pipe.pieces.pop_front();
        }
        let is_cut = pipe.cut_after == Some(0);
        if reads == 1 {
            connection.used_at = Instant::now();
        }
        if is_cut {
            connection.reset();
            if taken == 0 {
                return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for End {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let is_client = self.reads == 1;
        if !self.probe.pass() && is_client {
            return Poll::Pending;
        }
        let delay = self.link.lock().unwrap().draw_delay();
        let mut connection = self.connection.lock().unwrap();
        if connection.is_reset {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let pipe = &mut connection.pipes[1 - self.reads];
        // Nobody reads it any more.
        if pipe.is_closed {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let now = Instant::now();
        let at = pipe.last_at.map_or(now + delay, |last| last.max(now + delay));
        pipe.last_at = Some(at);
        pipe.pieces.push_back((at, bytes.to_vec()));
        pipe.reader.take().into_iter().for_each(Waker::wake);
        if is_client {
            if now - connection.used_at > IDLE {
                self.sent.lock().unwrap().extend(SentWrite::read(&self.key, bytes));
            }
            connection.used_at = now;
        }
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.connection.lock().unwrap().pipes[1 - self.reads].close();
        Poll::Ready(Ok(()))
    }
}

impl Drop for End {
    fn drop(&mut self) {
        self.connection.lock().unwrap().pipes.iter_mut().for_each(Pipe::close);
    }
}
