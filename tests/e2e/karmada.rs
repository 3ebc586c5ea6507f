//! Commands for Karmada's objects are printed where the hub serves Karmada's API, and nowhere else.

use std::io::Read as _;
use std::process::Command;

use crate::checking::install_loose;
use crate::cluster::fleet::{Fleet, Spec};
use crate::cluster::process::Folder;
use crate::cluster::rest::Resource;
use crate::cluster::testbed::{Testbed, Topology};
use crate::cluster::throughline::{Setup, binary};
use crate::cluster::{SOON, ensure, eventually, oracle};
use crate::tracing::{Sources, first_hop, run, run_json};

pub(crate) const POLICIES: Resource = Resource {
    group_version: "policy.karmada.io/v1alpha1",
    plural: "propagationpolicies",
    kind: "PropagationPolicy",
};
pub(crate) const CLUSTER_POLICIES: Resource = Resource {
    group_version: "policy.karmada.io/v1alpha1",
    plural: "clusterpropagationpolicies",
    kind: "ClusterPropagationPolicy",
};
pub(crate) const RESOURCE_BINDINGS: Resource = Resource {
    group_version: "work.karmada.io/v1alpha2",
    plural: "resourcebindings",
    kind: "ResourceBinding",
};

/// The traces in a bug report of the clusters.
async fn traces_of_report(source: &[String]) -> String {
    let folder = Folder::new("report");
    let archive = folder.path().join("report.tar.gz");
    let mut command = Command::new(binary());
    command.arg("bug-report").args(source).arg("--output").arg(&archive);
    command.env_remove("RUST_LOG").env_remove("KUBECONFIG");
    let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    // Without an instance there are no metrics and no log: incomplete.
    assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stderr));
    let archive = flate2::read::GzDecoder::new(std::fs::File::open(archive).unwrap());
    let mut text = String::new();
    for entry in tar::Archive::new(archive).entries().unwrap() {
        let mut entry = entry.unwrap();
        if entry.path().unwrap().ends_with("clusters/traces.txt") {
            entry.read_to_string(&mut text).unwrap();
        }
    }
    text
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn karmadas_objects_are_named_only_where_the_hub_serves_them() {
    let testbed = Testbed::start(Topology::Three).await;
    let fleet = Fleet::seed(&testbed, Spec::of(1)).await;
    let throughline = Setup::of(&testbed).ready().await;
    oracle::converges(&testbed).await;
    testbed.carrier().pause();
    fleet.flip(0).await.unwrap();
    let sources = Sources::of(&testbed, Some(&throughline));
    let args = sources.live_args();
    let (namespace, name) = fleet.upstream_key(0);
    let name = format!("{namespace}/{name}");
    eventually("the carrier is blamed", SOON, async || {
        let (_, json) = run_json(&["trace", "connector", &name], &args).await;
        let [hop, _, state, cause] = first_hop(&json["traces"][0]);
        ensure(hop == "arrived" && state == "wrong" && cause == "notCarried", || json.to_string())
    })
    .await;
    let trace = async || run(&["trace", "connector", &name], &args).await.1;
    for text in [trace().await, traces_of_report(&args).await] {
        assert!(text.contains("read the log of the carrier"), "{text}");
        assert!(!text.to_lowercase().contains("karmada"), "{text}");
        assert!(!text.contains("resourcebinding"), "{text}");
    }

    install_loose(testbed.hub().rest(), RESOURCE_BINDINGS, "Namespaced").await;
    let (namespace, connector) = fleet.hub_key(0);
    let describe = format!(" -n {namespace} describe resourcebinding {connector}-connector");
    for text in [trace().await, traces_of_report(&args).await] {
        let mut lines = text.lines().map(str::trim);
        let found = lines.any(|line| line.starts_with("kubectl ") && line.ends_with(&describe));
        assert!(found && text.contains("karmada-controller-manager"), "{text}");
    }
    throughline.stop().await;
}
