//! A running instance follows its configuration file.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use throughline::config::ConfigSource;
use throughline::core::contract::event::ClusterSpec;
use throughline::core::data::ids::{ClusterName, Kind, ObjectKey, Role};
use throughline::run::Run;
use throughline_sim::SimClusters;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::live::events::{UID, until};
use crate::log::Log;
use crate::sim_apiserver::{START, TestServer, serve_cluster};

/// A hub, two upstreams and a configuration file behind symbolic links, as a ConfigMap is mounted.
struct Bench {
    folder: PathBuf,
    versions: usize,
    hub: TestServer,
    upstreams: [TestServer; 2],
}

impl Drop for Bench {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn connector(namespace: &str, labels: &Value, ready: Option<&str>) -> Value {
    let status = ready.map(|ready| json!({"conditions": [{"type": "Ready", "status": ready}]}));
    json!({"apiVersion": "networking.datumapis.com/v1alpha1", "kind": "Connector", "status": status,
        "metadata": {"namespace": namespace, "name": "lab", "labels": labels}})
}

/// The namespace of the hub's copy of upstream `i`'s connector.
fn namespace(i: usize) -> String {
    format!("ns-{}{i}", &UID[..UID.len() - 1])
}

impl Bench {
    async fn new(name: &str) -> Self {
        let spec = |name: &str, role| ClusterSpec { name: name.into(), roles: vec![role] };
        let upstream = |name| spec(name, Role::Upstream);
        let specs = [spec("hub", Role::Hub), upstream("up-0"), upstream("up-1")];
        let mut sim = SimClusters::new(&specs, 0);
        sim.advance(START);
        let sim = Arc::new(Mutex::new(sim));
        let serve = |name: &str| serve_cluster(&sim, ClusterName::from(name));
        let hub = serve("hub").await;
        let upstreams = [serve("up-0").await, serve("up-1").await];
        for (i, served) in upstreams.iter().enumerate() {
            let metadata = json!({"name": "shop", "uid": namespace(i)[3..]});
            served.put(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}));
            served.put(connector("shop", &json!({}), Some("True")));
            hub.put(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {
                "name": namespace(i), "labels": {"meta.datumapis.com/upstream-namespace": "shop"}}}));
            let labels = json!({
                "meta.datumapis.com/upstream-cluster-name": format!("cluster-up-{i}"),
                "meta.datumapis.com/upstream-group": "networking.datumapis.com",
                "meta.datumapis.com/upstream-kind": "Connector",
                "meta.datumapis.com/upstream-name": "lab",
                "meta.datumapis.com/upstream-namespace": "shop",
            });
            hub.put(connector(&namespace(i), &labels, None));
        }
        let id = std::process::id();
        let folder = std::env::temp_dir().join(format!("throughline-live-reload-{id}-{name}"));
        fs::create_dir_all(&folder).unwrap();
        symlink("..data/config.yaml", folder.join("config.yaml")).unwrap();
        for served in upstreams.iter().chain([&hub]) {
            served.kubeconfig(&folder);
        }
        Self { folder, versions: 0, hub, upstreams }
    }

    /// Mounts a text as the file's next version: a directory behind a link that is swapped.
    fn mount(&mut self, text: &str) {
        self.versions += 1;
        let name = format!("..{}", self.versions);
        fs::create_dir(self.folder.join(&name)).unwrap();
        fs::write(self.folder.join(&name).join("config.yaml"), text).unwrap();
        symlink(&name, self.folder.join("..new")).unwrap();
        fs::rename(self.folder.join("..new"), self.folder.join("..data")).unwrap();
    }

    fn mount_upstreams(&mut self, upstreams: &[usize]) {
        let cluster = |name: &str, role: &str| {
            let kubeconfig = self.folder.join(name);
            json!({ "name": name, "roles": [role], "kubeconfig": kubeconfig })
        };
        let upstreams = upstreams.iter().map(|i| cluster(&format!("up-{i}"), "upstream"));
        let clusters: Vec<_> = upstreams.chain([cluster("hub", "hub")]).collect();
        let config = json!({ "clusters": clusters, "leaderElection": { "enabled": false },
            "events": { "enabled": false }, "admin": { "address": "127.0.0.1:0" } });
        self.mount(&config.to_string());
    }

    fn run(&self) -> (watch::Sender<bool>, JoinHandle<anyhow::Result<()>>) {
        let file = Some(self.folder.join("config.yaml"));
        let source = ConfigSource { file, ..ConfigSource::default() };
        let config = source.load().unwrap();
        let run = Run::new(config, Vec::new()).following(source).unwrap();
        let (stop, stopping) = watch::channel(false);
        (stop, tokio::spawn(run.until(stopping)))
    }

    fn set_ready(&self, i: usize, ready: &str) {
        self.upstreams[i].put(connector("shop", &json!({}), Some(ready)));
    }

    fn mirrored(&self, i: usize) -> String {
        let key = ObjectKey::new(namespace(i), "lab");
        let sim = self.hub.sim.lock().unwrap();
        let lab = sim.get(&self.hub.cluster, Kind::Connector, &key).unwrap();
        let key = "networking.datumapis.com/upstream-status";
        lab.meta.annotations.get(key).unwrap_or_default().to_owned()
    }

    async fn until_mirrored(&self, i: usize, ready: &str) {
        let said = format!(r#""status":"{ready}""#);
        until("the flip is mirrored", async || self.mirrored(i).contains(&said)).await;
    }
}

