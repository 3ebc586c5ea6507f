//! The parts of the live path against simulated API servers over HTTP: fast, and with faults that real
//! API servers can't be made to show. `tests/e2e` covers the same path with real API servers.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

mod answers;
mod connection;
mod events;
mod events_fleet;
mod executor;
mod hung;
mod lanes;
mod lists;
mod log;
#[path = "../support/sim_apiserver/mod.rs"]
mod sim_apiserver;
mod watch;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use serde_json::json;
use throughline::client::ClusterClient;
use throughline::config::ClusterConfig;
use throughline::core::data::ids::Role;
use throughline::metrics::Metrics;

/// A kubeconfig file that is deleted on drop.
struct Kubeconfig(PathBuf);

impl Kubeconfig {
    fn of(served: &sim_apiserver::TestServer) -> Self {
        let port = served.handle.address().port();
        let path =
            std::env::temp_dir().join(format!("throughline-{}-{port}.yaml", std::process::id()));
        served.write_kubeconfig(&path);
        Self(path)
    }

    /// Leads to whatever listens there.
    fn to(address: SocketAddr) -> Self {
        let config = json!({"apiVersion": "v1", "kind": "Config", "current-context": "x",
            "clusters": [{"name": "c", "cluster": {"server": format!("http://{address}")}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "users": [{"name": "u", "user": {}}]});
        let name = format!("throughline-{}-{}.yaml", std::process::id(), address.port());
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, config.to_string()).unwrap();
        Self(path)
    }
}

impl Drop for Kubeconfig {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn cluster(served: &sim_apiserver::TestServer, kubeconfig: &Kubeconfig) -> Arc<ClusterClient> {
    let config = ClusterConfig {
        name: served.cluster.clone(),
        roles: vec![Role::Upstream, Role::Edge],
        kubeconfig: Some(kubeconfig.0.clone()),
        context: None,
        in_cluster: false,
    };
    Arc::new(ClusterClient::new(config, Arc::new(Metrics::new())))
}
