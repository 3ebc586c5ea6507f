//! A Milo API server: the control planes of many projects behind one listener, and the Projects at
//! its root.
//!
//! As on a real one, nothing checks that a project exists. Every name has a control plane, which is
//! empty at first and exists as long as the server. All projects share one resourceVersion.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};

use super::fault::{Fault, ServerMode};
use super::front::Front;
use super::resource::{ApiVerb, Resource};
use super::{Server, SimApiServerSettings};
use crate::SimClusters;
use throughline_core::contract::event::ClusterSpec;
use throughline_core::data::ids::{ClusterName, Kind, ObjectKey, Role};

/// Where Milo serves its projects' control planes.
const PROJECTS: &str = "/apis/resourcemanager.miloapis.com/v1alpha1/projects/";

/// The root in the simulated clusters; no project can have this name.
const ROOT: &str = "milo/root";

pub(super) struct Milo {
    root: Arc<Server>,
    state: Mutex<MiloState>,
}

#[derive(Default)]
struct MiloState {
    /// Control planes that were ever requested, by project.
    projects: BTreeMap<ClusterName, Arc<Server>>,
    /// Requests to control planes whose project did not exist.
    unknown_requests: BTreeMap<String, u64>,
    initializes_for: Duration,
}

impl Milo {
    pub(super) fn new(sim: Arc<Mutex<SimClusters>>, settings: SimApiServerSettings) -> Self {
        let root = ClusterName::from(ROOT);
        {
            let mut sim = sim.lock().unwrap_or_else(PoisonError::into_inner);
            sim.add_cluster(&ClusterSpec { name: root.clone(), roles: Vec::new() }, None);
        }
        let front = Arc::new(Front::new(settings));
        let root = Server::new(sim, root, front);
        root.lock().state.unserved.remove(&Resource::Projects);
        Self { root: Arc::new(root), state: Mutex::default() }
    }

    pub(super) fn front(&self) -> &Arc<Front> {
        &self.root.front
    }

    pub(super) fn root(&self) -> &Arc<Server> {
        &self.root
    }

