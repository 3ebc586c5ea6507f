//! One watch: it lists in pages, watches, resumes, relists and survives every kind of error.

use std::time::Duration;

use serde_json::{Value, json};
use throughline::core::contract::event::EventKind;
use throughline::core::data::ids::Kind;
use throughline::watch::WatchConstants;
use throughline::watch::WatchMessage;
use throughline_sim::apiserver::{Fault, ServerMode, SimApiServerSettings};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::live::{Kubeconfig, Over, cluster, watch_task};
use crate::sim_apiserver::{TestServer, serve_with};

struct Bench {
    served: TestServer,
    events: mpsc::Receiver<WatchMessage>,
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

async fn bench(over: Over, objects: usize, config: WatchConstants) -> Bench {
    let served = serve_with(SimApiServerSettings::default(), over.tls()).await;
    for i in 0..objects {
        served.put(gateway(&format!("g{i}")));
    }
    watch(served, config)
}

fn watch(served: TestServer, config: WatchConstants) -> Bench {
    let kubeconfig = Kubeconfig::of(&served);
    let (bus, events) = mpsc::channel(4);
    let cluster = cluster(&served, &kubeconfig);
    let watch = watch_task(cluster, Kind::Gateway, config, bus);
    Bench { served, events, task: tokio::spawn(watch.run()), _kubeconfig: kubeconfig }
}

/// One object is listed, and the watch is live.
async fn live(over: Over, config: WatchConstants) -> Bench {
    let mut bench = bench(over, 1, config).await;
    bench.expect(&["list_started", "listed g0", "list_finished"]).await;
    bench
}

/// The API server is down; `one` was seen before, `meanwhile` is not seen yet.
async fn lost(over: Over) -> Bench {
    let mut bench = live(over, quick()).await;
    bench.put("one");
    bench.expect(&["applied one"]).await;
    bench.served.handle.set_mode(ServerMode::Down);
    bench.expect(&["lost: "]).await;
    bench.put("meanwhile");
    bench
}

fn quick() -> WatchConstants {
    WatchConstants { page_size: 2, backoff_first_ms: 1, backoff_max_ms: 20, ..Default::default() }
}

impl Bench {
    /// The next event's name, with the object's name or the error.
    async fn next(&mut self) -> String {
        let next = tokio::time::timeout(Duration::from_secs(20), self.events.recv());
        match next.await.expect("an event").expect("the watch continues").kind {
            EventKind::ListStarted { .. } => "list_started".into(),
            EventKind::Listed { object, .. } => format!("listed {}", object.meta.name),
            EventKind::ListFinished { .. } => "list_finished".into(),
            EventKind::Applied { object, .. } => format!("applied {}", object.meta.name),
            EventKind::Deleted { object, .. } => format!("deleted {}", object.meta.name),
            EventKind::WatchLost { error, .. } => format!("lost: {error}"),
            EventKind::WatchResumed { .. } => "resumed".into(),
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
async fn lists_page_by_page_and_watches() {
    for over in Over::BOTH {
        let mut bench = bench(over, 5, quick()).await;
        bench.expect(&["list_started", "listed g0", "listed g1", "listed g2", "listed g3"]).await;
        bench.expect(&["listed g4", "list_finished"]).await;
        bench.put("new");
        bench.expect(&["applied new"]).await;
        let key = throughline::core::data::ids::ObjectKey::new("n", "g0");
        let cluster = bench.served.cluster.clone();
        bench.served.sim.lock().unwrap().remove(&cluster, Kind::Gateway, &key);
        bench.expect(&["deleted g0"]).await;
    }
}

#[tokio::test]
async fn events_wait_for_a_full_bus_and_none_is_dropped() {
    for over in Over::BOTH {
        let mut bench = bench(over, 0, quick()).await;
        bench.expect(&["list_started", "list_finished"]).await;
        // Many more than the bus can hold.
        for i in 0..200 {
            bench.put(&format!("w{i}"));
        }
        for i in 0..200 {
            bench.expect(&[&*format!("applied w{i}")]).await;
        }
    }
}

#[tokio::test]
async fn a_broken_watch_is_lost_at_once_and_resumes_where_it_was() {
    for over in Over::BOTH {
        let mut bench = lost(over).await;
        bench.served.handle.set_mode(ServerMode::Serving);
        bench.expect(&["resumed", "applied meanwhile"]).await;
    }
}

#[tokio::test]
async fn after_a_compaction_it_relists() {
    for over in Over::BOTH {
        let mut bench = lost(over).await;
        bench.served.handle.compact();
        bench.served.handle.set_mode(ServerMode::Serving);
        bench.expect(&["list_started", "listed g0", "listed meanwhile", "listed one"]).await;
        bench.expect(&["list_finished"]).await;
    }
}

#[tokio::test]
async fn a_kind_that_is_served_later_is_listed_then() {
    for over in Over::BOTH {
        let served = serve_with(SimApiServerSettings::default(), over.tls()).await;
        served.handle.set_served(Kind::Gateway, false);
        let mut bench = watch(served, quick());
        bench.expect(&["lost: 404"]).await;
        bench.served.handle.set_served(Kind::Gateway, true);
        bench.expect(&["list_started", "list_finished"]).await;
    }
}

#[tokio::test]
async fn a_refused_watch_is_reported_once_and_retried() {
    for over in Over::BOTH {
        let served = serve_with(SimApiServerSettings::default(), over.tls()).await;
        served.handle.inject(&Fault::on_watches(Kind::Gateway, 403), 3);
        let mut bench = watch(served, quick());
        bench.expect(&["lost: 403", "list_started", "list_finished"]).await;
    }
}

#[tokio::test]
async fn a_silent_watch_is_resumed_and_is_lost_only_if_that_fails() {
    for over in Over::BOTH {
        let config = WatchConstants { silent_after_ms: 100, timeout_ms: 1_000, ..quick() };
        let mut bench = live(over, config).await;
        // Several times as long as the silence that ends a watch: no event reports it.
        tokio::time::sleep(Duration::from_millis(500)).await;
        bench.put("after silence");
        bench.expect(&["applied after silence"]).await;
        bench.served.handle.set_mode(ServerMode::Frozen);
        bench.expect(&["lost: no response"]).await;
        bench.put("while frozen");
        bench.served.handle.set_mode(ServerMode::Serving);
        bench.expect(&["resumed", "applied while frozen"]).await;
    }
}

#[tokio::test]
async fn it_ends_when_the_bus_is_closed() {
    for over in Over::BOTH {
        let mut bench = bench(over, 0, quick()).await;
        bench.expect(&["list_started", "list_finished"]).await;
        bench.events.close();
        bench.put("unseen");
        (&mut bench.task).await.unwrap();
    }
}
