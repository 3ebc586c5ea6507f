//! Clusters that come and go while throughline runs: as kubeconfig files in a directory, and as
//! kubeconfigs in Secrets. The upstream of these tests is in no configuration file.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};
use throughline::check::permissions::required_permissions;
use throughline::core::contract::cause::Cause;

use crate::cluster::apiserver::{NOBODY, THROUGHLINE};
use crate::cluster::fleet::{Fleet, Spec};
use crate::cluster::objects::{UPSTREAM_STATUS, annotation};
use crate::cluster::proxy::FaultProxy;
use crate::cluster::rest::{CONNECTORS, SECRETS};
use crate::cluster::rights;
use crate::cluster::testbed::{Testbed, Topology};
use crate::cluster::throughline::{Setup, Throughline};
use crate::cluster::{SOON, ensure, eventually, oracle};

/// Longer than any source takes to notice a change, and the run to act on it.
const LONG: Duration = Duration::from_secs(5);

/// A run that has the hub and edge of the testbed from its file, and everything else from `discovery`.
pub(crate) fn setup(testbed: &Testbed, discovery: &Value) -> Setup {
    let setup = Setup::of(testbed);
    setup.set(&json!({ "clusters": [testbed.hub().config()], "discovery": discovery }))
}

pub(crate) async fn testbed_and_fleet() -> (Testbed, Fleet) {
    let testbed = Testbed::start(Topology::Two).await;
    let fleet = Fleet::seed(&testbed, Spec { per_namespace: 2, ..Spec::of(4) }).await;
    (testbed, fleet)
}

/// How often a log line occurs.
pub(crate) fn logged(run: &Throughline, text: &str) -> usize {
    run.log().iter().filter(|line| line.contains(text)).count()
}

pub(crate) async fn is_logged(run: &Throughline, text: &str, times: usize) {
    eventually(&format!("{times} lines {text:?}"), SOON, async || {
        ensure(logged(run, text) >= times, || format!("{}", logged(run, text)))
    })
    .await;
}

pub(crate) async fn annotations(fleet: &Fleet) -> Vec<Option<String>> {
    let mut found = Vec::new();
    for i in 0..fleet.spec.connectors {
        let (namespace, name) = fleet.hub_key(i);
        let object = fleet.hub.read(CONNECTORS, namespace, &name).await.unwrap();
        found.push(annotation(&object, UPSTREAM_STATUS).map(str::to_owned));
    }
    found
}

/// Asserts that a flip upstream changes nothing at the hub.
pub(crate) async fn flip_is_not_followed(fleet: &Fleet) {
    let before = annotations(fleet).await;
    fleet.flip(0).await.unwrap();
    tokio::time::sleep(LONG).await;
    assert_eq!(annotations(fleet).await, before, "a cluster that has left was followed");
}

/// Waits until no watch of the upstream is open.
pub(crate) async fn is_left(proxy: &FaultProxy) {
    eventually("the upstream is left", SOON, async || {
        ensure(proxy.open_watches() == 0, || format!("{} watches", proxy.open_watches()))
    })
    .await;
}

/// A folder that is removed with the testbed.
fn folder(testbed: &Testbed) -> PathBuf {
    let folder = testbed.hub().server.folder().join("clusters");
    fs::create_dir(&folder).unwrap();
    folder
}

