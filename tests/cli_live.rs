//! The command lines of `throughline config` and `throughline run`.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

/// Creates a file for these tests.
fn file(name: &str, content: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cli-live");
    fs::create_dir_all(&folder).unwrap();
    let path = folder.join(name);
    fs::write(&path, content).unwrap();
    path
}

fn kubeconfig(name: &str) -> String {
    let context = json!({ "name": "one", "context": { "cluster": "c", "user": "u" } });
    let content = json!({ "contexts": [context], "current-context": "one" });
    file(name, &content.to_string()).display().to_string()
}

/// Runs the program without a kubeconfig and outside a pod; returns standard output and standard error.
#[track_caller]
fn run(args: &[&str], env: &[(&str, &str)], code: i32) -> (String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_throughline"));
    for name in ["RUST_LOG", "THROUGHLINE_CONFIG", "KUBERNETES_SERVICE_HOST", "NO_COLOR"] {
        command.env_remove(name);
    }
    command.env("KUBECONFIG", "/nowhere/kubeconfig").envs(env.iter().copied());
    let output = command.args(args).stdin(Stdio::null()).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    let (out, err) = (text(output.stdout), text(output.stderr));
    assert_eq!(output.status.code(), Some(code), "stdout: {out}\nstderr: {err}");
    (out, err)
}

#[track_caller]
fn printed(args: &[&str]) -> Value {
    let kube = kubeconfig("printed.kubeconfig");
    let args = [&["config", "--output", "json", "--kubeconfig", &kube], args].concat();
    let (out, err) = run(&args, &[], 0);
    assert_eq!(err, "");
    serde_json::from_str(&out).unwrap()
}

#[test]
fn the_printed_configuration_loads_again_to_the_same() {
    let kube = kubeconfig("again.kubeconfig");
    let flags = ["config", "--kubeconfig", &kube, "--platform-key", "off", "--window", "7s"];
    let (yaml, err) = run(&flags, &[], 0);
    assert_eq!(err, "");
    let again = file("again.yaml", &yaml);
    let (second, _) = run(&["config", "--config", again.to_str().unwrap()], &[], 0);
    assert_eq!(second, yaml);
    let (json, _) =
        run(&["config", "--output", "json"], &[("THROUGHLINE_CONFIG", again.to_str().unwrap())], 0);
    let again = file("again.json", &json);
    let (third, _) = run(&["config", "--config", again.to_str().unwrap()], &[], 0);
    assert_eq!(third, yaml, "JSON is valid YAML");
    let config: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(config["touch"]["platformKey"], "off");
    assert_eq!(config["touch"]["windowMs"], 7000);
}

#[test]
fn every_flag_reaches_its_key() {
    let log = file("flags.jsonl", "").display().to_string();
    let cases: [(&[&str], &str, Value); 14] = [
        (&["--dry-run"], "/dryRun", json!(true)),
        (&["--event-log", &log], "/eventLog/file", json!(log)),
        (&["--admin-address", "[::1]:9090"], "/admin/address", json!("[::1]:9090")),
        (&["--log-level", "throughline=debug"], "/log/level", json!("throughline=debug")),
        (&["--log-format", "json"], "/log/format", json!("json")),
        (&["--scope", "gateway-class"], "/touch/scope", json!("gatewayClass")),
        (&["--platform-key", "write"], "/touch/platformKey", json!("write")),
        (&["--orphans", "delete", "--event-log", "events.jsonl"], "/orphans/mode", json!("delete")),
        (&["--window", "2s"], "/touch/windowMs", json!(2000)),
        (&["--set", "watch.pageSize=50"], "/watch/pageSize", json!(50)),
        (&["--set", "admin.state=off"], "/admin/state", json!("off")),
        (
            &["--set", "touch.edgeScopes.local=gatewayClass"],
            "/touch/edgeScopes/local",
            json!("gatewayClass"),
        ),
        (&["--set", "clusters[0].name=7"], "/clusters/0/name", json!("7")),
        (&["--context", "one"], "/clusters/0/context", json!("one")),
    ];
    let defaults = printed(&[]);
    for (flags, place, value) in cases {
        assert_ne!(
            defaults.pointer(place),
            Some(&value),
            "{place} already has this value by default"
        );
        assert_eq!(printed(flags).pointer(place), Some(&value), "{flags:?}");
    }
    let kube = kubeconfig("flag.kubeconfig");
    let one = format!("up/a=upstream,kubeconfig={kube},context=one");
    let (out, err) = run(
        &["config", "--output", "json", "--cluster", &one, "--cluster", "hub=hub+edge,in-cluster"],
        &[("KUBERNETES_SERVICE_HOST", "10.0.0.1")],
        0,
    );
    assert_eq!(err, "");
    let config: Value = serde_json::from_str(&out).unwrap();
    let expected = json!([
        { "name": "up/a", "roles": ["upstream"], "kubeconfig": kube, "context": "one" },
        { "name": "hub", "roles": ["hub", "edge"], "inCluster": true },
    ]);
    assert_eq!(config["clusters"], expected);
}

