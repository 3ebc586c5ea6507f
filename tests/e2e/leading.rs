//! Several replicas that elect one of them, and what must hold whatever happens to them: the stage of
//! the `leading_*` tests.
//!
//! Each replica reaches each cluster by a proxy of its own, so its writes can be told from others'.
//! Who held the Lease at a write is read off resourceVersions: those of Lease and connectors are
//! revisions of the same etcd, in the order of what was committed.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::cluster::fleet::{Fleet, Spec, app};
use crate::cluster::follow::{Seen, Task, follow};
use crate::cluster::objects::{TRIGGER, UPSTREAM_STATUS, annotation, key};
use crate::cluster::process::Signal;
use crate::cluster::proxy::{FaultProxy, Write};
use crate::cluster::rest::{CONNECTORS, GATEWAYS, LEASES};
use crate::cluster::throughline::{Setup, Throughline, get};
use crate::cluster::world::{Topology, World};
use crate::cluster::{SOON, ensure, eventually, oracle};

pub(crate) const LEASE: (&str, &str) = ("default", "throughline");

/// Short, so that a test is; no shorter than a busy machine's answers.
pub(crate) fn short() -> Value {
    json!({
        "leaderElection": { "enabled": true, "leaseNamespace": LEASE.0, "leaseDurationMs": 4_000,
                            "renewDeadlineMs": 2_500, "retryPeriodMs": 500 },
        "executor": { "timeoutMs": 1_000 },
        "retry": { "firstMs": 200, "maxMs": 1_000 },
        "watch": { "silentAfterMs": 75_000, "timeoutMs": 5_000, "backoffMaxMs": 1_000 },
    })
}

/// No Lease of these runs out while a test waits for something: who leads next was let.
pub(crate) fn endless() -> Value {
    json!({
        "leaderElection": { "enabled": true, "leaseNamespace": LEASE.0, "leaseDurationMs": 600_000,
                            "renewDeadlineMs": 60_000, "retryPeriodMs": 500 },
    })
}

/// A replica, running or not any more.
pub(crate) struct Replica {
    pub(crate) identity: String,
    /// One for each cluster, in the world's order.
    pub(crate) proxies: Vec<FaultProxy>,
    hub: usize,
    running: Option<(Throughline, u32)>,
    probe: Option<Probe>,
}

impl Replica {
    pub(crate) fn throughline(&self) -> &Throughline {
        &self.running.as_ref().expect("the replica runs").0
    }

    /// In front of the cluster that has hub and Lease.
    pub(crate) fn hub(&self) -> &FaultProxy {
        &self.proxies[self.hub]
    }

    /// Its writes that only a leader makes.
    pub(crate) fn leader_writes(&self) -> Vec<Write> {
        let mut writes = self.hub().writes();
        writes.retain(|write| write.target.resource == "connectors");
        writes
    }

    /// Lines of its log with this in them.
    pub(crate) fn said(&self, text: &str) -> usize {
        self.throughline().log().iter().filter(|line| line.contains(text)).count()
    }

    /// Nobody asks it whether it is ready any more; it always was.
    fn stop_asking(&mut self) {
        if let Some(probe) = self.probe.take() {
            probe.finish();
        }
    }

    /// Stops it (SIGSTOP): it can't be asked then.
    pub(crate) fn freeze(&mut self) {
        self.stop_asking();
        self.throughline().signal(Signal::STOP);
    }

    pub(crate) fn thaw(&mut self) {
        self.throughline().signal(Signal::CONT);
        self.probe = Some(Probe::start(self.throughline().admin()));
    }

    async fn leads(&self) -> bool {
        let Some((throughline, _)) = &self.running else { return false };
        // One that can't be asked is frozen.
        if self.probe.is_none() {
            return false;
        }
        let metrics = throughline.metrics().await;
        metrics["leader_election_master_status{name=\"throughline\"}"] > 0.5
    }
}

