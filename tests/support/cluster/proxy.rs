//! A proxy in front of an API server that counts requests and injects faults by rules.
//!
//! It speaks plain HTTP/1.1 with its client, and passes on the client's token. It buffers only the bodies
//! of writes and of their answers.

mod answers;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use bytes::Bytes;
use http::request::Parts;
use http::{Request, Response};
use http_body_util::BodyExt as _;
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use kube::Client;
use serde_json::Value;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use super::apiserver::{ApiServer, client_without_token, token, write_kubeconfig};
use super::faults::{Fault, Rule, Target};
use super::follow::Task;
use answers::{answer_with_fault, control_plane};

/// A request, and how it was answered.
#[derive(Clone, Debug)]
pub(crate) struct Exchange {
    pub(crate) at: Instant,
    pub(crate) target: Target,
    /// `Null` if there was none.
    pub(crate) body: Value,
    /// The HTTP code of the answer; 0 if the connection was closed without one.
    pub(crate) code: u16,
    /// The object's resourceVersion after a write; empty if the answer had none.
    pub(crate) resource_version: String,
}

/// A proxy on loopback. Dropping it closes its connections.
pub(crate) struct FaultProxy {
    address: SocketAddr,
    folder: PathBuf,
    shared: Arc<Shared>,
    _accepting: Task,
}

struct Shared {
    backend: Client,
    /// The API servers behind the paths of a Milo's project control planes.
    projects: Mutex<BTreeMap<String, Client>>,
    /// Projects that were asked for and are not there.
    strangers: Mutex<BTreeSet<String>>,
    rules: Mutex<Vec<Rule>>,
    exchanges: Mutex<Vec<Exchange>>,
    /// Incremented to close all connections.
    cuts: watch::Sender<u64>,
    frozen: watch::Sender<bool>,
    down: watch::Sender<bool>,
    /// Each open watch has a clone.
    open_watches: Arc<()>,
}

impl Shared {
    async fn is_thawed(&self) {
        let _ = self.frozen.subscribe().wait_for(|frozen| !frozen).await;
    }

    /// The fault of the first rule that matches.
    fn take_fault(&self, target: &Target) -> Option<Fault> {
        self.rules.lock().unwrap().iter_mut().find_map(|rule| rule.take(target))
    }
}

type Answer = Response<UnsyncBoxBody<Bytes, std::io::Error>>;

/// No answer: the connection is closed.
#[derive(Debug, thiserror::Error)]
#[error("cut")]
struct CutOff;

