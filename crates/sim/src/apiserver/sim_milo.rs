//! A running Milo, for tests: adds, changes and removes projects, injects faults.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::SimApiServerSettings;
use super::connection::{Site, accept, serve};
use super::fault::{Fault, ServerMode};
use super::milo::{Milo, PROJECTS};
use super::resource::Resource;
use super::sim_api_server::SimApiServer;
use crate::SimClusters;
use throughline_core::data::ids::{ClusterName, Kind, NamespacedName};

/// A running Milo: projects and their control planes. It stops when the last `root` is dropped.
pub struct SimMilo {
    /// The server of the root, which holds the Projects. Its address, connections, mode and latency
    /// are those of all projects, too.
    pub root: Arc<SimApiServer>,
    milo: Arc<Milo>,
}

impl SimMilo {
    /// Serves on `listener` until the last `root` is dropped. Needs a tokio runtime. Each project
    /// becomes a cluster of `sim` under its name, with the role of an upstream. Otherwise like
    /// [`SimApiServer::start`].
    ///
    /// # Errors
    /// The listener has no address.
    pub fn start(
        sim: Arc<Mutex<SimClusters>>,
        listener: TcpListener,
        tls: Option<TlsAcceptor>,
        settings: SimApiServerSettings,
    ) -> std::io::Result<Self> {
        let address = listener.local_addr()?;
        let started = Self::new(sim, address, tls.is_some(), settings);
        tokio::spawn(accept(Site::Milo(started.milo.clone()), listener, tls));
        Ok(started)
    }

    /// Like [`SimMilo::start`], but without a listener: serves the connections passed to
    /// [`SimMilo::serve`]. `address` is only a name.
    pub fn start_without_listener(
        sim: Arc<Mutex<SimClusters>>,
        address: SocketAddr,
        settings: SimApiServerSettings,
    ) -> Self {
        Self::new(sim, address, false, settings)
    }

    fn new(
        sim: Arc<Mutex<SimClusters>>,
        address: SocketAddr,
        is_tls: bool,
        settings: SimApiServerSettings,
    ) -> Self {
        let milo = Arc::new(Milo::new(sim, settings));
        let root = SimApiServer { server: milo.root.clone(), address, is_tls };
        Self { root: Arc::new(root), milo }
    }

