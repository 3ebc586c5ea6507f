//! The executor's queues: a cluster that hangs, or fails, delays no other. API servers in memory and
//! a paused clock, so that times are exact.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use http::Response;
use throughline::apply::Applier;
use throughline::client::ClusterClient;
use throughline::config::ExecutorConstants;
use throughline::core::contract::action::{Action, Decision, Urgency, Verb};
use throughline::core::data::ids::{ActionId, ClusterName, Kind};
use throughline::core::data::time::UnixMillis;
use throughline::executor::{Executor, FinishedAction};
use throughline::leader::gate::{Gate, GateKeeper};
use throughline::metrics::{Format, Metrics};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::admin::sample;
use crate::cluster::{absent, write};

const HUB: &str = "hub";
const HUNG: &str = "edge-hung";
const WELL: &str = "edge-well";

/// How long an API server takes to answer.
const RESPONSE: Duration = Duration::from_millis(20);
const TIMEOUT: Duration = Duration::from_secs(5);

/// The object with what each action writes.
const ANSWER: &str = r#"{"metadata":{"resourceVersion":"2","annotations":{"k":"v"}}}"#;

/// An API server that answers every write alike.
#[derive(Clone, Default)]
struct FakeServer {
    /// Each open request has a receiver.
    hangs: watch::Sender<bool>,
    /// The last parts of the paths that were requested.
    requests: Arc<Mutex<Vec<String>>>,
    open_max: Arc<AtomicUsize>,
}

impl FakeServer {
    async fn answer(self, request: Request) -> Response<Body> {
        let name = request.uri().path().rsplit('/').next().unwrap_or_default().to_owned();
        self.requests.lock().unwrap().push(name);
        let mut hangs = self.hangs.subscribe();
        self.open_max.fetch_max(self.hangs.receiver_count(), Relaxed);
        hangs.wait_for(|hangs| !hangs).await.unwrap();
        tokio::time::sleep(RESPONSE).await;
        Response::new(Body::from(ANSWER))
    }

    /// The most requests that were open at the same time since the last call.
    fn open_max(&self) -> usize {
        self.open_max.swap(self.hangs.receiver_count(), Relaxed)
    }

    fn names(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
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
    let servers = BTreeMap::from([HUB, HUNG, WELL].map(|name| (name, FakeServer::default())));
    servers[HUNG].hangs.send_replace(hangs);
    let client = |(name, server): (&&str, &FakeServer)| {
        let server = server.clone();
        let answer = move |request: Request| server.clone().answer(request);
        let client = kube::Client::new(Router::new().fallback(answer), "default");
        Arc::new(ClusterClient::with_client(ClusterName::from(*name), client, metrics.clone()))
    };
    let applier = Applier::new(servers.iter().map(client).collect(), TIMEOUT, None);
    let (gate, keeper) = Gate::closed();
    keeper.set(Some(u64::MAX));
    let config = ExecutorConstants { parallel, ..ExecutorConstants::default() };
    let executor = Executor::new(applier, gate, config, false, metrics.clone());
    Bench { executor, servers, metrics, keeper, finished: Vec::new(), next_id: 0 }
}

impl Bench {
    fn submit(&mut self, cluster: &str, name: &str) {
        let (verb, kind) = match cluster {
            HUB => (Verb::Mirror, Kind::Connector),
            _ => (Verb::Touch, Kind::Gateway),
        };
        self.submit_write(cluster, write(verb, kind, name));
    }

