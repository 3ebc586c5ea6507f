//! The parts of the live path against simulated API servers over HTTP: fast, and with faults that real
//! API servers can't be made to show. `tests/e2e` covers the same path with real API servers.

mod answers;
mod client_certificate;
mod connection;
mod events;
mod fleet;
mod http2;
mod mixed;
mod pacing;
mod queues;
mod watch;

use std::sync::Arc;
use std::time::Duration;

use throughline::client::ClusterClient;
use throughline::config::WatchConstants;
use throughline::core::contract::event::{EventKind, EventName};
use throughline::core::data::ids::Kind;
use throughline::metrics::Metrics;
use throughline::watch::{WatchMessage, WatchShared, WatchTask};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use crate::certificate::{Certificate, X509};

/// A new certificate with its TLS, for HTTP/2, and HTTP/1.1 for those who ask for it.
fn tls() -> (TlsAcceptor, Vec<u8>) {
    let certificate = Certificate::self_signed("localhost", X509::V3);
    (certificate.acceptor(&["h2", "http/1.1"]), certificate.der)
}

/// Small pages, and short pauses.
fn quick() -> WatchConstants {
    WatchConstants { page_size: 2, backoff_first_ms: 1, backoff_max_ms: 20, ..Default::default() }
}

/// The events of one watch, by a bus with little room.
struct Watched {
    events: mpsc::Receiver<WatchMessage>,
    task: JoinHandle<()>,
}

impl Watched {
    fn of(cluster: Arc<ClusterClient>, kind: Kind, config: WatchConstants) -> Self {
        let (bus, events) = mpsc::channel(4);
        let shared = Arc::new(WatchShared::new(config, bus));
        let task = tokio::spawn(WatchTask::new(cluster, kind, shared, &Metrics::new()).run());
        Self { events, task }
    }

    async fn next(&mut self) -> EventKind {
        let next = timeout(Duration::from_secs(20), self.events.recv()).await;
        next.expect("an event").expect("the watch continues").kind
    }

    /// The next events begin with these texts.
    async fn expect(&mut self, why: &str, expected: &[&str]) {
        for expected in expected {
            let next = told(&self.next().await);
            assert!(next.starts_with(expected), "{why}: {next:?}, not {expected:?}");
        }
    }
}

/// An event's name, with the object's name or the error.
fn told(event: &EventKind) -> String {
    let name = EventName::from(event).as_str();
    match event {
        EventKind::Listed { object, .. }
        | EventKind::Applied { object, .. }
        | EventKind::Deleted { object, .. } => format!("{name} {}", object.meta.name),
        EventKind::Unreadable { object, .. } => format!("{name} {:?}", object.name()),
        EventKind::WatchLost { error, .. } => format!("{name} {error}"),
        _ => name.to_owned(),
    }
}
