//! `throughline orphans`: what it lists, deletes and restores, and its exit codes.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "support/sim_apiserver/mod.rs"]
mod sim_apiserver;

use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};
use sim_apiserver::TestServer;
use sim_apiserver::orphan::{self, UID, project_and_hub};
use throughline::core::data::ids::Kind;
use throughline::sim::apiserver::{ApiVerb, Fault, Resource};

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
        let live = folder.join("live.jsonl");
        let config = json!({"clusters": clusters, "orphans": {"settleMs": 200},
            "eventLog": {"file": live}});
        std::fs::write(folder.join("live.yaml"), config.to_string()).unwrap();
        std::fs::write(live, "the live run's").unwrap();
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

    fn files(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.folder).unwrap().map(Result::unwrap);
        entries.map(|e| e.file_name().into_string().unwrap()).collect()
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
        "kept (settling): orphaned for ",
        ", needs 200 ms\n  parent Gateways: gone (does not exist)\n  \
         upstream namespace: shop in up, proven by its uid\n",
        "kept (protected): ",
        "\nno orphans, 1 settling, 1 kept\nadd --wait to list again after the settling time of 200 ms\n",
    ] {
        assert!(out.contains(text), "{text}: {out}");
    }
    assert!(!out.contains("alive"), "{out}");

    let (code, out, _) = environment.live(&["--wait", "--output", "json"]).await;
    assert_eq!(code, 1);
    let json: Value = serde_json::from_str(&out).unwrap();
    let candidates = json["candidates"].as_array().unwrap();
    assert_eq!(candidates.len(), 2);
    let orphan = &candidates[0];
    assert_eq!((&orphan["name"], &orphan["kept"]), (&json!("orphan"), &Value::Null));
    assert_eq!(orphan["parents"], json!([["gone", false]]));
    assert_eq!(orphan["namespace_proved"], true);
    assert!(orphan["heard_ms"].is_u64() && orphan["orphan_since_ms"].is_u64());
    assert_eq!(candidates[1]["kept"], "protected");
    assert_eq!(json["deletes"], Value::Null);
    assert_eq!(environment.routes().await, ["alive", "orphan", "protected"]);
}

