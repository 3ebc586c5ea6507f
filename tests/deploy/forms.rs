//! Each form on real API servers: the test applies what kustomize renders and runs throughline with the
//! rendered configuration, as its ServiceAccount, with exactly the rendered permissions. A flip must
//! arrive at hub, edge and gateway.

use std::fs;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};

use crate::accepted::{apply, namespace};
use crate::cluster::apiserver::ApiServer;
use crate::cluster::fleet::{Fleet, Spec};
use crate::cluster::objects::install_crds;
use crate::cluster::rest::{EVENTS, Rest};
use crate::cluster::testbed::{Cluster, Testbed, Topology};
use crate::cluster::throughline::{Setup, Throughline};
use crate::cluster::{SOON, ensure, eventually, oracle};
use crate::render::{Choice, config_map, kustomize};
use crate::tools::{read, repo};

pub(crate) const NAMESPACE: &str = "throughline";

/// A ServiceAccount's token, as its pod or kubeconfig has it.
pub(crate) async fn token(rest: &Rest, account: &str) -> String {
    let path = format!("/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{account}/token");
    let body = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
                       "spec": { "expirationSeconds": 3_600 } });
    let request = http::Request::post(path)
        .header("content-type", "application/json")
        .body(body.to_string().into_bytes())
        .unwrap();
    let made: Value = rest.0.request(request).await.unwrap();
    made["status"]["token"].as_str().unwrap().to_owned()
}

/// Access to a cluster: its name, its API server and a token.
pub(crate) type Access<'a> = (&'a str, &'a ApiServer, String);

/// Writes a kubeconfig with a context for each cluster, as docs/how-to/install.md does; the first is the
/// current one.
pub(crate) fn kubeconfig(path: &Path, clusters: &[Access<'_>]) {
    let named = |what: &str, of: &dyn Fn(&Access<'_>) -> Value| -> Vec<Value> {
        clusters.iter().map(|access| json!({ "name": access.0, what: of(access) })).collect()
    };
    let config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": named("cluster", &|(_, server, _)| {
            let ca = BASE64.encode(fs::read(server.ca()).unwrap());
            json!({ "server": server.url(), "certificate-authority-data": ca })
        }),
        "users": named("user", &|(.., token)| json!({ "token": token })),
        "contexts": named("context", &|(name, ..)| {
            json!({ "cluster": name, "user": name, "namespace": NAMESPACE })
        }),
        "current-context": clusters[0].0,
    });
    fs::write(path, config.to_string()).unwrap();
}

/// Creates the account and the permissions of a remote cluster; returns the account's token.
async fn create_account(cluster: &Cluster, rights: &str) -> String {
    let rbac = repo("deploy/rbac");
    for file in [rbac.join("account.yaml"), rbac.join(rights).join("rules.yaml")] {
        for object in read(&file) {
            apply(cluster.rest(), &object).await.unwrap();
        }
    }
    token(cluster.rest(), "throughline").await
}

/// A form that is applied in its cluster, without its Deployment.
pub(crate) struct Applied {
    /// The pod's `spec`.
    pub(crate) pod: Value,
    /// The pod's `config.yaml`.
    pub(crate) config: String,
    /// That of the pod's ServiceAccount.
    pub(crate) token: String,
}

pub(crate) async fn apply_form(form: &str, choice: &Choice, own: &Cluster) -> Applied {
    let objects = kustomize(form, choice);
    for object in objects.iter().filter(|object| object["kind"] != "Deployment") {
        apply(own.rest(), object).await.unwrap();
    }
    let deployment = objects.iter().find(|object| object["kind"] == "Deployment").unwrap();
    let pod = deployment["spec"]["template"]["spec"].clone();
    let token = token(own.rest(), pod["serviceAccountName"].as_str().unwrap()).await;
    let config = config_map(&objects)["data"]["config.yaml"].as_str().unwrap().to_owned();
    Applied { pod, config, token }
}

/// Applies a form and starts throughline. These clusters run no pods, so a kubeconfig with the token of
/// the pod's ServiceAccount replaces `inCluster`.
async fn install(form: &str, choice: &Choice, own: &Cluster, remotes: PathBuf) -> Throughline {
    let Applied { config, token, .. } = apply_form(form, choice, own).await;
    let in_cluster = own.server.folder().join(format!("{form}.kubeconfig"));
    kubeconfig(&in_cluster, &[(own.name, &own.server, token)]);

    let mut config: Value = serde_saphyr::from_str(&config).unwrap();
    for cluster in config["clusters"].as_array_mut().unwrap() {
        let cluster = cluster.as_object_mut().unwrap();
        let file = match cluster.remove("inCluster") {
            Some(_) => &in_cluster,
            None => &remotes,
        };
        cluster.insert("kubeconfig".to_owned(), json!(file));
    }
    Setup::new(&config).ready().await
}

