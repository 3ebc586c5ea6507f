//! Instances on computers of their own that share Leases of one simulated API server, in virtual time.

use std::collections::BTreeMap;
use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use throughline::client::ClusterClient;
use throughline::clock::Clock;
use throughline::config::ClusterConfig;
use throughline::core::contract::event::EventKind;
use throughline::core::contract::settings::OrphanMode;
use throughline::core::data::ids::{ClusterName, Role};
use throughline::core::data::shard::{Shard, Shards};
use throughline::environment::within;
use throughline::event_log::ClusterSpec;
use throughline::leader::election::Timings;
use throughline::leader::gate::Gates;
use throughline::leader::lease::LeaseClient;
use throughline::leader::{ElectionParts, HandIn, LeaderElection, LeaseGroup, ShardElections};
use throughline::metrics::Metrics;
use throughline::sim::SimClusters;
use throughline::sim::apiserver::{
    ApiVerb, SimApiServer, SimApiServerHandle, SimApiServerSettings,
};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use crate::computer::Computer;
use crate::network::{LinkState, Network};
use crate::random::Random;

pub(crate) const LEASE: Duration = Duration::from_secs(15);
pub(crate) const RETRY: Duration = Duration::from_secs(2);
pub(crate) const WRITE: Duration = Duration::from_secs(5);
const TIMINGS: Timings =
    Timings { lease_ms: 15_000, renew_deadline_ms: 10_000, retry_ms: 2_000, write_ms: 5_000 };
/// A few requests.
pub(crate) const CALLS: Duration = Duration::from_millis(200);

const STEP: Duration = Duration::from_millis(50);
const ADDRESS: &str = "127.1.0.1";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/default/leases";

/// So many upstreams show whether two instances write for one.
const UPSTREAMS: usize = 32;

/// An instance, and what is left of it once it has ended.
pub(crate) struct Instance {
    pub(crate) name: String,
    pub(crate) shards: Shards,
    gates: Gates,
    computer: Arc<Computer>,
    client: u32,
    /// What its elections said.
    pub(crate) events: Arc<Mutex<Vec<EventKind>>>,
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<()>,
    /// When its gate was last open, by upstream. What it let through has ended where it is absent.
    open_at: Arc<Mutex<BTreeMap<usize, Instant>>>,
}

pub(crate) struct Stage {
    pub(crate) server: Arc<SimApiServerHandle>,
    network: Network,
    random: Random,
    pub(crate) instances: Vec<Instance>,
    started: u32,
}

/// Runs a test in virtual time, on the computer of the API server.
pub(crate) fn run(test: impl AsyncFnOnce(Stage)) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(async {
        let mut random = Random::new(17);
        let computer = Arc::new(Computer::new(0, 0, random.fork(), None));
        within(computer.clone(), async { test(Stage::new(computer, random)).await }).await;
    });
    runtime.shutdown_background();
}

fn upstream(n: usize) -> String {
    format!("up-{n}")
}

