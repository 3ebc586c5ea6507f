//! One run: clusters, instances, what the platform does, faults, and what is checked.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use throughline::clock::Clock;
use throughline::config::Config;
use throughline::core::contract::event::ClusterSpec;
use throughline::core::data::ids::Role;
use throughline::environment::{Environment, within};
use throughline_sim::apiserver::{
    AuditedRequest, ServerBackup, SimApiServer, SimApiServerSettings,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, sleep};

use crate::computer::Computer;
use crate::discovery::{Discovery, Shown, Source};
use crate::fault_kind::FaultKind;
use crate::faults::ActiveFault;
use crate::instance::{Instance, address, config};
use crate::ledger::{Histories, Ledger};
use crate::network::{Network, Serve};
use crate::oracle::Oracle;
use crate::orphans::RouteGuard;
use crate::plan::{Plan, Report};
use crate::random::Random;
use crate::verdict::QUIET_FOR;
use crate::world::{Names, World};

const STEP: Duration = Duration::from_millis(10);
/// After this, nothing more is written: the last confirmations have been made.
const CONFIRMED_WITHIN: Duration = Duration::from_secs(125);
pub(crate) const ENDS_WITHIN: Duration = Duration::from_secs(15);
/// Who edits the Lease by hand.
const PERSON: u32 = 999;

pub(crate) struct Stage {
    pub(crate) plan: Plan,
    pub(crate) config: Config,
    pub(crate) specs: Vec<ClusterSpec>,
    pub(crate) world: World,
    pub(crate) servers: Vec<Arc<SimApiServer>>,
    pub(crate) source: Option<Source>,
    /// Of each upstream, the only one that its server takes where it is discovered.
    pub(crate) tokens: Vec<u32>,
    pub(crate) instances: Vec<Instance>,
    next_client: u32,
    pub(crate) ended: Vec<Instance>,
    /// Of each cluster, from early in the run.
    pub(crate) backups: Vec<ServerBackup>,
    /// The clusters whose etcd lost everything, as they were before.
    pub(crate) lost: BTreeMap<usize, ServerBackup>,
    /// The edges whose etcd was empty, each time, and the instances that saw it then.
    pub(crate) emptied: Vec<(usize, Vec<u32>)>,
    /// The edges that were restored, each time, and the instances that ran then.
    pub(crate) restored_edges: Vec<(usize, Vec<u32>)>,
    /// Of each cluster, its resourceVersion every second.
    pub(crate) versions: Vec<Vec<u64>>,
    /// Upstreams that an instance may hold for restored, so that it deletes nothing of theirs.
    pub(crate) held_upstreams: BTreeSet<usize>,
    /// The instance that crashes at one of its points.
    pub(crate) crash: Option<usize>,
    /// All instances are killed after the next touch: how many there were, and for how long.
    pub(crate) killed_after: Option<(u64, Duration)>,
    pub(crate) network: Network,
    pub(crate) ledger: Arc<Mutex<Ledger>>,
    pub(crate) clock: Clock,
    /// What happens in the clusters, the faults, and the instances draw on their own: a fault that is
    /// left out changes nothing else.
    changes: Random,
    pub(crate) faults: Random,
    starts: Random,
    pub(crate) drawn: u64,
    pub(crate) active: Vec<ActiveFault>,
    pub(crate) injected: BTreeMap<FaultKind, u64>,
}

/// A moment that is so far away on average.
fn after(random: &mut Random, average_ms: u64) -> Instant {
    Instant::now() + Duration::from_millis(random.between(1, 2 * average_ms))
}

pub(crate) fn simulate(plan: &Plan) -> Report {
    simulate_with(plan, |_| (), async |stage: &mut Stage| stage.run().await)
}

/// Runs a plan's clusters and instances with another configuration, and another course of events.
pub(crate) fn simulate_with(
    plan: &Plan,
    set_up: impl FnOnce(&mut Config),
    run: impl AsyncFnOnce(&mut Stage),
) -> Report {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    let plan = plan.clone();
    let report = runtime.block_on(async move {
        let mut random = Random::new(plan.seed ^ 0x5EED);
        let servers_at: Arc<dyn Environment> = Arc::new(Computer::new(0, 0, random.fork(), None));
        within(servers_at.clone(), async move {
            let mut stage = Stage::new(plan, random, servers_at, set_up);
            run(&mut stage).await;
            stage.report()
        })
        .await
    });
    runtime.shutdown_background();
    report
}

