//! Clusters that come and go while throughline runs, by kubeconfigs in Secrets. The upstream of these tests is
//! in no configuration file.

use std::fs;

use crate::cluster::apiserver::NOBODY;
use crate::cluster::rest::SECRETS;
use crate::cluster::rights;
use crate::prelude::*;

/// A run that has the hub and edge of the testbed from its file, and everything else from `discovery`.
pub(crate) fn setup(testbed: &Testbed, discovery: &Value) -> Setup {
    let setup = Setup::of(testbed);
    setup.set(&json!({ "clusters": [testbed.hub().config()], "discovery": discovery }))
}

/// Asserts that a flip upstream changes nothing at the hub.
pub(crate) async fn flip_is_not_followed(fleet: &Fleet) {
    let before = fleet.statuses_at_hub().await;
    fleet.flip(0).await.unwrap();
    // Longer than any source takes to notice a change, and the run to act on it.
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(fleet.statuses_at_hub().await, before, "a cluster that has left was followed");
}

pub(crate) async fn is_left(proxy: &FaultProxy) {
    until("no watch is open", async || proxy.open_watches() == 0).await;
}

/// A Secret as multicluster-runtime's kubeconfig provider reads it.
fn secret(kubeconfig: &str) -> Value {
    json!({
        "metadata": { "namespace": "default", "name": "up",
                      "labels": { "sigs.k8s.io/multicluster-runtime-kubeconfig": "true" } },
        "stringData": { "kubeconfig": kubeconfig },
    })
}

fn kubeconfig(proxy: &FaultProxy, user: &str) -> String {
    fs::read_to_string(proxy.kubeconfig(user)).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn a_cluster_joins_moves_and_leaves_with_its_kubeconfig_secret() {
    let (testbed, fleet) = seeded(Topology::Two, Spec::of(4)).await;
    let (upstream, hub) = (testbed.upstream(), testbed.hub().rest());
    rights::grant(hub, &["discovery-secrets"]).await.unwrap();
    let label = "sigs.k8s.io/multicluster-runtime-kubeconfig";
    let key = ("default", "up");
    let update = async |text: String| {
        hub.merge(SECRETS, key, &json!({ "stringData": { "kubeconfig": text } })).await.unwrap();
    };
    let discovery = json!({ "kubeconfigSecrets": { "cluster": testbed.hub().name,
                                                   "namespace": "default" } });
    // It is cut off, and refused, while its kubeconfig has the credentials of nobody.
    let provoked = [Cause::ClusterUnavailable, Cause::DiscoveryFailing, Cause::PermissionMissing];
    let run = setup(&testbed, &discovery).provokes(&provoked);

    // Without the right to list Secrets no cluster joins, as `check` says.
    rights::without(hub, &["discovery-secrets"], Some(("", "secrets", "list"))).await;
    hub.create(SECRETS, secret(&kubeconfig(&upstream.proxy, THROUGHLINE))).await.unwrap();
    let run = run.ready().await;
    run.logs("discovery lost", 1).await;
    flip_is_not_followed(&fleet).await;
    assert_eq!(run.count_logged("cluster joins"), 0);
    rights::without(hub, &["discovery-secrets"], None).await;
    oracle::converges(&testbed).await;
    run.logs("cluster joins", 1).await;

    // Other credentials for the same server: new requests use them, and nothing is listed again.
    upstream.proxy.reset_counts();
    update(kubeconfig(&upstream.proxy, NOBODY)).await;
    run.logs("new connections use the new credentials", 1).await;
    upstream.proxy.cut();
    let refused = async || upstream.proxy.count_if(|of| of.code == 403) > 0;
    until("a request is refused", refused).await;
    update(kubeconfig(&upstream.proxy, THROUGHLINE)).await;
    fleet.flip(0).await.unwrap();
    oracle::converges(&testbed).await;
    assert_eq!(run.count_logged("cluster joins"), 1);

    // Another address: it leaves and joins.
    let moved = FaultProxy::start(&upstream.server).await;
    update(kubeconfig(&moved, THROUGHLINE)).await;
    run.logs("cluster joins", 2).await;
    is_left(&upstream.proxy).await;
    fleet.flip(2).await.unwrap();
    oracle::converges(&testbed).await;

    // The label is taken off: API servers send that as a deletion to a watch with a selector.
    hub.merge(SECRETS, key, &json!({ "metadata": { "labels": { label: null } } })).await.unwrap();
    is_left(&moved).await;
    flip_is_not_followed(&fleet).await;
    hub.merge(SECRETS, key, &json!({ "metadata": { "labels": { label: "true" } } })).await.unwrap();
    oracle::converges(&testbed).await;

    // Made again under its name, it has another uid: another cluster.
    let joins = run.count_logged("cluster joins");
    hub.delete(SECRETS, "default", "up").await.unwrap();
    is_left(&moved).await;
    hub.create(SECRETS, secret(&kubeconfig(&upstream.proxy, THROUGHLINE))).await.unwrap();
    fleet.flip(3).await.unwrap();
    oracle::converges(&testbed).await;
    assert_eq!(run.count_logged("cluster joins"), joins + 1);

    // Nothing that a Secret holds is logged.
    let events = fs::read_to_string(run.event_log()).unwrap();
    assert!(!events.contains("token-of-") && !run.logged("token-of-"), "a token is logged");
    run.stop().await;
}