    /// As [`SimApiServer::serve`].
    pub fn serve(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        client: u32,
    ) -> impl Future<Output = ()> + Send + 'static {
        serve(Site::Milo(self.milo.clone()), stream, None, client)
    }

    /// From now on, this server is the project's control plane.
    pub fn adopt(&self, project: &str, server: &SimApiServer) {
        self.milo.state().projects.insert(ClusterName::from(project), server.server.clone());
    }

    /// The URL of a project's control plane.
    pub fn project_url(&self, project: &str) -> String {
        format!("{}{PROJECTS}{project}/control-plane", self.root.url())
    }

    /// Creates a Project and its control plane; returns the Project's uid. A project that is
    /// created again under an old name has another uid.
    pub fn add_project(&self, name: &str, labels: &[(&str, &str)], is_ready: bool) -> String {
        self.milo.control_plane(name);
        let added = self.milo.put_project(name, project(labels, is_ready));
        added["metadata"]["uid"].as_str().unwrap_or_default().to_owned()
    }

    /// Changes a Project with a closure. Does nothing if it does not exist.
    fn change_project(&self, name: &str, change: impl FnOnce(&mut Value)) {
        if let Some(mut project) = self.milo.project(name) {
            change(&mut project);
            self.milo.put_project(name, project);
        }
    }

    /// Sets the condition `Ready`.
    pub fn set_ready(&self, name: &str, is_ready: bool) {
        self.change_project(name, |project| set_ready(project, is_ready));
    }

    /// Replaces the labels.
    pub fn set_labels(&self, name: &str, labels: &[(&str, &str)]) {
        let labels: Value = labels.iter().copied().collect();
        self.change_project(name, |project| project["metadata"]["labels"] = labels);
    }

    /// Sets `deletionTimestamp`: the project is being deleted, and its finalizer still blocks that.
    pub fn start_deletion(&self, name: &str) {
        let now = self.milo.root.lock().sim.now().to_string();
        let change = |project: &mut Value| project["metadata"]["deletionTimestamp"] = now.into();
        self.change_project(name, change);
    }

    /// Deletes the Project and the objects in its control plane, except the namespace `default`,
    /// which a new project of that name inherits. Running watches of the control plane show the
    /// deletions.
    pub fn remove_project(&self, name: &str) {
        let server = self.milo.control_plane(name);
        let mut cluster = server.lock();
        for kind in Kind::ALL {
            let objects: Vec<NamespacedName> =
                cluster.sim.objects(&server.cluster, kind).map(|o| o.meta.key()).collect();
            for key in
                objects.iter().filter(|key| kind != Kind::Namespace || key.name() != "default")
            {
                cluster.remove(kind.into(), key);
            }
        }
        drop(cluster);
        self.root.remove(Resource::Projects, &NamespacedName::new("", name));
    }

    /// From now on, each resource of a control plane answers 429 "storage is (re)initializing" for
    /// this long after its first request. Zero ends this.
    pub fn set_initializing(&self, time: Duration) {
        let mut state = self.milo.state();
        state.initializes_for = time;
        for server in state.projects.values() {
            server.lock().state.initializes_for = time;
        }
    }

    /// Stops the server as a rolling restart does: all connections end without a warning, and no
    /// new ones are served until [`SimMilo::resume`]. Earlier watches get a 410.
    pub fn stop(&self) {
        self.root.set_mode(ServerMode::Down);
        for server in self.milo.all_servers() {
            let mut cluster = server.lock();
            cluster.compact();
            cluster.state.initialized.clear();
        }
    }

    /// Serves again.
    pub fn resume(&self) {
        self.root.set_mode(ServerMode::Serving);
    }

    /// Answers the next `times` matching requests to a project's control plane with `fault`.
    pub fn inject(&self, project: &str, fault: &Fault, times: usize) {
        let server = self.milo.control_plane(project);
        server.lock().state.faults.extend(std::iter::repeat_n(fault.clone(), times));
    }

    /// For each watched resource, the number of projects with a running watch of it.
    pub fn watched_projects(&self) -> BTreeMap<Resource, usize> {
        let servers: Vec<_> = self.milo.state().projects.values().cloned().collect();
        let watched = |resource: Resource| {
            servers.iter().filter(|server| server.watches[resource as usize].now() > 0).count()
        };
        let counts = Resource::ALL.into_iter().map(|resource| (resource, watched(resource)));
        counts.filter(|(_, count)| *count > 0).collect()
    }

    /// Requests to control planes whose project did not exist then, by name. They got normal
    /// responses.
    pub fn unknown_requests(&self) -> BTreeMap<String, u64> {
        self.milo.state().unknown_requests.clone()
    }
}

/// A Project in Milo's form.
fn project(labels: &[(&str, &str)], is_ready: bool) -> Value {
    let labels: Value = labels.iter().copied().collect();
    let mut project = json!({
        "apiVersion": Resource::Projects.api_version(),
        "kind": Resource::Projects.kind(),
        "metadata": { "labels": labels },
        "spec": { "ownerRef": { "kind": "Organization", "name": "personal-org" } },
    });
    set_ready(&mut project, is_ready);
    project
}

fn set_ready(project: &mut Value, is_ready: bool) {
    let (status, reason) = if is_ready { ("True", "Ready") } else { ("Unknown", "Provisioning") };
    project["status"]["conditions"] = json!([{
        "type": "Ready", "status": status, "reason": reason, "message": "",
        "lastTransitionTime": "2026-01-02T03:04:05Z", "observedGeneration": 1,
    }]);
}