impl Stage {
    fn new(
        plan: Plan,
        mut random: Random,
        servers_at: Arc<dyn Environment>,
        set_up: impl FnOnce(&mut Config),
    ) -> Self {
        let clock = Clock::start();
        let names = Names::new(plan.upstreams, plan.edges);
        let specs = names.all();
        let world = World::new(names, plan.connectors, clock.now(), &mut random);
        let mut config = config(&specs, plan.seed);
        config.constants.watch.page_size = plan.page_size;
        plan.discovery.set_up(&mut config, &world.names.hub);
        set_up(&mut config);
        let routes = RouteGuard::new(&world.sites, config.orphans.mode);
        let ledger = Ledger {
            oracle: Oracle::new(&world.names.hub, routes),
            trace: String::new(),
            started: Instant::now(),
            touches: 0,
            triggers: BTreeMap::new(),
            earlier_triggers: BTreeMap::new(),
            histories: Histories::default(),
        };
        let ledger = Arc::new(Mutex::new(ledger));
        let network = Network::new(servers_at, random.next());
        let mut servers = Vec::new();
        let all = Names::new(3, 2).all();
        let (seen_by, clusters) = (ledger.clone(), world.clusters.clone());
        let audit = move |request: &AuditedRequest| seen_by.lock().unwrap().see(request, &clusters);
        let settings = SimApiServerSettings {
            bookmark_every: Duration::from_secs(5),
            clock: Some(Arc::new(move || clock.now())),
            audit: Some(Arc::new(audit)),
            ..SimApiServerSettings::default()
        };
        for spec in &specs {
            let at = all.iter().position(|other| other.name == spec.name).unwrap();
            // All projects are reached at their Milo.
            let is_project = spec.roles.contains(&Role::Upstream);
            let at = if is_project && plan.discovery == Discovery::Projects { 0 } else { at };
            let called: SocketAddr = format!("{}:80", address(at)).parse().unwrap();
            let server = SimApiServer::start_without_listener(
                world.clusters.clone(),
                spec.name.clone(),
                called,
                settings.clone(),
            );
            let server = Arc::new(server);
            let served = server.clone();
            let serve: Serve = Arc::new(move |end, client| Box::pin(served.serve(end, client)));
            network.add_server(&address(at), serve);
            servers.push(server);
        }
        let source = plan.discovery.start(&servers, &world, settings, &network);
        let mut stage = Self {
            source,
            config,
            specs,
            world,
            servers,
            tokens: vec![0; plan.upstreams],
            instances: Vec::new(),
            next_client: 1,
            ended: Vec::new(),
            backups: Vec::new(),
            lost: BTreeMap::new(),
            emptied: Vec::new(),
            restored_edges: Vec::new(),
            versions: Vec::new(),
            held_upstreams: BTreeSet::new(),
            crash: None,
            killed_after: None,
            network,
            ledger,
            clock,
            changes: random.fork(),
            faults: random.fork(),
            starts: random.fork(),
            drawn: 0,
            active: Vec::new(),
            injected: BTreeMap::new(),
            plan,
        };
        stage.show_upstreams();
        for ordinal in 0..stage.plan.instances {
            let instance = stage.new_instance(ordinal);
            stage.instances.push(instance);
        }
        stage
    }

    /// `ordinal`: of its pod.
    pub(crate) fn new_instance(&mut self, ordinal: usize) -> Instance {
        let client = self.next_client;
        self.next_client += 1;
        let rate = i64::try_from(self.starts.between(0, 80)).unwrap() - 40;
        let network = Some(self.network.clone());
        let computer = Computer::new(client, rate, self.starts.fork(), network);
        let pod = move |name: &str| (name == "POD_NAME").then(|| format!("throughline-{ordinal}"));
        let config = self.config.clone().with_shard(pod).unwrap();
        Instance::start(config, Arc::new(computer))
    }

    /// The client number of an instance's present life.
    pub(crate) fn client(&self, instance: usize) -> u32 {
        self.instances[instance].computer.client
    }

    pub(crate) fn clients(&self) -> impl Iterator<Item = u32> {
        self.instances.iter().map(|instance| instance.computer.client)
    }

    /// The number of the hub's server; those of the upstreams come before it, those of the edges after it.
    pub(crate) fn hub(&self) -> usize {
        self.world.names.upstreams.len()
    }

    pub(crate) fn note(&self, text: &str) {
        self.ledger.lock().unwrap().line(text);
    }

    pub(crate) fn address_of(&self, server: usize) -> String {
        self.servers[server].address().ip().to_string()
    }

    pub(crate) fn restart(&mut self, instance: usize) {
        self.instances[instance].kill();
        let new = self.new_instance(instance);
        self.ended.push(std::mem::replace(&mut self.instances[instance], new));
    }

    pub(crate) fn restart_deceived(&mut self) {
        let deceived = self.ledger.lock().unwrap().histories.deceived.clone();
        for instance in 0..self.instances.len() {
            if deceived.contains(&self.client(instance)) {
                self.note(&format!("restart of instance {instance}"));
                self.restart(instance);
            }
        }
    }

