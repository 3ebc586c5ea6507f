//! Several instances that elect a leader, and what must always hold: the setup of the `leading_*` tests.
//!
//! Each instance reaches each cluster through its own proxy, so each write can be assigned to an instance.
//! resourceVersions say who held a Lease then: those of the Lease and of Connectors are revisions of the same
//! etcd, in commit order.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use futures::FutureExt as _;
use tokio::task::JoinHandle;

use crate::cluster::follow::{WatchUpdate, follow};
use crate::cluster::objects::key;
use crate::cluster::throughline::get;
use crate::prelude::*;

pub(crate) const LEASE: (&str, &str) = ("default", "throughline");

/// Short times for short tests, but longer than the answers of a busy machine take.
pub(crate) fn short() -> Value {
    json!({
        "leaderElection": { "enabled": true, "leaseNamespace": LEASE.0, "leaseDuration": "4s" },
        "election": { "renewDeadlineMs": 2_500, "retryMs": 500 },
        "executor": { "timeoutMs": 1_000 },
        "retry": { "firstMs": 200, "maxMs": 1_000 },
        "watch": { "silentAfterMs": 75_000, "timeoutMs": 5_000, "backoffMaxMs": 1_000 },
    })
}

/// The Lease does not expire during a test: leadership changes only by release.
pub(crate) fn endless() -> Value {
    json!({
        "leaderElection": { "enabled": true, "leaseNamespace": LEASE.0, "leaseDuration": "600s" },
        "election": { "renewDeadlineMs": 60_000, "retryMs": 500 },
    })
}

pub(crate) struct Instance {
    pub(crate) identity: String,
    /// The Lease that it elects by.
    lease: String,
    shards: u16,
    /// In the testbed's order: upstream, the hub with the Lease, and the edge if it is a third cluster.
    pub(crate) proxies: Vec<FaultProxy>,
    pub(crate) running: Option<Throughline>,
    /// Asks all the time whether it is ready, and ends with the first other answer.
    probe: Option<JoinHandle<Result<(u16, String), String>>>,
}

impl Instance {
    pub(crate) fn throughline(&self) -> &Throughline {
        self.running.as_ref().expect("the instance is running")
    }

    pub(crate) fn hub(&self) -> &FaultProxy {
        &self.proxies[1]
    }

    /// Its leader-only writes.
    pub(crate) fn leader_writes(&self) -> Vec<Exchange> {
        let mut writes = self.hub().writes();
        writes.retain(|write| write.target.resource == "connectors");
        writes
    }

