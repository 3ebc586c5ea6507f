//! A hundred starts in a loop, each of which fails or is killed, lose no evidence: the log of the first
//! is still whole, and every route that was deleted can be restored. One whose log lines nobody reads works and
//! stops as any other.

use std::collections::BTreeSet;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::constants;
use crate::sim_apiserver::TestServer;
use crate::sim_apiserver::orphan::{self, project_and_hub};

const PATIENCE: Duration = Duration::from_secs(60);

struct Environment {
    _up: TestServer,
    hub: TestServer,
    folder: PathBuf,
}

impl Environment {
    async fn new(name: &str) -> Self {
        let (up, hub) = project_and_hub().await;
        hub.put(
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": orphan::ns()}}),
        );
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir(&folder).unwrap();
        let cluster = |server: &TestServer, role: &str| {
            let kubeconfig = server.kubeconfig(&folder);
            json!({"name": server.cluster, "roles": [role], "kubeconfig": kubeconfig})
        };
        let config = json!({
            "clusters": [cluster(&up, "upstream"), cluster(&hub, "hub")],
            "leaderElection": {"enabled": false},
            "orphans": {"mode": "delete", "minAge": "1ms", "settleMs": 50},
            "limits": {"maxShare": 1},
            "eventLog": {"file": folder.join("live.jsonl")},
        });
        constants::write(&folder.join("live.yaml"), &config);
        Self { _up: up, hub, folder }
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_throughline"));
        command.args(args).current_dir(&self.folder);
        constants::give(&mut command, &self.folder.join("live.yaml"));
        command.env_remove("RUST_LOG").env_remove("KUBECONFIG").env_remove("THROUGHLINE_CONFIG");
        command
    }

    fn output(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    fn start(&self, address: &str, stderr: impl Into<Stdio>) -> Child {
        let address = format!("admin.address={address}");
        let args = ["run", "--config", "live.yaml", "--set", &address];
        self.command(&args).stdout(Stdio::null()).stderr(stderr).spawn().unwrap()
    }

    /// A start that fails, and the end of what it says.
    fn failing(&self, address: &str) -> String {
        let ended = self.start(address, Stdio::piped()).wait_with_output().unwrap();
        assert_eq!(ended.status.code(), Some(1));
        String::from_utf8(ended.stderr).unwrap()
    }

    /// Waits until a running instance has deleted the orphan of this name.
    async fn deletes(&self, name: &str) {
        self.hub.put(orphan::route(name, &["gone"]));
        let path = format!(
            "/apis/gateway.networking.k8s.io/v1/namespaces/{}/httproutes/{name}",
            orphan::ns()
        );
        let until = Instant::now() + PATIENCE;
        while self.hub.get(&path).await.0 == 200 {
            assert!(Instant::now() < until, "{name} still stands");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    fn log(&self, number: usize) -> PathBuf {
        let ending = if number == 0 { String::new() } else { format!(".{number}") };
        self.folder.join(format!("live.jsonl{ending}"))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_crash_looping_starts_lose_nothing() {
    let environment = Environment::new("crash-loop").await;
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    let mut names = BTreeSet::new();
    let mut first = Vec::new();
    let (mut killed, mut port_taken, mut log_taken) = (0, 0, 0);
    for start in 0..100 {
        if start % 5 > 0 {
            let said = environment.failing(&taken);
            assert!(said.contains("cannot listen on"), "{said}");
            port_taken += 1;
            continue;
        }
        let name = format!("orphan-{start}");
        let mut child = environment.start("127.0.0.1:0", Stdio::piped());
        environment.deletes(&name).await;
        names.insert(name);
        if start % 10 == 0 {
            let said = environment.failing("127.0.0.1:0");
            assert!(said.contains("another process writes this event log"), "{said}");
            log_taken += 1;
        }
        child.kill().unwrap();
        child.wait().unwrap();
        killed += 1;
        if start == 0 {
            first = std::fs::read(environment.log(0)).unwrap();
            assert!(first.len() > 1_000);
        }
    }
    assert_eq!((killed, port_taken, log_taken), (20, 80, 10));

    // One log for each start that saw anything; the first is the oldest, to the byte.
    assert!(!environment.log(killed).exists());
    assert!(std::fs::read(environment.log(killed - 1)).unwrap() == first, "the first log changed");
    for number in 0..killed {
        let log = environment.log(number).display().to_string();
        let replay = environment.output(&["replay", "--mode", "verify", &log]);
        assert!(replay.status.success(), "{log}: {}", String::from_utf8_lossy(&replay.stdout));
    }

    let restored = environment.output(&["orphans", "restore", "live.jsonl"]);
    assert!(restored.status.success(), "{}", String::from_utf8_lossy(&restored.stderr));
    let text = String::from_utf8(restored.stdout).unwrap();
    let manifests: Vec<Value> =
        text.split("---\n").skip(1).map(|text| serde_saphyr::from_str(text).unwrap()).collect();
    let name = |manifest: &Value| manifest["metadata"]["name"].as_str().unwrap().to_owned();
    assert_eq!(manifests.iter().map(name).collect::<BTreeSet<_>>(), names);
    let path = format!("/apis/gateway.networking.k8s.io/v1/namespaces/{}/httproutes", orphan::ns());
    for manifest in &manifests {
        let (code, said) = environment.hub.send("POST", &path, manifest).await;
        assert_eq!(code, 201, "{said}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_whose_log_lines_nobody_reads_works_and_stops() {
    let environment = Environment::new("unread-log").await;
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut child = environment.start("127.0.0.1:0", writer);
    environment.deletes("orphan").await;

    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    let until = Instant::now() + PATIENCE;
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        assert!(Instant::now() < until, "it still runs");
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    assert_eq!(status.code(), Some(0));
}