/// Asks all the time whether a process is ready.
struct Probe {
    said: Arc<Mutex<(u32, Vec<String>)>>,
    _asking: Task,
}

impl Probe {
    fn start(admin: SocketAddr) -> Self {
        let said = Arc::<Mutex<(u32, Vec<String>)>>::default();
        let to = said.clone();
        let asking = Task::spawn(async move {
            loop {
                let answer = get(admin, "/readyz").await;
                {
                    let mut said = to.lock().unwrap();
                    said.0 += 1;
                    if !matches!(answer, Ok((200, _))) {
                        said.1.push(format!("{answer:?}"));
                    }
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        });
        Self { said, _asking: asking }
    }

    fn finish(self) {
        let said = self.said.lock().unwrap();
        assert!(said.0 > 0, "nobody asked whether it is ready");
        assert!(said.1.is_empty(), "not ready, {} of {}: {:?}", said.1.len(), said.0, said.1);
    }
}

/// Everything of one test.
pub(crate) struct Party {
    pub(crate) world: World,
    pub(crate) fleet: Fleet,
    pub(crate) replicas: Vec<Replica>,
    /// resourceVersion of the Lease to its holder then, as far as the test's own watch saw it.
    holders: Arc<Mutex<BTreeMap<u64, String>>>,
    _watching: Task,
    more: Value,
}

fn version(text: &str) -> u64 {
    text.parse().unwrap()
}

impl Party {
    /// The clusters, with so many connectors, and a Lease that somebody released; nobody takes part yet.
    pub(crate) async fn new(topology: Topology, connectors: usize, more: Value) -> Self {
        let world = World::start(topology).await;
        let fleet = Fleet::seed(&world, Spec::of(connectors)).await;
        let holders = Arc::<Mutex<BTreeMap<u64, String>>>::default();
        let to = holders.clone();
        let watching = follow(world.hub().rest().clone(), LEASES, move |seen| {
            let (objects, deleted) = match seen {
                Seen::Listed(objects) => (objects, false),
                Seen::Applied(object) => (vec![object], false),
                Seen::Deleted(object) => (vec![object], true),
            };
            for lease in objects.iter().filter(|lease| key(lease).1 == LEASE.1) {
                let holder = lease["spec"]["holderIdentity"].as_str().filter(|_| !deleted);
                let version = version(lease["metadata"]["resourceVersion"].as_str().unwrap());
                to.lock().unwrap().insert(version, holder.unwrap_or_default().to_owned());
            }
        });
        let released = json!({
            "metadata": { "namespace": LEASE.0, "name": LEASE.1 },
            "spec": { "holderIdentity": "", "leaseDurationSeconds": 1, "leaseTransitions": 0 },
        });
        world.hub().rest().create(LEASES, released).await.unwrap();
        Self { world, fleet, replicas: Vec::new(), holders, _watching: watching, more }
    }

    /// The same with so many replicas, of which one leads, and everything done.
    pub(crate) async fn with(topology: Topology, replicas: usize, more: Value) -> Self {
        let mut party = Self::new(topology, 6, more).await;
        for _ in 0..replicas {
            party.join().await;
        }
        party.somebody_leads().await;
        oracle::converges(&party.world).await;
        party
    }

    /// Starts one more replica and waits until it is ready; gives its number.
    pub(crate) async fn join(&mut self) -> usize {
        let number = self.replicas.len();
        let (mut proxies, mut clusters) = (Vec::new(), Vec::new());
        for cluster in &self.world.clusters {
            let proxy = FaultProxy::start(&cluster.server).await;
            let kubeconfig = cluster.server.folder().join(format!("replica-{number}.kubeconfig"));
            proxy.write_kubeconfig(&kubeconfig, crate::cluster::apiserver::THROUGHLINE);
            clusters.push(
                json!({ "name": cluster.name, "roles": cluster.roles, "kubeconfig": kubeconfig }),
            );
            proxies.push(proxy);
        }
        let setup = Setup::of(&self.world).set(&json!({ "clusters": clusters })).set(&self.more);
        let throughline = setup.ready().await;
        let named = |line: &String| {
            let line: Value = serde_json::from_str(line).ok()?;
            (line["message"] == "taking part in the election").then_some(())?;
            Some(line["identity"].as_str()?.to_owned())
        };
        let identity = throughline.log().iter().find_map(named).expect("it takes part");
        let hub = |c: &crate::cluster::world::Cluster| c.roles.contains(&"downstream");
        self.replicas.push(Replica {
            identity,
            proxies,
            hub: self.world.clusters.iter().position(hub).unwrap(),
            probe: Some(Probe::start(throughline.admin())),
            running: Some((throughline, 0)),
        });
        let running = self.replicas[number].running.as_mut().unwrap();
        running.1 = running.0.pid();
        number
    }

    /// SIGTERM, and how it ended is judged.
    pub(crate) async fn stop(&mut self, replica: usize) {
        self.replicas[replica].stop_asking();
        self.replicas[replica].running.take().unwrap().0.stop().await;
    }

    /// SIGKILL.
    pub(crate) fn kill(&mut self, replica: usize) {
        self.replicas[replica].stop_asking();
        self.replicas[replica].running.take().unwrap().0.kill();
    }

    /// All that lead, by what they say themselves.
    pub(crate) async fn leaders(&self) -> Vec<usize> {
        let mut leaders = Vec::new();
        for (number, replica) in self.replicas.iter().enumerate() {
            if replica.leads().await {
                leaders.push(number);
            }
        }
        leaders
    }

    /// Waits until somebody leads.
    pub(crate) async fn somebody_leads(&self) -> usize {
        let mut leader = 0;
        eventually("somebody leads", SOON, async || {
            let leaders = self.leaders().await;
            ensure(leaders.len() == 1, || format!("leaders: {leaders:?}"))
        })
        .await;
        for number in self.leaders().await {
            leader = number;
        }
        leader
    }

    pub(crate) async fn nobody_leads(&self) {
        eventually("nobody leads", SOON, async || {
            let leaders = self.leaders().await;
            ensure(leaders.is_empty(), || format!("leaders: {leaders:?}"))
        })
        .await;
    }

    /// A connector is online on a node that it was never on, and its annotation at the edge says so
    /// without a leader's doing: the gateway is touched.
    pub(crate) async fn is_touched(&self, i: usize) {
        let began = Instant::now();
        let trigger = async || {
            let (namespace, _) = self.fleet.replica(i);
            let gateway = self.fleet.edge.read(GATEWAYS, namespace, &app(i, 0)).await.unwrap();
            annotation(&gateway, TRIGGER).map(str::to_owned)
        };
        let before = trigger().await;
        self.fleet.move_node(i).await.unwrap();
        let ((namespace, name), (to, replica)) = (self.fleet.key(i), self.fleet.replica(i));
        let source = self.fleet.up.read(CONNECTORS, namespace, &name).await.unwrap();
        let said = source["status"].to_string();
        let edge = &self.fleet.edge;
        edge.annotate(CONNECTORS, (to, &replica), UPSTREAM_STATUS, Some(&said)).await.unwrap();
        eventually("touched without a leader", SOON, async || {
            let now = trigger().await;
            ensure(now.is_some() && now != before, || format!("{now:?}"))
        })
        .await;
        eprintln!("  touched without a leader after {:.1?}", began.elapsed());
    }

    /// A touch, while nobody leads from its beginning to its end.
    pub(crate) async fn touches_without_leader(&self, i: usize) {
        self.nobody_leads().await;
        self.is_touched(i).await;
        assert_eq!(self.leaders().await, Vec::<usize>::new(), "it was a leader's doing");
    }

    /// The version of each connector at the hub.
    pub(crate) async fn versions(&self) -> Vec<String> {
        let replicas = self.world.hub().rest().items(CONNECTORS).await.unwrap();
        replicas.iter().map(|r| r["metadata"]["resourceVersion"].to_string()).collect()
    }

    /// The Lease's spec.
    pub(crate) async fn lease(&self) -> Value {
        let lease = self.world.hub().rest().read(LEASES, LEASE.0, LEASE.1).await.unwrap();
        lease["spec"].clone()
    }

    /// The Lease at all times: version to holder, empty for nobody.
    fn history(&self) -> BTreeMap<u64, String> {
        let mut history = self.holders.lock().unwrap().clone();
        for write in self.replicas.iter().flat_map(|replica| replica.hub().writes()) {
            if write.target.resource == "leases" && !write.resource_version.is_empty() {
                let holder = write.body["spec"]["holderIdentity"].as_str().unwrap_or_default();
                history.insert(version(&write.resource_version), holder.to_owned());
            }
        }
        history
    }

    /// Leader-only writes that changed something, by version: the earliest that was answered with
    /// it, and whose it was.
    fn changes(&self) -> BTreeMap<u64, (&str, Write)> {
        let mut changes = BTreeMap::new();
        for replica in &self.replicas {
            for write in replica.leader_writes() {
                if write.resource_version.is_empty() {
                    continue;
                }
                let at = version(&write.resource_version);
                let found = changes.entry(at).or_insert((replica.identity.as_str(), write.clone()));
                if write.at < found.1.at {
                    *found = (&replica.identity, write);
                }
            }
        }
        changes
    }

    /// Whoever wrote held the Lease at that moment.
    pub(crate) fn only_holders_wrote(&self) {
        self.judge_writes(true);
    }

    /// Whoever wrote held the Lease, or had held it and nobody else had written since: what can be
    /// asked for when the Lease vanishes under its holder.
    pub(crate) fn no_writers_overlap(&self) {
        self.judge_writes(false);
    }

    fn judge_writes(&self, is_strict: bool) {
        let (history, changes) = (self.history(), self.changes());
        assert!(!changes.is_empty(), "nobody wrote anything");
        for (at, (who, write)) in &changes {
            let held = history.range(..at).next_back();
            let Some((since, holder)) = held else { panic!("{write:?}: no Lease before it") };
            if holder == who {
                continue;
            }
            let what = format!(
                "{who} wrote at {at}, and {holder:?} has held the Lease since {since}: {write:?}\n{history:?}"
            );
            assert!(!is_strict, "{what}");
            let tenure = history.range(..at).rev().find(|(_, holder)| holder == who);
            let (last, _) = tenure.unwrap_or_else(|| panic!("{what}"));
            let other = changes.range(last..at).find(|(_, (other, _))| other != who);
            assert!(other.is_none(), "{what}: and so did {other:?}");
        }
        let mut writers: Vec<_> = changes.values().map(|(who, _)| *who).collect();
        writers.dedup();
        eprintln!("  {} leader-only writes, writers in turn: {}", changes.len(), writers.len());
    }

    /// Everything is as it should be; all replicas are the processes that they were, were ready all
    /// the time, and end well.
    pub(crate) async fn end(mut self) {
        oracle::converges(&self.world).await;
        for number in 0..self.replicas.len() {
            let Some((throughline, pid)) = &mut self.replicas[number].running else { continue };
            assert!(throughline.runs(), "replica {number} ended by itself");
            assert_eq!(throughline.pid(), *pid, "replica {number} is another process");
            self.stop(number).await;
        }
        oracle::converged(&self.world).await.unwrap();
    }
}

/// Prints how long something took, since `began`; nothing hangs on it.
pub(crate) fn took(what: &str, began: Instant) {
    eprintln!("  {what}: {:.1} s", began.elapsed().as_secs_f64());
}
