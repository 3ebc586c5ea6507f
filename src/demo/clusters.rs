//! Serves the clusters of a recording on loopback and writes a kubeconfig for them.

use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use anyhow::Context;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::clock::Clock;
use crate::config::ClusterConfig;
use crate::core::contract::event::ClusterSpec;
use crate::core::data::ids::{ClusterName, Kind};
use crate::replay::RequestCounts;
use throughline_sim::SimClusters;
use throughline_sim::apiserver::{ServerMode, SimApiServer, SimApiServerSettings};

/// A temporary folder of this run; removed when dropped.
pub(super) struct TempFolder(PathBuf);

impl TempFolder {
    /// Creates a folder that other users cannot read.
    pub(super) fn new() -> anyhow::Result<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("throughline-demo-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        // Fails if the path exists: it belongs to another process.
        fs::DirBuilder::new()
            .mode(0o700)
            .create(&path)
            .with_context(|| format!("creating the folder {} (TMPDIR)", path.display()))?;
        Ok(Self(path))
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TempFolder {
    fn drop(&mut self) {
        // If this fails, the system cleans up its temporary files.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The clusters of a recording, served until this is dropped.
pub(super) struct DemoClusters {
    servers: Vec<(ClusterSpec, SimApiServer)>,
}

impl DemoClusters {
    /// Serves each cluster; the simulated time follows `clock` from now on.
    pub(super) async fn serve(
        sim: &Arc<Mutex<SimClusters>>,
        clusters: &[ClusterSpec],
        clock: Clock,
    ) -> anyhow::Result<Self> {
        let mut servers = Vec::with_capacity(clusters.len());
        for spec in clusters {
            let listener = TcpListener::bind("127.0.0.1:0")
                .await
                .with_context(|| format!("listening on 127.0.0.1 for the cluster {}", spec.name))?;
            let settings = SimApiServerSettings {
                clock: Some(Arc::new(move || clock.now())),
                ..SimApiServerSettings::default()
            };
            let name = spec.name.clone();
            let server = SimApiServer::start(sim.clone(), name, listener, None, settings)
                .with_context(|| format!("serving the cluster {}", spec.name))?;
            servers.push((spec.clone(), server));
        }
        Ok(Self { servers })
    }

    /// Writes a kubeconfig for the clusters and returns their configuration.
    pub(super) fn write_kubeconfig(&self, folder: &Path) -> anyhow::Result<Vec<ClusterConfig>> {
        let each = |entry: fn(&ClusterSpec, &SimApiServer) -> Value| -> Vec<Value> {
            self.servers.iter().map(|(spec, server)| entry(spec, server)).collect()
        };
        let content = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": each(|spec, server| {
                json!({ "name": spec.name, "cluster": { "server": server.url() } })
            }),
            "users": [{ "name": "demo", "user": {} }],
            "contexts": each(|spec, _| {
                json!({ "name": spec.name, "context": { "cluster": spec.name, "user": "demo" } })
            }),
        });
        let path = folder.join("kubeconfig");
        fs::write(&path, content.to_string())
            .with_context(|| format!("writing {}", path.display()))?;
        let config = |(spec, _): &(ClusterSpec, SimApiServer)| ClusterConfig {
            name: spec.name.clone(),
            roles: spec.roles.clone(),
            kubeconfig: Some(path.clone()),
            context: Some(spec.name.to_string()),
            in_cluster: false,
        };
        Ok(self.servers.iter().map(config).collect())
    }

    /// Answers requests for a kind with 404, as before its CRD is installed.
    pub(super) fn stop_serving(&self, cluster: &ClusterName, kind: Kind) {
        for (_, server) in self.servers.iter().filter(|(spec, _)| spec.name == *cluster) {
            server.set_served(kind, false);
        }
    }

    /// Takes a cluster down, or brings it back.
    pub(super) fn set_down(&self, cluster: &ClusterName, down: bool) {
        for (_, server) in self.servers.iter().filter(|(spec, _)| spec.name == *cluster) {
            server.set_mode(if down { ServerMode::Down } else { ServerMode::Serving });
        }
    }

    /// The requests that the API servers received.
    pub(super) fn requests(&self) -> Vec<RequestCounts> {
        let of_one = |(spec, server): &(ClusterSpec, SimApiServer)| {
            let cluster = spec.name.clone();
            let requests = server.requests().into_iter();
            requests.map(move |((verb, resource), count)| RequestCounts {
                cluster: cluster.clone(),
                verb: verb.as_str(),
                resource: resource.plural(),
                writes: verb.is_write(),
                count,
            })
        };
        self.servers.iter().flat_map(of_one).collect()
    }
}
