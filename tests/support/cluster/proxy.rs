//! A proxy in front of an API server that counts requests and injects faults by rules.
//!
//! It speaks plain HTTP/1.1 with its client, or HTTP/2 over TLS where the variable
//! `THROUGHLINE_E2E_HTTP2` is set, and passes on the client's token. It buffers only the bodies of writes
//! and of their answers.

mod answers;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::BodyExt as _;
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use kube::Client;
use serde_json::Value;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

use super::apiserver::{ApiServer, token, write_kubeconfig};
use super::certificate::{Certificate, X509};
use super::faults::{Rule, Rules, Target};
use super::follow::Task;
use answers::answer_with_fault;

/// A write that passed the proxy. Writes of Kubernetes Events are kept separately.
#[derive(Clone, Debug)]
pub(crate) struct Write {
    pub(crate) at: Instant,
    pub(crate) target: Target,
    pub(crate) query: String,
    /// `Null` if there was none.
    pub(crate) body: Value,
    /// The HTTP code of the answer; 0 if the connection was closed without one.
    pub(crate) code: u16,
    /// The object's resourceVersion after the write; empty if the answer had none.
    pub(crate) resource_version: String,
}

/// What requests are counted by.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Count {
    pub(crate) method: String,
    pub(crate) resource: String,
    pub(crate) is_watch: bool,
    pub(crate) code: u16,
}

/// A proxy on loopback. Dropping it closes its connections.
pub(crate) struct FaultProxy {
    address: SocketAddr,
    folder: PathBuf,
    /// Of HTTP/2.
    ca: Option<PathBuf>,
    shared: Arc<Shared>,
    _accepting: Task,
}

struct Shared {
    backend: Client,
    rules: Mutex<Rules>,
    counts: Mutex<BTreeMap<Count, u64>>,
    writes: Mutex<Vec<Write>>,
    events: Mutex<Vec<Write>>,
    /// Incremented to close all connections.
    cuts: watch::Sender<u64>,
    frozen: watch::Sender<bool>,
    down: watch::Sender<bool>,
    open_watches: watch::Sender<usize>,
}

type Answer = Response<UnsyncBoxBody<Bytes, std::io::Error>>;

/// No answer: the connection is closed; over HTTP/2 its stream is reset.
#[derive(Debug, thiserror::Error)]
#[error("cut")]
struct CutOff;

impl FaultProxy {
    /// Starts a proxy in front of `server`, which may be down.
    pub(crate) async fn start(server: &ApiServer) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        // Without a token: the proxy passes on the client's.
        let kubeconfig = server.folder().join("proxy.kubeconfig");
        write_kubeconfig(&kubeconfig, &server.url(), Some(&server.ca()), "");
        let shared = Arc::new(Shared {
            backend: super::apiserver::client(&kubeconfig).await,
            rules: Mutex::default(),
            counts: Mutex::default(),
            writes: Mutex::default(),
            events: Mutex::default(),
            cuts: watch::Sender::new(0),
            frozen: watch::Sender::new(false),
            down: watch::Sender::new(false),
            open_watches: watch::Sender::new(0),
        });
        let folder = server.folder().to_owned();
        let is_http2 = std::env::var_os("THROUGHLINE_E2E_HTTP2").is_some();
        let certificate = is_http2.then(|| Certificate::self_signed("localhost", X509::V3));
        let ca = certificate.as_ref().map(|certificate| {
            let path = folder.join(format!("proxy-{}.crt", address.port()));
            std::fs::write(&path, certificate.pem()).unwrap();
            path
        });
        let tls = certificate.map(|certificate| certificate.acceptor(&["h2", "http/1.1"]));
        let accepting = Task::spawn(accept(listener, tls, shared.clone()));
        Self { address, folder, ca, shared, _accepting: accepting }
    }

    /// A kubeconfig that leads to the proxy.
    pub(crate) fn kubeconfig(&self, user: &str) -> PathBuf {
        let path = self.folder.join(format!("{user}-by-proxy.kubeconfig"));
        self.write_kubeconfig(&path, user);
        path
    }

    pub(crate) fn url(&self) -> String {
        let scheme = if self.ca.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", self.address)
    }

    /// The certificate behind an `https` URL.
    pub(crate) fn ca(&self) -> Option<&Path> {
        self.ca.as_deref()
    }

    pub(crate) fn write_kubeconfig(&self, path: &Path, user: &str) {
        write_kubeconfig(path, &self.url(), self.ca(), &token(user));
    }

    /// Adds a rule after the existing ones; returns its id.
    pub(crate) fn add(&self, rule: Rule) -> usize {
        self.shared.rules.lock().unwrap().add(rule)
    }

    pub(crate) fn remove(&self, rule: usize) {
        self.shared.rules.lock().unwrap().remove(rule);
    }

    pub(crate) fn clear(&self) {
        self.shared.rules.lock().unwrap().clear();
    }

    /// The number of requests that a rule was applied to, also after its removal.
    pub(crate) fn applied(&self, rule: usize) -> usize {
        self.shared.rules.lock().unwrap().applied(rule)
    }

    /// Closes every connection at once, watches too.
    pub(crate) fn cut(&self) {
        self.shared.cuts.send_modify(|cuts| *cuts += 1);
    }

    /// Keeps connections and accepts new ones, but sends no byte back.
    pub(crate) fn freeze(&self) {
        self.shared.frozen.send_replace(true);
    }

    pub(crate) fn thaw(&self) {
        self.shared.frozen.send_replace(false);
    }

    /// Closes every connection, and each new one at once.
    pub(crate) fn down(&self) {
        self.shared.down.send_replace(true);
        self.cut();
    }

    pub(crate) fn up(&self) {
        self.shared.down.send_replace(false);
    }

    /// The number of open watches.
    pub(crate) fn open_watches(&self) -> usize {
        *self.shared.open_watches.borrow()
    }

    /// All requests since the start or `reset_counts`; code 0 means no answer.
    pub(crate) fn counts(&self) -> BTreeMap<Count, u64> {
        self.shared.counts.lock().unwrap().clone()
    }

    /// The number of requests of a method and resource; an empty text stands for any.
    pub(crate) fn count(&self, method: &str, resource: &str) -> u64 {
        let counts = self.shared.counts.lock().unwrap();
        let fits = |count: &Count| {
            (method.is_empty() || count.method == method)
                && (resource.is_empty() || count.resource == resource)
        };
        counts.iter().filter(|(count, _)| fits(count)).map(|(_, n)| n).sum()
    }

    /// The number of requests that are neither watches nor writes.
    pub(crate) fn reads(&self) -> u64 {
        let counts = self.shared.counts.lock().unwrap();
        // Not those that probe HTTP/1.1 connections.
        let is_read =
            |count: &Count| count.method == "GET" && !count.is_watch && count.resource != "/livez";
        let reads = counts.iter().filter(|(count, _)| is_read(count));
        reads.map(|(_, n)| n).sum()
    }

    /// All writes except those of Events.
    pub(crate) fn writes(&self) -> Vec<Write> {
        self.shared.writes.lock().unwrap().clone()
    }

    /// Writes of Events.
    pub(crate) fn events(&self) -> Vec<Write> {
        self.shared.events.lock().unwrap().clone()
    }

    /// Resets all counts.
    pub(crate) fn reset_counts(&self) {
        self.shared.counts.lock().unwrap().clear();
        self.shared.writes.lock().unwrap().clear();
        self.shared.events.lock().unwrap().clear();
    }
}

