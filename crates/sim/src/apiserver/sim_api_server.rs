//! A running server, for tests and the demo: injects faults, counts requests.

use std::collections::BTreeMap;
use std::error::Error;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::{Request, Response};
use hyper::body::Body as HttpBody;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::body::Body;
use super::connection::{Site, accept, respond, serve};
use super::fault::{Fault, ServerMode};
use super::front::Front;
use super::resource::{ApiVerb, Resource};
use super::store::ServerBackup;
use super::{Server, SimApiServerSettings};
use crate::{SimClusters, WatchNotice};
use throughline_core::contract::event::ClusterSpec;
use throughline_core::data::ids::{ClusterName, NamespacedName, Role};
use throughline_core::data::objects::{Body as ObjectBody, Meta, Object};
use throughline_core::data::time::UnixMillis;

/// A running server of one simulated cluster. Dropping it stops the server and closes its
/// connections.
pub struct SimApiServer {
    pub(super) server: Arc<Server>,
    pub(super) address: SocketAddr,
    pub(super) is_tls: bool,
}

/// Current counts of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerLoad {
    /// Open connections.
    pub connections: usize,
    /// The highest number of open connections so far.
    pub connections_max: usize,
    /// Running watches.
    pub watches: usize,
    /// The highest number of requests that waited for their response. A started watch has its
    /// response.
    pub requests_max: usize,
}

impl SimApiServer {
    /// Serves `cluster` on `listener` until the server is dropped, in TLS if there is an acceptor.
    /// Connections use HTTP/2 if acceptor and client agree on the protocol `h2` (ALPN), and HTTP/1.1
    /// otherwise. Needs a tokio runtime. From now on the clusters keep histories and managed fields,
    /// and [`SimClusters::poll_event`] returns nothing. The caller makes changes in the clusters and,
    /// without a clock, advances their time.
    ///
    /// # Errors
    /// The listener has no address.
    pub fn start(
        sim: Arc<Mutex<SimClusters>>,
        cluster: ClusterName,
        listener: TcpListener,
        tls: Option<TlsAcceptor>,
        settings: SimApiServerSettings,
    ) -> std::io::Result<Self> {
        let address = listener.local_addr()?;
        let is_tls = tls.is_some();
        let server = Arc::new(Server::new(sim, cluster, Arc::new(Front::new(settings))));
        tokio::spawn(accept(Site::Cluster(server.clone()), listener, tls));
        Ok(Self { server, address, is_tls })
    }

    /// Serves one cluster on a free port of this machine. It has the namespace `default` and
    /// nothing else. Needs a tokio runtime.
    ///
    /// # Errors
    /// No port is available.
    pub async fn start_one() -> std::io::Result<Self> {
        let spec = ClusterSpec { name: ClusterName::from("one"), roles: vec![Role::Edge] };
        let mut sim = SimClusters::new(std::slice::from_ref(&spec), 0);
        let meta = Meta { name: "default".into(), ..Meta::default() };
        let namespace = Object { meta, body: ObjectBody::Namespace };
        sim.put(&spec.name, namespace, "kube-apiserver", WatchNotice::Applied);
        let sim = Arc::new(Mutex::new(sim));
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let clock = || {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            UnixMillis(u64::try_from(now.as_millis()).unwrap_or(u64::MAX))
        };
        let settings = SimApiServerSettings {
            clock: Some(Arc::new(clock)),
            ..SimApiServerSettings::default()
        };
        Self::start(sim, spec.name, listener, None, settings)
    }

    /// Like [`SimApiServer::start`], but without a listener: serves the connections passed to
    /// [`SimApiServer::serve`]. `address` is only a name.
    pub fn start_without_listener(
        sim: Arc<Mutex<SimClusters>>,
        cluster: ClusterName,
        address: SocketAddr,
        settings: SimApiServerSettings,
    ) -> Self {
        let server = Arc::new(Server::new(sim, cluster, Arc::new(Front::new(settings))));
        Self { server, address, is_tls: false }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The server's URL, for example `http://127.0.0.1:41234`.
    pub fn url(&self) -> String {
        format!("{}://{}", if self.is_tls { "https" } else { "http" }, self.address)
    }

    /// Serves one connection, in plain HTTP/1.1, until it ends. `client` is passed to the audit.
    pub fn serve(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        client: u32,
    ) -> impl Future<Output = ()> + Send + 'static {
        serve(Site::Cluster(self.server.clone()), stream, None, client)
    }

    /// Answers a request without a connection.
    pub async fn answer(
        &self,
        request: Request<impl HttpBody<Error: Into<Box<dyn Error + Send + Sync>>>>,
    ) -> Response<Body> {
        let Ok(response) = respond(Site::Cluster(self.server.clone()), 0, request).await;
        response
    }

    /// Connections, watches and requests.
    pub fn load(&self) -> ServerLoad {
        let front = &self.server.front;
        ServerLoad {
            connections: front.connections.now(),
            connections_max: front.connections.max(),
            watches: front.watches.now(),
            requests_max: front.requests.max(),
        }
    }

