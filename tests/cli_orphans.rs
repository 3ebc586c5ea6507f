//! `throughline orphans`: what it lists, what it deletes, what it brings back, and its exit codes.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "support/front/mod.rs"]
mod front;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use front::{START, Served, serve_cluster};
use serde_json::{Value, json};
use throughline::core::ids::{Kind, Role};
use throughline::event_log::ClusterSpec;
use throughline::front::{Fault, Resource, Verb};
use throughline::world::World;

const UID: &str = "6bcb0b35-0000-4000-8000-000000000001";

/// A project, its hub, and a folder with a configuration.
struct Place {
    up: Served,
    hub: Served,
    folder: PathBuf,
}

impl Place {
    async fn new() -> Self {
        static PLACES: AtomicUsize = AtomicUsize::new(0);
        let spec = |name: &str, role| ClusterSpec { name: name.into(), roles: vec![role] };
        let mut world = World::new(&[spec("up", Role::Upstream), spec("hub", Role::Downstream)], 0);
        world.advance(START);
        let world = Arc::new(Mutex::new(world));
        let up = serve_cluster(&world, "up".into()).await;
        let hub = serve_cluster(&world, "hub".into()).await;
        let number = PLACES.fetch_add(1, Ordering::Relaxed);
        let folder = format!("throughline-orphans-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(folder);
        std::fs::create_dir_all(&folder).unwrap();
        let mut clusters = Vec::new();
        for (served, role) in [(&up, "upstream"), (&hub, "downstream")] {
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
        up.put(json!({"apiVersion": "v1", "kind": "Namespace",
            "metadata": {"name": "shop", "uid": UID}}));
        up.put(json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway",
            "metadata": {"namespace": "shop", "name": "site"}}));
        Self { up, hub, folder }
    }

