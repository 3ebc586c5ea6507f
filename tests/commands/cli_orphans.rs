//! `throughline orphans`: what it lists and restores, and its exit codes.

use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};
use throughline::core::data::ids::Kind;
use throughline_sim::apiserver::{ApiVerb, Fault};

use crate::sim_apiserver::TestServer;
use crate::sim_apiserver::orphan::{self, UID, project_and_hub};

/// An upstream cluster, its hub, and a folder with a configuration.
struct Environment {
    up: TestServer,
    hub: TestServer,
    folder: PathBuf,
}

impl Environment {
    async fn new() -> Self {
        static FOLDERS: AtomicUsize = AtomicUsize::new(0);
        let (up, hub) = project_and_hub().await;
        let number = FOLDERS.fetch_add(1, Ordering::Relaxed);
        let folder = format!("throughline-orphans-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(folder);
        std::fs::create_dir_all(&folder).unwrap();
        let mut clusters = Vec::new();
        for (served, role) in [(&up, "upstream"), (&hub, "hub")] {
            let kubeconfig = served.kubeconfig(&folder);
            let cluster =
                json!({"name": served.cluster, "roles": [role], "kubeconfig": kubeconfig});
            clusters.push(cluster);
        }
        let config = json!({ "clusters": clusters });
        std::fs::write(folder.join("live.yaml"), config.to_string()).unwrap();
        up.put(json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway",
            "metadata": {"namespace": "shop", "name": "site"}}));
        Self { up, hub, folder }
    }

    fn route(&self, name: &str, parent: &str, protected: bool) {
        let mut route = orphan::route(name, &[parent]);
        if protected {
            let labels = &mut route["metadata"]["labels"];
            labels["resourcetemplate.karmada.io/deletion-protected"] = "Always".into();
        }
        self.hub.put(route);
    }

    async fn run(&self, args: &[&str]) -> (i32, String, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_throughline"));
        command.arg("orphans").args(args).current_dir(&self.folder);
        command.env_remove("RUST_LOG").env_remove("KUBECONFIG").env_remove("THROUGHLINE_CONFIG");
        let run = tokio::task::spawn_blocking(move || command.output().unwrap());
        let Output { status, stdout, stderr } = run.await.unwrap();
        let [out, err] = [stdout, stderr].map(|bytes| String::from_utf8(bytes).unwrap());
        (status.code().unwrap(), out, err)
    }

    async fn live(&self, args: &[&str]) -> (i32, String, String) {
        self.run(&[&["--config", "live.yaml"], args].concat()).await
    }

    async fn routes(&self) -> Vec<String> {
        let (_, list) = self.hub.get("/apis/gateway.networking.k8s.io/v1/httproutes").await;
        let name = |item: &Value| item["metadata"]["name"].as_str().unwrap().to_owned();
        list["items"].as_array().unwrap().iter().map(name).collect()
    }
}

impl Drop for Environment {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_candidate_is_listed_with_its_evidence() {
    let environment = Environment::new().await;
    environment.route("alive", "site", false);
    let (code, out, err) = environment.live(&[]).await;
    assert_eq!((code, &*out, &*err), (0, "no orphaned routes\n", ""));

    environment.route("orphan", "gone", false);
    environment.route("protected", "gone", true);
    let (code, out, _) = environment.live(&[]).await;
    assert_eq!(code, 1);
    for text in [
        "ns-6bcb0b35-0000-4000-8000-000000000001/orphan at hub (created ",
        " ago)\n  orphan\n  parent Gateways: gone (does not exist)\n  \
         upstream namespace: shop in up, proven by its uid\n",
        "kept (route_protected): A label, ",
        "\n1 orphan, 1 kept\na run with `orphans.mode: delete` deletes orphans\n",
    ] {
        assert!(out.contains(text), "{text}: {out}");
    }
    assert!(!out.contains("alive"), "{out}");