    /// Asks the clients of all HTTP/2 connections to open new ones (GOAWAY), as API servers do when
    /// they shut down. Requests on the old connections continue.
    pub fn send_goaway(&self) {
        self.server.front.goaways.set(());
    }

    /// Takes the cluster down, freezes it, or brings it back. While it is down, the carrier cannot
    /// reach it, either.
    pub fn set_mode(&self, mode: ServerMode) {
        self.server.lock().sim.set_reachable(&self.server.cluster, mode != ServerMode::Down);
        self.server.front.mode.set(mode);
    }

    /// Breaks the running watches of one resource, or of all; new watches are accepted.
    pub fn cut_watches(&self, resource: Option<Resource>) {
        self.server.cut_watches(resource);
    }

    /// Drops the history until now, as an etcd compaction does: watches from earlier versions and
    /// further pages of running lists get a 410.
    pub fn compact(&self) {
        self.server.lock().compact();
    }

    /// Answers the next `times` matching requests with `fault`, after faults injected earlier.
    pub fn inject(&self, fault: &Fault, times: usize) {
        let mut cluster = self.server.lock();
        cluster.state.faults.extend(std::iter::repeat_n(fault.clone(), times));
    }

    /// Removes the faults that have not occurred yet, and the repetitions of writes.
    pub fn clear_faults(&self) {
        let mut cluster = self.server.lock();
        cluster.state.faults.clear();
        cluster.state.repeats.clear();
    }

    /// Delays the execution of every request; a watch is delayed once, at its start.
    pub fn set_latency(&self, latency: Duration) {
        self.server.front.latency.set(latency);
    }

    /// Whether a resource is served; otherwise requests get a 404, as before its CRD is installed.
    /// Running watches continue.
    pub fn set_served(&self, resource: impl Into<Resource>, served: bool) {
        let mut cluster = self.server.lock();
        match (resource.into(), served) {
            (resource, true) => cluster.state.unserved.remove(&resource),
            (resource, false) => cluster.state.unserved.insert(resource),
        };
    }

    /// From now on, accepts only this bearer token; others get a 401. Running watches continue.
    pub fn set_token(&self, token: &str) {
        self.server.lock().state.token = Some(token.to_owned());
    }

    /// The cluster's resourceVersion.
    pub fn version(&self) -> u64 {
        self.server.lock().version()
    }

    /// From now on, the watch cache stays at `version`: watches show nothing newer. With `lists`,
    /// neither do lists.
    pub fn lag_reads(&self, version: u64, lists: bool) {
        let mut cluster = self.server.lock();
        cluster.state.cached = Some(version);
        cluster.state.are_lists_cached = lists;
    }

    /// The watch cache follows etcd again.
    pub fn catch_up(&self) {
        let mut cluster = self.server.lock();
        cluster.state.cached = None;
        cluster.sim.wake_watches(&self.server.cluster);
    }

    /// Whether watches get the bookmarks that they requested.
    pub fn set_bookmarks(&self, sends: bool) {
        self.server.lock().state.has_no_bookmarks = !sends;
    }

    /// Whether all pages of a list after the first get a 410, as after a compaction.
    pub fn set_pages_expire(&self, expire: bool) {
        self.server.lock().state.do_pages_expire = expire;
    }

    /// Repeats each of the next `times` writes after this time, like a proxy that repeats a request
    /// after a time-out. No client gets the second response.
    pub fn repeat_writes(&self, times: usize, after: Duration) {
        let mut cluster = self.server.lock();
        cluster.state.repeats.extend(std::iter::repeat_n(after, times));
    }

    /// All objects of the cluster, including Leases and Events.
    pub fn backup(&self) -> Option<ServerBackup> {
        self.server.lock().backup()
    }

    /// Restores the cluster from a backup, like an etcd restore: the server restarts.
    pub fn restore(&self, backup: &ServerBackup) {
        self.server.lock().restore(backup);
        self.cut_watches(None);
    }

    /// The etcd lost all data: the cluster is like a new one.
    pub fn lose_everything(&self) {
        self.restore(&ServerBackup::default());
    }

    /// Creates or replaces an object of a kind that is not in [`SimClusters`].
    pub fn put_raw(&self, resource: Resource, key: NamespacedName, object: Value) {
        self.server.lock().put_raw(resource, key, object);
    }

    /// Deletes an object, if it exists.
    pub fn remove(&self, resource: Resource, key: &NamespacedName) {
        self.server.lock().remove(resource, key);
    }

    /// Requests since the start, by verb and resource, including those answered with a fault.
    /// Requests for unknown paths are not counted.
    pub fn requests(&self) -> BTreeMap<(ApiVerb, Resource), u64> {
        self.server.lock().state.request_counts.clone()
    }

    /// The number of write requests since the start.
    pub fn writes(&self) -> u64 {
        self.requests().iter().filter(|((verb, _), _)| verb.is_write()).map(|(_, n)| n).sum()
    }
}

impl Drop for SimApiServer {
    fn drop(&mut self) {
        self.server.front.mode.set(ServerMode::Stopped);
    }
}
