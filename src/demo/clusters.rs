//! The clusters of a recording, served on loopback, and the kubeconfig that leads to them.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use anyhow::Context;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::clock::Clock;
use crate::config::ClusterConfig;
use crate::core::ids::{ClusterName, Kind};
use crate::event_log::ClusterSpec;
use crate::front::{Front, FrontHandle, FrontSettings, Mode};
use crate::replay::Requests;
use crate::world::World;

/// A folder of this run's own; it is removed when dropped.
pub(super) struct Folder(PathBuf);

impl Folder {
    /// Makes one that nobody else can look into.
    pub(super) fn new() -> anyhow::Result<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("throughline-demo-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        // What is there already is not ours.
        fs::DirBuilder::new()
            .mode(0o700)
            .create(&path)
            .with_context(|| format!("making the folder {} (TMPDIR)", path.display()))?;
        Ok(Self(path))
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What can't be removed is left to whoever cleans up the folder for temporary files.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The clusters, served until this is dropped.
pub(super) struct Clusters {
    fronts: Vec<(ClusterSpec, FrontHandle)>,
}

impl Clusters {
    /// Serves the clusters of `world`; its time follows `clock` from now on.
    pub(super) async fn serve(
        world: &Arc<Mutex<World>>,
        clusters: &[ClusterSpec],
        clock: Clock,
    ) -> anyhow::Result<Self> {
        let mut fronts = Vec::with_capacity(clusters.len());
        for spec in clusters {
            let listener = TcpListener::bind("127.0.0.1:0")
                .await
                .with_context(|| format!("listening on 127.0.0.1 for the cluster {}", spec.name))?;
            let settings = FrontSettings { clock: Some(clock), ..FrontSettings::default() };
            let front = Front::start(world.clone(), spec.name.clone(), listener, settings)
                .with_context(|| format!("serving the cluster {}", spec.name))?;
            fronts.push((spec.clone(), front));
        }
        Ok(Self { fronts })
    }

    /// Writes the kubeconfig, and gives what a configuration says of the clusters.
    pub(super) fn kubeconfig(&self, folder: &Path) -> anyhow::Result<Vec<ClusterConfig>> {
        let each = |entry: fn(&ClusterSpec, &FrontHandle) -> Value| -> Vec<Value> {
            self.fronts.iter().map(|(spec, front)| entry(spec, front)).collect()
        };
        let content = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": each(|spec, front| {
                json!({ "name": spec.name, "cluster": { "server": front.url() } })
            }),
            "users": [{ "name": "demo", "user": {} }],
            "contexts": each(|spec, _| {
                json!({ "name": spec.name, "context": { "cluster": spec.name, "user": "demo" } })
            }),
        });
        let path = folder.join("kubeconfig");
        let file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
        file.and_then(|mut file| file.write_all(content.to_string().as_bytes()))
            .with_context(|| format!("writing {}", path.display()))?;
        let config = |(spec, _): &(ClusterSpec, FrontHandle)| ClusterConfig {
            name: spec.name.clone(),
            roles: spec.roles.clone(),
            kubeconfig: Some(path.clone()),
            context: Some(spec.name.to_string()),
            in_cluster: false,
        };
        Ok(self.fronts.iter().map(config).collect())
    }

    /// A kind that answers 404, as before its CRD is installed.
    pub(super) fn hide(&self, cluster: &ClusterName, kind: Kind) {
        for (_, front) in self.fronts.iter().filter(|(spec, _)| spec.name == *cluster) {
            front.set_served(kind, false);
        }
    }

    /// Takes a cluster down, or brings it back.
    pub(super) fn set_up(&self, cluster: &ClusterName, up: bool) {
        for (_, front) in self.fronts.iter().filter(|(spec, _)| spec.name == *cluster) {
            front.set_mode(if up { Mode::Serving } else { Mode::Down });
        }
    }

    /// What was asked of them.
    pub(super) fn requests(&self) -> Vec<Requests> {
        let of_one = |(spec, front): &(ClusterSpec, FrontHandle)| {
            let cluster = spec.name.clone();
            let requests = front.requests().into_iter();
            requests.map(move |((verb, resource), count)| Requests {
                cluster: cluster.clone(),
                verb: verb.as_str(),
                resource: resource.plural(),
                writes: verb.writes(),
                count,
            })
        };
        self.fronts.iter().flat_map(of_one).collect()
    }
}
