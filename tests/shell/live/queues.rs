//! The executor's queues: a cluster that hangs, or fails, delays no other. API servers in memory and
//! a paused clock, so that times are exact.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use http::{Response, StatusCode};
use throughline::apply::Applier;
use throughline::client::ClusterClient;
use throughline::config::ClusterConfig;
use throughline::core::contract::action::{
    AbsentObjects, Action, Decision, Precondition, Urgency, Verb,
};
use throughline::core::data::ids::{ActionId, ClusterName, Kind, ObjectKey};
use throughline::core::data::time::UnixMillis;
use throughline::executor::ExecutorConstants;
use throughline::executor::{Executor, FinishedAction};
use throughline::leader::gate::{Gate, GateKeeper};
use throughline::metrics::{Format, Metrics};
use tokio::sync::watch;
use tokio::time::Instant;

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
    /// The last parts of the paths, and when they were requested.
    requests: Vec<(String, Instant)>,
    open: usize,
    open_max: usize,
    /// No request for an object whose name begins with this is answered.
    hangs_for: Option<&'static str>,
    /// Errors to answer with, and the `Retry-After` of each.
    errors: Vec<(StatusCode, Option<u32>)>,
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
        let (_open, error, hangs) = {
            let mut log = self.log.lock().unwrap();
            let hangs = log.hangs_for.is_some_and(|prefix| name.starts_with(prefix));
            log.requests.push((name, Instant::now()));
            log.open += 1;
            log.open_max = log.open_max.max(log.open);
            (Open(self.log.clone()), log.errors.pop(), hangs)
        };
        if hangs {
            std::future::pending::<()>().await;
        }
        self.hangs.subscribe().wait_for(|hangs| !hangs).await.unwrap();
        tokio::time::sleep(RESPONSE).await;
        let response = Response::builder();
        match error {
            None => response.body(Body::from(ANSWER)),
            Some((status, None)) => response.status(status).body(Body::empty()),
            Some((status, Some(after))) => {
                response.status(status).header("retry-after", after).body(Body::empty())
            }
        }
        .unwrap()
    }

    /// The most requests that were open at the same time since the last call.
    fn open_max(&self) -> usize {
        let mut log = self.log.lock().unwrap();
        let open = log.open;
        std::mem::replace(&mut log.open_max, open)
    }

    fn names(&self) -> Vec<String> {
        self.log.lock().unwrap().requests.iter().map(|(name, _)| name.clone()).collect()
    }
}

struct Bench {
    executor: Executor,
    servers: BTreeMap<&'static str, FakeServer>,
    metrics: Arc<Metrics>,
    keeper: GateKeeper,
    finished: Vec<(FinishedAction, Instant)>,
    next_id: u64,
}

/// A hub and two edges, of which one hangs from the start if `hangs`.
fn bench(config: ExecutorConstants, hangs: bool) -> Bench {
    let metrics = Arc::new(Metrics::new());
    let servers: BTreeMap<_, _> =
        [HUB, HUNG, WELL].map(|name| (name, FakeServer::new(hangs && name == HUNG))).into();
    let client = |(name, server): (&&str, &FakeServer)| {
        let name = ClusterName::from(*name);
        let config = ClusterConfig {
            name: name.clone(),
            roles: Vec::new(),
            kubeconfig: None,
            context: None,
            in_cluster: false,
        };
        let client = ClusterClient::with_client(config, server.client(), metrics.clone());
        (name, Arc::new(client))
    };
    let applier = Applier::new(servers.iter().map(client).collect(), TIMEOUT);
    let (gate, keeper) = Gate::closed();
    keeper.set(Some(u64::MAX));
    let executor = Executor::new(applier, gate, config, false, metrics.clone());
    Bench { executor, servers, metrics, keeper, finished: Vec::new(), next_id: 0 }
}

impl Bench {
    fn submit(&mut self, cluster: &str, name: &str) {
        let kind = if cluster == HUB { Kind::Connector } else { Kind::Gateway };
        self.submit_kind(cluster, kind, name);
    }

    fn submit_kind(&mut self, cluster: &str, kind: Kind, name: &str) {
        let verb = if kind == Kind::Connector { Verb::Mirror } else { Verb::Touch };
        self.submit_action(cluster, verb, kind, name, Precondition::default());
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
        let precondition = Precondition { absent: Some(absent), ..Precondition::default() };
        self.submit_action(HUB, Verb::Delete, Kind::HttpRoute, name, precondition);
    }

    fn submit_action(
        &mut self,
        cluster: &str,
        verb: Verb,
        kind: Kind,
        name: &str,
        precondition: Precondition,
    ) {
        let action = self.action(cluster, verb, kind, name, precondition);
        let (urgency, because) = (Urgency::of(verb), "of a test".into());
        self.executor.submit(Decision { at: UnixMillis(1), urgency, action, because });
    }