    fn route(&self, name: &str, parent: &str, kept: bool) {
        let mut labels = json!({
            "meta.datumapis.com/upstream-cluster-name": "cluster-up",
            "meta.datumapis.com/upstream-group": "gateway.networking.k8s.io",
            "meta.datumapis.com/upstream-kind": "HTTPRoute",
            "meta.datumapis.com/upstream-name": name,
            "meta.datumapis.com/upstream-namespace": "shop",
        });
        if kept {
            labels["resourcetemplate.karmada.io/deletion-protected"] = "Always".into();
        }
        self.hub.put(json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute",
            "metadata": {"namespace": format!("ns-{UID}"), "name": name, "uid": format!("u-{name}"),
                "creationTimestamp": "2020-01-02T03:04:05Z", "labels": labels},
            "spec": {"parentRefs": [{"name": parent}]}}));
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

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn it_lists_each_candidate_with_its_evidence() {
    let place = Place::new().await;
    place.route("alive", "site", false);
    let (code, out, err) = place.live(&[]).await;
    assert_eq!((code, &*out, &*err), (0, "no route is an orphan\n", ""));

    place.route("orphan", "gone", false);
    place.route("protected", "gone", true);
    let (code, out, _) = place.live(&[]).await;
    assert_eq!(code, 1);
    for text in [
        "ns-6bcb0b35-0000-4000-8000-000000000001/orphan at hub (made ",
        "kept, settling: it is an orphan for too short a time\n  parents: gone absent\n  \
         upstream: shop in up, proved by its uid\n",
        "kept, protected: it is protected from deletion by its label\n",
        "\n0 orphans, 1 that still settle, 1 kept\n--wait looks",
    ] {
        assert!(out.contains(text), "{text}: {out}");
    }
    assert!(!out.contains("alive"), "{out}");

    let (code, out, _) = place.live(&["--wait", "--output", "json"]).await;
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
    assert_eq!(place.routes().await, ["alive", "orphan", "protected"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn it_deletes_once_and_brings_back() {
    let place = Place::new().await;
    for (name, parent, kept) in [
        ("alive", "site", false),
        ("one", "gone", false),
        ("two", "lost", false),
        ("safe", "gone", true),
    ] {
        place.route(name, parent, kept);
    }
    // Nobody can be asked here.
    let (code, _, err) = place.live(&["--delete"]).await;
    assert!(code == 2 && err.contains("add --yes"), "{err}");
    let (code, _, err) = place.live(&["--yes"]).await;
    assert!(code == 2 && err.contains("--delete"), "{err}");
    assert_eq!(place.routes().await.len(), 4);

    let (code, out, err) = place.live(&["--delete", "--yes", "--event-log", "mine.jsonl"]).await;
    assert_eq!(code, 0, "{out}{err}");
    assert!(err.contains("what is deleted is kept in mine.jsonl\n"), "{err}");
    assert!(
        err.contains("/one at hub: deleted\n") && err.contains("/two at hub: deleted\n"),
        "{err}"
    );
    assert_eq!(place.routes().await, ["alive", "safe"]);
    let live = std::fs::read_to_string(place.folder.join("live.jsonl")).unwrap();
    assert_eq!(live, "the live run's", "another process's log is not touched");

    let (code, out, _) = place.run(&["restore", "mine.jsonl"]).await;
    assert_eq!(code, 0);
    let manifests: Vec<Value> =
        out.split("---\n").skip(1).map(|text| serde_saphyr::from_str(text).unwrap()).collect();
    assert_eq!(manifests.len(), 2);
    assert_eq!(manifests[0]["spec"], json!({"parentRefs": [{"name": "gone"}]}));
    let path = format!("/apis/gateway.networking.k8s.io/v1/namespaces/ns-{UID}/httproutes");
    for manifest in &manifests {
        for set_by_servers in ["uid", "resourceVersion", "creationTimestamp", "managedFields"] {
            assert_eq!(manifest["metadata"][set_by_servers], Value::Null);
        }
        assert_eq!(place.hub.send("POST", &path, manifest).await.0, 201);
    }
    assert_eq!(place.routes().await, ["alive", "one", "safe", "two"]);
    let replay = Command::new(env!("CARGO_BIN_EXE_throughline"))
        .args(["replay", "--mode", "verify", "mine.jsonl"])
        .current_dir(&place.folder)
        .output()
        .unwrap();
    assert!(replay.status.success(), "{}", String::from_utf8_lossy(&replay.stdout));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_can_not_be_told_is_no_success() {
    let place = Place::new().await;
    place.route("alive", "site", false);
    place.up.front.fail(&Fault::of_watching(Kind::Gateway, 403), 1_000);
    let (code, out, err) = place.live(&["--delete", "--yes"]).await;
    assert_eq!(code, 1, "{out}");
    assert!(out.contains("kept, lists_incomplete: "), "{out}");
    assert!(out.contains("alive") && out.contains("parents: site unknown"), "{out}");
    assert!(err.contains("403"), "{err}");
    place.up.front.clear_faults();

    // Refused by the hub.
    place.route("orphan", "gone", false);
    let resource = Some(Resource::from(Kind::HttpRoute));
    let refused = Fault {
        verbs: vec![Verb::Delete],
        resource,
        code: 403,
        retry_after_s: None,
        carried_out: false,
    };
    place.hub.front.fail(&refused, 1_000);
    let (code, _, err) = place.live(&["--delete", "--yes"]).await;
    assert!(code == 1 && err.contains("/orphan at hub: refused: 403 Forbidden"), "{err}");
    assert_eq!(place.routes().await, ["alive", "orphan"]);
    let logs = place.files().iter().filter(|f| f.starts_with("throughline-orphans-")).count();
    assert_eq!(logs, 2, "each has a log of its own");
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_input_is_told() {
    let place = Place::new().await;
    let (code, _, err) = place.run(&["restore", "nothing.jsonl"]).await;
    assert!(code == 2 && err.contains("nothing.jsonl"), "{err}");
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/orphan-is-deleted.jsonl");
    let (code, out, err) = place.run(&["restore", fixture.to_str().unwrap()]).await;
    assert_eq!((code, &*out), (1, ""));
    assert!(err.contains("nothing was deleted"), "{err}");
    let (code, _, err) = place.run(&["--config", "none.yaml"]).await;
    assert!(code == 2 && err.contains("none.yaml"), "{err}");
}
