//! A hundred starts in a loop, each of which fails or is killed, lose no evidence: the log of the first
//! is still whole, and every route that was deleted can be restored. One whose log lines nobody reads works and
//! stops as any other.

use std::collections::BTreeSet;
use std::net::TcpListener;
use std::process::{Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::program::{Place, Running};
use crate::sim_apiserver::TestServer;
use crate::sim_apiserver::orphan::{self, project_and_hub};

const PATIENCE: Duration = Duration::from_secs(60);

struct Environment {
    _up: TestServer,
    hub: TestServer,
    place: Place,
}

impl Environment {
    async fn new() -> Self {
        let (up, hub) = project_and_hub().await;
        hub.put(
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": orphan::ns()}}),
        );
        let config = json!({
            "leaderElection": {"enabled": false},
            "orphans": {"mode": "delete", "minAge": "1ms", "settleMs": 50},
            "limits": {"maxShare": 1},
            "eventLog": {"file": "live.jsonl"},
        });
        let place = Place::new(&[(&up, &["upstream"]), (&hub, &["hub"])], config);
        Self { _up: up, hub, place }
    }

    fn output(&self, args: &[&str]) -> Output {
        self.place.command(args).output().unwrap()
    }

    fn start(&self, stderr: impl Into<Stdio>) -> Running {
        let mut command = self.place.command(&["run", "--set", "admin.address=127.0.0.1:0"]);
        Running(command.stdout(Stdio::null()).stderr(stderr).spawn().unwrap())
    }

    fn assert_start_fails(&self, address: &str, message: &str) {
        let address = format!("admin.address={address}");
        let ended = self.output(&["run", "--set", &address]);
        let said = String::from_utf8(ended.stderr).unwrap();
        assert!(ended.status.code() == Some(1) && said.contains(message), "{said}");
    }

    fn routes(&self) -> String {
        format!("/apis/gateway.networking.k8s.io/v1/namespaces/{}/httproutes", orphan::ns())
    }

    /// Waits until a running instance has deleted the orphan of this name.
    async fn deletes(&self, name: &str) {
        self.hub.put(orphan::route(name, &["gone"]));
        let path = format!("{}/{name}", self.routes());
        let until = Instant::now() + PATIENCE;
        while self.hub.get(&path).await.0 == 200 {
            assert!(Instant::now() < until, "{name} still stands");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

/// The log of the running instance is `live.jsonl`, the one before it `live.jsonl.1`.
fn log(number: usize) -> String {
    if number == 0 { "live.jsonl".to_owned() } else { format!("live.jsonl.{number}") }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_crash_looping_starts_lose_nothing() {
    let environment = Environment::new().await;
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    let mut names = BTreeSet::new();
    let mut first = String::new();
    for start in 0..100 {
        if start % 5 > 0 {
            environment.assert_start_fails(&taken, "cannot listen on");
            continue;
        }
        let name = format!("orphan-{start}");
        let running = environment.start(Stdio::null());
        environment.deletes(&name).await;
        names.insert(name);
        if start % 10 == 0 {
            let message = "another process writes this event log";
            environment.assert_start_fails("127.0.0.1:0", message);
        }
        // With SIGKILL.
        drop(running);
        if start == 0 {
            first = environment.place.read(&log(0));
            assert!(first.len() > 1_000);
        }
    }

    // One log for each start that saw anything; the first is the oldest, to the byte.
    let killed = names.len();
    assert_eq!(killed, 20);
    assert!(!environment.place.path(&log(killed)).exists());
    assert!(environment.place.read(&log(killed - 1)) == first, "the first log changed");
    for number in 0..killed {
        let replay = environment.output(&["replay", "--mode", "verify", &log(number)]);
        assert!(replay.status.success(), "{}", String::from_utf8_lossy(&replay.stdout));
    }

    let restored = environment.output(&["orphans", "restore", "live.jsonl"]);
    assert!(restored.status.success(), "{}", String::from_utf8_lossy(&restored.stderr));
    let text = String::from_utf8(restored.stdout).unwrap();
    let manifests: Vec<Value> =
        text.split("---\n").skip(1).map(|text| serde_saphyr::from_str(text).unwrap()).collect();
    let name = |manifest: &Value| manifest["metadata"]["name"].as_str().unwrap().to_owned();
    assert_eq!(manifests.iter().map(name).collect::<BTreeSet<_>>(), names);
    for manifest in &manifests {
        let (code, said) = environment.hub.send("POST", &environment.routes(), manifest).await;
        assert_eq!(code, 201, "{said}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_whose_log_lines_nobody_reads_works_and_stops() {
    let environment = Environment::new().await;
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let running = environment.start(writer);
    environment.deletes("orphan").await;
    let (code, ..) = tokio::time::timeout(PATIENCE, running.stop()).await.expect("it still runs");
    assert_eq!(code, 0);
}
