//! Clusters join and leave while a run goes on.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::json;
use throughline::config::{ClusterConfig, Config, KubeconfigDirConfig};
use throughline::core::contract::event::ClusterSpec;
use throughline::core::data::ids::{ClusterName, Kind, ObjectKey, Role};
use throughline::run::Run;
use throughline_sim::SimClusters;
use throughline_sim::apiserver::{ApiVerb, Fault, Resource};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use crate::live::events::{UID, until};
use crate::live::{Kubeconfig, configured};
use crate::sim_apiserver::{START, TestServer, serve_cluster};

const STATUS: &str = "networking.datumapis.com/upstream-status";

/// A hub, a project and a run that may follow them.
pub(crate) struct Bench {
    pub(crate) hub: TestServer,
    project: TestServer,
    kubeconfigs: [Kubeconfig; 2],
    log: std::path::PathBuf,
}

pub(crate) struct Running {
    reloads: mpsc::Sender<Vec<ClusterConfig>>,
    stop: watch::Sender<bool>,
    task: JoinHandle<anyhow::Result<()>>,
}

impl Running {
    pub(crate) async fn reload(&self, config: Config) {
        self.reloads.send(config.clusters).await.unwrap();
    }

    pub(crate) async fn stop(self) {
        self.stop.send_replace(true);
        self.task.await.unwrap().unwrap();
    }
}

fn connector(namespace: &str, ready: &str) -> serde_json::Value {
    let status = json!({"conditions": [{"type": "Ready", "status": ready}]});
    json!({"apiVersion": "networking.datumapis.com/v1alpha1", "kind": "Connector",
        "status": status, "metadata": {"namespace": namespace, "name": "lab"}})
}

pub(crate) async fn bench(name: &str) -> Bench {
    let names = [ClusterName::from("hub"), ClusterName::from("project")];
    let roles = [vec![Role::Hub, Role::Edge], vec![Role::Upstream]];
    let specs: Vec<_> = std::iter::zip(names.clone(), roles)
        .map(|(name, roles)| ClusterSpec { name, roles })
        .collect();
    let mut sim = SimClusters::new(&specs, 0);
    sim.advance(START);
    let sim = Arc::new(Mutex::new(sim));
    let [hub, project] = names;
    let (hub, project) = (serve_cluster(&sim, hub).await, serve_cluster(&sim, project).await);
    let ns = format!("ns-{UID}");
    hub.put(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": ns,
        "labels": {"meta.datumapis.com/upstream-namespace": "shop"}}}));
    hub.put(json!({"apiVersion": "networking.datumapis.com/v1alpha1", "kind": "Connector",
    "metadata": {"namespace": ns, "name": "lab", "labels": {
        "meta.datumapis.com/upstream-cluster-name": "cluster-project",
        "meta.datumapis.com/upstream-group": "networking.datumapis.com",
        "meta.datumapis.com/upstream-kind": "Connector",
        "meta.datumapis.com/upstream-name": "lab",
        "meta.datumapis.com/upstream-namespace": "shop",
    }}}));
    project.put(json!({"apiVersion": "v1", "kind": "Namespace",
        "metadata": {"name": "shop", "uid": UID}}));
    project.put(connector("shop", "True"));
    let kubeconfigs = [Kubeconfig::of(&hub), Kubeconfig::of(&project)];
    let log = std::env::temp_dir().join(format!("throughline-{name}-{}", std::process::id()));
    Bench { hub, project, kubeconfigs, log }
}

impl Bench {
    pub(crate) fn config(&self, with_project: bool) -> Config {
        let mut config = Config::default();
        let all = std::iter::zip([&self.hub, &self.project], &self.kubeconfigs);
        let roles = [vec![Role::Hub, Role::Edge], vec![Role::Upstream]];
        for ((served, kubeconfig), roles) in all.zip(roles).take(1 + usize::from(with_project)) {
            config.clusters.push(configured(served, roles, kubeconfig));
        }
        config.leader_election.enabled = false;
        config.events.enabled = false;
        config.admin.address = "127.0.0.1:0".parse().unwrap();
        config.mirror.nudge_key.clear();
        config.event_log.file = Some(self.log.clone());
        config
    }