    /// The configuration names all upstreams but this one.
    pub(crate) fn reload_without(&mut self, upstream: Option<usize>) {
        if self.plan.discovery != Discovery::None {
            self.show_upstreams();
            upstream.into_iter().for_each(|upstream| self.show(upstream, Shown::Deleted));
            return;
        }
        let left = upstream.map(|n| self.world.names.upstreams[n].clone());
        let mut config = self.config.clone();
        config.clusters.retain(|cluster| Some(&cluster.name) != left.as_ref());
        for instance in &self.instances {
            // An instance that has ended reads nothing.
            let _ = instance.reloads.try_send(config.clusters.clone());
        }
    }

    pub(crate) async fn edit_lease(&mut self, method: &str, body: &str) {
        let (mut ours, theirs) = tokio::io::duplex(64 * 1024);
        let served = tokio::spawn(self.servers[self.hub()].serve(theirs, PERSON));
        let request = format!(
            "{method} /apis/coordination.k8s.io/v1/namespaces/default/leases/throughline HTTP/1.1\r\n\
             host: x\r\nconnection: close\r\ncontent-type: application/merge-patch+json\r\n\
             content-length: {}\r\n\r\n{body}",
            body.len()
        );
        ours.write_all(request.as_bytes()).await.unwrap();
        // A server that hangs or is down does not answer.
        let mut answer = Vec::new();
        let _ = tokio::time::timeout(STEP, ours.read_to_end(&mut answer)).await;
        served.abort();
        self.ledger.lock().unwrap().oracle.lease_edited();
    }

    async fn run(&mut self) {
        self.happens().await;
        self.settles().await;
        // The others end by themselves, as they should.
        if self.plan.seed.is_multiple_of(2) {
            self.weigh().await;
        }
        self.ends(ENDS_WITHIN).await;
    }

    pub(crate) async fn settles(&mut self) {
        if !self.is_broken() {
            self.becomes_right().await;
            self.stays_right(CONFIRMED_WITHIN, QUIET_FOR).await;
        }
    }

    pub(crate) async fn happens(&mut self) {
        let lasts = Duration::from_secs(self.plan.lasts_s);
        let ends_at = Instant::now() + lasts;
        let backup_at = Instant::now() + lasts / 4;
        let mut next_version = Instant::now();
        self.note_truth();
        let mut next_change = after(&mut self.changes, self.plan.change_every_ms);
        let mut next_fault = after(&mut self.faults, self.plan.fault_every_ms);
        while Instant::now() < ends_at && !self.is_broken() {
            self.step().await;
            // Nobody keeps a backup of an etcd that has just lost everything.
            if self.backups.is_empty() && Instant::now() >= backup_at && self.lost.is_empty() {
                self.backups = self.servers.iter().map(|server| server.backup().unwrap()).collect();
            }
            if Instant::now() >= next_version {
                self.versions.push(self.servers.iter().map(|server| server.version()).collect());
                next_version += Duration::from_secs(1);
            }
            if Instant::now() >= next_change {
                self.change();
                next_change = after(&mut self.changes, self.plan.change_every_ms);
            }
            if Instant::now() >= next_fault && !self.plan.faults.is_empty() {
                self.inject().await;
                self.note_truth();
                next_fault = after(&mut self.faults, self.plan.fault_every_ms);
            }
        }
        self.end_faults(Instant::now());
        let latest = self.active.iter().map(|fault| fault.ends_at).max();
        self.end_faults(latest.unwrap_or(ends_at));
        self.reload_without(None);
        // More answers may have been spoilt than there were requests so far.
        self.servers.iter().for_each(|server| server.clear_faults());
        self.network.clear_cuts();
        self.note("the last fault is over");
        if !self.is_broken() {
            self.restart_deceived();
            self.announce_unseen();
        }
    }

    pub(crate) async fn step(&mut self) {
        self.end_faults(Instant::now());
        sleep(STEP).await;
        self.kill_crashed();
        self.kill_after_touch();
        self.world.advance(self.clock.now());
    }

    pub(crate) fn change(&mut self) {
        let n = self.changes.below(self.world.connectors.len());
        let connector = &mut self.world.connectors[n];
        match self.changes.below(4) {
            0 | 1 => connector.online ^= true,
            2 => connector.address = self.changes.next(),
            _ => connector.node = self.changes.next(),
        }
        self.world.create_upstream(n);
        self.note_truth();
    }

    /// Tells the oracle what upstream says.
    pub(crate) fn note_truth(&self) {
        let mut ledger = self.ledger.lock().unwrap();
        for (n, connector) in self.world.connectors.iter().enumerate() {
            ledger.oracle.upstream_says(&self.world.hub_key(n), &connector.status());
        }
    }

    fn end_faults(&mut self, now: Instant) {
        while let Some(at) = self.active.iter().position(|fault| fault.ends_at <= now) {
            let ActiveFault { kind, end, .. } = self.active.remove(at);
            self.note(&format!("fault over: {kind:?}"));
            end(self);
        }
    }
}
