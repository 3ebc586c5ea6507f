//! One watch: it lists in pages, watches, resumes, relists and survives every kind of error.

use std::time::Duration;

use serde_json::Value;
use throughline::client::{Connections, Server};
use throughline::config::WatchConstants;
use throughline::core::data::ids::{Kind, NamespacedName};
use throughline_sim::apiserver::{ServerMode, SimApiServerSettings};

use crate::cluster::{connect, spec};
use crate::live::{Watched, quick, tls};
use crate::log::Log;
use crate::sim_apiserver::{TestServer, serve_with};
use crate::stage::object;

struct Bench {
    served: TestServer,
    watched: Watched,
}

fn gateway(name: &str) -> Value {
    object("Gateway", "n", name)
}

impl Bench {
    /// A watch of so many Gateways.
    async fn new(with_tls: bool, config: WatchConstants, gateways: usize) -> Self {
        let tls = with_tls.then(tls);
        let ca = tls.as_ref().map(|(_, ca)| ca.clone());
        let served = serve_with(SimApiServerSettings::default(), tls).await;
        (0..gateways).for_each(|i| _ = served.put(gateway(&format!("g{i}"))));
        let spec = spec(&served.handle.url(), ca.as_deref(), &Value::Null, Server::AsConfigured);
        let client = connect("one", spec, &Connections::default());
        let watched = Watched::of(client, Kind::Gateway, config);
        Self { served, watched }
    }

    async fn expect(&mut self, expected: &[&str]) {
        self.watched.expect(&self.served.handle.url(), expected).await;
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
    for with_tls in [false, true] {
        let mut bench = Bench::new(with_tls, quick(), 3).await;
        bench.expect(&["list_started", "listed g0", "listed g1", "listed g2"]).await;
        bench.expect(&["list_finished"]).await;
        bench.put("new");
        bench.expect(&["applied new"]).await;
        let (cluster, key) = (bench.served.cluster.clone(), NamespacedName::new("n", "g0"));
        bench.served.sim.lock().unwrap().remove(&cluster, Kind::Gateway, &key);
        bench.expect(&["deleted g0"]).await;

        bench.set_mode(ServerMode::Down);
        bench.expect(&["watch_lost "]).await;
        bench.put("meanwhile");
        bench.put("then");
        bench.set_mode(ServerMode::Serving);
        bench.expect(&["applied meanwhile", "applied then", "watch_resumed"]).await;
        bench.set_mode(ServerMode::Down);
        bench.expect(&["watch_lost "]).await;
        bench.put("again");
        bench.served.handle.compact();
        bench.set_mode(ServerMode::Serving);
        bench.expect(&["list_started", "listed again", "listed g1", "listed g2"]).await;
        bench.expect(&["listed meanwhile", "listed new", "listed then", "list_finished"]).await;

        // Many more than the bus can hold: they wait, and none is dropped.
        for i in 0..200 {
            bench.put(&format!("w{i}"));
        }
        for i in 0..200 {
            bench.expect(&[&*format!("applied w{i}")]).await;
        }
        bench.watched.events.close();
        bench.put("unseen");
        bench.watched.task.await.unwrap();
    }
}

#[tokio::test]
async fn where_pages_always_expire_it_says_so_and_lists_without_them() {
    let (log, _guard) = Log::capture();
    let mut bench = Bench::new(false, quick(), 3).await;
    bench.served.handle.set_pages_expire(true);
    bench.expect(&["list_started", "listed g0", "listed g1"]).await;
    bench.expect(&["list_started", "listed g0", "listed g1", "listed g2", "list_finished"]).await;
    let text = log.text();
    assert_eq!(text.matches("a later page of the list has expired").count(), 1, "{text}");
}

#[tokio::test]
async fn a_silent_watch_is_resumed_and_is_lost_only_if_that_fails() {
    for with_tls in [false, true] {
        let config = WatchConstants { silent_after_ms: 100, timeout_ms: 1_000, ..quick() };
        let mut bench = Bench::new(with_tls, config, 0).await;
        bench.expect(&["list_started", "list_finished"]).await;
        // Several times as long as the silence that ends a watch: no event reports it.
        tokio::time::sleep(Duration::from_millis(500)).await;
        bench.put("after silence");
        bench.expect(&["applied after silence"]).await;
        bench.set_mode(ServerMode::Frozen);
        bench.expect(&["watch_lost no response"]).await;
        bench.put("while frozen");
        bench.set_mode(ServerMode::Serving);
        bench.expect(&["applied while frozen", "watch_resumed"]).await;
    }
}
