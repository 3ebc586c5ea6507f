//! `throughline record` and `throughline check` on simulated API servers: their requests, output and
//! exit codes. What needs RBAC and real API servers is in tests/e2e.

use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use throughline_sim::apiserver::{ApiVerb, ServerMode, SimApiServerSettings};

use crate::constants;
use crate::sim_apiserver::{TestServer, serve};

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
        constants::write(&folder.join("live.yaml"), &config);
        std::fs::write(folder.join("live.jsonl"), "the live run's").unwrap();
        served.put(connector("a", "offline"));
        Self { served, folder }
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_throughline"));
        command.args(args).current_dir(&self.folder);
        constants::give(&mut command, &self.folder.join("live.yaml"));
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
    let printed: Vec<_> = err.lines().collect();
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

/// The Connector of shop/a as an edge has it, offline; its HTTPProxy and its Gateway.
fn edge_objects() -> [Value; 3] {
    let labels = json!({ "meta.datumapis.com/upstream-cluster-name": "cluster-one",
        "meta.datumapis.com/upstream-namespace": "shop", "meta.datumapis.com/upstream-name": "a" });
    let mut copy = connector("a", "offline");
    copy["metadata"] = json!({ "namespace": "ns-1", "name": "a", "labels": labels });
    let proxy = json!({ "apiVersion": "networking.datumapis.com/v1alpha", "kind": "HTTPProxy",
        "metadata": { "namespace": "ns-1", "name": "app" },
        "spec": { "rules": [{ "backends": [{ "connector": { "name": "a" } }] }] } });
    let gateway = json!({ "apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway",
        "metadata": { "namespace": "ns-1", "name": "app" }, "spec": { "gatewayClassName": "eg" } });
    [copy, proxy, gateway]
}

/// An outage that is not over lasted until the end of the recording, not until its last change. And a
/// connector that two tiers have is one connector.
#[tokio::test(flavor = "multi_thread")]
async fn a_recording_of_a_broken_state_counts_the_outage_to_its_end() {
    const BROKEN: Duration = Duration::from_millis(1_500);
    let place = Place::new().await;
    for object in edge_objects() {
        place.served.put(object);
    }
    let roles = "clusters[0].roles=[upstream, hub, edge]";
    let child = place.start(&["record", "broken.jsonl", "--set", roles]);
    place.until("broken.jsonl", "list_finished", 4).await;
    place.served.put(
        json!({"apiVersion": "networking.datumapis.com/v1alpha1", "kind": "Connector",
        "metadata": {"namespace": "shop", "name": "a"},
        "status": {"conditions": [{"type": "Ready", "status": "True"}],
            "connectionDetails": {"type": "PublicKey", "publicKey": {"id": "node-1"}}}}),
    );
    place.until("broken.jsonl", "applied", 1).await;
    tokio::time::sleep(BROKEN).await;
    let (code, _, err) = stop(child).await;
    assert_eq!(code, 0, "{err}");
    assert!(err.contains(" events, 1 connector, "), "{err}");
    let lines = place.lines("broken.jsonl");
    let ends: Vec<_> = lines.iter().filter(|line| line["event"] == "recording_ended").collect();
    assert!(ends.len() == 1 && lines.last() == Some(ends[0]), "{lines:#?}");

    let (code, out, err) = place.run(&["replay", "--output", "json", "broken.jsonl"]).await;
    let replay: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(code, 0, "{err}");
    let [outage] = &replay["outages"]["recorded"].as_array().unwrap()[..] else {
        panic!("{:#}", replay["outages"])
    };
    assert_eq!((&outage["kind"], &outage["until_ms"]), (&json!("offline"), &Value::Null));
    let ms = |value: &Value| Duration::from_millis(value.as_u64().unwrap());
    let lasted = ms(&replay["to_ms"]).saturating_sub(ms(&outage["from_ms"]));
    assert!(lasted >= BROKEN, "{lasted:?}");
    assert_eq!(replay["to_ms"], ends[0]["at_ms"]);

    // A name that no connector has, and one that a connector has in another namespace.
    for (name, expected) in [
        (
            "shop/b",
            "broken.jsonl: no connector is called shop/b, upstream or at the hub; did you mean",
        ),
        ("stop/a", "no connector is called stop/a, upstream or at the hub; did you mean ns-1/a?"),
        (
            "x/y-and-z",
            "no connector is called x/y-and-z, upstream or at the hub; it has ns-1/a, shop/a",
        ),
    ] {
        let (code, out, err) = place.run(&["replay", "--connector", name, "broken.jsonl"]).await;
        assert_eq!((code, &*out), (2, ""), "{err}");
        assert!(err.contains(expected), "{err}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_without_events_is_no_input() {
    let place = Place::new().await;
    let header =
        r#"{"log":"throughline","version":1,"clusters":[{"name":"up","roles":["upstream"]}]}"#;
    for (text, expected) in [
        ("", "the log is empty; its first line must be a header"),
        (header, "empty.jsonl: the log holds no events, so there is nothing to replay"),
    ] {
        std::fs::write(place.folder.join("empty.jsonl"), text).unwrap();
        let (code, out, err) = place.run(&["replay", "empty.jsonl"]).await;
        assert_eq!((code, &*out), (2, ""), "{err}");
        assert!(err.contains(expected), "{err}");
    }
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
    assert_eq!((code, &*err), (1, ""), "{out}");
    let failed: Vec<_> = out.lines().filter(|line| line.starts_with('×')).collect();
    let ineffective = "× trigger one: Touches have no effect at one: no Envoy Gateway is there.";
    assert_eq!(failed, [ineffective, "× 1 check failed, no warnings"], "{out}");
    assert!(out.contains("√ reachable one: "), "{out}");
    assert!(out.contains("- permissions one: not visible: SelfSubjectAccessReview: 404"), "{out}");
    assert!(out.contains("√ lease: not needed: no hub is configured"), "{out}");
    assert_eq!(place.served.handle.writes(), 0);

    place.served.handle.set_mode(ServerMode::Down);
    let (code, out, _) = place.run(&["check", "--output", "json"]).await;
    assert_eq!(code, 1);
    let report: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((&report["well"], &report["failed"]), (&json!(false), &json!(1)));
    let failed: Vec<_> =
        report["findings"].as_array().unwrap().iter().filter(|f| f["level"] == "failed").collect();
    assert_eq!(failed[0]["check"], "reachable");
    assert_eq!(failed[0]["cause"], "cluster_unavailable");

    let (code, out, err) = place.run(&["check", "--set", "touch.window=1"]).await;
    assert!(code == 2 && out.is_empty() && err.contains("unknown field"), "{err}");
}