    fn submit_write(&mut self, cluster: &str, mut action: Action) {
        self.next_id += 1;
        action.id = ActionId(self.next_id);
        action.cluster = cluster.into();
        let (at, because, urgency) = (UnixMillis(1), "of a test".into(), Urgency::of(action.verb));
        self.executor.submit(Decision { at, urgency, action, because });
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

    /// How long 100 writes to the healthy edge and 100 to the hub take, submitted now.
    async fn time_of_others(&mut self) -> Duration {
        let began = Instant::now();
        // Nothing is applied at the edge that hangs.
        let is_applied = |finished: &&FinishedAction| finished.outcome.name() == "applied";
        let written = |bench: &Self| bench.finished.iter().filter(is_applied).count();
        let enough = written(self) + 200;
        self.submit_many(WELL, 100);
        self.submit_many(HUB, 100);
        self.until(Duration::from_secs(600), |bench| written(bench) == enough).await;
        began.elapsed()
    }

    fn outcomes(&self) -> Vec<(u64, &'static str)> {
        self.finished.iter().map(|f| (f.decision.action.id.0, f.outcome.name())).collect()
    }

    /// Actions that wait for a cluster, as a scrape says.
    fn waiting(&self, cluster: &str) -> f64 {
        let scrape = self.metrics.text(None, Format::Plain);
        sample(&scrape, &format!("workqueue_depth{{name={cluster:?}}}")).unwrap()
    }

    /// Actions that wait for a cluster, and all in flight.
    fn load(&self, cluster: &str) -> (f64, usize) {
        (self.waiting(cluster), self.executor.in_flight())
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
        assert!(bench.waiting(HUNG) > 400.0, "nothing waits any longer");
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

    // It answers: whatever waits is written at full speed.
    let waiting = bench.waiting(HUNG);
    assert!(waiting > 150.0, "{waiting}");
    server.hangs.send_replace(false);
    let began = Instant::now();
    bench.until(TIMEOUT, |bench| bench.load(HUNG) == (0.0, 0)).await;
    let most = RESPONSE.mul_f64((waiting / 8.0).ceil() + 4.0);
    assert!(began.elapsed() <= most, "{:?}", began.elapsed());
    assert_eq!((server.open_max(), bench.waiting(HUNG)), (8, 0.0));
}

/// A webhook that hangs for one kind delays that kind alone, also in the same cluster.
#[tokio::test(start_paused = true)]
async fn each_kind_in_a_cluster_has_room_of_its_own_and_each_start_asks_the_gate() {
    let mut bench = bench(2, false);
    let hub = bench.servers[HUB].clone();
    bench.submit_many(HUB, 6);
    assert_eq!(bench.load(HUB), (4.0, 2));
    bench.submit_write(HUB, write(Verb::Touch, Kind::Gateway, "gateway"));
    assert_eq!(bench.load(HUB), (4.0, 3));
    bench.run_for(RESPONSE / 2).await;
    assert_eq!(hub.names(), ["hub-0", "hub-1", "gateway"]);

    bench.run_for(RESPONSE * 4).await;
    assert!(!bench.executor.is_busy());

    bench.submit_many(HUB, 3);
    bench.run_for(RESPONSE / 2).await;
    bench.keeper.set(None);
    bench.run_for(RESPONSE * 4).await;
    let mut last = bench.outcomes().split_off(7);
    last.sort_unstable();
    assert_eq!(last, [(8, "applied"), (9, "applied"), (10, "dropped")]);
    assert_eq!(hub.names().len(), 9);
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_leaves_takes_its_queues_along() {
    let mut bench = bench(4, true);
    bench.submit_many(HUNG, 9);
    bench.run_for(TIMEOUT + RESPONSE).await;
    assert_eq!(bench.load(HUNG), (4.0, 1));
    bench.executor.cluster_left(&HUNG.into());
    bench.submit_many(HUNG, 9);
    assert_eq!(bench.load(HUNG), (5.0, 1 + 4), "beside the request of the former");
    bench.servers[HUNG].hangs.send_replace(false);
    bench.run_for(TIMEOUT).await;
    assert_eq!(bench.load(HUNG), (0.0, 0));
}

/// What waits is dropped, and what is decided from then on is not sent.
#[tokio::test(start_paused = true)]
async fn a_run_that_stops_starts_no_more_writes() {
    let mut bench = bench(2, false);
    bench.submit_many(HUB, 6);
    bench.run_for(RESPONSE / 2).await;
    assert_eq!(bench.executor.stop(), 4);
    bench.submit_many(HUB, 1);
    bench.run_for(RESPONSE * 4).await;
    let mut outcomes = bench.outcomes();
    outcomes.sort_unstable();
    assert_eq!((outcomes.len(), outcomes[1], outcomes[2]), (7, (2, "applied"), (3, "dropped")));
    assert_eq!(bench.servers[HUB].names().len(), 2);
    assert!(!bench.executor.is_busy());
}

/// A delete asks its upstream for proof, and that may hang.
#[tokio::test(start_paused = true)]
async fn deletes_that_ask_different_upstreams_do_not_wait_for_each_other() {
    let mut bench = bench(1, false);
    for (upstream, name) in [("up-a", "1"), ("up-a", "2"), ("up-b", "3")] {
        let mut delete = write(Verb::Delete, Kind::HttpRoute, name);
        delete.precondition.absent = Some(absent(upstream, &["site"]));
        bench.submit_write(HUB, delete);
    }
    assert_eq!((bench.executor.in_flight(), bench.executor.stop()), (2, 1));
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
