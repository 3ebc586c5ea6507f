//! The commands for an incident, from the command line: `version`, `completion`, `log export`, `events`
//! and `bug-report`; the output formats.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "support/sim_apiserver/mod.rs"]
mod sim_apiserver;

use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use sim_apiserver::{TestServer, serve_cluster};
use throughline::clock::wall_clock_now;
use throughline::core::data::ids::{Kind, Role};
use throughline::event_log::ClusterSpec;
use throughline::sim::SimClusters;
use throughline::sim::apiserver::{Fault, Resource};

const UID: &str = "6bcb0b35-0000-4000-8000-000000000001";
const INCIDENT: &str = "fixtures/incident-503.jsonl";
const PLATFORM: &str = "networking.datumapis.com";

/// None of these may be in a report.
const SECRETS: [&str; 6] = [
    "203.0.113.77",
    "relay.customer.example:4433",
    "https://hook.internal.example/validate?key=1",
    "eyJhbGciOiJSUzI1NiIsImtpZCI6InBsYW50ZWQifQ",
    "planted-kubeconfig-token",
    "0f1e2d3c4b5a69788796a5b4c3d2e1f00f1e2d3c4b5a69788796a5b4c3d2e1f0",
];

fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_throughline"));
    for name in ["RUST_LOG", "KUBECONFIG", "THROUGHLINE_CONFIG", "NO_COLOR", "COLUMNS"] {
        command.env_remove(name);
    }
    command.stdin(Stdio::null());
    command
}

fn bytes(args: &[&str]) -> (i32, Vec<u8>, String) {
    let Output { status, stdout, stderr } = program().args(args).output().unwrap();
    (status.code().unwrap(), stdout, String::from_utf8(stderr).unwrap())
}

fn run(args: &[&str]) -> (i32, String, String) {
    let (code, out, err) = bytes(args);
    (code, String::from_utf8(out).unwrap(), err)
}

/// An upstream cluster, a hub and an edge, and a folder with a configuration.
struct Fleet {
    up: TestServer,
    hub: TestServer,
    edge: TestServer,
    folder: PathBuf,
}

fn connector(namespace: &str, labels: &Value, status: &Value) -> Value {
    json!({"apiVersion": format!("{PLATFORM}/v1alpha1"), "kind": "Connector",
        "metadata": {"namespace": namespace, "name": "lab", "labels": labels,
            "uid": format!("uid-{namespace}")},
        "status": status})
}

fn status(online: bool) -> Value {
    let ready = if online { "True" } else { "False" };
    json!({"conditions": [{"type": "Ready", "status": ready, "reason": "Because",
            "message": format!("dial {}: Bearer {}", SECRETS[0], SECRETS[3])}],
        "connectionDetails": {"type": "PublicKey",
            "publicKey": {"id": SECRETS[5], "addresses": [{"address": SECRETS[0]}],
                "homeRelay": SECRETS[1]}}})
}

