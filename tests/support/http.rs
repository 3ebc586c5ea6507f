//! An HTTP client for one request, and the server under test with a loop that the test provides.

#![allow(dead_code, reason = "each test program uses a part of it")]

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use throughline::admin::{self, Query};
use throughline::config::StateAccess;
use throughline::core::machine::Machine;
use throughline::core::view::fleet::Source;
use throughline::metrics::{MachineCounts, Metrics};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

#[derive(Debug)]
pub(crate) struct HttpResponse {
    pub(crate) status: u16,
    /// By name in lower case.
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: String,
}

/// The server under test.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) metrics: Arc<Metrics>,
    stop: watch::Sender<bool>,
    served: JoinHandle<()>,
}

impl Server {
    /// Listens on a free port of `ip`; the receiver's owner acts as the loop.
    pub(crate) async fn start(ip: &str, access: StateAccess) -> (Self, mpsc::Receiver<Query>) {
        let listener = TcpListener::bind((ip, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let metrics = Arc::new(Metrics::new());
        let (queries, asked) = mpsc::channel(4);
        let (stop, stopping) = watch::channel(false);
        let served =
            tokio::spawn(admin::serve(listener, access, Arc::clone(&metrics), queries, stopping));
        (Self { address, metrics, stop, served }, asked)
    }

    /// With a loop that answers from `machine`.
    pub(crate) async fn with_loop(machine: Machine) -> Self {
        let (server, asked) = Self::start("127.0.0.1", StateAccess::Loopback).await;
        tokio::spawn(answer_queries(asked, machine));
        server
    }

    pub(crate) async fn get(&self, path: &str) -> HttpResponse {
        get(self.address, path, "*/*").await
    }

    /// Stops the server and waits until it has stopped.
    pub(crate) async fn stop(self) {
        self.stop.send_replace(true);
        self.served.await.unwrap();
    }
}

/// A working loop: answers every query.
pub(crate) async fn answer_queries(mut asked: mpsc::Receiver<Query>, machine: Machine) {
    while let Some(query) = asked.recv().await {
        match query {
            Query::Ping(answer) => drop(answer.send(())),
            Query::Counts(answer) => {
                let states = machine.states();
                drop(answer.send(MachineCounts { states, ..Default::default() }));
            }
            Query::State(answer) => {
                drop(answer.send(machine.fleet(Source::Instance, &|_| None)));
            }
            Query::PassedHops(answer) => drop(answer.send(Vec::new())),
        }
    }
}

/// `GET path`, with this `Accept`.
pub(crate) async fn get(address: SocketAddr, path: &str, accept: &str) -> HttpResponse {
    get_as(&address.to_string(), address, path, accept).await
}

/// The same, with this `Host`.
pub(crate) async fn get_as(
    host: &str,
    address: SocketAddr,
    path: &str,
    accept: &str,
) -> HttpResponse {
    send(address, &format!("GET {path} HTTP/1.1\r\nhost: {host}\r\naccept: {accept}\r\n")).await
}

/// Sends a request; `head` lacks its last lines.
pub(crate) async fn send(address: SocketAddr, head: &str) -> HttpResponse {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("{head}connection: close\r\ncontent-length: 0\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).await.unwrap();
    let text = String::from_utf8_lossy(&bytes);
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    let mut lines = head.lines();
    let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
    let header = |line: &str| {
        let (name, value) = line.split_once(": ").unwrap();
        (name.to_lowercase(), value.to_owned())
    };
    HttpResponse { status, headers: lines.map(header).collect(), body: body.to_owned() }
}