/// Starts the clusters of a form, with CRDs and a fleet, and without permissions.
pub(crate) async fn start_clusters(
    topology: Topology,
    names: &[&'static str],
) -> (Testbed, Fleet, PathBuf) {
    let testbed = Testbed::start_named(topology, names, |_| false).await;
    for cluster in &testbed.clusters {
        install_crds(cluster.rest()).await;
        namespace(cluster.rest(), NAMESPACE).await;
    }
    let fleet = Fleet::seed(&testbed, Spec { with_routes: true, ..Spec::of(3) }).await;
    let remotes = testbed.clusters[0].server.folder().join("remotes.kubeconfig");
    (testbed, fleet, remotes)
}

/// Flips a connector and back, moves another, and checks that no request was refused.
async fn flip_and_stop(testbed: &Testbed, fleet: &Fleet, processes: Vec<Throughline>) {
    oracle::converges(testbed).await;
    fleet.flip(0).await.unwrap();
    oracle::converges(testbed).await;
    fleet.flip(0).await.unwrap();
    fleet.move_node(1).await.unwrap();
    oracle::converges(testbed).await;
    eventually("the leader has posted its Event", SOON, async || {
        let events = testbed.hub().rest().items(EVENTS).await.map_err(|r| r.to_string())?;
        let led = |event: &Value| event["reason"] == "LeaderElection";
        ensure(events.iter().any(led), || format!("{events:?}"))
    })
    .await;
    for process in processes {
        let metrics = process.metrics().await;
        let is_refusal = |name: &&String| ["401", "403"].iter().any(|code| name.contains(code));
        let refused: Vec<_> = metrics.keys().filter(is_refusal).collect();
        assert!(refused.is_empty(), "{refused:?}");
        process.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers and kustomize: make deploy-test"]
async fn all_in_one() {
    let (testbed, fleet, remotes) = start_clusters(Topology::One, &["local"]).await;
    let process = install("all-in-one", &Choice::plain(), testbed.hub(), remotes).await;
    flip_and_stop(&testbed, &fleet, vec![process]).await;
}

pub(crate) const THREE: [&str; 3] = ["project-a", "hub", "edge-1"];

/// Creates the permissions of standalone-hub in the other clusters, and the kubeconfig for them.
pub(crate) async fn create_remotes(testbed: &Testbed, path: &Path) {
    let (up, edge) = (testbed.upstream(), testbed.edge());
    let up = (up.name, &up.server, create_account(up, "upstream").await);
    let edge = (edge.name, &edge.server, create_account(edge, "edge").await);
    kubeconfig(path, &[up, edge]);
}

/// Installs standalone-hub, with its permissions in the other clusters.
async fn install_at_hub(choice: &Choice, testbed: &Testbed, remotes: &Path) -> Throughline {
    create_remotes(testbed, remotes).await;
    install("standalone-hub", choice, testbed.hub(), remotes.to_owned()).await
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers and kustomize: make deploy-test"]
async fn standalone_hub() {
    let (testbed, fleet, remotes) = start_clusters(Topology::Three, &THREE).await;
    let hub = install_at_hub(&Choice::plain(), &testbed, &remotes).await;
    flip_and_stop(&testbed, &fleet, vec![hub]).await;
}

/// One instance at the hub mirrors, and another at the edge touches.
async fn with_an_instance_at_the_edge(form: &str) {
    let (testbed, fleet, remotes) = start_clusters(Topology::Three, &THREE).await;
    let config = json!({ "touch": { "enabled": false } });
    let choice = Choice { name: "no-touch", config, ..Choice::default() };
    let hub = install_at_hub(&choice, &testbed, &remotes).await;
    let edge = install(form, &Choice::plain(), testbed.edge(), remotes).await;
    flip_and_stop(&testbed, &fleet, vec![hub, edge]).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers and kustomize: make deploy-test"]
async fn standalone_edge() {
    with_an_instance_at_the_edge("standalone-edge").await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers and kustomize: make deploy-test"]
async fn sidecar() {
    with_an_instance_at_the_edge("sidecar").await;
}
