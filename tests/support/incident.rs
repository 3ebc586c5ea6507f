//! An upstream cluster, a hub and an edge in memory, with things that must not leave them, and a
//! configuration.

#![allow(dead_code, unused_imports, reason = "each test file uses a part of it")]

#[path = "program.rs"]
pub(crate) mod program;

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use throughline::clock::wall_clock_now;
use throughline::core::data::ids::Role;
use throughline::event_log::ClusterSpec;
use throughline::sim::SimClusters;

use crate::sim_apiserver::{TestServer, serve_cluster};
pub(crate) use program::{Running, program, run, start_instance};

const UID: &str = "6bcb0b35-0000-4000-8000-000000000001";
const PLATFORM: &str = "networking.datumapis.com";

/// None of these may be in a report.
pub(crate) const SECRETS: [&str; 6] = [
    "203.0.113.77",
    "relay.customer.example:4433",
    "https://hook.internal.example/validate?key=1",
    "eyJhbGciOiJSUzI1NiIsImtpZCI6InBsYW50ZWQifQ",
    "planted-kubeconfig-token",
    "0f1e2d3c4b5a69788796a5b4c3d2e1f00f1e2d3c4b5a69788796a5b4c3d2e1f0",
];

/// An upstream cluster, a hub and an edge, and a folder with a configuration.
pub(crate) struct Fleet {
    pub(crate) up: TestServer,
    pub(crate) hub: TestServer,
    pub(crate) edge: TestServer,
    pub(crate) folder: PathBuf,
}

fn connector(namespace: &str, labels: &Value, status: &Value) -> Value {
    json!({"apiVersion": format!("{PLATFORM}/v1alpha1"), "kind": "Connector",
        "metadata": {"namespace": namespace, "name": "lab", "labels": labels,
            "uid": format!("uid-{namespace}")},
        "status": status})
}

fn status(online: bool) -> Value {
    let ready = if online { "True" } else { "False" };
    json!({"conditions": [{"type": "Ready", "status": ready, "reason": "Because",
            "message": format!("dial {}: Bearer {}", SECRETS[0], SECRETS[3])}],
        "connectionDetails": {"type": "PublicKey",
            "publicKey": {"id": SECRETS[5], "addresses": [{"address": SECRETS[0]}],
                "homeRelay": SECRETS[1]}}})
}

impl Fleet {
    pub(crate) async fn new() -> Self {
        static FOLDERS: AtomicUsize = AtomicUsize::new(0);
        let spec = |name: &str, role| ClusterSpec { name: name.into(), roles: vec![role] };
        let specs = [spec("up", Role::Upstream), spec("hub", Role::Hub), spec("edge", Role::Edge)];
        let mut clusters = SimClusters::new(&specs, 0);
        clusters.advance(wall_clock_now());
        let clusters = Arc::new(Mutex::new(clusters));
        let up = serve_cluster(&clusters, "up".into()).await;
        let hub = serve_cluster(&clusters, "hub".into()).await;
        let edge = serve_cluster(&clusters, "edge".into()).await;
        let number = FOLDERS.fetch_add(1, Ordering::Relaxed);
        let folder = format!("throughline-incident-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(folder);
        std::fs::create_dir_all(&folder).unwrap();
        let cluster = |served: &TestServer, role: &str| {
            let file = served.kubeconfig(&folder);
            let text = std::fs::read_to_string(&file).unwrap();
            let mut kubeconfig: Value = serde_json::from_str(&text).unwrap();
            kubeconfig["users"][0]["user"]["token"] = SECRETS[4].into();
            std::fs::write(&file, kubeconfig.to_string()).unwrap();
            json!({"name": served.cluster, "roles": [role], "kubeconfig": file})
        };
        let clusters = [cluster(&up, "upstream"), cluster(&hub, "hub"), cluster(&edge, "edge")];
        let config = json!({"clusters": clusters, "leaderElection": {"enabled": false},
            "stall": {"mirroredMs": 1000}, "touch": {"confirmAfterMs": []},
            "eventLog": {"file": folder.join("events.jsonl"), "redact": false},
            "admin": {"address": "127.0.0.1:0"}, "log": {"format": "json"}});
        std::fs::write(folder.join("config.yaml"), config.to_string()).unwrap();
        up.put(json!({"apiVersion": "v1", "kind": "Namespace",
            "metadata": {"name": "default", "uid": UID}}));
        up.put(connector("default", &json!({}), &status(true)));
        let labels = json!({"meta.datumapis.com/upstream-cluster-name": "cluster-up",
            "meta.datumapis.com/upstream-name": "lab",
            "meta.datumapis.com/upstream-namespace": "default"});
        hub.put(connector(&namespace(), &labels, &Value::Null));
        edge.put(connector(&namespace(), &labels, &Value::Null));
        edge.put(json!({"apiVersion": format!("{PLATFORM}/v1alpha"), "kind": "HTTPProxy",
            "metadata": {"namespace": namespace(), "name": "app", "uid": "p"},
            "spec": {"rules": [{"backends": [{"connector": {"name": "lab"}}]}]}}));
        edge.put(json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway",
            "metadata": {"namespace": namespace(), "name": "app", "uid": "g"},
            "spec": {"gatewayClassName": "edge"}}));
        Self { up, hub, edge, folder }
    }

    pub(crate) fn file(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }

    /// Runs the program on another thread than those that serve the clusters.
    pub(crate) async fn run(&self, args: &[&str]) -> (i32, String, String) {
        let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
        let asked = tokio::task::spawn_blocking(move || {
            run(&args.iter().map(String::as_str).collect::<Vec<_>>())
        });
        asked.await.unwrap()
    }

    /// Starts an instance; returns it with the URL of its admin port.
    pub(crate) async fn start_instance(&self) -> (Running, String) {
        start_instance(&["--config", &self.file("config.yaml")]).await
    }
}

pub(crate) fn namespace() -> String {
    format!("ns-{UID}")
}

impl Drop for Fleet {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
