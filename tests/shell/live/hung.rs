//! Writes of one kind hang: the loop goes on with everything else.

use serde_json::json;
use throughline::config::Config;
use throughline::core::data::ids::{Kind, ObjectKey, Role};
use throughline::run::Run;
use throughline_sim::apiserver::{ApiVerb, Fault, Resource};
use tokio::sync::watch;

use crate::live::events::{UID, serve_all, until};
use crate::live::{Kubeconfig, configured};
use crate::sim_apiserver::TestServer;

const GATEWAYS: u64 = 40;

/// Gateways of the connector `lab`, which are touched whenever it goes online or offline.
fn put_gateways(served: &TestServer) {
    for i in 0..GATEWAYS {
        let metadata = json!({"namespace": format!("ns-{UID}"), "name": format!("g{i}")});
        served.put(json!({"kind": "Gateway", "metadata": metadata}));
        served.put(json!({"kind": "HTTPProxy", "metadata": metadata,
            "spec": {"rules": [{"backends": [{"connector": {"name": "lab"}}]}]}}));
    }
}

fn set_ready(served: &TestServer, ready: &str) {
    let status = json!({"conditions": [{"type": "Ready", "status": ready}]});
    served.put(json!({"kind": "Connector", "status": status,
        "metadata": {"namespace": "shop", "name": "lab"}}));
}

fn mirrored(served: &TestServer) -> String {
    let key = ObjectKey::new(format!("ns-{UID}"), "lab");
    let sim = served.sim.lock().unwrap();
    let lab = sim.get(&served.cluster, Kind::Connector, &key).unwrap();
    let key = "networking.datumapis.com/upstream-status";
    lab.meta.annotations.get(key).unwrap_or_default().to_owned()
}

fn gateway_patches(served: &TestServer) -> u64 {
    let requests = served.handle.requests();
    requests.get(&(ApiVerb::Patch, Resource::Gateways)).copied().unwrap_or_default()
}

/// When all writes shared one queue, the loop read no event while more than `executor.queue` writes waited.
#[tokio::test(flavor = "multi_thread")]
async fn the_loop_takes_events_while_writes_hang() {
    let served = serve_all().await;
    put_gateways(&served);
    let kubeconfig = Kubeconfig::of(&served);
    let mut config = Config::default();
    config.clusters.push(configured(
        &served,
        vec![Role::Upstream, Role::Hub, Role::Edge],
        &kubeconfig,
    ));
    config.leader_election.enabled = false;
    config.events.enabled = false;
    config.admin.address = "127.0.0.1:0".parse().unwrap();
    // Longer than the test may take.
    config.constants.executor.timeout_ms = 120_000;
    config.constants.executor.parallel = 2;
    config.constants.shutdown_grace_ms = 0;
    let gateways = Some(Resource::Gateways);
    let hangs = Fault { resource: gateways, ..Fault::on_writes(Fault::NO_RESPONSE) };
    served.handle.inject(&hangs, 1_000_000);

    let (stop, stopping) = watch::channel(false);
    let running = tokio::spawn(Run::new(config, Vec::new()).until(stopping));
    until("touches hang", async || gateway_patches(&served) == 2).await;
    for ready in ["False", "True", "False"] {
        set_ready(&served, ready);
        let said = format!(r#""status":"{ready}""#);
        until("the flip is mirrored", async || mirrored(&served).contains(&said)).await;
    }
    assert_eq!(gateway_patches(&served), 2, "more than `executor.parallel` at the same time");
    stop.send_replace(true);
    running.await.unwrap().unwrap();
}
