//! The live path's parts, against clusters in memory served over HTTP: fast, and with faults that a
//! real API server can't be asked for. The same path on real API servers is `tests/e2e`.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

mod events;
mod executor;
#[path = "../support/front/mod.rs"]
mod front;
mod watch;

use std::path::PathBuf;
use std::sync::Arc;

use throughline::client::Cluster;
use throughline::config::ClusterConfig;
use throughline::core::ids::Role;
use throughline::metrics::Metrics;

/// A kubeconfig in a file of its own, which goes with it.
struct Kubeconfig(PathBuf);

impl Kubeconfig {
    fn of(served: &front::Served) -> Self {
        let port = served.front.address().port();
        let path =
            std::env::temp_dir().join(format!("throughline-{}-{port}.yaml", std::process::id()));
        served.write_kubeconfig(&path);
        Self(path)
    }
}

impl Drop for Kubeconfig {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn cluster(served: &front::Served, kubeconfig: &Kubeconfig) -> Arc<Cluster> {
    let config = ClusterConfig {
        name: served.cluster.clone(),
        roles: vec![Role::Upstream, Role::Edge],
        kubeconfig: Some(kubeconfig.0.clone()),
        context: None,
        in_cluster: false,
    };
    Arc::new(Cluster::new(config, Arc::new(Metrics::new())))
}