    fn state(&self) -> MutexGuard<'_, MiloState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The control plane in a path, and the rest of the path.
    pub(super) fn route<'p>(&self, path: &'p str) -> (Arc<Server>, &'p str) {
        let parts = path.strip_prefix(PROJECTS).and_then(|rest| rest.split_once("/control-plane"));
        match parts {
            Some((project, path)) if !project.contains('/') => {
                if !self.has_project(project) {
                    *self.state().unknown_requests.entry(project.to_owned()).or_default() += 1;
                }
                (self.control_plane(project), path)
            }
            _ => (self.root.clone(), path),
        }
    }

    /// A project's control plane, created at its first use.
    pub(super) fn control_plane(&self, project: &str) -> Arc<Server> {
        let name = ClusterName::from(project);
        let mut state = self.state();
        if let Some(server) = state.projects.get(&name) {
            return server.clone();
        }
        {
            let spec = ClusterSpec { name: name.clone(), roles: vec![Role::Upstream] };
            self.root.lock().sim.add_cluster(&spec, Some(&self.root.cluster));
        }
        let server = Server::new(self.root.sim.clone(), name.clone(), self.front().clone());
        server.lock().state.initializes_for = state.initializes_for;
        let server = Arc::new(server);
        state.projects.insert(name, server.clone());
        server
    }

    /// Makes this server a project's control plane.
    pub(super) fn adopt(&self, project: &str, server: Arc<Server>) {
        self.state().projects.insert(ClusterName::from(project), server);
    }

    pub(super) fn project(&self, name: &str) -> Option<Value> {
        let key = ObjectKey::new("", name);
        Some(self.root.lock().get(Resource::Projects, &key)?.to_value())
    }

    fn has_project(&self, name: &str) -> bool {
        self.root.lock().get(Resource::Projects, &ObjectKey::new("", name)).is_some()
    }

    /// Creates or replaces a Project; returns it.
    pub(super) fn put_project(&self, name: &str, object: Value) -> Value {
        let key = ObjectKey::new("", name);
        self.root.lock().put_raw(Resource::Projects, key, object).to_value()
    }

    /// Deletes the Project and the objects in its control plane, except the namespace `default`,
    /// which a new project of that name inherits. Running watches of the control plane show the
    /// deletions.
    pub(super) fn remove_project(&self, name: &str) {
        let server = self.control_plane(name);
        let mut cluster = server.lock();
        for kind in Kind::ALL {
            let objects: Vec<ObjectKey> =
                cluster.sim.objects(&server.cluster, kind).map(|o| o.meta.key()).collect();
            for key in objects.iter().filter(|key| kind != Kind::Namespace || key.name != "default")
            {
                cluster.remove(kind.into(), key);
            }
        }
        drop(cluster);
        self.root.lock().remove(Resource::Projects, &ObjectKey::new("", name));
    }

    pub(super) fn all_servers(&self) -> Vec<Arc<Server>> {
        let state = self.state();
        std::iter::once(&self.root).chain(state.projects.values()).cloned().collect()
    }

    pub(super) fn unknown_requests(&self) -> BTreeMap<String, u64> {
        self.state().unknown_requests.clone()
    }

    pub(super) fn set_initializing(&self, time: Duration) {
        self.state().initializes_for = time;
        let servers = self.all_servers();
        for server in servers.iter().filter(|server| !Arc::ptr_eq(server, &self.root)) {
            server.lock().state.initializes_for = time;
        }
    }

    /// Ends all connections without a warning, and drops the state that an API server loses at a
    /// restart.
    pub(super) fn stop(&self) {
        self.front().mode.set(ServerMode::Down);
        for server in self.all_servers() {
            let mut cluster = server.lock();
            cluster.compact();
            cluster.state.initialized.clear();
        }
    }

    pub(super) fn inject(&self, project: &str, fault: &Fault, times: usize) {
        let server = self.control_plane(project);
        let mut cluster = server.lock();
        cluster.state.faults.extend(std::iter::repeat_n(fault.clone(), times));
    }

    /// For each resource, the control planes with a running watch of it.
    pub(super) fn watched_projects(&self) -> BTreeMap<Resource, usize> {
        let servers: Vec<_> = self.state().projects.values().cloned().collect();
        let watched = |resource: Resource| {
            let watches =
                servers.iter().map(|server| server.watches[resource as usize].load(Relaxed));
            watches.filter(|watches| *watches > 0).count()
        };
        let counts = Resource::ALL.into_iter().map(|resource| (resource, watched(resource)));
        counts.filter(|(_, count)| *count > 0).collect()
    }

    /// Requests to all control planes, excluding those to the root.
    pub(super) fn project_requests(&self) -> BTreeMap<(ApiVerb, Resource), u64> {
        let mut sum = BTreeMap::new();
        let servers = self.all_servers();
        for server in servers.iter().filter(|server| !Arc::ptr_eq(server, &self.root)) {
            for (what, count) in &server.lock().state.request_counts {
                *sum.entry(*what).or_default() += count;
            }
        }
        sum
    }
}

/// A Project in Milo's form.
pub(super) fn project(labels: &[(&str, &str)], is_ready: bool) -> Value {
    let labels: serde_json::Map<String, Value> =
        labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).into())).collect();
    let mut project = json!({
        "apiVersion": Resource::Projects.api_version(),
        "kind": Resource::Projects.kind(),
        "metadata": { "labels": labels },
        "spec": { "ownerRef": { "kind": "Organization", "name": "personal-org" } },
    });
    set_ready(&mut project, is_ready);
    project
}

pub(super) fn set_ready(project: &mut Value, is_ready: bool) {
    let (status, reason) = if is_ready { ("True", "Ready") } else { ("Unknown", "Provisioning") };
    project["status"]["conditions"] = json!([{
        "type": "Ready", "status": status, "reason": reason, "message": "",
        "lastTransitionTime": "2026-01-02T03:04:05Z", "observedGeneration": 1,
    }]);
}
