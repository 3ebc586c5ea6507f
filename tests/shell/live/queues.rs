//! The executor's queues: a cluster that hangs, or fails, delays no other. API servers in memory and
//! a paused clock, so that times are exact.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use http::Response;
use throughline::apply::Applier;
use throughline::client::ClusterClient;
use throughline::core::contract::action::{AbsentObjects, Action, Verb};
use throughline::core::data::ids::{ClusterName, Kind};
use throughline::executor::ExecutorConstants;
use throughline::executor::{Executor, FinishedAction};
use throughline::leader::gate::{Gate, GateKeeper};
use throughline::metrics::{Format, Metrics};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::cluster::{configured, decision, write};

const HUB: &str = "hub";
const HUNG: &str = "edge-hung";
const WELL: &str = "edge-well";

/// How long an API server takes to answer.
const RESPONSE: Duration = Duration::from_millis(20);
const TIMEOUT: Duration = Duration::from_secs(5);

/// An API server that answers every write alike.
#[derive(Clone)]
struct FakeServer {
    hangs: watch::Sender<bool>,
    log: Arc<Mutex<ServerLog>>,
}

#[derive(Default)]
struct ServerLog {
    /// The last parts of the paths that were requested.
    requests: Vec<String>,
    open: usize,
    open_max: usize,
}

/// Counts a request as open until it is answered or abandoned.
struct Open(Arc<Mutex<ServerLog>>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.lock().unwrap().open -= 1;
    }
}

/// The object with what each action writes.
const ANSWER: &str = r#"{"metadata":{"resourceVersion":"2","annotations":{"k":"v"}}}"#;

impl FakeServer {
    fn new(hangs: bool) -> Self {
        Self { hangs: watch::Sender::new(hangs), log: Arc::default() }
    }

    fn client(&self) -> kube::Client {
        let server = self.clone();
        let answer = move |request: Request| server.clone().answer(request);
        kube::Client::new(Router::new().fallback(answer), "default")
    }

    async fn answer(self, request: Request) -> Response<Body> {
        let name = request.uri().path().rsplit('/').next().unwrap_or_default().to_owned();
        let _open = {
            let mut log = self.log.lock().unwrap();
            log.requests.push(name);
            log.open += 1;
            log.open_max = log.open_max.max(log.open);
            Open(self.log.clone())
        };
        self.hangs.subscribe().wait_for(|hangs| !hangs).await.unwrap();
        tokio::time::sleep(RESPONSE).await;
        Response::new(Body::from(ANSWER))
    }

    /// The most requests that were open at the same time since the last call.
    fn open_max(&self) -> usize {
        let mut log = self.log.lock().unwrap();
        let open = log.open;
        std::mem::replace(&mut log.open_max, open)
    }

    fn names(&self) -> Vec<String> {
        self.log.lock().unwrap().requests.clone()
    }
}

struct Bench {
    executor: Executor,
    servers: BTreeMap<&'static str, FakeServer>,
    metrics: Arc<Metrics>,
    keeper: GateKeeper,
    finished: Vec<FinishedAction>,
    next_id: u64,
}

/// A hub and two edges, of which one hangs from the start if `hangs`; so many writes in parallel.
fn bench(parallel: usize, hangs: bool) -> Bench {
    let metrics = Arc::new(Metrics::new());
    let servers: BTreeMap<_, _> =
        [HUB, HUNG, WELL].map(|name| (name, FakeServer::new(hangs && name == HUNG))).into();
    let client = |(name, server): (&&str, &FakeServer)| {
        let name = ClusterName::from(*name);
        let config = configured(name.clone(), &[], None);
        let client = ClusterClient::with_client(config, server.client(), metrics.clone());
        (name, Arc::new(client))
    };
    let applier = Applier::new(servers.iter().map(client).collect(), TIMEOUT);
    let (gate, keeper) = Gate::closed();
    keeper.set(Some(u64::MAX));
    let config = ExecutorConstants { parallel, ..ExecutorConstants::default() };
    let executor = Executor::new(applier, gate, config, false, metrics.clone());
    Bench { executor, servers, metrics, keeper, finished: Vec::new(), next_id: 0 }
}

impl Bench {
    fn submit(&mut self, cluster: &str, name: &str) {
        match cluster {
            HUB => self.submit_action(HUB, Verb::Mirror, Kind::Connector, name, None),
            edge => self.submit_action(edge, Verb::Touch, Kind::Gateway, name, None),
        }
    }

    fn submit_delete(&mut self, upstream: &str, name: &str) {
        let absent = AbsentObjects {
            cluster: upstream.into(),
            namespace: "shop".into(),
            namespace_uid: None,
            namespace_deleted: false,
            kind: Kind::Gateway,
            names: vec!["site".into()],
        };
        self.submit_action(HUB, Verb::Delete, Kind::HttpRoute, name, Some(absent));
    }