impl FaultProxy {
    /// Starts a proxy in front of `server`, which may be down.
    pub(crate) async fn start(server: &ApiServer) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            // Without a token: the proxy passes on the client's.
            backend: client_without_token(&server.url()),
            projects: Mutex::default(),
            strangers: Mutex::default(),
            rules: Mutex::default(),
            exchanges: Mutex::default(),
            cuts: watch::Sender::new(0),
            frozen: watch::Sender::new(false),
            down: watch::Sender::new(false),
            open_watches: Arc::default(),
        });
        let folder = server.folder().to_owned();
        let accepting = Task::from_iter([accept(listener, shared.clone())]);
        Self { address, folder, shared, _accepting: accepting }
    }

    /// The control plane of a project is behind this proxy from now on.
    pub(crate) fn serve(&self, project: &str, plane: &FaultProxy) {
        let plane = client_without_token(&plane.url());
        self.shared.projects.lock().unwrap().insert(project.to_owned(), plane);
    }

    /// Projects that were asked for and are not there.
    pub(crate) fn strangers(&self) -> BTreeSet<String> {
        self.shared.strangers.lock().unwrap().clone()
    }

    /// A kubeconfig that leads to the proxy.
    pub(crate) fn kubeconfig(&self, user: &str) -> PathBuf {
        let path = self.folder.join(format!("{user}-by-proxy.kubeconfig"));
        self.write_kubeconfig(&path, user);
        path
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn write_kubeconfig(&self, path: &Path, user: &str) {
        write_kubeconfig(path, &self.url(), None, &token(user));
    }

    /// Adds a rule after the existing ones; returns its id.
    pub(crate) fn add(&self, rule: Rule) -> usize {
        let mut rules = self.shared.rules.lock().unwrap();
        rules.push(rule);
        rules.len() - 1
    }

    pub(crate) fn remove(&self, rule: usize) {
        self.shared.rules.lock().unwrap()[rule].left = 0;
    }

    pub(crate) fn clear(&self) {
        self.shared.rules.lock().unwrap().iter_mut().for_each(|rule| rule.left = 0);
    }

    /// The number of requests that a rule was applied to, also after its removal.
    pub(crate) fn applied(&self, rule: usize) -> usize {
        self.shared.rules.lock().unwrap()[rule].applied
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
        Arc::strong_count(&self.shared.open_watches) - 1
    }

    /// All requests that were answered, or cut off, since the start or `reset_counts`.
    pub(crate) fn exchanges(&self) -> Vec<Exchange> {
        self.shared.exchanges.lock().unwrap().clone()
    }

    pub(crate) fn count_if(&self, fits: impl Fn(&Exchange) -> bool) -> usize {
        self.shared.exchanges.lock().unwrap().iter().filter(|exchange| fits(exchange)).count()
    }

    /// The number of requests of a method and resource; an empty text stands for any.
    pub(crate) fn count(&self, method: &str, resource: &str) -> usize {
        let fits = |wanted: &str, found: &str| wanted.is_empty() || wanted == found;
        self.count_if(|of| fits(method, &of.target.method) && fits(resource, &of.target.resource))
    }

    /// The number of requests that are neither watches nor writes.
    pub(crate) fn reads(&self) -> usize {
        // Not those that probe HTTP/1.1 connections.
        let is_read = |of: &Target| !of.is_write() && !of.is_watch && of.resource != "/livez";
        self.count_if(|exchange| is_read(&exchange.target))
    }

    /// All writes except those of Events.
    pub(crate) fn writes(&self) -> Vec<Exchange> {
        self.written(false)
    }

    /// Writes of Events.
    pub(crate) fn events(&self) -> Vec<Exchange> {
        self.written(true)
    }

    fn written(&self, events: bool) -> Vec<Exchange> {
        let exchanges = self.shared.exchanges.lock().unwrap();
        let is_it = |of: &Target| of.is_write() && (of.resource == "events") == events;
        exchanges.iter().filter(|exchange| is_it(&exchange.target)).cloned().collect()
    }

    /// Resets all counts.
    pub(crate) fn reset_counts(&self) {
        self.shared.exchanges.lock().unwrap().clear();
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = tokio::task::JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        let Ok((stream, _)) = listener.accept().await else { return };
        if !*shared.down.borrow() {
            connections.spawn(serve(stream, shared.clone()));
        }
    }
}

async fn serve(stream: TcpStream, shared: Arc<Shared>) {
    let _ = stream.set_nodelay(true);
    let mut cuts = shared.cuts.subscribe();
    let service = service_fn(|request| answer(request, shared.clone()));
    tokio::select! {
        // Dropping the connection closes it at any point.
        _ = cuts.changed() => {}
        _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service) => {}
    }
}

async fn answer(request: Request<Incoming>, shared: Arc<Shared>) -> Result<Answer, CutOff> {
    let (parts, body) = request.into_parts();
    let body = body.collect().await.map_err(|_| CutOff)?.to_bytes();
    let mut record = Record::new(shared, &parts, &body);
    record.shared.is_thawed().await;
    let fault = record.shared.take_fault(&record.exchange.target);
    let answer = answer_with_fault(&parts, body, fault, &mut record).await;
    record.exchange.code = answer.as_ref().map_or(0, |answer| answer.status().as_u16());
    answer
}

/// Keeps a request once it is answered, or with code 0 if its connection ends before.
struct Record {
    shared: Arc<Shared>,
    exchange: Exchange,
}

impl Record {
    fn new(shared: Arc<Shared>, parts: &Parts, body: &Bytes) -> Self {
        let (_, path) = control_plane(parts.uri.path());
        let query = parts.uri.query().unwrap_or_default();
        let exchange = Exchange {
            at: Instant::now(),
            target: Target::of(parts.method.as_str(), path, query),
            body: serde_json::from_slice(body).unwrap_or_default(),
            code: 0,
            resource_version: String::new(),
        };
        Self { shared, exchange }
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        self.shared.exchanges.lock().unwrap().push(self.exchange.clone());
    }
}