    let (code, out, _) = environment.live(&["--output", "json"]).await;
    assert_eq!(code, 1);
    let json: Value = serde_json::from_str(&out).unwrap();
    let candidates = json["candidates"].as_array().unwrap();
    assert_eq!(candidates.len(), 2);
    let orphan = &candidates[0];
    assert_eq!((&orphan["name"], &orphan["kept"]), (&json!("orphan"), &Value::Null));
    assert_eq!(orphan["parents"], json!([["gone", false]]));
    assert_eq!(orphan["namespace_proved"], true);
    assert!(orphan["heard_ms"].is_u64() && orphan["orphan_since_ms"].is_u64());
    assert_eq!(candidates[1]["kept"], "route_protected");

    let (_, of_up, _) = environment.live(&["--upstream", "up"]).await;
    assert!(of_up.contains("/orphan at hub"), "{of_up}");
    let (code, out, _) = environment.live(&["--upstream", "another"]).await;
    assert_eq!((code, &*out), (0, "no orphaned routes\n"));
    // Whatever the configuration says, a look writes nothing.
    let delete = ["--set", "orphans.mode=delete", "--set", "eventLog.file=run.jsonl"];
    assert_eq!(environment.live(&delete).await.0, 1);
    assert_eq!(environment.routes().await, ["alive", "orphan", "protected"]);
    let requests = environment.hub.handle.requests();
    let is_read = |verb: &ApiVerb| matches!(verb, ApiVerb::List | ApiVerb::Watch | ApiVerb::Get);
    assert!(requests.keys().all(|(verb, _)| is_read(verb)), "{requests:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn routes_that_cannot_be_judged_are_no_success() {
    let environment = Environment::new().await;
    environment.route("alive", "site", false);
    environment.up.handle.inject(&Fault::on_watches(Kind::Gateway, 403), 1_000);
    let (code, out, err) = environment.live(&[]).await;
    assert_eq!(code, 1, "{out}");
    assert!(out.contains("kept (route_unproven): The Gateways of up "), "{out}");
    assert!(out.contains("alive") && out.contains("parent Gateways: site (unknown)"), "{out}");
    assert!(err.contains("does not allow throughline"), "{err}");
}

/// A line of the backup, as a run writes it before the delete.
fn backup(at_ms: u64, route: &Value) -> String {
    json!({"at_ms": at_ms, "cluster": "hub", "deleted": route}).to_string()
}

fn end(uid: &str, outcome: &str) -> String {
    json!({"at_ms": 1_763_715_600_000_u64, "cluster": "hub", "uid": uid, "outcome": outcome})
        .to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn deleted_routes_are_printed_as_they_were_last() {
    const AT: u64 = 1_763_715_600_000;
    let environment = Environment::new().await;
    environment.route("alive", "site", false);
    let route = |name: &str, uid: &str, parent: &str| {
        let mut route = orphan::route(name, &[parent]);
        route["metadata"]["uid"] = uid.into();
        route["metadata"]["resourceVersion"] = "12".into();
        route["metadata"]["managedFields"] = json!([{"manager": "x"}]);
        route["status"] = json!({"parents": []});
        route
    };
    let lines = [
        backup(AT, &route("one", "u-1", "old")),
        end("u-1", "applied"),
        backup(AT + 1, &route("one", "u-2", "gone")),
        end("u-2", "applied"),
        // A run that was killed wrote no outcome; the API server refused the last.
        backup(AT, &route("two", "u-3", "lost")),
        backup(AT, &route("three", "u-4", "gone")),
        end("u-4", "refused"),
    ];
    let file = environment.folder.join("run.jsonl.deleted.jsonl");
    std::fs::write(file, lines.join("\n")).unwrap();
    let (code, out, err) = environment.run(&["restore", "run.jsonl"]).await;
    assert_eq!(code, 0, "{err}");
    assert_eq!(environment.run(&["restore", "run.jsonl.deleted.jsonl"]).await.1, out);
    // What deleted them once does so again.
    assert_eq!(err.matches("warning: ").count(), 1, "{err}");
    assert!(
        err.contains("while orphans.mode is delete") && err.contains("paused: \"true\""),
        "{err}"
    );
    assert!(out.starts_with("---\n# Deleted at 2025-11-21T09:00:00.001Z.\napiVersion: "), "{out}");
    assert_eq!(out.matches("did not confirm this delete").count(), 1, "{out}");
    let manifests = out.split("---\n").skip(1).map(|text| serde_saphyr::from_str(text).unwrap());
    let manifests: Vec<Value> = manifests.collect();
    let parents = |manifest: &Value| manifest["spec"]["parentRefs"][0]["name"].clone();
    assert_eq!(manifests.iter().map(parents).collect::<Vec<_>>(), ["gone", "lost"]);
    let path = format!("/apis/gateway.networking.k8s.io/v1/namespaces/ns-{UID}/httproutes");
    for manifest in &manifests {
        for set_by_servers in ["uid", "resourceVersion", "creationTimestamp", "managedFields"] {
            assert_eq!(manifest["metadata"][set_by_servers], Value::Null);
        }
        assert_eq!(manifest["status"], Value::Null);
        assert_eq!(environment.hub.send("POST", &path, manifest).await.0, 201);
    }
    assert_eq!(environment.routes().await, ["alive", "one", "two"]);
    std::fs::write(environment.folder.join("none.deleted.jsonl"), end("u-1", "applied")).unwrap();
    let (code, out, err) = environment.run(&["restore", "none.deleted.jsonl"]).await;
    assert_eq!((code, &*out, &*err), (1, "", "no delete is recorded\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_input_is_an_error() {
    let environment = Environment::new().await;
    let (code, _, err) = environment.run(&["restore", "nothing.jsonl"]).await;
    assert!(code == 2 && err.contains("nothing.jsonl"), "{err}");
    let (code, _, err) = environment.run(&["--config", "none.yaml"]).await;
    assert!(code == 2 && err.contains("none.yaml"), "{err}");
}

/// A log is a file that somebody may have written, and its output goes to `kubectl create`.
#[tokio::test(flavor = "multi_thread")]
async fn only_routes_that_throughline_may_have_deleted_are_restored() {
    let environment = Environment::new().await;
    let route = |name: &str| orphan::route(name, &["gone"]);
    let mut unlabelled = route("unlabelled");
    unlabelled["metadata"]["labels"] = json!({});
    let mut protected = route("protected");
    protected["metadata"]["labels"]["resourcetemplate.karmada.io/deletion-protected"] =
        "Always".into();
    let mut other_group = route("other-group");
    other_group["apiVersion"] = "example.com/v1".into();
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": "all\u{1b}[2Jpower", "uid": "u-b"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "User", "name": "mallory"}]});
    let mut gateway = route("gateway");
    gateway["kind"] = "Gateway".into();
    let mut elsewhere = route("elsewhere");
    elsewhere["metadata"]["namespace"] = "ns-shop".into();
    let mut real = route("real");
    real["subjects"] = json!([{"kind": "User", "name": "mallory"}]);
    let objects = [role, unlabelled, protected, other_group, gateway, elsewhere, real];
    let lines: Vec<_> = objects.iter().map(|object| backup(1_763_715_600_000, object)).collect();
    let text = format!("not even JSON\n{}\n", lines.join("\n"));
    std::fs::write(environment.folder.join("log.deleted.jsonl"), text).unwrap();
    let (code, out, err) = environment.run(&["restore", "log.deleted.jsonl"]).await;
    assert_eq!(code, 1, "{err}");
    assert!(!out.contains("mallory") && !out.contains("cluster-admin"), "{out}");
    let kinds = out.lines().filter(|line| line.starts_with("kind: "));
    assert_eq!(kinds.collect::<Vec<_>>(), ["kind: HTTPRoute"], "{out}");
    assert!(out.contains("name: real"), "{out}");
    for skipped in [
        "skipped: log.deleted.jsonl:1: expected ",
        "skipped: log.deleted.jsonl:2: ClusterRoleBinding ",
        "/unlabelled: throughline deletes no such route",
        "/protected: throughline deletes no such route",
        "/other-group: ",
        "jsonl:6: Gateway ns-",
        "/elsewhere: throughline deletes only in namespaces ns-<uid>",
    ] {
        assert!(err.contains(skipped), "{skipped}: {err}");
    }
    assert!(!err.contains('\u{1b}'), "{err}");
}
