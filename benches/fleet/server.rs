//! The process that serves the clusters: Milo with its projects, the hub, an edge, and the carrier
//! between the last two.

use std::collections::HashMap;
use std::io::{BufRead as _, Write as _};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::Value;
use throughline::clock::Clock;
use throughline::core::contract::event::ClusterSpec;
use throughline::core::data::ids::{ClusterName, Kind, Role};
use throughline::core::data::objects::{Object, UPSTREAM_STATUS, WireObject};
use throughline::core::data::time::UnixMillis;
use throughline_sim::apiserver::{Resource, SimApiServer, SimApiServerSettings, SimMilo};
use throughline_sim::{SimClusters, WatchNotice};
use tokio::net::TcpListener;

use crate::certificate::{Certificate, X509};
use crate::control::{FleetSize, Latencies, Load, Order, Served};
use crate::objects::{self, Connector, project};

/// From a change at the hub to the edge, as on real platforms.
const CARRIER_DELAY_MS: u64 = 500;

/// The version of all statuses at first.
const SETTLED: usize = 0;

struct Clusters {
    sim: Arc<Mutex<SimClusters>>,
    milo: SimMilo,
    hub: SimApiServer,
    edge: SimApiServer,
    size: FleetSize,
    /// Projects with connectors so far.
    projects: usize,
    arrivals: Arc<Mutex<Arrivals>>,
}

/// When the hub showed each status that is being waited for.
#[derive(Default)]
struct Arrivals {
    /// By connector: its status, and when it was set upstream.
    awaited: HashMap<String, (Value, Instant)>,
    latencies_us: Vec<u64>,
}

/// Serves until standard input ends.
pub(crate) fn serve(size: FleetSize) {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let certificate = Certificate::self_signed("fleet", X509::V3);
    let mut clusters = runtime.block_on(Clusters::start(size, &certificate));
    runtime.spawn(carry(clusters.sim.clone()));
    runtime.spawn(follow_hub(clusters.sim.clone(), clusters.arrivals.clone()));
    answer(&Served {
        milo: clusters.milo.root.url(),
        hub: clusters.hub.url(),
        edge: clusters.edge.url(),
        certificate: certificate.pem(),
    });
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        match serde_json::from_str(&line).unwrap() {
            Order::Load => answer(&clusters.load()),
            Order::Flips { per_second, seconds } => {
                answer(&runtime.block_on(clusters.flip(per_second, seconds)));
            }
            Order::NewProjects(count) => answer(&runtime.block_on(clusters.add_projects(count))),
            Order::Stop => {
                clusters.milo.stop();
                answer(&());
            }
            Order::Resume => {
                clusters.milo.resume();
                answer(&());
            }
        }
    }
}

fn answer(answer: &impl Serialize) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{}", serde_json::to_string(answer).unwrap()).unwrap();
    out.flush().unwrap();
}