    fn start_probe(&mut self) {
        let admin = self.throughline().admin();
        self.probe = Some(tokio::spawn(async move {
            loop {
                let answer = get(admin, "/readyz").await;
                if !matches!(answer, Ok((200, _))) {
                    return answer;
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }));
    }

    /// Stops the readiness probe and checks that every answer was 200.
    fn stop_probe(&mut self) {
        let Some(probe) = self.probe.take() else { return };
        if probe.is_finished() {
            panic!("not ready: {:?}", probe.now_or_never());
        }
        probe.abort();
    }

    /// SIGSTOP. A frozen instance does not answer probes.
    pub(crate) fn freeze(&mut self) {
        self.stop_probe();
        self.throughline().signal(Signal::STOP);
    }

    pub(crate) fn thaw(&mut self) {
        self.throughline().signal(Signal::CONT);
        self.start_probe();
    }

    async fn leads(&self) -> bool {
        // Without a probe it is frozen and would not answer.
        let (Some(throughline), Some(_)) = (&self.running, &self.probe) else { return false };
        let metrics = throughline.metrics().await;
        let is_status = |name: &str| name.starts_with("leader_election_master_status");
        metrics.iter().any(|(name, value)| is_status(name) && *value > 0.5)
    }
}

/// A testbed with instances that share a Lease.
pub(crate) struct ElectionTest {
    pub(crate) testbed: Testbed,
    pub(crate) fleet: Fleet,
    pub(crate) instances: Vec<Instance>,
    /// As the test's own watch saw them.
    holders: Arc<Mutex<Histories>>,
    _watching: Task,
    pub(crate) more: Value,
    /// What the test does has these causes, in whichever instance.
    pub(crate) provoked: &'static [Cause],
}

/// Of each Lease, by its name: its resourceVersion to its holder, empty for none.
type Histories = BTreeMap<String, BTreeMap<u64, String>>;

fn version(text: &str) -> u64 {
    text.parse().unwrap()
}

impl ElectionTest {
    /// The clusters, a fleet, and a released Lease; no instance yet.
    pub(crate) async fn new(topology: Topology, spec: Spec, more: Value) -> Self {
        let (testbed, fleet) = seeded(topology, spec).await;
        let holders = Arc::<Mutex<Histories>>::default();
        let to = holders.clone();
        let watching = follow(testbed.hub().rest().clone(), LEASES, move |seen| {
            let (objects, deleted) = match seen {
                WatchUpdate::Listed(objects) => (objects, false),
                WatchUpdate::Applied(object) => (vec![object], false),
                WatchUpdate::Deleted(object) => (vec![object], true),
            };
            for lease in &objects {
                let holder = lease["spec"]["holderIdentity"].as_str().filter(|_| !deleted);
                let version = version(lease["metadata"]["resourceVersion"].as_str().unwrap());
                let holder = holder.unwrap_or_default().to_owned();
                to.lock().unwrap().entry(key(lease).1).or_default().insert(version, holder);
            }
        });
        let released = json!({
            "metadata": { "namespace": LEASE.0, "name": LEASE.1 },
            "spec": { "holderIdentity": "", "leaseDurationSeconds": 1, "leaseTransitions": 0 },
        });
        testbed.hub().rest().create(LEASES, released).await.unwrap();
        let instances = Vec::new();
        Self { testbed, fleet, instances, holders, _watching: watching, more, provoked: &[] }
    }

    /// The same with six connectors and running instances; one of them leads, and everything has converged.
    pub(crate) async fn with(topology: Topology, instances: usize, more: Value) -> Self {
        let mut election = Self::new(topology, Spec::of(6), more).await;
        for _ in 0..instances {
            election.join().await;
        }
        election.somebody_leads().await;
        oracle::converges(&election.testbed).await;
        election
    }

    /// Starts another instance and waits until it is ready; returns its number.
    pub(crate) async fn join(&mut self) -> usize {
        self.join_as("throughline-0", 1).await
    }

    /// The same, as this pod of several shards.
    pub(crate) async fn join_as(&mut self, pod: &str, shards: u16) -> usize {
        let number = self.instances.len();
        let (mut proxies, mut clusters) = (Vec::new(), Vec::new());
        for cluster in &self.testbed.clusters {
            let proxy = FaultProxy::start(&cluster.server).await;
            let kubeconfig = cluster.server.folder().join(format!("instance-{number}.kubeconfig"));
            proxy.write_kubeconfig(&kubeconfig, THROUGHLINE);
            let mut config = cluster.config();
            config["kubeconfig"] = json!(kubeconfig);
            clusters.push(config);
            proxies.push(proxy);
        }
        let own = json!({ "clusters": clusters, "leaderElection": { "shards": shards } });
        let setup = Setup::of(&self.testbed).set(&own).set(&self.more).pod(pod);
        let throughline = setup.ready().await;
        let log = parsed(&throughline.log());
        let joined = log.iter().find(|line| line["message"] == "joined the leader election");
        let joined = joined.expect("it logs its identity");
        let [identity, lease] =
            ["identity", "lease"].map(|key| joined[key].as_str().unwrap().into());
        let (running, probe) = (Some(throughline), None);
        let mut instance = Instance { identity, lease, shards, proxies, running, probe };
        instance.start_probe();
        self.instances.push(instance);
        number
    }

    /// SIGTERM, and checks how it ended.
    pub(crate) async fn stop(&mut self, instance: usize) {
        self.leave(instance).stop().await;
    }

    pub(crate) fn kill(&mut self, instance: usize) {
        self.leave(instance).kill();
    }

    fn leave(&mut self, instance: usize) -> Throughline {
        self.instances[instance].stop_probe();
        let mut throughline = self.instances[instance].running.take().unwrap();
        throughline.provokes(self.provoked);
        throughline
    }

    /// All instances that lead, by their own metrics.
    pub(crate) async fn leaders(&self) -> Vec<usize> {
        let leads = futures::future::join_all(self.instances.iter().map(Instance::leads)).await;
        (0..leads.len()).filter(|number| leads[*number]).collect()
    }

    /// Waits until exactly one instance leads; returns its number.
    pub(crate) async fn somebody_leads(&self) -> usize {
        self.lead(1).await[0]
    }

    /// Waits until so many instances lead; returns their numbers.
    pub(crate) async fn lead(&self, wanted: usize) -> Vec<usize> {
        let found = Mutex::new(Vec::new());
        eventually(&format!("{wanted} lead"), SOON, async || {
            let leaders = self.leaders().await;
            found.lock().unwrap().clone_from(&leaders);
            ensure(leaders.len() == wanted, || format!("{leaders:?}"))
        })
        .await;
        found.into_inner().unwrap()
    }

    /// Moves a connector to a new node and writes its annotation at the edge, as no leader does it: an
    /// instance touches the gateway.
    pub(crate) async fn is_touched(&self, i: usize) {
        let (fleet, edge) = (&self.fleet, &self.fleet.edge);
        let before = fleet.trigger(edge, i).await;
        fleet.move_node(i).await.unwrap();
        let said = status(true, fleet.node(i)).to_string();
        annotate((edge, fleet, i), UPSTREAM_STATUS, Some(&said)).await;
        until("touched without a leader", async || {
            let now = fleet.trigger(edge, i).await;
            now.is_some() && now != before
        })
        .await;
    }

    /// Checks that an instance touches while no instance leads.
    pub(crate) async fn touches_without_leader(&self, i: usize) {
        self.lead(0).await;
        self.is_touched(i).await;
        assert_eq!(self.leaders().await, [0; 0], "an instance became leader meanwhile");
    }

    /// The resourceVersion of each hub Connector.
    pub(crate) async fn versions(&self) -> Vec<String> {
        let connectors = self.testbed.hub().rest().items(CONNECTORS).await.unwrap();
        connectors.iter().map(|c| c["metadata"]["resourceVersion"].to_string()).collect()
    }

    pub(crate) async fn lease(&self) -> Value {
        self.testbed.hub().rest().read(LEASES, LEASE.0, LEASE.1).await.unwrap()
    }

    /// The numbers of shards that wrote, each as often as it began to.
    pub(crate) fn numbers_in_turn(&self) -> Vec<u16> {
        let mut numbers: Vec<_> = self.changes().values().map(|(who, _)| who.shards).collect();
        numbers.dedup();
        numbers
    }

    /// Leader-only writes that changed something: resulting version to writer and write. Of several
    /// writes that were answered with one version, the earliest.
    fn changes(&self) -> BTreeMap<u64, (&Instance, Exchange)> {
        let mut writes = Vec::new();
        for instance in &self.instances {
            writes.extend(instance.leader_writes().into_iter().map(|write| (instance, write)));
        }
        writes.retain(|(_, write)| !write.resource_version.is_empty());
        writes.sort_by_key(|(_, write)| std::cmp::Reverse(write.at));
        writes.into_iter().map(|of| (version(&of.1.resource_version), of)).collect()
    }

    /// Checks that every leader-only write came from the holder of the Lease at that moment.
    pub(crate) fn only_holders_wrote(&self) {
        self.check_writers(true);
    }

    /// Checks that every writer held the Lease, or had held it and no other instance wrote since. More
    /// cannot be asked for when somebody deletes or takes the Lease under its holder.
    pub(crate) fn no_writers_overlap(&self) {
        self.check_writers(false);
    }

    fn check_writers(&self, is_strict: bool) {
        let (histories, changes) = (self.holders.lock().unwrap(), self.changes());
        assert!(!changes.is_empty(), "there are no leader-only writes");
        for (at, (instance, write)) in &changes {
            let (who, history) = (&instance.identity, &histories[&instance.lease]);
            let held = history.range(..at).next_back();
            if held.is_some_and(|(_, holder)| holder == who) {
                continue;
            }
            let what = format!("{who} wrote at {at}, not {held:?}: {write:?}\n{history:?}");
            assert!(!is_strict, "{what}");
            let tenure = history.range(..at).rev().find(|(_, holder)| *holder == who);
            let (last, _) = tenure.unwrap_or_else(|| panic!("{what}"));
            let is_other = |(other, _): &&(&Instance, Exchange)| other.identity != *who;
            let other = changes.range(last..at).map(|(_, change)| change).find(is_other);
            assert!(other.is_none(), "{what}: and so did {:?}", other.map(|(_, write)| write));
        }
    }

    /// Checks that everything has converged, and that all instances run, were ready all the time, and stop cleanly.
    pub(crate) async fn end(mut self) {
        oracle::converges(&self.testbed).await;
        for number in 0..self.instances.len() {
            let Some(throughline) = &mut self.instances[number].running else { continue };
            assert!(throughline.runs(), "instance {number} ended by itself");
            self.stop(number).await;
        }
        oracle::converged(&self.testbed).await.unwrap();
    }
}
