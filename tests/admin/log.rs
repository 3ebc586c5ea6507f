//! `/log`: the event log of the run, to this host alone.

use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use throughline::admin::{self, Served};
use throughline::config::StateAccess;
use throughline::metrics::Metrics;
use tokio::net::TcpListener;
use tokio::sync::mpsc;

use crate::http::{get, get_as};

const LOG: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/incident-503.jsonl");

/// A server on all addresses; returns its port.
async fn serve(access: StateAccess, event_log: Option<PathBuf>) -> u16 {
    let listener = TcpListener::bind("0.0.0.0:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let (queries, asked) = mpsc::channel(1);
    // Nothing here asks the loop.
    std::mem::forget(asked);
    let served = Served { access, event_log };
    let metrics = Arc::new(Metrics::new());
    tokio::spawn(admin::serve(listener, served, metrics, queries, std::future::pending()));
    port
}

#[tokio::test]
async fn only_this_host_gets_the_log_whatever_the_access_to_the_state() {
    let log = || Some(Path::new(LOG).to_owned());
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    let outside = socket.connect("192.0.2.1:9").and_then(|()| socket.local_addr());
    let outside = outside.ok().map(|address| address.ip()).filter(|ip| !ip.is_loopback());
    let here = std::net::IpAddr::from([127, 0, 0, 1]);
    for (access, log, expected, part) in [
        (StateAccess::Loopback, log(), 200, ""),
        (StateAccess::Everyone, log(), 200, ""),
        (StateAccess::Off, log(), 404, "admin.state is off"),
        (StateAccess::Loopback, None, 404, "eventLog.file"),
        (StateAccess::Loopback, Some("/nowhere/log.jsonl".into()), 500, "/nowhere/log.jsonl"),
    ] {
        let port = serve(access, log).await;
        let address = (here, port).into();
        let answer = get(address, "/log", "*/*").await;
        assert_eq!(answer.status, expected, "{access:?} {}", answer.body);
        assert!(answer.body.contains(part), "{access:?} {}", answer.body);
        if expected == 200 {
            assert_eq!(answer.headers["content-type"], "application/zstd");
            let stranger = get_as("evil.example", address, "/log", "*/*").await;
            assert_eq!(stranger.status, 421, "{access:?}");
        }
        if let Some(outside) = outside {
            let answer = get((outside, port).into(), "/log", "*/*").await;
            let refused = if access == StateAccess::Off { 404 } else { 403 };
            assert_eq!(answer.status, refused, "{access:?} {}", answer.body);
        }
    }
}
