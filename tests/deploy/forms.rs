//! Each form on real API servers: the test applies what kustomize renders and runs throughline with the
//! rendered configuration, as its ServiceAccount, with exactly the rendered permissions. A flip must
//! arrive at hub, edge and gateway.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::cluster::apiserver::{ADMIN, ApiServer};
use crate::cluster::fleet::{Fleet, Spec};
use crate::cluster::rest::EVENTS;
use crate::cluster::testbed::{Cluster, Testbed, Topology};
use crate::cluster::throughline::{Setup, Throughline};
use crate::cluster::{SOON, ensure, eventually, oracle};
use crate::render::{Choice, config_map, kustomize};
use crate::temp_folder::temp_folder;
use crate::tools::{read, run_tool};

pub(crate) const NAMESPACE: &str = "throughline";

/// Runs kubectl as the administrator.
pub(crate) fn kubectl(server: &ApiServer, words: &[&str]) -> Result<String, String> {
    let (access, cache) = (server.kubeconfig(ADMIN), temp_folder("kubectl"));
    let access = ["--kubeconfig", access.to_str().unwrap(), "--cache-dir", cache.to_str().unwrap()];
    run_tool("kubectl", &[&access[..], words].concat())
}

/// Applies objects. A field that the API server does not know is an error.
pub(crate) fn apply(server: &ApiServer, objects: &[Value]) -> Result<String, String> {
    let file = temp_folder("apply").join("objects.yaml");
    // Of a `List`, kubectl does not let the API server find unknown fields.
    let documents: Vec<_> = objects.iter().map(Value::to_string).collect();
    fs::write(&file, documents.join("\n---\n")).unwrap();
    let how = ["apply", "--server-side", "--force-conflicts", "--validate=strict", "--filename"];
    kubectl(server, &[&how[..], &[file.to_str().unwrap()]].concat())
}

pub(crate) fn namespace() -> Value {
    json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": NAMESPACE } })
}

/// A ServiceAccount's token, as its pod or kubeconfig has it.
pub(crate) fn token(server: &ApiServer, account: &str) -> String {
    let token = kubectl(server, &["create", "token", "-n", NAMESPACE, account]);
    token.unwrap().trim_end().to_owned()
}

/// Access to a cluster: its name, its API server and a token.
pub(crate) type Access<'a> = (&'a str, &'a ApiServer, String);

/// Writes a kubeconfig with a context for each cluster, as docs/how-to/install.md does; the first is the
/// current one.
pub(crate) fn kubeconfig(path: &Path, access: &[Access<'_>]) {
    let file = format!("--kubeconfig={}", path.display());
    let config = |words: &[&str]| {
        run_tool("kubectl", &[&["config", file.as_str()], words].concat()).unwrap()
    };
    for (name, server, token) in access {
        let ca = format!("--certificate-authority={}", server.ca().display());
        config(&["set-cluster", name, "--server", &server.url(), "--embed-certs", &ca]);
        config(&["set-credentials", name, "--token", token]);
        let of = ["--cluster", name, "--user", name, "--namespace", NAMESPACE];
        config(&[&["set-context", name], &of[..]].concat());
    }
    config(&["use-context", access[0].0]);
}

/// Creates the permissions of standalone-hub in the other clusters; returns the kubeconfig for them.
pub(crate) fn create_remotes(testbed: &Testbed) -> PathBuf {
    let mut remotes = Vec::new();
    for (cluster, role) in [(testbed.upstream(), "upstream"), (testbed.edge(), "edge")] {
        let files = ["account.yaml".to_owned(), format!("{role}/rules.yaml")];
        let objects = files.map(|file| read(format!("deploy/rbac/{file}")));
        apply(&cluster.server, &objects.concat()).unwrap();
        let token = token(&cluster.server, "throughline");
        remotes.push((cluster.name, &cluster.server, token));
    }
    let path = temp_folder("remotes").join("kubeconfig");
    kubeconfig(&path, &remotes);
    path
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

pub(crate) fn apply_form(form: &str, choice: &Choice, own: &Cluster) -> Applied {
    let objects = kustomize(form, choice);
    let is_deployment = |object: &Value| object["kind"] == "Deployment";
    let (deployments, objects): (Vec<_>, Vec<_>) = objects.into_iter().partition(is_deployment);
    apply(&own.server, &objects).unwrap();
    let pod = deployments[0]["spec"]["template"]["spec"].clone();
    let token = token(&own.server, pod["serviceAccountName"].as_str().unwrap());
    let config = config_map(&objects)["data"]["config.yaml"].as_str().unwrap().to_owned();
    Applied { pod, config, token }
}

/// Applies a form and starts throughline. These clusters run no pods, so a kubeconfig with the token of
/// the pod's ServiceAccount replaces `inCluster`.
async fn install(form: &str, choice: &Choice, own: &Cluster, remotes: &Path) -> Throughline {
    let Applied { config, token, .. } = apply_form(form, choice, own);
    let in_cluster = own.server.folder().join(format!("{form}.kubeconfig"));
    kubeconfig(&in_cluster, &[(own.name, &own.server, token)]);

    let mut config: Value = serde_saphyr::from_str(&config).unwrap();
    for cluster in config["clusters"].as_array_mut().unwrap() {
        let is_own = cluster.as_object_mut().unwrap().remove("inCluster").is_some();
        cluster["kubeconfig"] = json!(if is_own { in_cluster.as_path() } else { remotes });
    }
    Setup::new(&config).ready().await
}

/// Starts the clusters of a form, with CRDs and a fleet, and without permissions.
pub(crate) async fn start_clusters(topology: Topology, names: &[&'static str]) -> (Testbed, Fleet) {
    let testbed = Testbed::start_named(topology, names, false).await;
    for cluster in &testbed.clusters {
        apply(&cluster.server, &[namespace()]).unwrap();
    }
    let fleet = Fleet::seed(&testbed, Spec { with_routes: true, ..Spec::of(3) }).await;
    (testbed, fleet)
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
    let (testbed, fleet) = start_clusters(Topology::One, &["local"]).await;
    let process = install("all-in-one", &Choice::plain(), testbed.hub(), Path::new("")).await;
    flip_and_stop(&testbed, &fleet, vec![process]).await;
}

pub(crate) const THREE: [&str; 3] = ["project-a", "hub", "edge-1"];

/// The hub alone, and without touches beside an instance at the edge.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs API servers and kustomize: make deploy-test"]
async fn standalone_hub_and_forms_at_the_edge() {
    let (testbed, fleet) = start_clusters(Topology::Three, &THREE).await;
    let remotes = create_remotes(&testbed);
    for edge in [None, Some("standalone-edge"), Some("sidecar")] {
        let config = json!({ "touch": { "enabled": edge.is_none() } });
        let choice = Choice { name: "touch", config, ..Choice::plain() };
        let mut processes = vec![install("standalone-hub", &choice, testbed.hub(), &remotes).await];
        if let Some(form) = edge {
            processes.push(install(form, &Choice::plain(), testbed.edge(), &remotes).await);
        }
        flip_and_stop(&testbed, &fleet, processes).await;
    }
}
