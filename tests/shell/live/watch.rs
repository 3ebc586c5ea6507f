//! One watch: it lists in pages, watches, resumes, relists and survives every kind of error.

use std::time::Duration;

use serde_json::Value;
use throughline::core::data::ids::{Kind, ObjectKey};
use throughline::watch::WatchConstants;
use throughline_sim::apiserver::{ServerMode, SimApiServerSettings};

use crate::cluster::Kubeconfig;
use crate::live::{Over, Watched, cluster};
use crate::sim_apiserver::{TestServer, serve_with};
use crate::stage::object;

struct Bench {
    over: Over,
    served: TestServer,
    watched: Watched,
    _kubeconfig: Kubeconfig,
}

fn gateway(name: &str) -> Value {
    object("Gateway", "n", name)
}

fn quick() -> WatchConstants {
    WatchConstants { page_size: 2, backoff_first_ms: 1, backoff_max_ms: 20, ..Default::default() }
}

impl Bench {
    async fn new(over: Over, config: WatchConstants, prepare: impl FnOnce(&TestServer)) -> Self {
        let served = serve_with(SimApiServerSettings::default(), over.tls()).await;
        prepare(&served);
        let kubeconfig = Kubeconfig::of(&served);
        let watched = Watched::of(cluster(&served, &kubeconfig), Kind::Gateway, config);
        Self { over, served, watched, _kubeconfig: kubeconfig }
    }

    async fn expect(&mut self, expected: &[&str]) {
        self.watched.expect(&format!("{:?}", self.over), expected).await;
    }

    fn put(&self, name: &str) {
        self.served.put(gateway(name));
    }

    fn set_mode(&self, mode: ServerMode) {
        self.served.handle.set_mode(mode);
    }
}

#[tokio::test]
async fn it_lists_page_by_page_watches_and_resumes_or_after_a_compaction_lists_again() {
    for over in Over::BOTH {
        let objects = |served: &TestServer| {
            (0..3).for_each(|i| _ = served.put(gateway(&format!("g{i}"))));
        };
        let mut bench = Bench::new(over, quick(), objects).await;
        bench.expect(&["list_started", "listed g0", "listed g1", "listed g2"]).await;
        bench.expect(&["list_finished"]).await;
        bench.put("new");
        bench.expect(&["applied new"]).await;
        let (cluster, key) = (bench.served.cluster.clone(), ObjectKey::new("n", "g0"));
        bench.served.sim.lock().unwrap().remove(&cluster, Kind::Gateway, &key);
        bench.expect(&["deleted g0"]).await;

        bench.set_mode(ServerMode::Down);
        bench.expect(&["lost: "]).await;
        bench.put("meanwhile");
        bench.set_mode(ServerMode::Serving);
        bench.expect(&["resumed", "applied meanwhile"]).await;
        bench.set_mode(ServerMode::Down);
        bench.expect(&["lost: "]).await;
        bench.put("again");
        bench.served.handle.compact();
        bench.set_mode(ServerMode::Serving);
        bench.expect(&["list_started", "listed again", "listed g1", "listed g2"]).await;
        bench.expect(&["listed meanwhile", "listed new", "list_finished"]).await;

        // Many more than the bus can hold: they wait, and none is dropped.
        for i in 0..200 {
            bench.put(&format!("w{i}"));
        }
        for i in 0..200 {
            bench.expect(&[&*format!("applied w{i}")]).await;
        }
        bench.watched.events.close();
        bench.put("unseen");
        bench.watched.task.join_next().await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn a_silent_watch_is_resumed_and_is_lost_only_if_that_fails() {
    for over in Over::BOTH {
        let config = WatchConstants { silent_after_ms: 100, timeout_ms: 1_000, ..quick() };
        let mut bench = Bench::new(over, config, |_| ()).await;
        bench.expect(&["list_started", "list_finished"]).await;
        // Several times as long as the silence that ends a watch: no event reports it.
        tokio::time::sleep(Duration::from_millis(500)).await;
        bench.put("after silence");
        bench.expect(&["applied after silence"]).await;
        bench.set_mode(ServerMode::Frozen);
        bench.expect(&["lost: no response"]).await;
        bench.put("while frozen");
        bench.set_mode(ServerMode::Serving);
        bench.expect(&["resumed", "applied while frozen"]).await;
    }
}