impl Fleet {
    async fn new() -> Self {
        static FOLDERS: AtomicUsize = AtomicUsize::new(0);
        let spec = |name: &str, role| ClusterSpec { name: name.into(), roles: vec![role] };
        let specs = [spec("up", Role::Upstream), spec("hub", Role::Hub), spec("edge", Role::Edge)];
        let mut clusters = SimClusters::new(&specs, 0);
        clusters.advance(wall_clock_now());
        let clusters = Arc::new(Mutex::new(clusters));
        let up = serve_cluster(&clusters, "up".into()).await;
        let hub = serve_cluster(&clusters, "hub".into()).await;
        let edge = serve_cluster(&clusters, "edge".into()).await;
        let number = FOLDERS.fetch_add(1, Ordering::Relaxed);
        let folder = format!("throughline-incident-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(folder);
        std::fs::create_dir_all(&folder).unwrap();
        let cluster = |served: &TestServer, role: &str| {
            let file = served.kubeconfig(&folder);
            let text = std::fs::read_to_string(&file).unwrap();
            let mut kubeconfig: Value = serde_json::from_str(&text).unwrap();
            kubeconfig["users"][0]["user"]["token"] = SECRETS[4].into();
            std::fs::write(&file, kubeconfig.to_string()).unwrap();
            json!({"name": served.cluster, "roles": [role], "kubeconfig": file})
        };
        let clusters = [cluster(&up, "upstream"), cluster(&hub, "hub"), cluster(&edge, "edge")];
        let config = json!({"clusters": clusters, "leaderElection": {"enabled": false},
            "stall": {"mirroredMs": 1000}, "touch": {"confirmAfterMs": []},
            "eventLog": {"file": folder.join("events.jsonl"), "redact": false},
            "admin": {"address": "127.0.0.1:0"}, "log": {"format": "json"}});
        std::fs::write(folder.join("config.yaml"), config.to_string()).unwrap();
        up.put(json!({"apiVersion": "v1", "kind": "Namespace",
            "metadata": {"name": "default", "uid": UID}}));
        up.put(connector("default", &json!({}), &status(true)));
        let labels = json!({"meta.datumapis.com/upstream-cluster-name": "cluster-up",
            "meta.datumapis.com/upstream-name": "lab",
            "meta.datumapis.com/upstream-namespace": "default"});
        hub.put(connector(&namespace(), &labels, &Value::Null));
        edge.put(connector(&namespace(), &labels, &Value::Null));
        edge.put(json!({"apiVersion": format!("{PLATFORM}/v1alpha"), "kind": "HTTPProxy",
            "metadata": {"namespace": namespace(), "name": "app", "uid": "p"},
            "spec": {"rules": [{"backends": [{"connector": {"name": "lab"}}]}]}}));
        edge.put(json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway",
            "metadata": {"namespace": namespace(), "name": "app", "uid": "g"},
            "spec": {"gatewayClassName": "edge"}}));
        Self { up, hub, edge, folder }
    }

    fn file(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }

    /// Runs the program on another thread than those that serve the clusters.
    async fn run(&self, args: &[&str]) -> (i32, String, String) {
        let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
        let asked = tokio::task::spawn_blocking(move || {
            self::run(&args.iter().map(String::as_str).collect::<Vec<_>>())
        });
        asked.await.unwrap()
    }

    /// Starts an instance; returns it with the URL of its admin port.
    async fn start_instance(&self) -> (Running, String) {
        let mut command = program();
        command.args(["run", "--config", &self.file("config.yaml")]).stderr(Stdio::piped());
        let mut running = Running(command.spawn().unwrap());
        let lines = BufReader::new(running.0.stderr.take().unwrap()).lines();
        let found = tokio::task::spawn_blocking(move || {
            let mut lines =
                lines.map(|line| serde_json::from_str::<Value>(&line.unwrap()).unwrap());
            let found = lines.find(|line| line["message"] == "admin port listening").unwrap();
            std::thread::spawn(move || lines.for_each(drop));
            found["address"].as_str().unwrap().to_owned()
        });
        (running, format!("http://{}", found.await.unwrap()))
    }
}

fn namespace() -> String {
    format!("ns-{UID}")
}

impl Drop for Fleet {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Creates an Event at `second` of a minute.
async fn post_event(at: &TestServer, about: (&str, &str, &str), second: u32, message: &str) {
    let (kind, namespace, name) = about;
    let time = format!("2026-11-21T09:20:{second:02}Z");
    let event = json!({"apiVersion": "v1", "kind": "Event",
        "metadata": {"name": format!("e-{second}"), "namespace": namespace},
        "involvedObject": {"kind": kind, "namespace": namespace, "name": name},
        "type": "Warning", "reason": format!("Reason{second}"), "message": message,
        "reportingComponent": "tester", "count": 1,
        "firstTimestamp": time, "lastTimestamp": time});
    let path = format!("/api/v1/namespaces/{namespace}/events");
    let (code, body) = at.send("POST", &path, &event).await;
    assert_eq!(code, 201, "{body}");
}

#[test]
fn the_version_names_the_commit_of_the_build() {
    let (code, out, _) = run(&["version"]);
    let version = env!("CARGO_PKG_VERSION");
    let commit = option_env!("THROUGHLINE_COMMIT").unwrap_or("unknown");
    assert_eq!((code, out), (0, format!("throughline {version} (commit {commit})\n")));
    let (_, out, _) = run(&["version", "-o", "json"]);
    let json: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(json["client"], json!({"version": version, "commit": commit}));
    assert_eq!(json["instance"], Value::Null);
    // Its own version is printed, and the missing answer is an error.
    let (code, out, err) = run(&["version", "--state", "http://127.0.0.1:1"]);
    assert!(code == 2 && out.starts_with("throughline "), "{code} {out}");
    assert!(err.contains("127.0.0.1:1"), "{err}");
}

#[test]
fn each_shell_gets_a_script_with_the_commands() {
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let (code, out, _) = run(&["completion", shell]);
        assert!(code == 0 && out.contains("bug-report") && out.contains("namespace"), "{shell}");
    }
    let (code, _, err) = run(&["completion", "tcsh"]);
    assert!(code == 2 && err.contains("bash"), "{err}");
}