    fn action(
        &mut self,
        cluster: &str,
        verb: Verb,
        kind: Kind,
        name: &str,
        precondition: Precondition,
    ) -> Action {
        self.next_id += 1;
        Action {
            id: ActionId(self.next_id),
            verb,
            cluster: cluster.into(),
            kind,
            object: ObjectKey::new("n", name),
            annotations: vec![("k".into(), Some("v".into()))],
            precondition,
            connectors: Vec::new(),
        }
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
            self.finished.push((finished, Instant::now()));
        }
    }

    async fn run_for(&mut self, time: Duration) {
        self.until(time, |_| false).await;
    }

    fn written(&self, cluster: &str) -> usize {
        let is_written = |f: &&(FinishedAction, Instant)| {
            f.0.decision.action.cluster.as_str() == cluster && f.0.outcome.name() == "applied"
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
        let outcome =
            |(f, _): &(FinishedAction, Instant)| (f.decision.action.id.0, f.outcome.name());
        self.finished.iter().map(outcome).collect()
    }

    fn metric(&self, line: &str) -> bool {
        self.metrics.text(None, Format::Plain).lines().any(|found| found == line)
    }
}

/// With 390 writes waiting for an edge that hangs on PATCH, the next flip elsewhere took six
/// minutes when all clusters shared one queue.
#[tokio::test(start_paused = true)]
async fn a_hung_edge_with_hundreds_of_waiting_writes_delays_no_other_cluster() {
    let mut alone = bench(ExecutorConstants::default(), false);
    let normal = alone.time_of_others().await;
    assert!(normal < Duration::from_secs(1), "{normal:?}");

    let mut bench = bench(ExecutorConstants::default(), true);
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
    let config = ExecutorConstants { parallel: 8, ..ExecutorConstants::default() };
    let mut bench = bench(config, true);
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
    let config = ExecutorConstants { parallel: 8, ..ExecutorConstants::default() };
    let mut bench = bench(config, true);
    let server = bench.servers[HUNG].clone();
    bench.submit(HUNG, "a");
    bench.run_for(TIMEOUT + RESPONSE).await;
    assert_eq!((bench.outcomes(), server.names().len()), (vec![(1, "failed")], 1));

    server.hangs.send_replace(false);
    bench.submit_many(HUNG, 9);
    assert_eq!((bench.executor.queued(), bench.executor.in_flight()), (8, 1));
    bench.run_for(RESPONSE + RESPONSE / 2).await;
    assert_eq!((bench.executor.queued(), bench.executor.in_flight()), (0, 8));
    bench.run_for(RESPONSE * 2).await;
    assert_eq!(bench.written(HUNG), 9);
}

/// A webhook that hangs for one kind holds up that kind alone, also in the same cluster.
#[tokio::test(start_paused = true)]
async fn each_kind_in_a_cluster_has_room_of_its_own() {
    let config = ExecutorConstants { parallel: 2, ..ExecutorConstants::default() };
    let mut bench = bench(config, false);
    let hub = bench.servers[HUB].clone();
    bench.submit_many(HUB, 6);
    assert_eq!((bench.executor.queued(), bench.executor.in_flight()), (4, 2));
    bench.submit_kind(HUB, Kind::Gateway, "gateway");
    assert_eq!((bench.executor.queued(), bench.executor.in_flight()), (4, 3));
    bench.run_for(RESPONSE / 2).await;
    assert_eq!(hub.names(), ["hub-0", "hub-1", "gateway"]);
}

/// A delete asks its upstream for proof, and that may hang.
#[tokio::test(start_paused = true)]
async fn deletes_that_ask_different_upstreams_do_not_wait_for_each_other() {
    let config = ExecutorConstants { parallel: 1, ..ExecutorConstants::default() };
    let mut bench = bench(config, false);
    for (upstream, name) in [("up-a", "1"), ("up-a", "2"), ("up-b", "3")] {
        bench.submit_delete(upstream, name);
    }
    assert_eq!((bench.executor.queued(), bench.executor.in_flight()), (1, 2));
}

/// The hanging objects were first, and one goes at a time: the others must not wait for all
/// of them.
#[tokio::test(start_paused = true)]
async fn objects_that_hang_do_not_hide_others_of_their_queue() {
    let mut bench = bench(ExecutorConstants::default(), false);
    bench.servers[WELL].log.lock().unwrap().hangs_for = Some("stuck");
    for i in 0..100 {
        bench.submit(WELL, &format!("stuck-{i}"));
    }
    bench.run_for(TIMEOUT * 2).await;
    bench.submit(WELL, "well");
    bench.until(TIMEOUT * 4, |bench| bench.written(WELL) == 1).await;
    assert_eq!(bench.written(WELL), 1, "{:?}", bench.outcomes());
}

/// The gate is asked before the attempt, not when an action is queued alone.
#[tokio::test(start_paused = true)]
async fn leadership_lost_in_the_queue_is_noticed() {
    let config = ExecutorConstants { parallel: 1, ..ExecutorConstants::default() };
    let mut bench = bench(config, false);
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

/// An API server that asks for a pause holds up the one object alone.
#[tokio::test(start_paused = true)]
async fn an_action_that_fails_ends_at_once_and_the_next_one_is_sent() {
    let config = ExecutorConstants { parallel: 1, ..ExecutorConstants::default() };
    let mut bench = bench(config, false);
    let server = bench.servers[WELL].clone();
    server.log.lock().unwrap().errors = vec![(StatusCode::TOO_MANY_REQUESTS, Some(2))];
    for name in ["a", "b"] {
        bench.submit(WELL, name);
    }
    bench.run_for(RESPONSE * 3).await;
    assert_eq!(bench.outcomes(), [(1, "failed"), (2, "applied")]);
    assert_eq!(server.names(), ["a", "b"]);
    assert!(!bench.executor.is_busy());
}
