//! The admin port, over TCP, as whoever reaches the pod can use it.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use throughline::admin::{self, Query};
use throughline::config::StateAccess;
use throughline::core::contract::settings::Settings;
use throughline::core::machine::Machine;
use throughline::core::view::fleet::Source;
use throughline::metrics::{MachineCounts, Metrics};
use tokio::runtime::Builder;
use tokio::sync::mpsc;

use super::pieces;

/// The longest that an answer may take. The slowest, `/state`, is served at most every two seconds.
const ANSWER_WITHIN: Duration = Duration::from_secs(15);

/// A server on a thread of its own, which all inputs share.
fn server() -> SocketAddr {
    static SERVER: OnceLock<SocketAddr> = OnceLock::new();
    *SERVER.get_or_init(|| {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            let runtime = Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let listener = tokio::net::TcpListener::from_std(listener).unwrap();
                let (queries, asked) = mpsc::channel(4);
                tokio::spawn(answer(asked));
                let metrics = Arc::new(Metrics::new());
                let access = StateAccess::Loopback;
                admin::serve(listener, access, metrics, queries, std::future::pending()).await;
            });
        });
        address
    })
}

async fn answer(mut asked: mpsc::Receiver<Query>) {
    let machine = Machine::new(Settings::default());
    while let Some(query) = asked.recv().await {
        match query {
            Query::Ping(answer) => drop(answer.send(())),
            Query::Counts(answer) => drop(answer.send(MachineCounts::default())),
            Query::State(answer) => {
                drop(answer.send(Box::new(machine.fleet(Source::Instance, &|_| None))));
            }
            Query::PassedHops(answer) => drop(answer.send(Vec::new())),
        }
    }
}

/// Every request whose head is complete is answered, with a status that the admin port has, however its
/// bytes arrive.
pub(super) fn admin_request(data: &[u8]) {
    let (size, data) = pieces(data);
    if data.iter().all(|byte| b"\r\n".contains(byte)) {
        return; // Blank lines before a request do not count: its head is still to come.
    }
    let mut stream = TcpStream::connect(server()).unwrap();
    stream.set_nodelay(true).unwrap();
    stream.set_read_timeout(Some(ANSWER_WITHIN)).unwrap();
    let (first, rest) = data.split_at(size.min(data.len()));
    // The server may have answered, and closed, before all is sent.
    let sent = [first, rest, b"\r\n\r\n"].iter().try_for_each(|part| stream.write_all(part));
    let mut answer = Vec::new();
    let received = stream.read_to_end(&mut answer);
    if let Err(error) = received.as_ref().map(drop).and(sent.as_ref().copied()) {
        let is_reset = matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe);
        assert!(is_reset, "{error} after {:?}", String::from_utf8_lossy(data));
        return;
    }
    let head = String::from_utf8_lossy(&answer[..answer.len().min(16)]).into_owned();
    let status = head.split(' ').nth(1).unwrap_or_default();
    let is_known = ["200", "400", "404", "405", "414", "421", "431", "503"].contains(&status);
    // hyper closes after what is no HTTP at all, such as a TLS handshake.
    assert!(is_known || answer.is_empty(), "{head:?} for {:?}", String::from_utf8_lossy(data));
}