fn without_times(manifests: &str) -> String {
    manifests.lines().filter(|line| !line.starts_with("# Deleted at ")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn orphans_are_deleted_once_and_can_be_restored() {
    let environment = Environment::new().await;
    for (name, parent, protected) in [
        ("alive", "site", false),
        ("one", "gone", false),
        ("two", "lost", false),
        ("safe", "gone", true),
    ] {
        environment.route(name, parent, protected);
    }
    // There is no terminal to ask at.
    let (code, _, err) = environment.live(&["--delete"]).await;
    assert!(code == 2 && err.contains("add --yes"), "{err}");
    let (code, _, err) = environment.live(&["--yes"]).await;
    assert!(code == 2 && err.contains("--delete"), "{err}");
    assert_eq!(environment.routes().await.len(), 4);

    let (code, out, err) =
        environment.live(&["--delete", "--yes", "--event-log", "mine.jsonl"]).await;
    assert_eq!(code, 0, "{out}{err}");
    assert!(err.contains("backup of deleted routes: mine.jsonl\n"), "{err}");
    assert!(
        err.contains("/one at hub: deleted\n") && err.contains("/two at hub: deleted\n"),
        "{err}"
    );
    assert_eq!(environment.routes().await, ["alive", "safe"]);
    let live = std::fs::read_to_string(environment.folder.join("live.jsonl")).unwrap();
    assert_eq!(live, "the live run's", "another process's log is not touched");

    let (code, out, _) = environment.run(&["restore", "mine.jsonl"]).await;
    assert_eq!(code, 0);
    assert_eq!(out.matches("---\n# Deleted at 20").count(), 2, "{out}");
    let manifests: Vec<Value> =
        out.split("---\n").skip(1).map(|text| serde_saphyr::from_str(text).unwrap()).collect();
    assert_eq!(manifests.len(), 2);
    // The backup itself may be named, too.
    let (code, backup, err) = environment.run(&["restore", "mine.jsonl.deleted.jsonl"]).await;
    assert_eq!((code, without_times(&backup)), (0, without_times(&out)));
    // Their parents are still missing: what deleted them once does so again.
    assert_eq!(err.matches("warning: ").count(), 1, "{err}");
    assert!(
        err.contains("while orphans.mode is delete") && err.contains("paused: \"true\""),
        "{err}"
    );
    assert_eq!(manifests[0]["spec"], json!({"parentRefs": [{"name": "gone"}]}));
    let path = format!("/apis/gateway.networking.k8s.io/v1/namespaces/ns-{UID}/httproutes");
    for manifest in &manifests {
        for set_by_servers in ["uid", "resourceVersion", "creationTimestamp", "managedFields"] {
            assert_eq!(manifest["metadata"][set_by_servers], Value::Null);
        }
        assert_eq!(environment.hub.send("POST", &path, manifest).await.0, 201);
    }
    assert_eq!(environment.routes().await, ["alive", "one", "safe", "two"]);
    let replay = Command::new(env!("CARGO_BIN_EXE_throughline"))
        .args(["replay", "--mode", "verify", "mine.jsonl"])
        .current_dir(&environment.folder)
        .output()
        .unwrap();
    assert!(replay.status.success(), "{}", String::from_utf8_lossy(&replay.stdout));
}

#[tokio::test(flavor = "multi_thread")]
async fn routes_that_cannot_be_judged_are_no_success() {
    let environment = Environment::new().await;
    environment.route("alive", "site", false);
    environment.up.handle.inject(&Fault::on_watches(Kind::Gateway, 403), 1_000);
    let (code, out, err) = environment.live(&["--delete", "--yes"]).await;
    assert_eq!(code, 1, "{out}");
    assert!(out.contains("kept (lists_incomplete): "), "{out}");
    assert!(out.contains("alive") && out.contains("parent Gateways: site (unknown)"), "{out}");
    assert!(err.contains("403"), "{err}");
    environment.up.handle.clear_faults();

    // The hub refuses the delete.
    environment.route("orphan", "gone", false);
    let resource = Some(Resource::from(Kind::HttpRoute));
    let refused = Fault {
        verbs: vec![ApiVerb::Delete],
        resource,
        code: 403,
        retry_after_s: None,
        executes: false,
    };
    environment.hub.handle.inject(&refused, 1_000);
    let (code, _, err) = environment.live(&["--delete", "--yes"]).await;
    assert!(code == 1 && err.contains("/orphan at hub: refused: 403 Forbidden"), "{err}");
    assert_eq!(environment.routes().await, ["alive", "orphan"]);
    let is_log = |f: &&String| f.starts_with("throughline-orphans-") && !f.contains(".deleted.");
    let files = environment.files();
    assert_eq!(
        files.iter().filter(is_log).count(),
        2,
        "each run writes a log of its own: {files:?}"
    );
    // The refused delete was written down, and is not restored.
    let backup = files.iter().find(|f| f.contains(".deleted.")).unwrap();
    let (code, out, err) = environment.run(&["restore", backup]).await;
    assert_eq!((code, &*out, &*err), (1, "", "this log records no deletes\n"));
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
    let mut real = route("real");
    real["subjects"] = json!([{"kind": "User", "name": "mallory"}]);
    let objects = [role, unlabelled, protected, other_group, gateway, real];
    let backup =
        |object: &Value| json!({"at_ms": 1763715600000_u64, "cluster": "hub", "deleted": object});
    let lines: Vec<_> = objects.iter().map(|object| backup(object).to_string()).collect();
    let text = format!("not even JSON\n{}\n", lines.join("\n"));
    std::fs::write(environment.folder.join("log.deleted.jsonl"), text).unwrap();
    let (code, out, err) = environment.run(&["restore", "log.deleted.jsonl"]).await;
    assert_eq!(code, 1, "{err}");
    assert!(!out.contains("mallory") && !out.contains("cluster-admin"), "{out}");
    let kinds = out.lines().filter(|line| line.starts_with("kind: "));
    assert_eq!(kinds.collect::<Vec<_>>(), ["kind: HTTPRoute"], "{out}");
    assert!(out.contains("name: real"), "{out}");
    for skipped in [
        "skipped: ClusterRoleBinding all\\u{1b}[2Jpower: ",
        "/unlabelled: throughline deletes no such route",
        "/protected: throughline deletes no such route",
        "/other-group: ",
        "skipped: Gateway ns-",
        "skipped 5 objects: somebody else wrote into this log",
        "log.deleted.jsonl:1: this line can't be read",
    ] {
        assert!(err.contains(skipped), "{skipped}: {err}");
    }
}