#[test]
fn a_file_is_checked_without_its_kubeconfigs_and_what_was_not_seen_is_said() {
    let text = "clusters: [{name: a, roles: [hub, edge], kubeconfig: /nowhere/k, context: a}]\n";
    let offline = file("offline.yaml", text);
    let offline = offline.to_str().unwrap();
    run(&["config", "--config", offline], &[], 2);
    let (out, err) = run(&["config", "--output", "json", "--offline", offline], &[], 0);
    let config: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(config["clusters"][0]["context"], "a");
    assert_eq!(
        err,
        "not checked: /nowhere/k: whether it can be read and has the context a\n\
         warning: FILE: clusters: there is a hub but no cluster with the role upstream: nothing is \
         mirrored\n"
            .replace("FILE", offline)
    );
    let wrong = file("offline-wrong.yaml", "clusters: [{name: a, roles: [hob]}]");
    let (_, err) = run(&["config", "--offline", wrong.to_str().unwrap()], &[], 2);
    assert!(err.contains("found \"hob\""), "{err}");
}

#[test]
fn config_and_run_print_all_errors_and_exit_with_2() {
    let bad = file("bad.yaml", "touch: {window: 5}\nwatch: {queue: 0}\n");
    let bad = bad.to_str().unwrap();
    let (out, config) = run(&["config", "--config", bad, "--log-level", "loud"], &[], 2);
    assert_eq!(out, "", "nothing is printed");
    let lines: Vec<_> = config.lines().collect();
    assert_eq!(lines.len(), 4, "{config}");
    assert_eq!(lines[0], "throughline: 3 errors in the configuration:");
    let starts = [
        format!("  {bad}: touch.window: unknown key (did you mean windowMs?)"),
        format!("  {bad}: watch.queue: found 0; accepted: 1 or more"),
        "  --log-level loud: log.level: found \"loud\"; accepted: off, error,".to_owned(),
    ];
    for (line, start) in lines[1..].iter().zip(starts) {
        assert!(line.starts_with(&start), "{line}");
    }
    let (_, err) = run(&["run", "--config", bad, "--log-level", "loud"], &[], 2);
    assert_eq!(err, config);
}

#[test]
fn warnings_go_to_standard_error_and_do_not_fail() {
    let (out, err) = run(&["config"], &[], 0);
    assert!(out.starts_with("clusters:\n- name: local\n"), "{out}");
    let expected = "warning: defaults: clusters[0]: no connection: kubectl's kubeconfig cannot be \
                    read (No such file or directory (os error 2)), and this is not a pod; set \
                    kubeconfig and context (--kubeconfig, --context)\n";
    assert_eq!(err, expected);
    let (_, err) = run(&["config"], &[("KUBERNETES_SERVICE_HOST", "10.0.0.1")], 0);
    assert_eq!(err, "", "in a pod, its ServiceAccount is used");
}

#[test]
fn an_invalid_rust_log_is_an_error() {
    let (_, err) = run(&["run"], &[("RUST_LOG", "throughline=loud")], 2);
    assert!(err.starts_with("throughline: RUST_LOG=throughline=loud: "), "{err}");
}

#[test]
fn an_unknown_value_lists_the_accepted_ones() {
    let (_, err) = run(&["run", "--log-format", "xml"], &[], 2);
    assert!(err.contains("xml") && err.contains("auto, text, json"), "{err}");
    let (_, err) = run(&["config", "--output", "toml"], &[], 2);
    assert!(err.contains("toml") && err.contains("yaml, json"), "{err}");
}
