//! How many Kubernetes Events a fleet with one problem brings: a handful, however large it is.

use std::fmt::Write as _;
use std::time::Duration;

use serde_json::{Value, json};
use throughline::config::Config;
use throughline::core::data::ids::Role;
use throughline::run::Run;
use throughline_sim::apiserver::{ApiVerb, Fault, Resource, SimApiServerSettings};
use tokio::sync::watch;

use crate::live::events::{events, until};
use crate::live::{Kubeconfig, configured};
use crate::sim_apiserver::{TestServer, serve};

const PER_NAMESPACE: usize = 10;
const EVENTS_MAX: u64 = 10;

/// One cluster with every role. The annotations are missing, or say the opposite of upstream.
async fn fleet(connectors: usize, annotation: Option<&str>) -> TestServer {
    let served = serve(SimApiServerSettings::default()).await;
    let kind = "networking.datumapis.com/v1alpha1";
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "tl"}});
    served.put(namespace);
    for i in 0..connectors {
        let (n, name) = (i / PER_NAMESPACE, format!("c-{i}"));
        let uid = format!("6bcb0b35-0000-4000-8000-{n:012}");
        let (project, ns) = (format!("project-{n}"), format!("ns-{uid}"));
        if i % PER_NAMESPACE == 0 {
            served.put(json!({"apiVersion": "v1", "kind": "Namespace",
                "metadata": {"name": project, "uid": uid}}));
            served.put(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": ns,
                "labels": {"meta.datumapis.com/upstream-namespace": project}}}));
        }
        let ready = json!({"conditions": [{"type": "Ready", "status": "True"}]});
        served.put(json!({"apiVersion": kind, "kind": "Connector", "status": ready,
            "metadata": {"namespace": project, "name": name}}));
        let mut hub = json!({"apiVersion": kind, "kind": "Connector",
        "metadata": {"namespace": ns, "name": name, "labels": {
            "meta.datumapis.com/upstream-cluster-name": "cluster-one",
            "meta.datumapis.com/upstream-group": "networking.datumapis.com",
            "meta.datumapis.com/upstream-kind": "Connector",
            "meta.datumapis.com/upstream-name": name,
            "meta.datumapis.com/upstream-namespace": project,
        }}});
        if let Some(text) = annotation {
            hub["metadata"]["annotations"] =
                json!({"networking.datumapis.com/upstream-status": text});
        }
        served.put(hub);
    }
    served
}

fn config(served: &TestServer, kubeconfig: &Kubeconfig) -> Config {
    let mut config = Config::default();
    config.clusters.push(configured(
        served,
        vec![Role::Upstream, Role::Hub, Role::Edge],
        kubeconfig,
    ));
    config.leader_election.lease_namespace = Some("tl".to_owned());
    config.admin.address = "127.0.0.1:0".parse().unwrap();
    config.constants.settings.late.mirrored_ms = 1_000;
    config
}

fn posts(served: &TestServer) -> u64 {
    served.handle.requests().get(&(ApiVerb::Create, Resource::Events)).copied().unwrap_or(0)
}

async fn mirrored(served: &TestServer) -> usize {
    let (code, list) = served.get("/apis/networking.datumapis.com/v1alpha1/connectors").await;
    assert_eq!(code, 200);
    let is_mirrored = |connector: &&Value| {
        let annotations = &connector["metadata"]["annotations"];
        let text = annotations["networking.datumapis.com/upstream-status"].as_str();
        text.is_some_and(|text| text.contains(r#""status":"True""#))
    };
    list["items"].as_array().unwrap().iter().filter(is_mirrored).count()
}

/// One line for each Event: its count, type, reason, object and message.
async fn said(served: &TestServer) -> String {
    let mut said = String::new();
    for event in events(served).await {
        let object = &event["involvedObject"];
        let (reason, message) = (&event["reason"], &event["message"]);
        let (kind, name) = (&object["kind"], &object["name"]);
        let (count, of) = (&event["count"], &event["type"]);
        writeln!(said, "{count} {of} {reason} {kind} {name}: {message}").unwrap();
    }
    said
}

/// It waits for a lease before it leads. Nothing is late meanwhile, and nothing says so.
#[tokio::test(flavor = "multi_thread")]
async fn a_first_install_of_a_thousand_connectors_posts_no_warning() {
    let served = fleet(1_000, None).await;
    let kubeconfig = Kubeconfig::of(&served);
    let mut config = config(&served, &kubeconfig);
    config.leader_election.lease_duration = Duration::from_secs(4);
    config.constants.election.renew_deadline_ms = Some(2_000);
    config.constants.election.retry_ms = Some(500);
    config.constants.executor.timeout_ms = 1_000;
    // The time to write a thousand annotations does not count here.
    config.constants.settings.late.mirrored_ms = 3_000;
    let (stop, stopping) = watch::channel(false);
    let running = tokio::spawn(Run::new(config, Vec::new()).until(stopping));
    until("all are mirrored", async || mirrored(&served).await == 1_000).await;
    // What was wrong when it became leader would be reported ten seconds later.
    tokio::time::sleep(Duration::from_secs(12)).await;
    stop.send_replace(true);
    running.await.unwrap().unwrap();
    let said = said(&served).await;
    assert!(posts(&served) <= 2, "{}\n{said}", posts(&served));
    assert!(!said.contains("Warning") && !said.contains("Resolved"), "{said}");
}

/// A start with stale annotations, where every write fails for a while: all connectors are stuck, for
/// one cause.
#[tokio::test(flavor = "multi_thread")]
async fn a_start_with_two_thousand_stale_annotations_posts_a_handful() {
    let served = fleet(2_000, Some("{}")).await;
    let kubeconfig = Kubeconfig::of(&served);
    let mut config = config(&served, &kubeconfig);
    config.leader_election.enabled = false;
    // Writes fail twice before anything is late.
    config.constants.settings.late.mirrored_ms = 30_000;
    config.constants.settings.retry.first_ms = 500;
    config.constants.settings.retry.max_ms = 2_000;
    let connectors = Some(Resource::Connectors);
    let broken = Fault { resource: connectors, ..Fault::on_writes(500) };
    served.handle.inject(&broken, 1_000_000);
    let (stop, stopping) = watch::channel(false);
    let running = tokio::spawn(Run::new(config, Vec::new()).until(stopping));
    until("the problem is posted", async || !events(&served).await.is_empty()).await;
    served.handle.clear_faults();
    until("all are mirrored", async || mirrored(&served).await == 2_000).await;
    let recovered = async || said(&served).await.contains("Resolved");
    until("that it is over is posted", recovered).await;
    stop.send_replace(true);
    running.await.unwrap().unwrap();
    let said = said(&served).await;
    assert!(posts(&served) <= EVENTS_MAX, "{}\n{said}", posts(&served));
    assert!(said.contains("Writes of Connector to one fail"), "{said}");
}
