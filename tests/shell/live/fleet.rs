//! Clusters join and leave while a run goes on.

use std::time::Duration;

use serde_json::{Value, json};
use throughline::config::{ClusterConfig, Config};
use throughline::core::data::ids::{Kind, ObjectKey, Role};
use throughline::run::Run;
use throughline_sim::apiserver::{ApiVerb, Fault, Resource};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use crate::cluster::{Kubeconfig, configured};
use crate::live::until;
use crate::log::Log;
use crate::sim_apiserver::TestServer;
use crate::sim_apiserver::orphan::{ns, project_and_hub};

const STATUS: &str = "networking.datumapis.com/upstream-status";

/// A hub, a project and a run that may follow them.
struct Bench {
    hub: TestServer,
    project: TestServer,
    kubeconfigs: [Kubeconfig; 2],
    log: std::path::PathBuf,
}

struct Running {
    reloads: mpsc::Sender<Vec<ClusterConfig>>,
    stop: watch::Sender<bool>,
    task: JoinHandle<anyhow::Result<()>>,
}

impl Running {
    async fn reload(&self, config: &Config) {
        self.reloads.send(config.clusters.clone()).await.unwrap();
    }

    async fn stop(self) {
        self.stop.send_replace(true);
        self.task.await.unwrap().unwrap();
    }
}

/// The upstream Connector.
fn connector(ready: &str) -> Value {
    let status = json!({"conditions": [{"type": "Ready", "status": ready}]});
    json!({"apiVersion": "networking.datumapis.com/v1alpha1", "kind": "Connector",
        "status": status, "metadata": {"namespace": "shop", "name": "lab"}})
}

async fn bench(name: &str) -> Bench {
    let (project, hub) = project_and_hub().await;
    hub.put(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": ns(),
        "labels": {"meta.datumapis.com/upstream-namespace": "shop"}}}));
    hub.put(json!({"apiVersion": "networking.datumapis.com/v1alpha1", "kind": "Connector",
    "metadata": {"namespace": ns(), "name": "lab", "labels": {
        "meta.datumapis.com/upstream-cluster-name": "cluster-up",
        "meta.datumapis.com/upstream-group": "networking.datumapis.com",
        "meta.datumapis.com/upstream-kind": "Connector",
        "meta.datumapis.com/upstream-name": "lab",
        "meta.datumapis.com/upstream-namespace": "shop",
    }}}));
    project.put(connector("True"));
    let kubeconfigs = [Kubeconfig::of(&hub), Kubeconfig::of(&project)];
    let log = std::env::temp_dir().join(format!("throughline-{name}-{}", std::process::id()));
    Bench { hub, project, kubeconfigs, log }
}

impl Bench {
    fn config(&self, with_project: bool) -> Config {
        let mut config = Config::default();
        let [hub, project] = self.kubeconfigs.each_ref().map(|file| Some(&*file.0));
        config.clusters.push(configured("hub", &[Role::Hub, Role::Edge], hub));
        if with_project {
            config.clusters.push(configured("up", &[Role::Upstream], project));
        }
        config.leader_election.enabled = false;
        config.events.enabled = false;
        config.admin.address = "127.0.0.1:0".parse().unwrap();
        config.mirror.nudge_key.clear();
        config.event_log.file = Some(self.log.clone());
        config
    }

    fn run(&self, with_project: bool) -> Running {
        self.run_with(self.config(with_project))
    }

    fn run_with(&self, config: Config) -> Running {
        let (stop, stopping) = watch::channel(false);
        let (reloads, reloaded) = mpsc::channel(4);
        let run = Run::new(config, Vec::new()).with_reloads(reloaded);
        Running { reloads, stop, task: tokio::spawn(run.until(stopping)) }
    }

    fn set_ready(&self, ready: &str) {
        self.project.put(connector(ready));
    }

    fn mirrored(&self) -> String {
        let key = ObjectKey::new(ns(), "lab");
        let sim = self.hub.sim.lock().unwrap();
        let lab = sim.get(&self.hub.cluster, Kind::Connector, &key).unwrap();
        lab.meta.annotations.get(STATUS).unwrap_or_default().to_owned()
    }

    async fn until_mirrored(&self, ready: &str) {
        let said = format!(r#""status":"{ready}""#);
        until(&said, async || self.mirrored().contains(&said)).await;
    }

    /// Requests for Connectors.
    fn count(&self, server: &TestServer, verb: ApiVerb) -> u64 {
        let requests = server.handle.requests();
        requests.get(&(verb, Resource::Connectors)).copied().unwrap_or_default()
    }

    /// The log replays to the same actions.
    fn verify(self) -> String {
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

/// One line that contains this.
fn line(text: &str, part: &str) -> String {
    let mut lines = text.lines().filter(|line| line.contains(part));
    let found = lines.next().unwrap().to_owned();
    assert_eq!(lines.next(), None, "once");
    found
}

#[tokio::test]
async fn a_cluster_joins_leaves_and_joins_again_and_the_log_replays() {
    let log = Log::default();
    let _guard = log.capture();
    let bench = bench("joins").await;
    let running = bench.run(false);
    // As after a typing error in its name.
    let unknown = "name upstream up, which is not followed";
    log.until_contains(unknown).await;
    let banner = line(&log.text(), "throughline starts");
    for part in [
        concat!("version=\"", env!("CARGO_PKG_VERSION")),
        "commit=",
        "clusters=\"hub (hub, edge)\"",
        "leads=\"always, without an election\"",
        "orphans=\"report only\"",
        "event_log=",
        "dry_run=false",
    ] {
        assert!(banner.contains(part), "{part}: {banner}");
    }
    let warning = line(&log.text(), unknown);
    assert!(warning.contains("WARN") && warning.contains("Add up to `clusters`"), "{warning}");
    // Twice as long as the Event about it takes where Events are not switched off.
    tokio::time::sleep(Duration::from_secs(4)).await;
    let events = (ApiVerb::Create, Resource::Events);
    assert_eq!(bench.hub.handle.requests().get(&events), None);
    assert_eq!(bench.mirrored(), "", "its upstream has not joined");
    running.reload(&bench.config(true)).await;
    bench.until_mirrored("True").await;
    log.until_contains("resolved cause=\"upstream_unknown\" cluster=up").await;
    bench.set_ready("False");
    bench.until_mirrored("False").await;

    running.reload(&bench.config(false)).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    let (writes, watches) =
        (bench.count(&bench.hub, ApiVerb::Patch), bench.count(&bench.project, ApiVerb::Watch));
    bench.set_ready("True");
    tokio::time::sleep(Duration::from_millis(700)).await;
    assert!(bench.mirrored().contains(r#""status":"False""#), "it is left as it was");
    assert_eq!(bench.count(&bench.hub, ApiVerb::Patch), writes, "a write for one that left");
    assert_eq!(bench.count(&bench.project, ApiVerb::Watch), watches, "still watched");

    running.reload(&bench.config(true)).await;
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
        running.reload(&bench.config(false)).await;
        running.reload(&bench.config(true)).await;
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
    running.reload(&config).await;
    // Its time-out: it is not repeated.
    tokio::time::sleep(Duration::from_millis(2_500)).await;
    assert_eq!(bench.count(&bench.hub, ApiVerb::Patch), 1, "repeated for a cluster that left");
    config.clusters.insert(0, hub);
    running.reload(&config).await;
    bench.until_mirrored("True").await;
    running.stop().await;
    bench.verify();
}
