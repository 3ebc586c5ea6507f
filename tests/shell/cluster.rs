//! Clusters as a configuration names them, and writes to them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Value, json};
use throughline::client::ClusterClient;
use throughline::config::ClusterConfig;
use throughline::core::contract::action::{Action, Decision, Precondition, Urgency, Verb};
use throughline::core::data::ids::{ActionId, ClusterName, Kind, ObjectKey, Role};
use throughline::core::data::time::UnixMillis;
use throughline::metrics::Metrics;

use crate::sim_apiserver::TestServer;

pub(crate) fn configured(
    name: impl Into<ClusterName>,
    roles: &[Role],
    kubeconfig: Option<&Path>,
) -> ClusterConfig {
    ClusterConfig {
        name: name.into(),
        roles: roles.to_vec(),
        kubeconfig: kubeconfig.map(Path::to_owned),
        context: None,
        in_cluster: false,
    }
}

pub(crate) fn client(config: ClusterConfig) -> Arc<ClusterClient> {
    Arc::new(ClusterClient::new(config, Arc::new(Metrics::new())))
}

/// A kubeconfig with one context.
pub(crate) fn kubeconfig(cluster: &Value, user: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Config", "current-context": "x",
        "clusters": [{"name": "c", "cluster": cluster}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "users": [{"name": "u", "user": user}]})
}

/// A kubeconfig file that is deleted on drop.
pub(crate) struct Kubeconfig(pub(crate) PathBuf);

impl Kubeconfig {
    pub(crate) fn of(served: &TestServer) -> Self {
        let file = Self::new(served.handle.address().port());
        served.write_kubeconfig(&file.0);
        file
    }

    /// Of the server at this port.
    pub(crate) fn with(port: u16, text: &Value) -> Self {
        let file = Self::new(port);
        std::fs::write(&file.0, text.to_string()).unwrap();
        file
    }

    /// Leads to whatever listens there.
    pub(crate) fn to(port: u16) -> Self {
        let server = json!({"server": format!("http://127.0.0.1:{port}")});
        Self::with(port, &kubeconfig(&server, &json!({})))
    }

    fn new(port: u16) -> Self {
        let name = format!("throughline-{}-{port}.yaml", std::process::id());
        Self(std::env::temp_dir().join(name))
    }
}

impl Drop for Kubeconfig {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// A write of one annotation in cluster `one`.
pub(crate) fn write(id: u64, verb: Verb, kind: Kind, name: &str) -> Action {
    Action {
        id: ActionId(id),
        verb,
        cluster: ClusterName::from("one"),
        kind,
        object: ObjectKey::new("n", name),
        annotations: vec![("k".into(), Some("v".into()))],
        precondition: Precondition::default(),
        connectors: Vec::new(),
    }
}

pub(crate) fn decision(action: Action) -> Decision {
    let urgency = Urgency::of(action.verb);
    Decision { at: UnixMillis(1), urgency, action, because: "of a test".into() }
}
