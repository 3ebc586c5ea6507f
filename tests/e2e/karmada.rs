//! Commands for Karmada's objects are printed where the hub serves Karmada's API, and nowhere else.

use throughline::core::contract::cause::Cause;

use crate::checking::install_loose;
use crate::cluster::fleet::{Fleet, Spec};
use crate::cluster::rest::Resource;
use crate::cluster::testbed::{Testbed, Topology};
use crate::cluster::throughline::Setup;
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

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn karmadas_objects_are_named_only_where_the_hub_serves_them() {
    let testbed = Testbed::start(Topology::Three).await;
    let fleet = Fleet::seed(&testbed, Spec::of(1)).await;
    let throughline = Setup::of(&testbed).provokes(&[Cause::NotCarried]).ready().await;
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
    let text = trace().await;
    assert!(text.contains("read the log of the carrier"), "{text}");
    assert!(!text.to_lowercase().contains("karmada"), "{text}");
    assert!(!text.contains("resourcebinding"), "{text}");

    install_loose(testbed.hub().rest(), RESOURCE_BINDINGS, "Namespaced").await;
    let (namespace, connector) = fleet.hub_key(0);
    let describe = format!(" -n {namespace} describe resourcebinding {connector}-connector");
    let text = trace().await;
    let mut lines = text.lines().map(str::trim);
    let found = lines.any(|line| line.starts_with("kubectl ") && line.ends_with(&describe));
    assert!(found && text.contains("karmada-controller-manager"), "{text}");
    throughline.stop().await;
}