#[tokio::test]
async fn clusters_of_a_changed_file_join_and_leave_and_a_broken_file_changes_nothing() {
    let log = Log::default();
    let _guard = log.capture();
    let mut bench = Bench::new("join").await;
    bench.mount_upstreams(&[0]);
    let (stop, running) = bench.run();
    bench.until_mirrored(0, "True").await;
    assert_eq!(bench.mirrored(1), "");

    bench.mount_upstreams(&[0, 1]);
    log.until_contains("configuration reloaded: 1 cluster joined (up-1)").await;
    bench.until_mirrored(1, "True").await;
    bench.set_ready(1, "False");
    bench.until_mirrored(1, "False").await;

    bench.mount("clusters: [");
    log.until_contains("config.yaml is not used: ").await;
    bench.set_ready(0, "False");
    bench.until_mirrored(0, "False").await;

    // One that left is left alone; one that stays is followed.
    bench.mount_upstreams(&[1]);
    log.until_contains("configuration reloaded: 1 cluster left (up-0)").await;
    bench.set_ready(0, "True");
    bench.set_ready(1, "True");
    bench.until_mirrored(1, "True").await;
    assert!(bench.mirrored(0).contains("False"), "{}", bench.mirrored(0));

    // It joins again, from nothing.
    bench.mount_upstreams(&[1, 0]);
    bench.until_mirrored(0, "True").await;
    stop.send_replace(true);
    running.await.unwrap().unwrap();
}

#[tokio::test]
async fn an_empty_file_does_not_make_the_fleet_leave() {
    let log = Log::default();
    let _guard = log.capture();
    let mut bench = Bench::new("empty").await;
    bench.mount_upstreams(&[0, 1]);
    let (stop, running) = bench.run();
    bench.until_mirrored(1, "True").await;
    bench.mount("");
    log.until_contains("it names no cluster").await;
    assert!(!log.text().contains("send SIGHUP"), "{}", log.text());
    bench.mount_upstreams(&[]);
    log.until_contains("it takes away 2 of 3 clusters").await;
    assert!(log.text().contains("send SIGHUP"), "{}", log.text());
    bench.set_ready(0, "False");
    bench.until_mirrored(0, "False").await;
    stop.send_replace(true);
    running.await.unwrap().unwrap();
}