    fn submit_action(
        &mut self,
        cluster: &str,
        verb: Verb,
        kind: Kind,
        name: &str,
        absent: Option<AbsentObjects>,
    ) {
        self.next_id += 1;
        let action = write(self.next_id, verb, kind, name);
        let mut action = Action { cluster: cluster.into(), ..action };
        action.precondition.absent = absent;
        self.executor.submit(decision(action));
    }

    fn submit_many(&mut self, cluster: &str, count: usize) {
        (0..count).for_each(|i| self.submit(cluster, &format!("{cluster}-{i}")));
    }

    /// Takes outcomes until `enough`, or for `longest`.
    async fn until(&mut self, longest: Duration, enough: impl Fn(&Self) -> bool) {
        let end = Instant::now() + longest;
        while !enough(self) {
            let next = tokio::time::timeout_at(end, self.executor.next_finished());
            let Ok(finished) = next.await else { return };
            self.finished.push(finished);
        }
    }

    async fn run_for(&mut self, time: Duration) {
        self.until(time, |_| false).await;
    }

    fn written(&self, cluster: &str) -> usize {
        let is_written = |f: &&FinishedAction| {
            f.decision.action.cluster.as_str() == cluster && f.outcome.name() == "applied"
        };
        self.finished.iter().filter(is_written).count()
    }

    /// How long 100 writes to the healthy edge and 100 to the hub take, submitted now.
    async fn time_of_others(&mut self) -> Duration {
        let began = Instant::now();
        let before = (self.written(WELL), self.written(HUB));
        self.submit_many(WELL, 100);
        self.submit_many(HUB, 100);
        self.until(Duration::from_secs(600), |bench| {
            bench.written(WELL) == before.0 + 100 && bench.written(HUB) == before.1 + 100
        })
        .await;
        began.elapsed()
    }

    fn outcomes(&self) -> Vec<(u64, &'static str)> {
        self.finished.iter().map(|f| (f.decision.action.id.0, f.outcome.name())).collect()
    }

    /// Actions queued and in flight.
    fn load(&self) -> (usize, usize) {
        (self.executor.queued(), self.executor.in_flight())
    }

    fn metric(&self, line: &str) -> bool {
        self.metrics.text(None, Format::Plain).lines().any(|found| found == line)
    }
}

/// With 390 writes waiting for an edge that hangs on PATCH, the next flip elsewhere took six
/// minutes when all clusters shared one queue.
#[tokio::test(start_paused = true)]
async fn a_hung_edge_with_hundreds_of_waiting_writes_delays_no_other_cluster() {
    let mut alone = bench(16, false);
    let normal = alone.time_of_others().await;
    assert!(normal < Duration::from_secs(1), "{normal:?}");

    let mut bench = bench(16, true);
    bench.submit_many(HUNG, 500);
    for after in [Duration::ZERO, TIMEOUT / 2, TIMEOUT * 2, TIMEOUT * 20] {
        bench.run_for(after).await;
        let beside = bench.time_of_others().await;
        assert!(beside <= normal.mul_f64(1.2), "{beside:?} instead of {normal:?} after {after:?}");
        assert!(bench.executor.queued() > 400, "nothing waits any longer");
    }
}

