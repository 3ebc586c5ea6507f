//! A first start, alone and healthy, looks healthy: it waits for a Lease that was never there, and
//! speaks of no other instance, no problem, and nothing that is over.

use std::time::Duration;

use serde_json::{Value, json};
use throughline::config::Config;
use throughline::core::data::ids::Role;
use throughline::run::Run;
use tokio::sync::watch;

use crate::live::events::{UID, events, serve_all, until};
use crate::live::{Kubeconfig, configured};
use crate::log::Log;
use crate::sim_apiserver::TestServer;

const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/tl/leases";

/// One cluster with every role, and a hub Connector without an annotation, which would be late while
/// the instance waits for the Lease.
fn config(served: &TestServer, kubeconfig: &Kubeconfig) -> Config {
    served.put(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "tl"}}));
    let mut config = Config::default();
    config.clusters.push(configured(
        served,
        vec![Role::Upstream, Role::Hub, Role::Edge],
        kubeconfig,
    ));
    config.leader_election.lease_namespace = Some("tl".to_owned());
    config.leader_election.lease_duration = Duration::from_secs(8);
    config.constants.election.renew_deadline_ms = Some(5_000);
    config.constants.election.retry_ms = Some(2_000);
    config.constants.executor.timeout_ms = 1_000;
    config.admin.address = "127.0.0.1:0".parse().unwrap();
    config.constants.settings.late.mirrored_ms = 4_000;
    config
}

async fn is_mirrored(served: &TestServer) -> bool {
    let path = "/apis/networking.datumapis.com/v1alpha1/namespaces";
    let (_, lab) = served.get(&format!("{path}/ns-{UID}/connectors/lab")).await;
    lab["metadata"]["annotations"]["networking.datumapis.com/upstream-status"].is_string()
}

/// Runs until the connector is mirrored, and longer than a new leader takes to report what was wrong when
/// it became one.
async fn run(config: Config, served: &TestServer) {
    let (stop, stopping) = watch::channel(false);
    let running = tokio::spawn(Run::new(config, Vec::new()).until(stopping));
    until("it is mirrored", async || is_mirrored(served).await).await;
    tokio::time::sleep(Duration::from_secs(12)).await;
    stop.send_replace(true);
    running.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_first_start_alone_speaks_of_nobody_else_and_of_no_problem() {
    let log = Log::default();
    let _capturing = log.capture();
    let served = serve_all().await;
    let kubeconfig = Kubeconfig::of(&served);
    run(config(&served, &kubeconfig), &served).await;

    let said = log.text();
    assert!(said.contains("waiting up to 8 s for a Lease that was not there"), "{said}");
    assert!(said.contains("became leader"), "{said}");
    for never in ["another instance", " cause=", " ERROR "] {
        assert!(!said.contains(never), "{never:?} in {said}");
    }
    let about = |event: &Value| {
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let kind = text(&event["involvedObject"]["kind"]);
        [text(&event["type"]), text(&event["reason"]), kind]
    };
    let mut posted: Vec<_> = events(&served).await.iter().map(about).collect();
    posted.dedup();
    assert_eq!(posted, [["Normal", "LeaderElection", "Lease"].map(str::to_owned)]);
}

/// A killed instance's Lease, which nobody renews any longer: it is named once, and taken over.
#[tokio::test]
async fn another_instance_is_named_only_where_the_lease_names_one() {
    let log = Log::default();
    let _capturing = log.capture();
    let served = serve_all().await;
    let kubeconfig = Kubeconfig::of(&served);
    let config = config(&served, &kubeconfig);
    let lease = json!({ "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": { "namespace": "tl", "name": "throughline" },
        "spec": { "holderIdentity": "pod-b", "leaseDurationSeconds": 4, "leaseTransitions": 0,
            "renewTime": "2026-11-21T09:19:32.000000Z" } });
    let (code, body) = served.send("POST", LEASES, &lease).await;
    assert_eq!(code, 201, "{body}");
    run(config, &served).await;

    let said = log.text();
    let named: Vec<_> = said.lines().filter(|line| line.contains("another instance")).collect();
    assert_eq!(named.len(), 1, "{said}");
    assert!(named[0].contains("another instance holds the Lease") && named[0].contains("pod-b"));
    assert!(said.contains("became leader"), "{said}");
    assert!(!said.contains("for a Lease that was not there"), "{said}");
}
