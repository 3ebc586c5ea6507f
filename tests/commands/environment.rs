//! An upstream cluster and a hub that is the edge as well, in memory, and the program looking at them.

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use throughline::clock::wall_clock_now;
use throughline::core::contract::event::ClusterSpec;
use throughline::core::data::ids::Role;
use throughline_sim::SimClusters;

use crate::constants;
use crate::program::{Running, run, start_instance};
use crate::sim_apiserver::{TestServer, serve_cluster};

pub(crate) const UID: &str = "6bcb0b35-0000-4000-8000-000000000001";

/// An upstream cluster, a hub that is the edge as well, and a folder with a configuration.
pub(crate) struct Environment {
    pub(crate) up: TestServer,
    pub(crate) down: TestServer,
    pub(crate) folder: PathBuf,
}

fn status(online: bool) -> Value {
    let ready = if online { "True" } else { "False" };
    json!({"conditions": [{"type": "Ready", "status": ready, "reason": "Because"}],
        "connectionDetails": {"type": "PublicKey", "publicKey": {"id": "node"}}})
}

/// As `managedFields` have it.
fn now_in_seconds() -> String {
    format!("{}Z", &wall_clock_now().to_string()[..19])
}

impl Environment {
    pub(crate) async fn new() -> Self {
        static FOLDERS: AtomicUsize = AtomicUsize::new(0);
        let spec = |name: &str, roles| ClusterSpec { name: name.into(), roles };
        let both = vec![Role::Hub, Role::Edge];
        let mut clusters =
            SimClusters::new(&[spec("up", vec![Role::Upstream]), spec("down", both)], 0);
        clusters.advance(wall_clock_now());
        let clusters = Arc::new(Mutex::new(clusters));
        let up = serve_cluster(&clusters, "up".into()).await;
        let down = serve_cluster(&clusters, "down".into()).await;
        let number = FOLDERS.fetch_add(1, Ordering::Relaxed);
        let folder = format!("throughline-trace-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(folder);
        std::fs::create_dir_all(&folder).unwrap();
        let cluster = |served: &TestServer, roles: &[&str]| json!({"name": served.cluster, "roles": roles, "kubeconfig": served.kubeconfig(&folder)});
        let clusters = [cluster(&up, &["upstream"]), cluster(&down, &["hub", "edge"])];
        let config = json!({"clusters": clusters, "leaderElection": {"enabled": false},
            "stall": {"mirroredMs": 1000, "touchedMs": 1000}, "touch": {"confirmAfterMs": []},
            "admin": {"address": "127.0.0.1:0"}, "log": {"format": "json"}});
        constants::write(&folder.join("config.yaml"), &config);
        up.put(json!({"apiVersion": "v1", "kind": "Namespace",
            "metadata": {"name": "default", "uid": UID}}));
        let environment = Self { up, down, folder };
        environment.set_online(true);
        let platform = "networking.datumapis.com";
        let meta =
            |name: &str| json!({"namespace": format!("ns-{UID}"), "name": name, "uid": name});
        let mut replica = meta("lab");
        replica["labels"] = json!({"meta.datumapis.com/upstream-cluster-name": "cluster-up",
            "meta.datumapis.com/upstream-name": "lab",
            "meta.datumapis.com/upstream-namespace": "default"});
        environment
            .down
            .put(json!({"apiVersion": format!("{platform}/v1alpha1"), "kind": "Connector",
            "metadata": replica}));
        environment.down.put(
            json!({"apiVersion": format!("{platform}/v1alpha"), "kind": "HTTPProxy",
            "metadata": meta("app"),
            "spec": {"rules": [{"backends": [{"connector": {"name": "lab"}}]}]}}),
        );
        environment
            .down
            .put(json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway",
            "metadata": meta("app"), "spec": {"gatewayClassName": "edge"}}));
        environment
    }

    pub(crate) fn set_online(&self, online: bool) {
        self.up.put(json!({"apiVersion": "networking.datumapis.com/v1alpha1", "kind": "Connector",
            "metadata": {"namespace": "default", "name": "lab", "uid": "u-lab",
                "managedFields": [{"manager": "agent", "operation": "Update",
                    "subresource": "status", "time": now_in_seconds()}]},
            "status": status(online)}));
    }

    pub(crate) fn file(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }

    /// Runs the program on another thread than those that serve the clusters.
    pub(crate) async fn run(&self, args: &[&str], source: &[&str]) -> (i32, String, String) {
        let args: Vec<String> = args.iter().chain(source).map(|arg| (*arg).to_owned()).collect();
        let asked = tokio::task::spawn_blocking(move || {
            run(&args.iter().map(String::as_str).collect::<Vec<_>>())
        });
        asked.await.unwrap()
    }

    pub(crate) async fn live(&self, args: &[&str]) -> (i32, String, String) {
        self.run(args, &["--config", &self.file("config.yaml")]).await
    }

    /// Starts an instance that writes an event log; returns it with the URL of its admin port.
    pub(crate) async fn start_instance(&self) -> (Running, String) {
        let config = self.file("config.yaml");
        let event_log = format!("eventLog.file={}", self.file("events.jsonl"));
        start_instance(&["--config", &config, "--set", &event_log]).await
    }
}

impl Drop for Environment {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
