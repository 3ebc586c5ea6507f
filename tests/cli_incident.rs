//! The commands for an incident, from the command line: `version`, `completion` and `log export`;
//! the output formats.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "support/incident.rs"]
mod incident;
#[path = "support/sim_apiserver/mod.rs"]
mod sim_apiserver;

use std::process::Output;
use std::time::{Duration, Instant};

use incident::{Fleet, program, run};
use serde_json::{Value, json};
use throughline::clock::wall_clock_now;

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