/// Writes a file beside, and moves it into place.
fn put(path: &Path, proxy: &FaultProxy, user: &str) {
    let beside = path.with_file_name(".new");
    proxy.write_kubeconfig(&beside, user);
    fs::rename(&beside, path).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn a_cluster_joins_moves_and_leaves_with_its_kubeconfig_file() {
    let (testbed, fleet) = testbed_and_fleet().await;
    let (upstream, folder) = (testbed.upstream(), folder(&testbed));
    let file = folder.join("up.yaml");
    let setup = setup(&testbed, &json!({ "kubeconfigDir": { "path": folder } }));
    let setup = setup.provokes(&[Cause::DiscoveryFailing, Cause::KubeconfigInvalid]);
    let run = setup.ready().await;
    flip_is_not_followed(&fleet).await;
    assert_eq!(annotations(&fleet).await, [const { None }; 4]);

    // It joins, and all that it says is mirrored.
    put(&file, &upstream.proxy, THROUGHLINE);
    oracle::converges(&testbed).await;
    is_logged(&run, "cluster joins", 1).await;

    // At another address it may be another cluster: it leaves and joins.
    let moved = FaultProxy::start(&upstream.server).await;
    put(&file, &moved, THROUGHLINE);
    is_logged(&run, "cluster joins", 2).await;
    is_left(&upstream.proxy).await;
    fleet.flip(1).await.unwrap();
    oracle::converges(&testbed).await;

    // A broken file leaves the connection that there is.
    fs::write(&file, "apiVersion: v1\nkind: Config\nclus").unwrap();
    is_logged(&run, "no connection can be made of it", 1).await;
    fleet.flip(2).await.unwrap();
    oracle::converges(&testbed).await;
    put(&file, &moved, THROUGHLINE);

    // A directory that can't be read says nothing about the clusters in it.
    let away = folder.with_file_name("away");
    fs::rename(&folder, &away).unwrap();
    is_logged(&run, "discovery lost", 1).await;
    fleet.flip(3).await.unwrap();
    oracle::converges(&testbed).await;
    fs::rename(&away, &folder).unwrap();
    is_logged(&run, "clusters listed", 5).await;
    assert_eq!(logged(&run, "cluster joins"), 2);

    // It leaves with its file, and what it said last stays at the hub.
    fs::remove_file(&file).unwrap();
    is_left(&moved).await;
    flip_is_not_followed(&fleet).await;
    assert!(annotations(&fleet).await.iter().all(Option::is_some));

    put(&file, &upstream.proxy, THROUGHLINE);
    oracle::converges(&testbed).await;
    assert_eq!(logged(&run, "cluster joins"), 3);
    run.stop().await;
}

/// What `check` says of a right to the Secrets is what happens without it.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers: make e2e"]
async fn without_a_right_to_secrets_no_cluster_joins_or_none_leaves() {
    let (testbed, fleet) = testbed_and_fleet().await;
    let (upstream, hub) = (testbed.upstream(), testbed.hub().rest());
    let discovery = json!({ "kubeconfigSecrets": { "cluster": testbed.hub().name,
                                                   "namespace": "default" } });
    let config = json!({ "clusters": [{ "name": testbed.hub().name, "roles": ["hub"] }],
        "discovery": discovery });
    let needed = required_permissions(&serde_json::from_value(config).unwrap());
    let claims = needed.iter().filter(|need| need.resource == "secrets");
    let claims: Vec<_> = claims.map(|need| (need.verb, need.without)).collect();
    let expected = [
        ("list", "no cluster joins by a kubeconfig Secret"),
        ("watch", "changes of kubeconfig Secrets are not followed"),
    ];
    assert_eq!(claims, expected);

    rights::grant(hub, &["discovery-secrets"]).await.unwrap();
    let without = async |verb| {
        let right = Some(("", "secrets", verb));
        rights::without(hub, &["discovery-secrets"], right).await;
    };
    let without_a_right = || setup(&testbed, &discovery).provokes(&[Cause::DiscoveryFailing]);
    without("list").await;
    hub.create(SECRETS, secret(&kubeconfig(&upstream.proxy, THROUGHLINE))).await.unwrap();
    let run = without_a_right().ready().await;
    is_logged(&run, "discovery lost", 1).await;
    flip_is_not_followed(&fleet).await;
    assert_eq!(logged(&run, "cluster joins"), 0);
    run.stop().await;

    // It is listed, and joins; that its Secret is gone is not seen.
    without("watch").await;
    let run = without_a_right().ready().await;
    oracle::converges(&testbed).await;
    hub.delete(SECRETS, "default", "up").await.unwrap();
    tokio::time::sleep(LONG).await;
    fleet.flip(1).await.unwrap();
    oracle::converges(&testbed).await;
    rights::without(hub, &["discovery-secrets"], None).await;
    is_left(&upstream.proxy).await;
    run.stop().await;
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
    let (testbed, fleet) = testbed_and_fleet().await;
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
    let provoked = [Cause::ClusterUnavailable, Cause::PermissionMissing];
    let run = setup(&testbed, &discovery).provokes(&provoked).ready().await;
    hub.create(SECRETS, secret(&kubeconfig(&upstream.proxy, THROUGHLINE))).await.unwrap();
    oracle::converges(&testbed).await;
    is_logged(&run, "cluster joins", 1).await;

    // Other credentials for the same server: new requests use them, and nothing is listed again.
    upstream.proxy.reset_counts();
    update(kubeconfig(&upstream.proxy, NOBODY)).await;
    is_logged(&run, "new connections use the new credentials", 1).await;
    upstream.proxy.cut();
    eventually("a request is refused", SOON, async || {
        let counts = upstream.proxy.counts();
        ensure(counts.keys().any(|count| count.code == 403), || format!("{counts:?}"))
    })
    .await;
    update(kubeconfig(&upstream.proxy, THROUGHLINE)).await;
    fleet.flip(0).await.unwrap();
    oracle::converges(&testbed).await;
    assert_eq!(logged(&run, "cluster joins"), 1);

    // A kubeconfig that would run a program is refused, and the cluster stays as it was.
    let program = kubeconfig(&upstream.proxy, THROUGHLINE).replace(
        &format!("\"token\": \"token-of-{THROUGHLINE}\""),
        "\"exec\": {\"apiVersion\": \"client.authentication.k8s.io/v1\", \"command\": \"/bin/true\", \
         \"interactiveMode\": \"Never\"}",
    );
    assert!(program.contains("exec"), "{program}");
    update(program).await;
    is_logged(&run, "exec", 1).await;
    fleet.flip(1).await.unwrap();
    oracle::converges(&testbed).await;

    // Another address: it leaves and joins.
    let moved = FaultProxy::start(&upstream.server).await;
    update(kubeconfig(&moved, THROUGHLINE)).await;
    is_logged(&run, "cluster joins", 2).await;
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
    let joins = logged(&run, "cluster joins");
    hub.delete(SECRETS, "default", "up").await.unwrap();
    is_left(&moved).await;
    hub.create(SECRETS, secret(&kubeconfig(&upstream.proxy, THROUGHLINE))).await.unwrap();
    fleet.flip(3).await.unwrap();
    oracle::converges(&testbed).await;
    assert_eq!(logged(&run, "cluster joins"), joins + 1);

    // Nothing that a Secret holds is logged.
    let events = fs::read_to_string(run.event_log()).unwrap();
    let log = run.log().join("\n");
    for text in ["token-of-", "client.authentication.k8s.io"] {
        assert!(!events.contains(text) && !log.contains(text), "{text} is logged");
    }
    run.stop().await;
}
