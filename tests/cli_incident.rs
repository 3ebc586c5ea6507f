//! The commands for an incident, from the command line: `version`, `completion`, `log export` and `events`;
//! the output formats.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "support/incident.rs"]
mod incident;
#[path = "support/sim_apiserver/mod.rs"]
mod sim_apiserver;

use std::process::Output;
use std::time::{Duration, Instant};

use incident::{Fleet, namespace, post_event, program, run};
use serde_json::{Value, json};
use throughline::clock::wall_clock_now;
use throughline::core::data::ids::Kind;
use throughline::sim::apiserver::{Fault, Resource};

const INCIDENT: &str = "fixtures/incident-503.jsonl";

fn bytes(args: &[&str]) -> (i32, Vec<u8>, String) {
    let Output { status, stdout, stderr } = program().args(args).output().unwrap();
    (status.code().unwrap(), stdout, String::from_utf8(stderr).unwrap())
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
        assert!(code == 0 && out.contains("completion") && out.contains("namespace"), "{shell}");
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
