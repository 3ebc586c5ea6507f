//! Clusters join and leave while a run goes on.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::json;
use throughline::config::{ClusterConfig, Config};
use throughline::core::data::ids::{Kind, NamespacedName, Role};
use throughline::run::Run;
use throughline_sim::apiserver::{ApiVerb, Fault, Resource};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use crate::cluster::{SHOP, configured, project_and_hub};
use crate::log::Log;
use crate::sim_apiserver::TestServer;
use crate::stage::{N1, OFFLINE, STATUS};
use crate::temp_folder::temp_folder;
use crate::waiting::until;

/// A hub, a project and a run that may follow them.
struct Bench {
    hub: TestServer,
    project: TestServer,
    config: Config,
    reloads: mpsc::Sender<Vec<ClusterConfig>>,
    stop: watch::Sender<bool>,
    task: JoinHandle<anyhow::Result<()>>,
    folder: PathBuf,
}

/// It follows the hub, and does not follow the project yet.
async fn bench() -> Bench {
    let (project, hub) = project_and_hub().await;
    hub.put(
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SHOP.hub_namespace(),
        "labels": {"meta.datumapis.com/upstream-namespace": "shop"}}}),
    );
    hub.put(SHOP.copy("lab", None));
    project.put(SHOP.connector("lab", N1));
    let folder = temp_folder("fleet");
    let of_project = project.kubeconfig(&folder);
    let of_hub = hub.kubeconfig(&folder);
    let mut config = Config::default();
    config.clusters.push(configured("hub", &[Role::Hub, Role::Edge], Some(&of_hub)));
    config.leader_election.enabled = false;
    config.events.enabled = false;
    config.admin.address = "127.0.0.1:0".parse().unwrap();
    config.mirror.nudge_key.clear();
    config.event_log.file = Some(folder.join("log"));
    config.constants.executor.timeout_ms = 1_000;
    let (stop, stopping) = watch::channel(false);
    let (reloads, reloaded) = mpsc::channel(4);
    let run = Run::new(config.clone(), None).with_reloads(reloaded);
    config.clusters.push(configured("up", &[Role::Upstream], Some(&of_project)));
    let task = tokio::spawn(run.until(stopping));
    Bench { hub, project, config, reloads, stop, task, folder }
}

impl Bench {
    /// From now on it follows these.
    async fn follow(&self, names: &[&str]) {
        let mut clusters = self.config.clusters.clone();
        clusters.retain(|cluster| names.contains(&cluster.name.as_str()));
        self.reloads.send(clusters).await.unwrap();
    }

    /// Changes the upstream Connector.
    fn set(&self, status: Option<&str>) {
        self.project.put(SHOP.connector("lab", status));
    }

    fn mirrored(&self) -> String {
        let key = NamespacedName::new(SHOP.hub_namespace(), "lab");
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

    /// Stops the run. Its log replays to the same actions.
    async fn end(self) -> String {
        self.stop.send_replace(true);
        self.task.await.unwrap().unwrap();
        let log = self.folder.join("log");
        let text = std::fs::read_to_string(&log).unwrap();
        let program = env!("CARGO_BIN_EXE_throughline");
        let replay = std::process::Command::new(program).arg("replay").arg(&log).output().unwrap();
        let said = String::from_utf8_lossy(&replay.stdout).into_owned();
        assert!(replay.status.success(), "{said}{}", String::from_utf8_lossy(&replay.stderr));
        text
    }
}

#[tokio::test]
async fn an_upstream_that_is_not_followed_is_reported_until_it_joins() {
    let (log, _guard) = Log::capture();
    let bench = bench().await;
    // As after a typing error in its name.
    let unknown = "name upstream up, which is not followed";
    log.until_contains(unknown).await;
    // One line that contains this.
    let line = |part: &str| {
        let text = log.text();
        let lines: Vec<_> = text.lines().filter(|line| line.contains(part)).collect();
        let [line] = lines[..] else { panic!("{part}: {lines:?}") };
        line.to_owned()
    };
    let banner = line("throughline starts");
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
    let warning = line(unknown);
    assert!(warning.contains("WARN") && warning.contains("Add up to `clusters`"), "{warning}");
    // Twice as long as the Event about it takes where Events are not switched off.
    tokio::time::sleep(Duration::from_secs(4)).await;
    let events = (ApiVerb::Create, Resource::Events);
    assert_eq!(bench.hub.handle.requests().get(&events), None);
    assert_eq!(bench.mirrored(), "", "its upstream has not joined");
    bench.follow(&["hub", "up"]).await;
    bench.until_mirrored("True").await;
    log.until_contains("resolved cause=\"upstream_unknown\" cluster=up").await;
    bench.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_leaves_and_joins_at_once_starts_from_nothing() {
    let bench = bench().await;
    bench.follow(&["hub", "up"]).await;
    bench.until_mirrored("True").await;
    for _ in 0..20 {
        // What the cancelled watch has sent may still be on the bus.
        bench.set(OFFLINE);
        bench.follow(&["hub"]).await;
        bench.follow(&["hub", "up"]).await;
    }
    bench.until_mirrored("False").await;

    // It leaves, and is left as it was.
    bench.follow(&["hub"]).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    let counts = || {
        [(&bench.hub, ApiVerb::Patch), (&bench.project, ApiVerb::Watch)]
            .map(|(server, verb)| bench.count(server, verb))
    };
    let before = counts();
    bench.set(N1);
    tokio::time::sleep(Duration::from_millis(700)).await;
    assert!(bench.mirrored().contains(r#""status":"False""#));
    assert_eq!(counts(), before, "writes, watches");

    bench.follow(&["hub", "up"]).await;
    bench.until_mirrored("True").await;
    let log = bench.end().await;
    assert!(!log.contains("unknown_cluster"), "an event of a former stay");
    assert!(!log.contains(r#""event":"watch_lost""#), "a cancelled watch is not lost");
    let count = |event: &str| log.matches(&format!(r#""event":"{event}""#)).count();
    assert_eq!((count("cluster_added"), count("cluster_removed")), (22, 21));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_in_flight_ends_although_its_hub_left() {
    let bench = bench().await;
    let connectors = Some(Resource::Connectors);
    let hangs = Fault { resource: connectors, ..Fault::on_writes(Fault::NO_RESPONSE) };
    bench.hub.handle.inject(&hangs, 1);
    bench.follow(&["hub", "up"]).await;
    until("the write hangs", async || bench.count(&bench.hub, ApiVerb::Patch) == 1).await;
    bench.follow(&["up"]).await;
    // Its time-out: it is not repeated.
    tokio::time::sleep(Duration::from_millis(2_500)).await;
    assert_eq!(bench.count(&bench.hub, ApiVerb::Patch), 1, "repeated for a cluster that left");
    bench.follow(&["hub", "up"]).await;
    bench.until_mirrored("True").await;
    bench.end().await;
}
