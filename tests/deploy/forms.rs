//! Each form, in real clusters: what kustomize renders is applied; throughline runs on the configuration in
//! its ConfigMap, as its ServiceAccount, with the rights that were rendered and not one more. A connector
//! flips, and it arrives at hub, edge and gateway.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::accepted::{apply, namespace};
use crate::cluster::apiserver::ApiServer;
use crate::cluster::fleet::{Fleet, Spec};
use crate::cluster::objects::install_crds;
use crate::cluster::rest::{EVENTS, Rest};
use crate::cluster::throughline::{Setup, Throughline};
use crate::cluster::world::{Cluster, Topology, World};
use crate::cluster::{SOON, ensure, eventually, oracle};
use crate::render::{Choice, config_map, kustomize};
use crate::tools::{read, repo};

pub(crate) const NAMESPACE: &str = "throughline";

/// A ServiceAccount's own token, as its pod or its kubeconfig has it.
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

/// A way to a cluster: its name, where it is, and a token.
pub(crate) type Way<'a> = (&'a str, &'a ApiServer, String);

/// A kubeconfig with a context for each cluster, as docs/install.md makes it; the first is the current one.
pub(crate) fn kubeconfig(path: &Path, clusters: &[Way<'_>]) {
    let named = |what: &str, of: &dyn Fn(&Way<'_>) -> Value| -> Vec<Value> {
        clusters.iter().map(|way| json!({ "name": way.0, what: of(way) })).collect()
    };
    let config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": named("cluster", &|(_, server, _)| {
            json!({ "server": server.url(), "certificate-authority": server.ca() })
        }),
        "users": named("user", &|(.., token)| json!({ "token": token })),
        "contexts": named("context", &|(name, ..)| {
            json!({ "cluster": name, "user": name, "namespace": NAMESPACE })
        }),
        "current-context": clusters[0].0,
    });
    fs::write(path, config.to_string()).unwrap();
}

/// What a remote cluster is given: an account and the rights of its role. Gives its token.
async fn remote(cluster: &Cluster, rights: &str) -> String {
    let rbac = repo("deploy/rbac");
    for file in [rbac.join("account.yaml"), rbac.join(rights).join("rules.yaml")] {
        for object in read(&file) {
            apply(cluster.rest(), &object).await.unwrap();
        }
    }
    token(cluster.rest(), "throughline").await
}

/// Applies a form in its cluster and starts it. No pod runs in these clusters: a kubeconfig with the
/// token of the pod's ServiceAccount stands for `inCluster`.
async fn install(form: &str, choice: &Choice, own: &Cluster, remotes: PathBuf) -> Throughline {
    let objects = kustomize(form, choice);
    for object in objects.iter().filter(|object| object["kind"] != "Deployment") {
        apply(own.rest(), object).await.unwrap();
    }
    let deployment = objects.iter().find(|object| object["kind"] == "Deployment").unwrap();
    let pod = &deployment["spec"]["template"]["spec"];
    let token = token(own.rest(), pod["serviceAccountName"].as_str().unwrap()).await;
    let in_cluster = own.server.folder().join(format!("{form}.kubeconfig"));
    kubeconfig(&in_cluster, &[(own.name, &own.server, token)]);

    let config = config_map(&objects)["data"]["config.yaml"].as_str().unwrap();
    let mut config: Value = serde_saphyr::from_str(config).unwrap();
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

/// The clusters of a form, with CRDs and a fleet, and with no right for anybody.
async fn stage(topology: Topology, names: &[&'static str]) -> (World, Fleet, PathBuf) {
    let world = World::start_named(topology, names, |_| false).await;
    for cluster in &world.clusters {
        install_crds(cluster.rest()).await;
        namespace(cluster.rest(), NAMESPACE).await;
    }
    let fleet = Fleet::seed(&world, Spec { with_routes: true, ..Spec::of(3) }).await;
    let remotes = world.clusters[0].server.folder().join("remotes.kubeconfig");
    (world, fleet, remotes)
}

/// A flip there and back, and what the processes say at the end.
async fn story(world: &World, fleet: &Fleet, processes: Vec<Throughline>) {
    oracle::converges(world).await;
    fleet.flip(0).await.unwrap();
    oracle::converges(world).await;
    fleet.flip(0).await.unwrap();
    fleet.move_node(1).await.unwrap();
    oracle::converges(world).await;
    eventually("whoever leads has told so", SOON, async || {
        let events = world.hub().rest().items(EVENTS).await.map_err(|r| r.to_string())?;
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
    let (world, fleet, remotes) = stage(Topology::One, &["local"]).await;
    let process = install("all-in-one", &Choice::plain(), world.hub(), remotes).await;
    story(&world, &fleet, vec![process]).await;
}

const THREE: [&str; 3] = ["project-a", "hub", "edge-1"];

/// At the hub, with what it needs in the others.
async fn at_hub(choice: &Choice, world: &World, remotes: &Path) -> Throughline {
    let (up, edge) = (world.upstream(), world.edge());
    let up = (up.name, &up.server, remote(up, "upstream").await);
    let edge = (edge.name, &edge.server, remote(edge, "edge").await);
    kubeconfig(remotes, &[up, edge]);
    install("standalone-hub", choice, world.hub(), remotes.to_owned()).await
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers and kustomize: make deploy-test"]
async fn standalone_hub() {
    let (world, fleet, remotes) = stage(Topology::Three, &THREE).await;
    let hub = at_hub(&Choice::plain(), &world, &remotes).await;
    story(&world, &fleet, vec![hub]).await;
}

/// The hub's mirrors, and leaves touching to a process at the edge.
async fn with_an_edge_of_its_own(form: &str) {
    let (world, fleet, remotes) = stage(Topology::Three, &THREE).await;
    let config = json!({ "touch": { "enabled": false } });
    let choice = Choice { name: "untouching", config, ..Choice::default() };
    let hub = at_hub(&choice, &world, &remotes).await;
    let edge = install(form, &Choice::plain(), world.edge(), remotes).await;
    story(&world, &fleet, vec![hub, edge]).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers and kustomize: make deploy-test"]
async fn standalone_edge() {
    with_an_edge_of_its_own("standalone-edge").await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers and kustomize: make deploy-test"]
async fn sidecar() {
    with_an_edge_of_its_own("sidecar").await;
}
