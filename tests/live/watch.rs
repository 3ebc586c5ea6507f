//! One watch: lists by pages, follows, resumes, lists anew, bears with whatever comes back.

use std::time::Duration;

use serde_json::{Value, json};
use throughline::config::WatchConfig;
use throughline::core::event::Happened;
use throughline::core::ids::Kind;
use throughline::front::{Fault, FrontSettings, Mode};
use throughline::metrics::Metrics;
use throughline::watch::Watch;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::front::{Served, serve};
use crate::{Kubeconfig, cluster};

struct Bench {
    served: Served,
    events: mpsc::Receiver<Happened>,
    task: JoinHandle<()>,
    _kubeconfig: Kubeconfig,
}

impl Drop for Bench {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn gateway(name: &str) -> Value {
    json!({"kind": "Gateway", "metadata": {"namespace": "n", "name": name}})
}

async fn bench(objects: usize, config: WatchConfig) -> Bench {
    let served = serve(FrontSettings::default()).await;
    for i in 0..objects {
        served.put(gateway(&format!("g{i}")));
    }
    watch(served, config)
}

fn watch(served: Served, config: WatchConfig) -> Bench {
    let kubeconfig = Kubeconfig::of(&served);
    let (bus, events) = mpsc::channel(4);
    let cluster = cluster(&served, &kubeconfig);
    let watch = Watch::new(cluster, Kind::Gateway, config, bus, &Metrics::new());
    Bench { served, events, task: tokio::spawn(watch.run()), _kubeconfig: kubeconfig }
}

/// One object is listed, and what comes now is followed.
async fn followed(config: WatchConfig) -> Bench {
    let mut bench = bench(1, config).await;
    bench.expect(&["list_started", "listed g0", "list_finished"]).await;
    bench
}

/// The API server is down; `one` came before that, `meanwhile` is not seen yet.
async fn broken() -> Bench {
    let mut bench = followed(quick()).await;
    bench.put("one");
    bench.expect(&["applied one"]).await;
    bench.served.front.set_mode(Mode::Down);
    bench.expect(&["lost: "]).await;
    bench.put("meanwhile");
    bench
}

fn quick() -> WatchConfig {
    WatchConfig { page_size: 2, backoff_first_ms: 1, backoff_max_ms: 20, ..Default::default() }
}

impl Bench {
    /// The next event, in one word and the object's name.
    async fn next(&mut self) -> String {
        let next = tokio::time::timeout(Duration::from_secs(20), self.events.recv());
        match next.await.expect("an event").expect("the watch goes on") {
            Happened::ListStarted { .. } => "list_started".into(),
            Happened::Listed { object, .. } => format!("listed {}", object.meta.name),
            Happened::ListFinished { .. } => "list_finished".into(),
            Happened::Applied { object, .. } => format!("applied {}", object.meta.name),
            Happened::Deleted { object, .. } => format!("deleted {}", object.meta.name),
            Happened::WatchLost { error, .. } => format!("lost: {error}"),
            Happened::WatchResumed { .. } => "resumed".into(),
            other => panic!("{other:?}"),
        }
    }

    async fn expect(&mut self, expected: &[&str]) {
        for expected in expected {
            let next = self.next().await;
            assert!(next.starts_with(expected), "{next:?}, not {expected:?}");
        }
    }

    fn put(&self, name: &str) {
        self.served.put(gateway(name));
    }
}

#[tokio::test]
async fn lists_page_by_page_and_follows() {
    let mut bench = bench(5, quick()).await;
    bench.expect(&["list_started", "listed g0", "listed g1", "listed g2", "listed g3"]).await;
    bench.expect(&["listed g4", "list_finished"]).await;
    bench.put("new");
    bench.expect(&["applied new"]).await;
    let key = throughline::core::ids::ObjectKey::new("n", "g0");
    let cluster = bench.served.cluster.clone();
    bench.served.world.lock().unwrap().remove(&cluster, Kind::Gateway, &key);
    bench.expect(&["deleted g0"]).await;
}

#[tokio::test]
async fn what_is_not_taken_waits_and_nothing_is_dropped() {
    let mut bench = bench(0, quick()).await;
    bench.expect(&["list_started", "list_finished"]).await;
    // Many more than the bus holds.
    for i in 0..200 {
        bench.put(&format!("w{i}"));
    }
    for i in 0..200 {
        bench.expect(&[&*format!("applied w{i}")]).await;
    }
}

#[tokio::test]
async fn a_broken_watch_is_lost_at_once_and_goes_on_where_it_was() {
    let mut bench = broken().await;
    bench.served.front.set_mode(Mode::Serving);
    bench.expect(&["resumed", "applied meanwhile"]).await;
}

#[tokio::test]
async fn after_a_compaction_it_lists_anew() {
    let mut bench = broken().await;
    bench.served.front.compact();
    bench.served.front.set_mode(Mode::Serving);
    bench.expect(&["list_started", "listed g0", "listed meanwhile", "listed one"]).await;
    bench.expect(&["list_finished"]).await;
}

#[tokio::test]
async fn a_kind_that_is_not_served_yet_is_picked_up() {
    let served = serve(FrontSettings::default()).await;
    served.front.set_served(Kind::Gateway, false);
    let mut bench = watch(served, quick());
    bench.expect(&["lost: 404"]).await;
    bench.served.front.set_served(Kind::Gateway, true);
    bench.expect(&["list_started", "list_finished"]).await;
}

#[tokio::test]
async fn a_refusal_is_told_once_and_tried_until_it_ends() {
    let served = serve(FrontSettings::default()).await;
    served.front.fail(&Fault::of_watching(Kind::Gateway, 403), 3);
    let mut bench = watch(served, quick());
    bench.expect(&["lost: 403", "list_started", "list_finished"]).await;
}

#[tokio::test]
async fn a_silent_watch_is_taken_up_anew_and_is_lost_only_if_that_fails() {
    let config = WatchConfig { silent_after_ms: 100, timeout_ms: 200, ..quick() };
    let mut bench = followed(config).await;
    // Several silences long: nothing is told of them.
    tokio::time::sleep(Duration::from_millis(500)).await;
    bench.put("after silence");
    bench.expect(&["applied after silence"]).await;
    bench.served.front.set_mode(Mode::Frozen);
    bench.expect(&["lost: no answer"]).await;
    bench.put("in the ice");
    bench.served.front.set_mode(Mode::Serving);
    bench.expect(&["resumed", "applied in the ice"]).await;
}

#[tokio::test]
async fn it_ends_with_the_loop() {
    let mut bench = bench(0, quick()).await;
    bench.expect(&["list_started", "list_finished"]).await;
    bench.events.close();
    bench.put("nobody listens");
    (&mut bench.task).await.unwrap();
}