#[test]
fn yaml_says_what_json_says_and_wide_text_is_not_wrapped() {
    for args in [
        &["status", "--log", INCIDENT][..],
        &["trace", "connector", "default/home-lab", "--log", INCIDENT],
    ] {
        let with = |output| run(&[args, &["-o", output]].concat());
        let ((code, json, _), (yaml_code, yaml, _)) = (with("json"), with("yaml"));
        assert_eq!(code, yaml_code);
        let json: Value = serde_json::from_str(&json).unwrap();
        let yaml: Value = serde_saphyr::from_str(&yaml).unwrap();
        assert_eq!(yaml, json);
    }
    let trace = ["trace", "connector", "default/home-lab", "--log", INCIDENT];
    let text = |output| run(&[&trace[..], &["-o", output]].concat()).1;
    let longest = |text: &str| text.lines().map(|line| line.chars().count()).max().unwrap();
    assert!(longest(&text("wide")) > longest(&text("text")).max(100));
    let joined = |text: String| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(joined(text("wide")), joined(text("text")));
}

#[test]
fn all_namespaces_are_what_status_shows_anyway() {
    let (_, all, _) = run(&["status", "--log", INCIDENT]);
    let (_, explicit, _) = run(&["status", "--log", INCIDENT, "-A"]);
    assert_eq!(explicit, all);
    let (code, _, err) = run(&["status", "--log", INCIDENT, "-A", "-n", "default"]);
    assert!(code == 2 && err.contains("--namespace"), "{err}");
}

