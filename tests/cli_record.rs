//! `throughline record` and `throughline check` on simulated API servers: their requests, output and
//! exit codes. What needs RBAC and real API servers is in tests/e2e.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "support/sim_apiserver/mod.rs"]
mod sim_apiserver;

use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use sim_apiserver::{TestServer, serve};
use throughline::sim::apiserver::{ApiVerb, ServerMode, SimApiServerSettings};

/// One simulated cluster, upstream and edge, and a folder with a configuration.
struct Place {
    served: TestServer,
    folder: PathBuf,
}

impl Place {
    async fn new() -> Self {
        static PLACES: AtomicUsize = AtomicUsize::new(0);
        let served = serve(SimApiServerSettings::default()).await;
        let number = PLACES.fetch_add(1, Ordering::Relaxed);
        let folder = format!("throughline-record-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(folder);
        std::fs::create_dir_all(&folder).unwrap();
        let cluster = json!({ "name": "one", "roles": ["upstream", "edge"],
            "kubeconfig": served.kubeconfig(&folder) });
        let config = json!({ "clusters": [cluster], "eventLog": { "file": folder.join("live.jsonl") },
            "watch": { "backoffMaxMs": 300, "timeoutMs": 1000 } });
        std::fs::write(folder.join("live.yaml"), config.to_string()).unwrap();
        std::fs::write(folder.join("live.jsonl"), "the live run's").unwrap();
        served.put(connector("a", "offline"));
        Self { served, folder }
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_throughline"));
        command.args(args).current_dir(&self.folder);
        command.env_remove("RUST_LOG").env_remove("KUBECONFIG");
        command.env("THROUGHLINE_CONFIG", "live.yaml");
        command
    }

    async fn run(&self, args: &[&str]) -> (i32, String, String) {
        let mut command = self.command(args);
        ended(tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap())
    }

    fn start(&self, args: &[&str]) -> Child {
        self.command(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    fn lines(&self, file: &str) -> Vec<Value> {
        let text = std::fs::read_to_string(self.folder.join(file)).unwrap_or_default();
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    /// Waits until the file has `count` such events.
    async fn until(&self, file: &str, event: &str, count: usize) {
        let until = Instant::now() + Duration::from_secs(60);
        loop {
            let lines = self.lines(file);
            if lines.iter().filter(|line| line["event"] == event).count() >= count {
                return;
            }
            assert!(Instant::now() < until, "no {count} {event} in {lines:#?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn connector(name: &str, says: &str) -> Value {
    json!({"apiVersion": "networking.datumapis.com/v1alpha1", "kind": "Connector",
        "metadata": {"namespace": "shop", "name": name},
        "status": {"conditions": [{"type": "Ready", "status": "False", "reason": says}]}})
}

fn ended(output: Output) -> (i32, String, String) {
    let Output { status, stdout, stderr } = output;
    let [out, err] = [stdout, stderr].map(|bytes| String::from_utf8(bytes).unwrap());
    (status.code().unwrap(), out, err)
}

async fn stop(child: Child) -> (i32, String, String) {
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    kill_process(pid, Signal::TERM).unwrap();
    ended(tokio::task::spawn_blocking(move || child.wait_with_output().unwrap()).await.unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_recording_only_lists_and_watches_and_prints_a_summary() {
    let place = Place::new().await;
    let child = place.start(&["record", "night.jsonl"]);
    place.until("night.jsonl", "list_finished", 4).await;
    place.served.put(connector("a", "again"));
    place.served.put(connector("b", "new"));
    place.until("night.jsonl", "applied", 2).await;
    let (code, out, err) = stop(child).await;
    assert_eq!((code, &*out), (0, ""), "{err}");
    // The first line is a warning about the configuration.
    let printed: Vec<_> = err.lines().skip(1).collect();
    assert_eq!(printed.len(), 3, "no counter line in a pipe: {err}");
    assert!(printed[0].starts_with("recording 1 cluster to night.jsonl; addresses"), "{err}");
    let events = place.lines("night.jsonl").len() - 1;
    let (start, end) = (format!("recorded {events} events, 2 connectors, "), ", 4 watches live, ");
    assert!(printed[1].starts_with(&start) && printed[1].contains(end), "{err}");
    assert_eq!(printed[2], "replay it: throughline replay night.jsonl");

    let requests = place.served.handle.requests();
    assert_eq!(requests.len(), 8, "{requests:?}");
    assert!(requests.keys().all(|(verb, _)| matches!(verb, ApiVerb::List | ApiVerb::Watch)));
    assert_eq!(place.served.handle.writes(), 0);

    // It replays as a what-if with the configuration's settings.
    let (code, out, err) = place.run(&["replay", "--output", "json", "night.jsonl"]).await;
    assert_eq!((code, &*err), (0, ""));
    let replay: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(replay["mode"], "what-if");
    let header = &place.lines("night.jsonl")[0];
    assert_eq!(header["settings"]["orphans"]["mode"], "report");

    // Its status says that no instance was acting.
    let (_, out, err) = place.run(&["status", "--log", "night.jsonl"]).await;
    assert!(out.contains("from a recording"), "{out}{err}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_recording_overwrites_nothing_not_even_the_live_log() {
    let place = Place::new().await;
    std::fs::write(place.folder.join("old.jsonl"), "evidence").unwrap();
    std::fs::write(place.folder.join("new.jsonl.1"), "evidence").unwrap();
    for (file, taken) in [("old.jsonl", "old.jsonl"), ("new.jsonl", "new.jsonl.1")] {
        let (code, _, err) = place.run(&["record", file]).await;
        assert_eq!(code, 2, "{err}");
        assert!(err.contains(&format!("{taken} exists")), "{err}");
        assert_eq!(std::fs::read_to_string(place.folder.join(taken)).unwrap(), "evidence");
    }
    let (code, _, err) = place.run(&["record", "nowhere/new.jsonl"]).await;
    assert!(code == 2 && err.contains("nowhere/new.jsonl: cannot create the event log"), "{err}");
    let (code, _, err) = place.run(&["record", "a.jsonl", "--event-log", "b.jsonl"]).await;
    assert!(code == 2 && err.contains("cannot be used with"), "{err}");

    // Without a file name it creates one of its own; `--for` ends it.
    let (code, _, err) = place.run(&["record", "--for", "1500ms"]).await;
    assert!(code < 2 && err.contains("; for 1.50 s, or until SIGINT"), "{err}");
    assert!(err.contains("\nrecorded "), "{err}");
    let files = std::fs::read_dir(&place.folder).unwrap().map(|e| e.unwrap().file_name());
    let files: Vec<_> = files.map(|name| name.into_string().unwrap()).collect();
    let own = |name: &&String| name.starts_with("throughline-record-") && name.ends_with(".jsonl");
    assert_eq!(files.iter().filter(own).count(), 1, "{files:?}");
    let live = std::fs::read_to_string(place.folder.join("live.jsonl")).unwrap();
    assert_eq!(live, "the live run's");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_incomplete_recording_says_so() {
    let place = Place::new().await;
    place.served.handle.set_mode(ServerMode::Down);
    let child = place.start(&["record", "night.jsonl"]);
    place.until("night.jsonl", "watch_lost", 4).await;
    let (code, _, err) = stop(child).await;
    assert_eq!(code, 1, "{err}");
    assert!(err.contains("0 of 4 watches live (lost 4 times)"), "{err}");
    assert!(err.contains("incomplete: Gateway in one was not being watched at the end"), "{err}");
    assert!(err.contains("watch lost; retrying"), "{err}");

    // The API server returns before the end: nothing is missing.
    let child = place.start(&["record", "day.jsonl"]);
    place.until("day.jsonl", "watch_lost", 4).await;
    place.served.handle.set_mode(ServerMode::Serving);
    place.until("day.jsonl", "list_finished", 4).await;
    let (code, _, err) = stop(child).await;
    assert_eq!(code, 0, "{err}");
}

#[tokio::test(flavor = "multi_thread")]
async fn checks_exit_code_says_what_it_found() {
    let place = Place::new().await;
    // The simulated server has no RBAC API: neither passed nor failed.
    let (code, out, err) = place.run(&["check"]).await;
    assert_eq!((code, &*err), (0, ""), "{out}");
    assert!(out.contains("√ answered in "), "{out}");
    assert!(
        out.contains(
            "- not known whether we may list and watch connectors.networking.datumapis.com"
        ),
        "{out}"
    );
    assert!(out.contains("√ not needed: no hub is configured"), "{out}");
    assert_eq!(place.served.handle.writes(), 0);

    place.served.handle.set_mode(ServerMode::Down);
    let (code, out, err) = place.run(&["check", "--wait", "3s", "--output", "json"]).await;
    assert_eq!(code, 1);
    let report: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((&report["well"], &report["failed"]), (&json!(false), &json!(1)));
    let failed: Vec<_> =
        report["findings"].as_array().unwrap().iter().filter(|f| f["level"] == "failed").collect();
    assert_eq!(failed[0]["check"], "reachable");
    let remedy = failed[0]["remedy"].as_str().unwrap();
    assert!(remedy.contains("server address in the kubeconfig is right"), "{remedy}");
    let retried = " s: cluster one (upstream and edge): cannot be reached\n";
    assert!(err.starts_with("trying again for up to ") && err.contains(retried), "{err}");

    let (code, out, err) = place.run(&["check", "--set", "touch.window=1"]).await;
    assert!(code == 2 && out.is_empty() && err.contains("unknown key"), "{err}");
    let (code, _, err) = place.run(&["check", "--wait", "soon"]).await;
    assert!(code == 2 && err.contains("a number and a unit"), "{err}");
}
