//! The start of a Milo, and the handles of running servers, for tests and the demo: inject faults, count
//! requests.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::connection::{Site, accept, serve};
use super::fault::{Fault, ServerMode};
use super::front::Front;
use super::milo::{self, Milo};
use super::resource::{ApiVerb, Resource};
use super::store::ServerBackup;
use super::{Server, SimApiServerSettings};
use crate::SimClusters;
use throughline_core::data::ids::ObjectKey;

/// A running server. Dropping it stops the server and closes its connections.
pub struct SimApiServerHandle {
    pub(super) server: Arc<Server>,
    pub(super) address: SocketAddr,
    pub(super) is_tls: bool,
}

/// `http://` or `https://` and the address.
fn url(address: SocketAddr, is_tls: bool) -> String {
    format!("{}://{address}", if is_tls { "https" } else { "http" })
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

impl From<&Front> for ServerLoad {
    fn from(front: &Front) -> Self {
        Self {
            connections: front.connections.now(),
            connections_max: front.connections.max(),
            watches: front.watches.now(),
            requests_max: front.requests.max(),
        }
    }
}

impl SimApiServerHandle {
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The server's URL, for example `http://127.0.0.1:41234`.
    pub fn url(&self) -> String {
        url(self.address, self.is_tls)
    }

    /// Serves one connection, in plain HTTP/1.1, until it ends. `client` is passed to the audit.
    pub fn serve(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        client: u32,
    ) -> impl Future<Output = ()> + Send + 'static {
        serve(Site::Cluster(self.server.clone()), stream, None, client)
    }

    /// Connections, watches and requests.
    pub fn load(&self) -> ServerLoad {
        (&*self.server.front).into()
    }

    /// Asks the clients of all HTTP/2 connections to open new ones (GOAWAY), as API servers do when
    /// they shut down. Requests on the old connections continue.
    pub fn send_goaway(&self) {
        self.server.front.goaways.modify(|count| *count += 1);
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
        self.server.lock().state.reads.lag(version, lists);
    }

    /// The watch cache follows etcd again.
    pub fn catch_up(&self) {
        let mut cluster = self.server.lock();
        cluster.state.reads.catch_up();
        cluster.sim.wake_watches(&self.server.cluster);
    }

    /// Whether watches get the bookmarks that they requested.
    pub fn set_bookmarks(&self, sends: bool) {
        self.server.lock().state.reads.has_no_bookmarks = !sends;
    }

    /// Whether all pages of a list after the first get a 410, as after a compaction.
    pub fn set_pages_expire(&self, expire: bool) {
        self.server.lock().state.reads.do_pages_expire = expire;
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
    pub fn put_raw(&self, resource: Resource, key: ObjectKey, object: Value) {
        self.server.lock().put_raw(resource, key, object);
    }

    /// Deletes an object, if it exists.
    pub fn remove(&self, resource: Resource, key: &ObjectKey) {
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

impl Drop for SimApiServerHandle {
    fn drop(&mut self) {
        self.server.front.mode.set(ServerMode::Stopped);
    }
}

/// Serves projects and their control planes.
pub struct SimMilo;

impl SimMilo {
    /// Serves on `listener` until the handle is dropped. Needs a tokio runtime. Each project
    /// becomes a cluster of `sim` under its name, with the role of an upstream. Otherwise like
    /// [`SimApiServer::start`](super::SimApiServer::start).
    ///
    /// # Errors
    /// The listener has no address.
    pub fn start(
        sim: Arc<Mutex<SimClusters>>,
        listener: TcpListener,
        tls: Option<TlsAcceptor>,
        settings: SimApiServerSettings,
    ) -> std::io::Result<SimMiloHandle> {
        let address = listener.local_addr()?;
        let is_tls = tls.is_some();
        let handle = Self::start_without_listener(sim, address, settings);
        tokio::spawn(accept(Site::Milo(handle.milo.clone()), listener, tls));
        Ok(handle.with_tls(is_tls))
    }

    /// Like [`SimMilo::start`], but without a listener: serves the connections passed to
    /// [`SimMiloHandle::serve`]. `address` is only a name.
    pub fn start_without_listener(
        sim: Arc<Mutex<SimClusters>>,
        address: SocketAddr,
        settings: SimApiServerSettings,
    ) -> SimMiloHandle {
        let milo = Arc::new(Milo::new(sim, settings));
        SimMiloHandle { milo, address, is_tls: false }
    }
}

/// A running Milo. Dropping it stops the server and closes its connections.
pub struct SimMiloHandle {
    pub(super) milo: Arc<Milo>,
    pub(super) address: SocketAddr,
    pub(super) is_tls: bool,
}

impl SimMiloHandle {
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The URL of the root.
    pub fn url(&self) -> String {
        url(self.address, self.is_tls)
    }

    pub(super) fn with_tls(mut self, is_tls: bool) -> Self {
        self.is_tls = is_tls;
        self
    }

    /// As [`SimApiServerHandle::serve`].
    pub fn serve(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        client: u32,
    ) -> impl Future<Output = ()> + Send + 'static {
        serve(Site::Milo(self.milo.clone()), stream, None, client)
    }

    /// From now on, this server is the project's control plane.
    pub fn adopt(&self, project: &str, server: &SimApiServerHandle) {
        self.milo.adopt(project, server.server.clone());
    }

    /// The server of the root, which holds the Projects. Dropping it stops the server.
    pub fn root(&self) -> SimApiServerHandle {
        SimApiServerHandle {
            server: self.milo.root().clone(),
            address: self.address,
            is_tls: self.is_tls,
        }
    }

    /// The URL of a project's control plane.
    pub fn project_url(&self, project: &str) -> String {
        let path = "apis/resourcemanager.miloapis.com/v1alpha1/projects";
        format!("{}/{path}/{project}/control-plane", self.url())
    }

    /// Creates a Project and its control plane; returns the Project's uid. A project that is
    /// created again under an old name has another uid.
    pub fn add_project(&self, name: &str, labels: &[(&str, &str)], is_ready: bool) -> String {
        self.milo.control_plane(name);
        let project = self.milo.put_project(name, milo::project(labels, is_ready));
        project["metadata"]["uid"].as_str().unwrap_or_default().to_owned()
    }

    /// Changes a Project with a closure. Does nothing if it does not exist.
    pub fn change_project(&self, name: &str, change: impl FnOnce(&mut Value)) {
        if let Some(mut project) = self.milo.project(name) {
            change(&mut project);
            self.milo.put_project(name, project);
        }
    }

    /// Sets the condition `Ready`.
    pub fn set_ready(&self, name: &str, is_ready: bool) {
        self.change_project(name, |project| milo::set_ready(project, is_ready));
    }

    /// Replaces the labels.
    pub fn set_labels(&self, name: &str, labels: &[(&str, &str)]) {
        let labels: BTreeMap<_, _> = labels.iter().copied().collect();
        self.change_project(name, |project| project["metadata"]["labels"] = json!(labels));
    }

    /// Sets `deletionTimestamp`: the project is being deleted, and its finalizer still blocks that.
    pub fn start_deletion(&self, name: &str) {
        let now = self.milo.root().lock().sim.now().to_string();
        let change = |project: &mut Value| project["metadata"]["deletionTimestamp"] = now.into();
        self.change_project(name, change);
    }

    /// Deletes the Project, and everything in its control plane except the namespace `default`.
    pub fn remove_project(&self, name: &str) {
        self.milo.remove_project(name);
    }

    /// From now on, each resource of a control plane answers 429 "storage is (re)initializing" for
    /// this long after its first request. Zero ends this.
    pub fn set_initializing(&self, time: Duration) {
        self.milo.set_initializing(time);
    }

    /// Stops the server as a rolling restart does: all connections end without a warning, and no
    /// new ones are served until [`SimMiloHandle::resume`]. Earlier watches get a 410.
    pub fn stop(&self) {
        self.milo.stop();
    }

    /// Serves again.
    pub fn resume(&self) {
        self.milo.front().mode.set(ServerMode::Serving);
    }

    /// As [`SimApiServerHandle::set_mode`], for the root and all projects.
    pub fn set_mode(&self, mode: ServerMode) {
        self.milo.front().mode.set(mode);
    }

    /// As [`SimApiServerHandle::set_latency`].
    pub fn set_latency(&self, latency: Duration) {
        self.milo.front().latency.set(latency);
    }

    /// As [`SimApiServerHandle::send_goaway`].
    pub fn send_goaway(&self) {
        self.milo.front().goaways.modify(|count| *count += 1);
    }

    /// Breaks all running watches, of the root and all projects.
    pub fn cut_watches(&self) {
        self.milo.all_servers().iter().for_each(|server| server.cut_watches(None));
    }

    /// Answers the next `times` matching requests to a project's control plane with `fault`.
    pub fn inject(&self, project: &str, fault: &Fault, times: usize) {
        self.milo.inject(project, fault, times);
    }

    /// Answers the next `times` matching requests to the root with `fault`.
    pub fn inject_at_root(&self, fault: &Fault, times: usize) {
        let mut root = self.milo.root().lock();
        root.state.faults.extend(std::iter::repeat_n(fault.clone(), times));
    }

    /// Connections, watches and requests, of the root and all projects.
    pub fn load(&self) -> ServerLoad {
        (&**self.milo.front()).into()
    }

    /// For each watched resource, the number of projects with a running watch of it.
    pub fn watched_projects(&self) -> BTreeMap<Resource, usize> {
        self.milo.watched_projects()
    }

    /// Requests to the control planes of all projects, as [`SimApiServerHandle::requests`].
    pub fn project_requests(&self) -> BTreeMap<(ApiVerb, Resource), u64> {
        self.milo.project_requests()
    }

    /// Requests to the root.
    pub fn root_requests(&self) -> BTreeMap<(ApiVerb, Resource), u64> {
        self.milo.root().lock().state.request_counts.clone()
    }

    /// Requests to control planes whose project did not exist then, by name. They got normal
    /// responses.
    pub fn unknown_requests(&self) -> BTreeMap<String, u64> {
        self.milo.unknown_requests()
    }
}

impl Drop for SimMiloHandle {
    fn drop(&mut self) {
        self.milo.front().mode.set(ServerMode::Stopped);
    }
}
