//! One throughline on one served fleet.

use std::time::{Duration, Instant};

use base64::Engine as _;
use serde_json::{Value, json};
use throughline::core::contract::cause::Cause;

use crate::cluster::process::Folder;
use crate::cluster::throughline::{Setup, Throughline};
use crate::control::{FleetSize, Latencies, Order, Serving};
use crate::objects::project;
use crate::proc::{self, cpu_seconds};

/// The longest that anything may take here.
const PATIENCE: Duration = Duration::from_secs(300);

/// How throughline finds the projects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Join {
    /// Those that hub Connectors name.
    Needed,
    All,
    /// Not at all: each is a configured cluster.
    Configured,
}

pub(crate) struct Run {
    pub(crate) serving: Serving,
    pub(crate) throughline: Throughline,
    started: Instant,
    _folder: Folder,
}

/// What a time without changes cost.
pub(crate) struct Rest {
    pub(crate) writes: u64,
    pub(crate) cpu_percent: f64,
    pub(crate) resident_mb: f64,
}

/// Changes at a steady rate.
pub(crate) struct Flips {
    pub(crate) latencies: Latencies,
    pub(crate) cpu_percent: f64,
    /// Of the process that serves all clusters.
    pub(crate) server_cpu_percent: f64,
}

/// What followed a restart of Milo.
pub(crate) struct Back {
    pub(crate) took: Duration,
    pub(crate) timeouts: usize,
}

impl Run {
    pub(crate) async fn start(size: FleetSize, join: Join) -> Self {
        let serving = Serving::start(&size);
        let folder = Folder::new("bench-fleet");
        let config = config(&serving, &size, join, &folder);
        let started = Instant::now();
        let throughline = start(&config).await;
        Self { serving, throughline, started, _folder: folder }
    }

    /// Waits until this many projects are followed; the time since the start.
    pub(crate) async fn until_followed(&mut self, projects: usize) -> Duration {
        self.followed(projects, self.started).await
    }

    async fn followed(&mut self, projects: usize, since: Instant) -> Duration {
        loop {
            let load = self.serving.load();
            let took = since.elapsed();
            if load.follows(projects) {
                return took;
            }
            if took > PATIENCE {
                let log = self.throughline.log();
                let last = &log[log.len().saturating_sub(20)..];
                panic!("not followed after {took:?}: {load:?}\n{}", last.join("\n"));
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Lets everything settle, then measures a time at rest.
    pub(crate) async fn rest(&mut self, time: Duration) -> Rest {
        tokio::time::sleep(Duration::from_secs(5)).await;
        let pid = self.throughline.pid();
        let cpu = cpu_seconds(pid);
        tokio::time::sleep(time).await;
        let cpu_percent = (cpu_seconds(pid) - cpu) / time.as_secs_f64() * 100.0;
        let resident_mb = self.resident_mb();
        Rest { writes: self.serving.load().writes, cpu_percent, resident_mb }
    }

    pub(crate) fn resident_mb(&self) -> f64 {
        proc::resident_mb(self.throughline.pid())
    }

    pub(crate) fn flips(&mut self, per_second: u32, seconds: u64) -> Flips {
        let cpu = [self.throughline.pid(), self.serving.pid()].map(|pid| (pid, cpu_seconds(pid)));
        let began = Instant::now();
        let latencies = self.serving.order(&Order::Flips { per_second, seconds });
        let took = began.elapsed().as_secs_f64();
        let [cpu_percent, server_cpu_percent] =
            cpu.map(|(pid, before)| (cpu_seconds(pid) - before) / took * 100.0);
        Flips { latencies, cpu_percent, server_cpu_percent }
    }

    /// Stops Milo for this long, and waits until this many projects are followed again.
    pub(crate) async fn restart_milo(&mut self, down: Duration, projects: usize) -> Back {
        let before = self.timeouts();
        self.serving.order::<()>(&Order::Stop);
        tokio::time::sleep(down).await;
        self.serving.order::<()>(&Order::Resume);
        let took = self.followed(projects, Instant::now()).await;
        // The event log is written once a second or so.
        tokio::time::sleep(Duration::from_secs(3)).await;
        Back { took, timeouts: self.timeouts() - before }
    }

    /// Watches that were lost because a request was not answered in time.
    fn timeouts(&self) -> usize {
        let text = std::fs::read_to_string(self.throughline.event_log()).unwrap();
        let is_timeout = |line: &&str| {
            line.contains(r#""event":"watch_lost""#)
                && line.contains("no response from the API server")
        };
        text.lines().filter(is_timeout).count()
    }

    pub(crate) async fn stop(self) {
        self.throughline.stop().await;
    }
}

/// Starts throughline.
pub(crate) async fn start(config: &Value) -> Throughline {
    Setup::new(config).provokes(&[Cause::ClusterUnavailable, Cause::DiscoveryFailing]).start().await
}

/// A configuration without an election. Its kubeconfig is in the folder.
pub(crate) fn config(serving: &Serving, size: &FleetSize, join: Join, folder: &Folder) -> Value {
    let kubeconfig = folder.path().join("kubeconfig");
    std::fs::write(&kubeconfig, kubeconfig_of(serving, size).to_string()).unwrap();
    let cluster = |name: &str, role: &str| json!({ "name": name, "roles": [role], "kubeconfig": kubeconfig, "context": name });
    let mut clusters = vec![cluster("hub", "downstream"), cluster("edge-1", "edge")];
    let mut config = json!({
        "leaderElection": { "enabled": false },
        "log": { "level": "warn,kube_client=off,throughline::run=info,throughline::admin=info" },
    });
    if join == Join::Configured {
        clusters.extend((0..size.projects).map(|n| cluster(&project(n), "upstream")));
    } else {
        let rule = if join == Join::All { "all" } else { "needed" };
        let milo = json!({ "kubeconfig": kubeconfig, "context": "milo", "join": rule });
        config["discovery"] = json!({ "milo": milo });
    }
    config["clusters"] = clusters.into();
    config
}

/// A kubeconfig with a context for each cluster, and one for each project.
fn kubeconfig_of(serving: &Serving, size: &FleetSize) -> Value {
    let served = &serving.served;
    let certificate = base64::engine::general_purpose::STANDARD.encode(&served.certificate);
    let mut servers = vec![
        ("milo".to_owned(), served.milo.clone()),
        ("hub".to_owned(), served.hub.clone()),
        ("edge-1".to_owned(), served.edge.clone()),
    ];
    if !size.http2 {
        let path = "apis/resourcemanager.miloapis.com/v1alpha1/projects";
        servers.extend((0..size.projects).map(|n| {
            let name = project(n);
            let url = format!("{}/{path}/{name}/control-plane", served.milo);
            (name, url)
        }));
    }
    let clusters = servers.iter().map(|(name, url)| {
        let cluster = json!({ "server": url, "certificate-authority-data": certificate });
        json!({ "name": name, "cluster": cluster })
    });
    let contexts = servers
        .iter()
        .map(|(name, _)| json!({ "name": name, "context": { "cluster": name, "user": "bench" } }));
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": clusters.collect::<Vec<_>>(),
        "contexts": contexts.collect::<Vec<_>>(),
        "users": [{ "name": "bench", "user": { "token": "bench" } }],
    })
}