#[tokio::test(start_paused = true)]
async fn a_hung_queue_sends_one_at_a_time_and_recovers_to_all_its_room() {
    let mut bench = bench(8, true);
    let server = bench.servers[HUNG].clone();
    bench.submit_many(HUNG, 200);
    bench.run_for(TIMEOUT - RESPONSE).await;
    assert_eq!((server.open_max(), server.names().len()), (8, 8));

    // The first eight have timed out: from now on one after the other, each as long as a request may take.
    bench.run_for(RESPONSE * 2).await;
    server.open_max();
    let before = server.names().len();
    bench.run_for(TIMEOUT * 10).await;
    assert_eq!(server.open_max(), 1);
    let sent = server.names().len() - before;
    assert!((9..=11).contains(&sent), "{sent} requests in the time of ten");
    let depth = format!(r#"workqueue_depth{{name="edge-hung"}} {}"#, bench.executor.queued());
    assert!(bench.metric(&depth), "{depth}");

    // It answers: whatever waits is written at full speed.
    let waiting = bench.executor.queued();
    assert!(waiting > 150, "{waiting}");
    server.hangs.send_replace(false);
    let began = Instant::now();
    bench.until(TIMEOUT, |bench| bench.executor.queued() + bench.executor.in_flight() == 0).await;
    let rounds = u32::try_from(waiting.div_ceil(8)).unwrap();
    assert!(began.elapsed() <= RESPONSE * (rounds + 4), "{:?}", began.elapsed());
    assert_eq!((server.open_max(), bench.executor.queued()), (8, 0));
    assert!(bench.metric(r#"workqueue_depth{name="edge-hung"} 0"#));
}

/// What times out is left to the machine: another attempt would take the turn of another
/// object.
#[tokio::test(start_paused = true)]
async fn a_queue_is_narrow_from_the_first_time_out_to_the_next_answer() {
    let mut bench = bench(8, true);
    let server = bench.servers[HUNG].clone();
    bench.submit(HUNG, "a");
    bench.run_for(TIMEOUT + RESPONSE).await;
    assert_eq!((bench.outcomes(), server.names().len()), (vec![(1, "failed")], 1));

    server.hangs.send_replace(false);
    bench.submit_many(HUNG, 9);
    assert_eq!(bench.load(), (8, 1));
    bench.run_for(RESPONSE + RESPONSE / 2).await;
    assert_eq!(bench.load(), (0, 8));
    bench.run_for(RESPONSE * 2).await;
    assert_eq!(bench.written(HUNG), 9);
}

/// A webhook that hangs for one kind delays that kind alone, also in the same cluster.
#[tokio::test(start_paused = true)]
async fn each_kind_in_a_cluster_has_room_of_its_own() {
    let mut bench = bench(2, false);
    let hub = bench.servers[HUB].clone();
    bench.submit_many(HUB, 6);
    assert_eq!(bench.load(), (4, 2));
    bench.submit_action(HUB, Verb::Touch, Kind::Gateway, "gateway", None);
    assert_eq!(bench.load(), (4, 3));
    bench.run_for(RESPONSE / 2).await;
    assert_eq!(hub.names(), ["hub-0", "hub-1", "gateway"]);

    // What is queued can be dropped: it has no outcome.
    assert_eq!(bench.executor.drop_queued(), 4);
    bench.run_for(RESPONSE * 4).await;
    assert_eq!(bench.outcomes(), [(1, "applied"), (2, "applied"), (7, "applied")]);
    assert!(!bench.executor.is_busy());
}

/// A delete asks its upstream for proof, and that may hang.
#[tokio::test(start_paused = true)]
async fn deletes_that_ask_different_upstreams_do_not_wait_for_each_other() {
    let mut bench = bench(1, false);
    for (upstream, name) in [("up-a", "1"), ("up-a", "2"), ("up-b", "3")] {
        bench.submit_delete(upstream, name);
    }
    assert_eq!(bench.load(), (1, 2));
}

/// The gate is asked before the attempt, not when an action is queued alone.
#[tokio::test(start_paused = true)]
async fn leadership_lost_in_the_queue_is_noticed() {
    let mut bench = bench(1, false);
    let hub = bench.servers[HUB].clone();
    for name in ["is-sent", "waits"] {
        bench.submit(HUB, name);
    }
    bench.run_for(RESPONSE / 2).await;
    bench.keeper.set(None);
    bench.run_for(Duration::from_secs(10)).await;
    assert_eq!(bench.outcomes(), [(1, "applied"), (2, "dropped")]);
    assert_eq!(hub.names(), ["is-sent"]);
}

#[tokio::test(start_paused = true)]
async fn one_objects_writes_keep_their_order_and_a_newer_one_supersedes_a_queued_one() {
    let mut bench = bench(16, false);
    for name in ["a", "a", "a", "b"] {
        bench.submit(WELL, name);
    }
    bench.run_for(RESPONSE * 3).await;
    // 2 was never sent: 1 was in flight, and 3 replaced it. b waited for neither.
    let outcomes = bench.outcomes();
    assert_eq!((outcomes[0], outcomes[3]), ((2, "superseded"), (3, "applied")));
    assert!(outcomes.contains(&(1, "applied")) && outcomes.contains(&(4, "applied")));
    assert_eq!(bench.servers[WELL].names(), ["a", "b", "a"]);
    assert!(!bench.executor.is_busy());
}

/// A loop that submits each dropped action again must still receive the event that says why.
#[tokio::test]
async fn dropped_actions_do_not_starve_the_loop() {
    let mut bench = bench(16, false);
    bench.keeper.set(None);
    let (send, mut received) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move { send.send(()) });
    bench.submit(HUB, "a");
    for _ in 0..100_000 {
        tokio::select! {
            finished = bench.executor.next_finished() => {
                assert_eq!(finished.outcome.name(), "dropped");
                bench.executor.submit(finished.decision);
            }
            Some(()) = received.recv() => return,
        }
    }
    panic!("the other task had no turn");
}