/// The carrier works when time advances.
async fn carry(sim: Arc<Mutex<SimClusters>>) {
    let clock = Clock::start();
    loop {
        sim.lock().unwrap().advance(clock.now());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Notes when awaited statuses arrive at the hub.
async fn follow_hub(sim: Arc<Mutex<SimClusters>>, arrivals: Arc<Mutex<Arrivals>>) {
    let hub = ClusterName::from("hub");
    let mut hub_changes = sim.lock().unwrap().subscribe(&hub).unwrap();
    let mut seen = sim.lock().unwrap().version(&hub);
    loop {
        hub_changes.changed().await;
        let changes = sim.lock().unwrap().changes_since(&hub, Kind::Connector, seen).unwrap();
        let now = Instant::now();
        let mut arrivals = arrivals.lock().unwrap();
        for change in changes {
            seen = seen.max(change.version);
            let meta = &change.object.meta;
            let Some((awaited, since)) = arrivals.awaited.get(&*meta.name) else { continue };
            let shown = meta.annotations.get(UPSTREAM_STATUS);
            if shown.and_then(|text| serde_json::from_str::<Value>(text).ok()).as_ref()
                == Some(awaited)
            {
                let latency = now.saturating_duration_since(*since);
                arrivals.latencies_us.push(u64::try_from(latency.as_micros()).unwrap());
                arrivals.awaited.remove(&*meta.name);
            }
        }
    }
}

impl Clusters {
    async fn start(size: FleetSize, certificate: &Certificate) -> Self {
        let spec = |name: &str, role| ClusterSpec { name: name.into(), roles: vec![role] };
        let specs = [spec("hub", Role::Hub), spec("edge-1", Role::Edge)];
        let mut sim = SimClusters::new(&specs, CARRIER_DELAY_MS);
        let now = Clock::start().now();
        sim.advance(UnixMillis(now.0 - 2_000));
        let sim = Arc::new(Mutex::new(sim));
        let protocols: &[&str] = if size.http2 { &["h2", "http/1.1"] } else { &["http/1.1"] };
        let acceptor = certificate.acceptor(protocols);
        let settings = SimApiServerSettings::default();
        let listener = async || TcpListener::bind("127.0.0.1:0").await.unwrap();
        let milo =
            SimMilo::start(sim.clone(), listener().await, Some(acceptor.clone()), settings.clone());
        let cluster = async |name: &str| {
            let listener = listener().await;
            let (tls, settings) = (acceptor.clone(), settings.clone());
            SimApiServer::start(sim.clone(), name.into(), listener, Some(tls), settings).unwrap()
        };
        let (hub, edge) = (cluster("hub").await, cluster("edge-1").await);
        let milo = milo.unwrap();
        milo.set_initializing(Duration::from_millis(size.cold_ms));
        let arrivals = Arc::default();
        let mut clusters = Self { sim: sim.clone(), milo, hub, edge, size, projects: 0, arrivals };
        for n in 0..size.projects {
            clusters.seed_project(n, Some(SETTLED));
        }
        // The times of writes are whole seconds. In the same one as its connector's, a Gateway's last touch
        // may have come too early, and throughline would touch it again.
        clusters.sim().advance(now);
        for n in 0..size.projects {
            clusters.put_gateways(n);
        }
        clusters.projects = size.projects;
        for n in size.projects..size.projects + size.idle {
            clusters.milo.add_project(&project(n), &[], true);
            clusters.put(&project(n), &objects::upstream_namespace(n));
        }
        clusters
    }

    fn sim(&self) -> MutexGuard<'_, SimClusters> {
        self.sim.lock().unwrap()
    }

    fn put(&self, cluster: &str, object: &str) {
        self.put_as("platform", cluster, object);
    }

    fn put_as(&self, manager: &str, cluster: &str, object: &str) {
        // Objects come with the carry already done.
        let (cluster, object) = (ClusterName::from(cluster), parse(object));
        self.sim().put(&cluster, object, manager, WatchNotice::Listed).unwrap();
    }

    fn connectors(&self, project: usize) -> impl Iterator<Item = Connector> + use<> {
        let each = self.size.connectors_each;
        (0..each).map(move |i| Connector { project, number: project * each + i })
    }

    /// A project with its objects in all tiers; mirrored at this version, or never.
    fn seed_project(&self, n: usize, mirrored: Option<usize>) {
        self.put_replicas(n, mirrored);
        self.milo.add_project(&project(n), &[], true);
        self.put(&project(n), &objects::upstream_namespace(n));
        for connector in self.connectors(n) {
            self.put(&project(n), &connector.upstream(SETTLED));
        }
    }

    fn put_replicas(&self, n: usize, mirrored: Option<usize>) {
        for (cluster, tier) in [("hub", 2), ("edge-1", 3)] {
            self.put(cluster, &objects::replica_namespace(n));
            for connector in self.connectors(n) {
                self.put(cluster, &connector.replica(tier, mirrored));
            }
        }
        for connector in self.connectors(n) {
            self.put("edge-1", &connector.proxy());
        }
    }

    fn put_gateways(&self, n: usize) {
        for connector in self.connectors(n) {
            self.put_as("throughline", "edge-1", &connector.gateway());
        }
    }

    fn load(&self) -> Load {
        let load = self.milo.root.load();
        let watched = self.milo.watched_projects().into_iter();
        let writes = |server: &SimApiServer| -> u64 {
            let is_ours = |resource| !matches!(resource, Resource::Leases | Resource::Events);
            let requests = server.requests().into_iter();
            requests.filter(|((verb, r), _)| verb.is_write() && is_ours(*r)).map(|(_, n)| n).sum()
        };
        Load {
            connections: load.connections,
            connections_max: load.connections_max,
            requests_max: load.requests_max,
            watched: watched.map(|(resource, n)| (resource.plural().to_owned(), n)).collect(),
            unknown: self.milo.unknown_requests().values().sum(),
            writes: writes(&self.hub) + writes(&self.edge),
        }
    }

    /// Changes one connector after the other, each in another project than the one before.
    async fn flip(&self, per_second: u32, seconds: u64) -> Latencies {
        let changes = usize::try_from(u64::from(per_second) * seconds).unwrap();
        let each = self.size.connectors_each;
        let mut ticks = tokio::time::interval(Duration::from_secs(1) / per_second);
        for i in 0..changes {
            ticks.tick().await;
            let (project, of_project) = (i % self.size.projects, i / self.size.projects % each);
            let connector = Connector { project, number: project * each + of_project };
            let round = i / (self.size.projects * each);
            self.change(connector, round + 1);
        }
        self.arrived().await
    }

    /// Sets a status upstream and waits for it at the hub from now on.
    fn change(&self, connector: Connector, version: usize) {
        let object = connector.upstream(version);
        let object = parse(&object);
        self.wait_for(connector, version);
        let cluster = ClusterName::from(&*project(connector.project));
        let mut sim = self.sim();
        sim.put(&cluster, object, "platform", WatchNotice::Applied).unwrap();
    }

    fn wait_for(&self, connector: Connector, version: usize) {
        let status = serde_json::from_str(&connector.status(version)).unwrap();
        let awaited = (status, Instant::now());
        self.arrivals.lock().unwrap().awaited.insert(connector.name(), awaited);
    }

    async fn add_projects(&mut self, count: usize) -> Latencies {
        for _ in 0..count {
            let n = self.projects + self.size.idle;
            self.projects += 1;
            for connector in self.connectors(n).take(1) {
                self.wait_for(connector, SETTLED);
            }
            self.seed_project(n, None);
            self.put_gateways(n);
            tokio::time::sleep(Duration::from_secs(2)).await;
        }
        self.arrived().await
    }

    /// The latencies since the last call, once everything arrived or a minute has passed.
    async fn arrived(&self) -> Latencies {
        let until = Instant::now() + Duration::from_secs(60);
        while !self.arrivals.lock().unwrap().awaited.is_empty() && Instant::now() < until {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let mut arrivals = self.arrivals.lock().unwrap();
        let missing = arrivals.awaited.len();
        arrivals.awaited.clear();
        let mut sorted_us = std::mem::take(&mut arrivals.latencies_us);
        sorted_us.sort_unstable();
        Latencies { sorted_us, missing }
    }
}

fn parse(object: &str) -> Object {
    let wire: WireObject = serde_json::from_str(object).unwrap();
    wire.try_into().unwrap()
}