#[test]
fn a_log_is_exported_from_its_file() {
    let folder = std::env::temp_dir().join(format!("throughline-export-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let file = |name: &str| folder.join(name).display().to_string();
    std::fs::copy(INCIDENT, file("live.jsonl")).unwrap();
    let (code, out, err) = bytes(&["log", "export", "--log", &file("live.jsonl")]);
    assert_eq!((code, &*err), (0, ""));
    assert_eq!(zstd::decode_all(&*out).unwrap(), std::fs::read(INCIDENT).unwrap());
    std::fs::write(folder.join("copy.jsonl.zst"), &out).unwrap();
    let trace = ["trace", "connector", "default/home-lab", "-o", "json", "--log"];
    let of_copy = run(&[&trace[..], &[&file("copy.jsonl.zst")]].concat());
    assert_eq!(of_copy, run(&[&trace[..], &[INCIDENT]].concat()));
    // By the configuration of the run, whose kubeconfigs need not be here.
    let config = json!({"clusters": [{"name": "e", "roles": ["edge"], "kubeconfig": "/nowhere/k"}],
        "eventLog": {"file": file("live.jsonl")}});
    std::fs::write(folder.join("c.yaml"), config.to_string()).unwrap();
    let (code, by_config, _) = bytes(&["log", "export", "--config", &file("c.yaml")]);
    assert_eq!((code, by_config), (0, out));
    for (args, part) in [
        (&["--log", "/nowhere/log.jsonl"][..], "/nowhere/log.jsonl"),
        (&["--state", "http://127.0.0.1:1"], "127.0.0.1:1"),
        (&["--log", "Cargo.toml"], "not a throughline event log"),
        (&[], "--log FILE"),
    ] {
        let (code, out, err) = run(&[&["log", "export"], args].concat());
        assert_eq!((code, &*out), (2, ""), "{args:?}");
        assert!(err.contains(part), "{args:?}: {err}");
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_instance_says_its_version_and_gives_its_log() {
    let fleet = Fleet::new().await;
    let (_instance, url) = fleet.start_instance().await;
    let (code, out, err) = fleet.run(&["version", "--state", &url, "-o", "json"]).await;
    assert_eq!(code, 0, "{err}");
    let said: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(said["instance"]["version"], said["client"]["version"]);
    let age = wall_clock_now().0.abs_diff(said["instance"]["sinceMs"].as_u64().unwrap());
    assert!(age < 600_000, "{said}");
    let (_, text, _) = fleet.run(&["version", "--state", &url]).await;
    assert!(text.contains("\nrunning     ") && text.contains(", since 2"), "{text}");
    // Once something is in the log.
    let end = Instant::now() + Duration::from_secs(60);
    let log = loop {
        let (program, url) = (program(), url.clone());
        let mut program = program;
        program.args(["log", "export", "--state", &url]);
        let output = tokio::task::spawn_blocking(move || program.output().unwrap()).await.unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let log = zstd::decode_all(&*output.stdout).unwrap();
        if log.windows(13).any(|part| part == b"list_finished") {
            break log;
        }
        assert!(Instant::now() < end, "nothing is logged");
    };
    let file = std::fs::read(fleet.file("events.jsonl")).unwrap();
    assert!(file.starts_with(&log), "the copy is the beginning of the log");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_events_of_all_tiers_come_in_order_and_a_missing_tier_is_named() {
    let fleet = Fleet::new().await;
    let ns = namespace();
    post_event(&fleet.hub, ("Connector", &ns, "lab"), 20, "at the hub").await;
    post_event(&fleet.up, ("Connector", "default", "lab"), 10, "upstream").await;
    post_event(&fleet.edge, ("Gateway", &ns, "app"), 40, "at the edge").await;
    post_event(&fleet.edge, ("Connector", &ns, "lab"), 30, "a \u{202e}trick").await;
    post_event(&fleet.hub, ("ResourceBinding", &ns, "lab-connector"), 35, "carried").await;
    post_event(&fleet.edge, ("Pod", &ns, "lab"), 50, "another kind").await;
    post_event(&fleet.hub, ("Connector", &ns, "other"), 51, "another name").await;
    let config = fleet.file("config.yaml");
    for name in ["default/lab", &format!("{ns}/lab")] {
        let (code, out, err) =
            fleet.run(&["events", name, "--config", &config, "-o", "json"]).await;
        assert_eq!(code, 0, "{err}");
        let found: Value = serde_json::from_str(&out).unwrap();
        let events = found["events"].as_array().unwrap();
        let order: Vec<_> = events.iter().map(|event| event["reason"].as_str().unwrap()).collect();
        assert_eq!(order, ["Reason10", "Reason20", "Reason30", "Reason35", "Reason40"]);
        let tiers: Vec<_> = events.iter().map(|event| event["tier"].as_str().unwrap()).collect();
        assert_eq!(tiers, ["upstream", "hub", "edge", "hub", "edge"]);
        assert!(!out.contains('\u{202e}'), "{out}");
    }
    let events = ["events", "default/lab", "--config", &config];
    let (_, text, _) = fleet.run(&events).await;
    let head = "2026-11-21 09:20:40.000  Warning  Reason40  Gateway ";
    assert!(text.contains(head), "{text}");
    assert!(text.contains("    at the edge (by tester)\n"), "{text}");
    assert!(text.contains("5 Events, from edge (edge), hub (hub), up (upstream); "), "{text}");
    assert!(!text.contains('\u{202e}') && !text.contains("not read"), "{text}");
    let (_, yaml, _) = fleet.run(&[&events[..], &["-o", "yaml"]].concat()).await;
    assert_eq!(
        serde_saphyr::from_str::<Value>(&yaml).unwrap()["read"].as_array().unwrap().len(),
        3
    );

    fleet.edge.handle.inject(&Fault::on_watches(Resource::Events, 403), 100);
    let (code, text, _) = fleet.run(&events).await;
    assert_eq!(code, 1, "{text}");
    assert!(text.contains("not read: edge (edge): 403 "), "{text}");
    assert!(text.contains("3 Events, from hub (hub), up (upstream); "), "{text}");
    // A hub that cannot be listed, and with it the name below.
    fleet.hub.handle.inject(&Fault::on_watches(Kind::Connector, 403), 1_000);
    fleet.edge.handle.inject(&Fault::on_watches(Kind::Connector, 403), 1_000);
    let (code, text, _) = fleet.run(&events).await;
    assert_eq!(code, 1, "{text}");
    for cluster in ["hub", "edge"] {
        assert!(text.contains(&format!("not read: {cluster} ({cluster}): ")), "{text}");
    }
    let (code, _, err) = fleet.run(&["events", "default/lob", "--config", &config]).await;
    assert!(code == 2 && err.contains("did you mean default/lab"), "{err}");
}

/// The files of an archive, the event log as text.
fn files(archive: &str) -> Vec<(String, String)> {
    let archive = flate2::read::GzDecoder::new(std::fs::File::open(archive).unwrap());
    let mut archive = tar::Archive::new(archive);
    let mut files = Vec::new();
    for entry in archive.entries().unwrap() {
        let mut entry = entry.unwrap();
        let name = entry.path().unwrap().display().to_string();
        let name = name.strip_prefix("throughline-bug-report/").unwrap().to_owned();
        let mut content = Vec::new();
        entry.read_to_end(&mut content).unwrap();
        if name.ends_with(".zst") {
            content = zstd::decode_all(&*content).unwrap();
        }
        files.push((name, String::from_utf8(content).unwrap()));
    }
    files
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bug_report_holds_everything_but_secrets() {
    let fleet = Fleet::new().await;
    let ns = namespace();
    let (instance, url) = fleet.start_instance().await;
    let end = Instant::now() + Duration::from_secs(60);
    while fleet.run(&["status", "--state", &url]).await.0 != 0
        && fleet.hub.sim.lock().unwrap().version(&fleet.hub.cluster) < 3
    {
        assert!(Instant::now() < end, "nothing is mirrored");
    }
    let planted = format!("denied by {}: token {} at {}", SECRETS[2], SECRETS[3], SECRETS[0]);
    post_event(&fleet.hub, ("Connector", &ns, "lab"), 20, &planted).await;
    post_event(&fleet.up, ("Connector", "default", "lab"), 21, SECRETS[5]).await;
    let (config, archive) = (fleet.file("config.yaml"), fleet.file("report.tar.gz"));
    let args = ["bug-report", "--config", &config, "--state", &url, "-o", &archive];
    // Nothing carries from hub to edge here, so the connector is stuck.
    while fleet.run(&["status", "--config", &config]).await.0 != 1 {
        assert!(Instant::now() < end, "nothing is stuck");
    }
    let (code, out, err) = fleet.run(&args).await;
    assert_eq!((code, &*out), (0, ""), "{err}");
    let files = files(&archive);
    let names: Vec<_> = files.iter().map(|(name, _)| name.as_str()).collect();
    let expected = [
        "README.txt",
        "version.yaml",
        "instance/status.txt",
        "instance/state.yaml",
        "instance/traces.txt",
        "instance/metrics.txt",
        "config.yaml",
        "clusters/check.txt",
        "clusters/status.txt",
        "clusters/state.yaml",
        "clusters/traces.txt",
        "clusters/events.yaml",
        "event-log.jsonl.zst",
    ];
    assert_eq!(names, expected);
    let content = |name: &str| &files.iter().find(|(n, _)| n == name).unwrap().1;
    for (name, part) in [
        ("clusters/events.yaml", "Reason20"),
        ("clusters/status.txt", "default/lab"),
        ("clusters/traces.txt", "1 connector of 1 stuck"),
        ("clusters/check.txt", "hub"),
        ("instance/metrics.txt", "throughline_build_info"),
        ("event-log.jsonl.zst", "\"listed\""),
        ("config.yaml", "leaderElection"),
    ] {
        assert!(content(name).contains(part), "{name}: {}", content(name));
    }
    // The test can see them: they are where the report reads.
    let log = std::fs::read_to_string(fleet.file("events.jsonl")).unwrap();
    assert!(log.contains(SECRETS[0]) && log.contains(SECRETS[1]) && log.contains(SECRETS[5]));
    for (name, text) in &files {
        for secret in SECRETS {
            assert!(!text.contains(secret), "{secret} is in {name}: {text}");
        }
    }
    // The log still replays to the same actions.
    let log = fleet.file("extracted.jsonl");
    std::fs::write(&log, content("event-log.jsonl.zst")).unwrap();
    let (code, replay, err_of_replay) = fleet.run(&["replay", &log, "-o", "json"]).await;
    let replay: Value = serde_json::from_str(&replay).unwrap();
    assert_eq!((code, &replay["mode"]), (0, &json!("verify")), "{err_of_replay} {replay:#}");
    for name in &names[1..] {
        assert!(err.contains(name) && content("README.txt").contains(name), "{name}: {err}");
    }
    assert!(err.contains("is sent nowhere") && err.contains("names are not"), "{err}");
    let (code, _, err) = fleet.run(&args).await;
    assert!(code == 2 && err.contains("report.tar.gz"), "an archive is not overwritten: {err}");

    // What cannot be had is said.
    drop(instance);
    fleet.hub.handle.inject(&Fault::on_watches(Resource::Events, 403), 1_000);
    let archive = fleet.file("second.tar.gz");
    let args = ["bug-report", "--config", &config, "--state", &url, "-o", &archive];
    let (code, _, err) = fleet.run(&args).await;
    assert_eq!(code, 1, "{err}");
    let files = self::files(&archive);
    for name in ["instance/status.txt", "instance/metrics.txt", "event-log.jsonl.zst"] {
        assert!(err.contains(&format!("missing: {name}: ")), "{name}: {err}");
        let part = files.iter().find(|(n, _)| *n == format!("{name}.error.txt"));
        assert!(part.is_some_and(|(_, text)| text.contains("admin port")), "{name}: {part:?}");
    }
    let events = files.iter().find(|(n, _)| n == "clusters/events.yaml.error.txt").unwrap();
    assert!(events.1.contains("hub: 403"), "{events:?}");
}