    pub(crate) fn run(&self, with_project: bool) -> Running {
        self.run_with(self.config(with_project))
    }

    pub(crate) fn run_with(&self, config: Config) -> Running {
        let (stop, stopping) = watch::channel(false);
        let (reloads, reloaded) = mpsc::channel(4);
        let run = Run::new(config, Vec::new()).with_reloads(reloaded);
        Running { reloads, stop, task: tokio::spawn(run.until(stopping)) }
    }

    pub(crate) fn set_ready(&self, ready: &str) {
        self.project.put(connector("shop", ready));
    }

    pub(crate) fn mirrored(&self) -> String {
        let key = ObjectKey::new(format!("ns-{UID}"), "lab");
        let sim = self.hub.sim.lock().unwrap();
        let lab = sim.get(&self.hub.cluster, Kind::Connector, &key).unwrap();
        lab.meta.annotations.get(STATUS).unwrap_or_default().to_owned()
    }

    pub(crate) async fn until_mirrored(&self, ready: &str) {
        let said = format!(r#""status":"{ready}""#);
        until(&said, async || self.mirrored().contains(&said)).await;
    }

    pub(crate) fn count(&self, server: &TestServer, verb: ApiVerb) -> u64 {
        let requests = server.handle.requests();
        let of = |resource| requests.get(&(verb, resource)).copied().unwrap_or_default();
        of(Resource::Connectors)
    }

    /// The log replays to the same actions.
    pub(crate) fn verify(self) -> String {
        let text = std::fs::read_to_string(&self.log).unwrap();
        let program = env!("CARGO_BIN_EXE_throughline");
        let replay = std::process::Command::new(program).arg("replay").arg(&self.log).output();
        let replay = replay.unwrap();
        let said = String::from_utf8_lossy(&replay.stdout).into_owned();
        assert!(replay.status.success(), "{said}{}", String::from_utf8_lossy(&replay.stderr));
        let _ = std::fs::remove_file(&self.log);
        text
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_joins_leaves_and_joins_again_and_the_log_replays() {
    let bench = bench("joins").await;
    let running = bench.run(false);
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(bench.mirrored(), "", "its upstream has not joined");
    running.reloads.send(bench.config(true).clusters).await.unwrap();
    bench.until_mirrored("True").await;
    bench.set_ready("False");
    bench.until_mirrored("False").await;

    running.reloads.send(bench.config(false).clusters).await.unwrap();
    tokio::time::sleep(Duration::from_millis(300)).await;
    let (writes, watches) =
        (bench.count(&bench.hub, ApiVerb::Patch), bench.count(&bench.project, ApiVerb::Watch));
    bench.set_ready("True");
    tokio::time::sleep(Duration::from_millis(700)).await;
    assert!(bench.mirrored().contains(r#""status":"False""#), "it is left as it was");
    assert_eq!(bench.count(&bench.hub, ApiVerb::Patch), writes, "a write for one that left");
    assert_eq!(bench.count(&bench.project, ApiVerb::Watch), watches, "still watched");

    running.reloads.send(bench.config(true).clusters).await.unwrap();
    bench.until_mirrored("True").await;
    running.stop().await;
    let log = bench.verify();
    let count = |event: &str| log.matches(&format!(r#""event":"{event}""#)).count();
    assert_eq!((count("cluster_added"), count("cluster_removed")), (2, 1));
    assert_eq!(log.matches(r#""type":"mirror""#).count(), 3);
    assert!(!log.contains(r#""event":"watch_lost""#), "a cancelled watch is not lost");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_leaves_and_joins_at_once_starts_from_nothing() {
    let bench = bench("again").await;
    let running = bench.run(true);
    bench.until_mirrored("True").await;
    for _ in 0..20 {
        // What the cancelled watch has sent may still be on the bus.
        bench.set_ready("False");
        running.reloads.send(bench.config(false).clusters).await.unwrap();
        running.reloads.send(bench.config(true).clusters).await.unwrap();
    }
    bench.until_mirrored("False").await;
    bench.set_ready("True");
    bench.until_mirrored("True").await;
    running.stop().await;
    let log = bench.verify();
    assert!(!log.contains("unknown_cluster"), "an event of a former stay");
    assert_eq!(log.matches(r#""event":"cluster_removed""#).count(), 20);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_in_flight_ends_although_its_hub_left() {
    let bench = bench("flight").await;
    let connectors = Some(Resource::Connectors);
    let hangs = Fault { resource: connectors, ..Fault::on_writes(Fault::NO_RESPONSE) };
    bench.hub.handle.inject(&hangs, 1);
    let mut config = bench.config(true);
    config.constants.executor.timeout_ms = 1_000;
    let running = bench.run_with(config.clone());
    until("the write hangs", async || bench.count(&bench.hub, ApiVerb::Patch) == 1).await;
    let hub = config.clusters.remove(0);
    running.reloads.send(config.clusters.clone()).await.unwrap();
    // Its time-out: it is not repeated.
    tokio::time::sleep(Duration::from_millis(2_500)).await;
    assert_eq!(bench.count(&bench.hub, ApiVerb::Patch), 1, "repeated for a cluster that left");
    config.clusters.insert(0, hub);
    running.reloads.send(config.clusters).await.unwrap();
    bench.until_mirrored("True").await;
    running.stop().await;
    bench.verify();
}

/// The files of `discovery.kubeconfigDir`; deleted on drop.
struct KubeconfigDir(std::path::PathBuf);

impl KubeconfigDir {
    fn new() -> Self {
        let name = format!("throughline-found-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn file(&self) -> std::path::PathBuf {
        self.0.join("project.yaml")
    }
}

impl Drop for KubeconfigDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_discovered_cluster_joins_is_mirrored_and_leaves_with_its_file() {
    let bench = bench("discovered").await;
    let found = KubeconfigDir::new();
    let mut config = bench.config(false);
    let (path, roles) = (found.0.clone(), vec![Role::Upstream]);
    config.discovery.kubeconfig_dir = Some(KubeconfigDirConfig { path, roles });
    let running = bench.run_with(config);
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(bench.mirrored(), "", "there is no file yet");

    std::fs::copy(&bench.kubeconfigs[1].0, found.file()).unwrap();
    bench.until_mirrored("True").await;
    bench.set_ready("False");
    bench.until_mirrored("False").await;

    std::fs::remove_file(found.file()).unwrap();
    let log = || std::fs::read_to_string(&bench.log).unwrap();
    until("it leaves", async || log().contains(r#""event":"cluster_removed""#)).await;
    let writes = bench.count(&bench.hub, ApiVerb::Patch);
    bench.set_ready("True");
    tokio::time::sleep(Duration::from_millis(700)).await;
    assert!(bench.mirrored().contains(r#""status":"False""#), "it is left as it was");
    assert_eq!(bench.count(&bench.hub, ApiVerb::Patch), writes, "a write for one that left");

    // Another cluster of that name, as far as anybody can tell.
    std::fs::copy(&bench.kubeconfigs[1].0, found.file()).unwrap();
    bench.until_mirrored("True").await;
    running.stop().await;
    let log = bench.verify();
    let count = |event: &str| log.matches(&format!(r#""event":"{event}""#)).count();
    assert_eq!((count("cluster_added"), count("cluster_removed")), (2, 1));
    assert_eq!(log.matches(r#""type":"mirror""#).count(), 3);
    assert!(!log.contains(r#""event":"watch_lost""#), "a cancelled watch is not lost");
    assert!(!log.contains("unknown_cluster"), "an event of a former stay");
}