async fn accept(listener: TcpListener, tls: Option<TlsAcceptor>, shared: Arc<Shared>) {
    let mut connections = tokio::task::JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        let Ok((stream, _)) = listener.accept().await else { return };
        if *shared.down.borrow() {
            continue;
        }
        connections.spawn(serve(stream, tls.clone(), shared.clone()));
    }
}

async fn serve(stream: TcpStream, tls: Option<TlsAcceptor>, shared: Arc<Shared>) {
    let _ = stream.set_nodelay(true);
    let mut cuts = shared.cuts.subscribe();
    let service = service_fn(|request| answer(request, shared.clone()));
    let connection = async {
        let Some(tls) = tls else {
            let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
            return;
        };
        let Ok(stream) = tls.accept(stream).await else { return };
        if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
            let http2 = http2::Builder::new(TokioExecutor::new());
            let _ = http2.serve_connection(TokioIo::new(stream), service).await;
        } else {
            let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        }
    };
    tokio::select! {
        // Dropping the connection closes it at any point.
        _ = cuts.changed() => {}
        () = connection => {}
    }
}

async fn answer(request: Request<Incoming>, shared: Arc<Shared>) -> Result<Answer, CutOff> {
    let (parts, body) = request.into_parts();
    let query = parts.uri.query().unwrap_or_default().to_owned();
    let target = Target::of(parts.method.as_str(), parts.uri.path(), &query);
    let body = body.collect().await.map_err(|_| CutOff)?.to_bytes();
    let sent = serde_json::from_slice(&body).unwrap_or_default();
    let mut record = Record::new(&shared, &target, query, sent);
    let _ = shared.frozen.subscribe().wait_for(|frozen| !frozen).await;
    let fault = shared.rules.lock().unwrap().take(&target);
    let version = &mut record.write.resource_version;
    let answer = answer_with_fault(&parts, &target, body, fault, &shared, version).await;
    record.write.code = answer.as_ref().map_or(0, |answer| answer.status().as_u16());
    answer
}

/// Counts a request once it is answered, or with code 0 if its connection ends before.
struct Record {
    shared: Arc<Shared>,
    write: Write,
}

impl Record {
    fn new(shared: &Arc<Shared>, target: &Target, query: String, body: Value) -> Self {
        let (at, target, resource_version) = (Instant::now(), target.clone(), String::new());
        let write = Write { at, target, query, body, code: 0, resource_version };
        Self { shared: shared.clone(), write }
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        let Target { method, resource, is_watch, .. } = self.write.target.clone();
        let count = Count { method, resource, is_watch, code: self.write.code };
        *self.shared.counts.lock().unwrap().entry(count).or_default() += 1;
        if self.write.target.is_write() {
            let is_event = self.write.target.resource == "events";
            let place = if is_event { &self.shared.events } else { &self.shared.writes };
            place.lock().unwrap().push(self.write.clone());
        }
    }
}
