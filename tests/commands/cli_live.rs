//! The command lines of `throughline config` and `throughline run`.

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

/// What `throughline config` prints.
#[track_caller]
fn printed(args: &[&str]) -> Value {
    let (out, err) = run(&[&["config"], args].concat(), &[], 0);
    assert_eq!(err, "");
    serde_saphyr::from_str(&out).unwrap()
}

#[test]
fn the_printed_configuration_loads_again_to_the_same() {
    let (yaml, err) = run(&["config", "--set", "touch.platformKey=off"], &[], 0);
    assert_eq!(err, "");
    let again = file("again.yaml", &yaml);
    let again = again.to_str().unwrap();
    let (second, _) = run(&["config", "--config", again], &[], 0);
    assert_eq!(second, yaml);
    let (third, _) = run(&["config"], &[("THROUGHLINE_CONFIG", again)], 0);
    assert_eq!(third, yaml);
    assert!(yaml.contains("platformKey: \"off\""), "{yaml}");
}

#[test]
fn every_flag_reaches_its_key() {
    let cases: [(&[&str], &str, Value); 6] = [
        (&["--log-level", "throughline=debug"], "/log/level", json!("throughline=debug")),
        (&["--set", "touch.scope=gatewayClass"], "/touch/scope", json!("gatewayClass")),
        (&["--set", "admin.state=off"], "/admin/state", json!("off")),
        (&["--set", "clusters=[{name: up/a, roles: [edge]}]"], "/clusters/0/name", json!("up/a")),
        (&["--kubeconfig", "/nowhere/k"], "/clusters/0/kubeconfig", json!("/nowhere/k")),
        (&["--context", "one"], "/clusters/0/context", json!("one")),
    ];
    let defaults = printed(&[]);
    for (flags, place, value) in cases {
        assert_ne!(defaults.pointer(place), Some(&value), "{place} is so by default");
        assert_eq!(printed(flags).pointer(place), Some(&value), "{flags:?}");
    }
}

#[test]
fn config_and_run_print_errors_and_exit_with_2() {
    let bad = file("bad.yaml", "leaderElection: {shards: 0}\n");
    let bad = bad.to_str().unwrap();
    let (out, config) = run(&["config", "--config", bad, "--log-level", "loud"], &[], 2);
    assert_eq!(out, "", "nothing is printed");
    let lines: Vec<_> = config.lines().collect();
    assert_eq!(lines.len(), 3, "{config}");
    assert_eq!(lines[0], format!("throughline: {bad}: 2 errors in the configuration:"));
    assert!(lines[2].starts_with("  log.level: found \"loud\"; accepted: off, error,"), "{config}");
    for command in ["run", "check", "status", "orphans", "record"] {
        let (_, err) = run(&[command, "--config", bad, "--log-level", "loud"], &[], 2);
        assert_eq!(err, config);
    }
}

#[test]
fn an_instance_of_several_shards_is_told_which_one_it_is() {
    let config = ["run", "--set", "leaderElection.shards=4"];
    for (variables, found) in [
        (&[][..], "neither is set"),
        (&[("POD_NAME", "throughline-7d9f-x2x4z")], r#"POD_NAME is "throughline-7d9f-x2x4z""#),
        (&[("POD_NAME", "tl-1"), ("THROUGHLINE_SHARD", "two")], r#"THROUGHLINE_SHARD is "two""#),
    ] {
        let (_, err) = run(&config, variables, 2);
        assert!(err.starts_with("throughline: leaderElection.shards is 4, and nothing"), "{err}");
        assert!(err.trim_end().ends_with(found), "{err}");
    }
    let shard = |variables: &[(&str, &str)]| {
        let variable = |name: &str| {
            let found = variables.iter().find(|(variable, _)| *variable == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        let mut config = throughline::config::Config::default();
        config.leader_election.shards = 4;
        config.with_shard(variable).unwrap().settings().shard.index
    };
    assert_eq!(shard(&[("POD_NAME", "tl-0")]), 0);
    assert_eq!(shard(&[("POD_NAME", "throughline-7")]), 3);
    assert_eq!(shard(&[("POD_NAME", "throughline-7"), ("THROUGHLINE_SHARD", "2")]), 2);
}

#[test]
fn an_invalid_rust_log_is_an_error() {
    let (_, err) = run(&["run"], &[("RUST_LOG", "throughline=loud")], 2);
    assert!(err.starts_with("throughline: RUST_LOG=throughline=loud: "), "{err}");
}