/// Written once: a test must not read it while another one writes it.
fn kubeconfig() -> PathBuf {
    static FILE: LazyLock<PathBuf> = LazyLock::new(|| {
        let file = std::env::temp_dir().join(format!("leader-shards-{}.json", std::process::id()));
        let config = json!({
            "clusters": [{"name": "c", "cluster": {"server": format!("http://{ADDRESS}")}}],
            "users": [{"name": "u", "user": {}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u", "namespace": "default"}}],
            "current-context": "x",
        });
        std::fs::write(&file, config.to_string()).unwrap();
        file
    });
    FILE.clone()
}

fn cluster_client() -> Arc<ClusterClient> {
    let config = ClusterConfig {
        name: "hub".into(),
        roles: vec![Role::Hub],
        kubeconfig: Some(kubeconfig()),
        context: None,
        in_cluster: false,
    };
    Arc::new(ClusterClient::new(config, Arc::new(Metrics::new())))
}

impl Stage {
    fn new(computer: Arc<Computer>, mut random: Random) -> Self {
        let network = Network::new(computer, random.next());
        let cluster = ClusterName::from("hub");
        let spec = ClusterSpec { name: cluster.clone(), roles: vec![Role::Hub] };
        let clock = Clock::start();
        let mut clusters = SimClusters::new(&[spec], 0);
        clusters.advance(clock.now());
        let address: SocketAddr = format!("{ADDRESS}:80").parse().unwrap();
        let settings =
            SimApiServerSettings { clock: Some(clock), ..SimApiServerSettings::default() };
        let clusters = Arc::new(Mutex::new(clusters));
        let server = SimApiServer::start_without_listener(clusters, cluster, address, settings);
        let server = Arc::new(server);
        network.add_server(ADDRESS, server.clone());
        Self { server, network, random, instances: Vec::new(), started: 0 }
    }

    /// Starts an instance with so many shards; without any, one that has the plain Lease. Its clock runs
    /// so many thousandths faster.
    pub(crate) async fn start_with(&mut self, name: &str, shards: u16, rate: i64) {
        self.started += 1;
        let client = self.started;
        let network = Some(self.network.clone());
        let computer = Arc::new(Computer::new(client, rate, self.random.fork(), network));
        let shards = Shards::try_from(shards).unwrap();
        let open_at = Arc::default();
        let start = start(name.to_owned(), shards, Arc::clone(&open_at));
        let (gates, events, stop, task) = within(computer.clone(), start).await;
        let (name, stop) = (name.to_owned(), Some(stop));
        let instance =
            Instance { name, shards, gates, computer, client, events, stop, task, open_at };
        self.instances.push(instance);
    }

    pub(crate) async fn start(&mut self, name: &str, shards: u16) {
        self.start_with(name, shards, 0).await;
    }

    pub(crate) fn instance(&self, name: &str) -> &Instance {
        self.instances.iter().find(|instance| instance.name == name).unwrap()
    }

    /// SIGKILL.
    pub(crate) fn kill(&self, name: &str) {
        let instance = self.instance(name);
        instance.computer.kill();
        instance.task.abort();
    }

    /// SIGTERM, when all writes have ended.
    pub(crate) fn stop(&mut self, name: &str) {
        let instance = self.instances.iter_mut().find(|i| i.name == name).unwrap();
        instance.stop.take().unwrap().send(()).unwrap();
    }

    /// Cuts an instance off from the API server, or not any more.
    pub(crate) fn cut(&self, name: &str, is_cut: bool) {
        let key = (self.instance(name).client, ADDRESS.to_owned());
        let link = LinkState { to_server: !is_cut, to_client: !is_cut, delay_ms: (0, 2) };
        self.network.set(&key, link);
    }

    /// Lets time pass. No two instances may write for one upstream meanwhile.
    pub(crate) async fn pass(&self, time: Duration) {
        let end = Instant::now() + time;
        while Instant::now() < end {
            sleep(STEP).await;
            self.look();
        }
    }

    fn look(&self) {
        for n in 0..UPSTREAMS {
            let name = upstream(n);
            for instance in &self.instances {
                let is_open = instance.gates.is_open(instance.shards.of(&name));
                if !is_open {
                    continue;
                }
                let may_write = |other: &&Instance| {
                    let open_at = other.open_at.lock().unwrap().get(&n).copied();
                    other.name != instance.name
                        && open_at.is_some_and(|at| Instant::now() < at + WRITE)
                };
                if let Some(other) = self.instances.iter().find(may_write) {
                    let (one, two) = (&instance.name, &other.name);
                    panic!("{one} may write for {name}, and a write of {two} may take effect");
                }
                instance.open_at.lock().unwrap().insert(n, Instant::now());
            }
        }
    }

    /// The shards that each instance leads.
    pub(crate) fn led(&self) -> Vec<usize> {
        let led = |instance: &Instance| {
            let all = instance.shards.all();
            all.filter(|shard| instance.gates.is_open(*shard)).count()
        };
        self.instances.iter().map(led).collect()
    }

    /// Waits until the instances lead so many shards each, and returns how long that took.
    #[track_caller]
    pub(crate) fn until(
        &self,
        led: &[usize],
        within: Duration,
    ) -> impl Future<Output = Duration> + use<'_> {
        let (place, led) = (std::panic::Location::caller(), led.to_owned());
        async move {
            let since = Instant::now();
            while self.led() != led {
                let is = self.led();
                assert!(since.elapsed() <= within, "{place}: {is:?} instead of {led:?}");
                self.pass(STEP).await;
            }
            since.elapsed()
        }
    }

    /// Requests for Leases so far: those of this verb, or all.
    pub(crate) fn requests(&self, verb: Option<ApiVerb>) -> u64 {
        let requests = self.server.requests().into_iter();
        let counts = |of: ApiVerb| verb.is_none_or(|verb| verb == of);
        requests.filter(|((of, _), _)| counts(*of)).map(|(_, count)| count).sum()
    }

    /// Sends a request for a Lease as a person does.
    pub(crate) async fn by_hand(&self, verb: &str, lease: &str, body: Option<Value>) -> Value {
        let computer = Arc::new(Computer::new(999, 0, Random::new(1), Some(self.network.clone())));
        let request = http::Request::builder().method(verb).uri(format!("{LEASES}{lease}"));
        let body = body.map(|body| body.to_string().into_bytes()).unwrap_or_default();
        let content_type = match verb {
            "PATCH" => "application/merge-patch+json",
            _ => "application/json",
        };
        let request = request.header("content-type", content_type).body(body).unwrap();
        let answer = within(computer, async move {
            cluster_client().call(request, Duration::from_secs(5)).await.unwrap()
        });
        serde_json::from_slice(&answer.await).unwrap()
    }

    /// The names of all Leases.
    pub(crate) async fn lease_names(&self) -> Vec<String> {
        let list = self.by_hand("GET", "", None).await;
        let names = list["items"].as_array().unwrap().iter();
        names.map(|lease| lease["metadata"]["name"].as_str().unwrap().to_owned()).collect()
    }

    pub(crate) async fn holder(&self, lease: &str) -> String {
        let lease = self.by_hand("GET", &format!("/{lease}"), None).await;
        lease["spec"]["holderIdentity"].as_str().unwrap_or_default().to_owned()
    }
}

type Started = (Gates, Arc<Mutex<Vec<EventKind>>>, oneshot::Sender<()>, JoinHandle<()>);

async fn start(
    identity: String,
    shards: Shards,
    open_at: Arc<Mutex<BTreeMap<usize, Instant>>>,
) -> Started {
    let (gates, keepers) = Gates::closed(shards);
    let (events, mut said) = mpsc::unbounded_channel();
    let (metrics, orphans) = (Arc::new(Metrics::new()), OrphanMode::Off);
    let (cluster, namespace) = (cluster_client(), Some("default".to_owned()));
    let timeout = Duration::from_millis(TIMINGS.request_ms());
    let (stop, mut stopped) = oneshot::channel();
    let heard = Arc::new(Mutex::new(Vec::new()));
    let ended = {
        let open_at = open_at.clone();
        move |shard: Option<Shard>| {
            let is_of = |n: usize| shard.is_none_or(|shard| shards.of(&upstream(n)) == shard);
            open_at.lock().unwrap().retain(|n, _| !is_of(*n));
        }
    };
    let hear = heard.clone();
    let name = "lease".to_owned();
    let task = if shards.is_one() {
        let lease = LeaseClient::new(cluster, namespace, name, timeout, None);
        let keeper = keepers.into_iter().next().unwrap();
        let election =
            LeaderElection::start(lease, identity, TIMINGS, keeper, orphans, events, metrics);
        throughline::environment::spawn(async move {
            loop {
                tokio::select! {
                    Some(event) = said.recv() => hear.lock().unwrap().push(event),
                    _ = &mut stopped => break,
                }
            }
            ended(None);
            election.release(WRITE).await;
        })
    } else {
        let group = LeaseGroup { cluster, namespace, name, shards, timeout, events: None };
        let (gates, is_common) = (gates.clone(), Arc::new(|_: &ClusterName| true));
        let parts =
            ElectionParts { timings: TIMINGS, gates, keepers, orphans, is_common, events, metrics };
        let mut elections = ShardElections::start(group, identity, parts);
        throughline::environment::spawn(async move {
            loop {
                tokio::select! {
                    Some(event) = said.recv() => hear.lock().unwrap().push(event),
                    HandIn { shard, ended: has_ended } = elections.next_hand_in() => {
                        ended(Some(shard));
                        let _ = has_ended.send(());
                    }
                    _ = &mut stopped => break,
                }
            }
            ended(None);
            elections.release(WRITE).await;
        })
    };
    (gates, heard, stop, task)
}

/// The log lines of this thread.
#[derive(Clone, Default)]
pub(crate) struct Lines(Arc<Mutex<Vec<u8>>>);

impl Lines {
    /// Collects them for as long as the guard lives.
    pub(crate) fn collect() -> (Self, tracing::subscriber::DefaultGuard) {
        let lines = Self::default();
        let into = lines.clone();
        let lines_written =
            tracing_subscriber::fmt().with_ansi(false).with_writer(move || into.clone());
        (lines, tracing::subscriber::set_default(lines_written.finish()))
    }

    pub(crate) fn count(&self, text: &str) -> usize {
        let bytes = self.0.lock().unwrap();
        String::from_utf8_lossy(&bytes).lines().filter(|line| line.contains(text)).count()
    }
}

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
