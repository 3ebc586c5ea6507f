//! A Milo API server: the control planes of many projects behind one listener, and the Projects at
//! its root.
//!
//! As on a real one, nothing checks that a project exists. Every name has a control plane, which is
//! empty at first and exists as long as the server. All projects share one resourceVersion.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::Value;

use super::front::Front;
use super::resource::Resource;
use super::{Server, SimApiServerSettings};
use crate::SimClusters;
use throughline_core::contract::event::ClusterSpec;
use throughline_core::data::ids::{ClusterName, NamespacedName, Role};

/// Where Milo serves its projects' control planes.
pub(super) const PROJECTS: &str = "/apis/resourcemanager.miloapis.com/v1alpha1/projects/";

/// The root in the simulated clusters; no project can have this name.
const ROOT: &str = "milo/root";

pub(super) struct Milo {
    pub(super) root: Arc<Server>,
    state: Mutex<MiloState>,
}

/// Locked before the state of any server.
#[derive(Default)]
pub(super) struct MiloState {
    /// Control planes that were ever requested, by project.
    pub(super) projects: BTreeMap<ClusterName, Arc<Server>>,
    /// Requests to control planes whose project did not exist.
    pub(super) unknown_requests: BTreeMap<String, u64>,
    pub(super) initializes_for: Duration,
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

    pub(super) fn state(&self) -> MutexGuard<'_, MiloState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The control plane in a path, and the rest of the path.
    pub(super) fn route<'p>(&self, path: &'p str) -> (Arc<Server>, &'p str) {
        let parts = path.strip_prefix(PROJECTS).and_then(|rest| rest.split_once("/control-plane"));
        match parts {
            Some((project, path)) if !project.contains('/') => {
                if self.project(project).is_none() {
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

    pub(super) fn project(&self, name: &str) -> Option<Value> {
        let key = NamespacedName::new("", name);
        Some(self.root.lock().get(Resource::Projects, &key)?.to_value())
    }

    /// Creates or replaces a Project; returns it.
    pub(super) fn put_project(&self, name: &str, object: Value) -> Value {
        let key = NamespacedName::new("", name);
        self.root.lock().put_raw(Resource::Projects, key, object).to_value()
    }

    pub(super) fn all_servers(&self) -> Vec<Arc<Server>> {
        let state = self.state();
        std::iter::once(&self.root).chain(state.projects.values()).cloned().collect()
    }
}
