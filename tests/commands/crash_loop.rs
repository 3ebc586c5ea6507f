//! A hundred starts in a loop, each of which fails or is killed, lose no evidence: the log of the first
//! is still whole, and every route that was deleted can be restored. One whose log lines nobody reads works and
//! stops as any other.

use std::collections::BTreeSet;
use std::net::TcpListener;
use std::process::Stdio;

use serde_json::{Value, json};

use crate::cli_orphans::{Site, route, routes};
use crate::program::Running;
use crate::waiting::{SOON, until};

async fn site() -> Site {
    let config = json!({
        "leaderElection": {"enabled": false},
        "orphans": {"mode": "delete", "minAge": "1ms", "settleMs": 50},
        "limits": {"maxShare": 1},
        "eventLog": {"file": "live.jsonl"},
    });
    Site::new(config).await
}

impl Site {
    fn start(&self, stderr: impl Into<Stdio>) -> Running {
        let mut command = self.place.command(&["run", "--set", "admin.address=127.0.0.1:0"]);
        Running(command.stdout(Stdio::null()).stderr(stderr).spawn().unwrap())
    }

    async fn assert_start_fails(&self, address: &str, message: &str) {
        let address = format!("admin.address={address}");
        let (code, _, said) = self.place.run(&["run", "--set", &address]).await;
        assert!(code == 1 && said.contains(message), "{said}");
    }

    /// Waits until a running instance has deleted the orphan of this name.
    async fn deletes(&self, name: &str) {
        self.hub.put(route(name, "gone"));
        let is_gone = async || !self.routes().await.iter().any(|route| route == name);
        until(&format!("{name} is deleted"), is_gone).await;
    }
}

/// The log of the running instance is `live.jsonl`, the one before it `live.jsonl.1`.
fn log(number: usize) -> String {
    if number == 0 { "live.jsonl".to_owned() } else { format!("live.jsonl.{number}") }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_crash_looping_starts_lose_nothing() {
    let site = site().await;
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    let mut names = BTreeSet::new();
    let mut first = String::new();
    for start in 0..100 {
        if start % 5 > 0 {
            site.assert_start_fails(&taken, "cannot listen on").await;
            continue;
        }
        let name = format!("orphan-{start}");
        let running = site.start(Stdio::null());
        site.deletes(&name).await;
        names.insert(name);
        if start % 10 == 0 {
            let message = "another process writes this event log";
            site.assert_start_fails("127.0.0.1:0", message).await;
        }
        // With SIGKILL.
        drop(running);
        if start == 0 {
            first = site.place.read(&log(0));
            assert!(first.len() > 1_000);
        }
    }

    // One log for each start that saw anything; the first is the oldest, to the byte.
    let killed = names.len();
    assert_eq!(killed, 20);
    assert!(!site.place.path(&log(killed)).exists());
    assert!(site.place.read(&log(killed - 1)) == first, "the first log changed");
    for number in 0..killed {
        let (code, out, _) = site.place.run(&["replay", "--mode", "verify", &log(number)]).await;
        assert_eq!(code, 0, "{out}");
    }

    let (code, out, err) = site.orphans(&["restore", "live.jsonl"]).await;
    assert_eq!(code, 0, "{err}");
    let mut restored = BTreeSet::new();
    for manifest in serde_saphyr::from_multiple::<Value>(&out).unwrap() {
        let (code, created) = site.hub.send("POST", &routes(), &manifest).await;
        assert_eq!(code, 201, "{created}");
        restored.insert(created["metadata"]["name"].as_str().unwrap().to_owned());
    }
    assert_eq!(restored, names);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_whose_log_lines_nobody_reads_works_and_stops() {
    let site = site().await;
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let running = site.start(writer);
    site.deletes("orphan").await;
    let (code, ..) = tokio::time::timeout(SOON, running.stop()).await.expect("it still runs");
    assert_eq!(code, 0);
}
