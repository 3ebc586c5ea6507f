//! Loading a configuration: files and flags in, a configuration or what is wrong with it out.

mod pages;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use expect_test::expect_file;
use serde_json::{Value, json};
use throughline::config::{Config, ConfigError, ConfigSource, Size, override_settings};
use throughline::core::contract::settings::{Fraction, OrphanMode, Settings, TouchScope};
use throughline::core::data::ids::Role;

/// A file of this name, which does not exist, and flags.
fn source(set: &[&str]) -> ConfigSource {
    let set = set.iter().map(|&flag| flag.to_owned()).collect();
    ConfigSource { file: Some("live.yaml".into()), set, ..ConfigSource::default() }
}

fn load(text: &str, set: &[&str]) -> Result<Config, ConfigError> {
    source(set).load_text(text)
}

#[track_caller]
fn assert_refused(text: &str, set: &[&str], expected: &str) {
    match load(text, set) {
        Ok(config) => panic!("accepted: {config:?}"),
        Err(error) => assert_eq!(error.to_string(), expected),
    }
}

const ONE: &str = "clusters: [{name: one, roles: [upstream, hub, edge]}]\n";

/// Each rule and each old key has a file that breaks it. After each file follows what is said about it.
#[test]
fn each_bad_file_is_refused_with_its_message() {
    let golden =
        expect_file![concat!(env!("CARGO_MANIFEST_DIR"), "/tests/commands/config/bad.txt")];
    let text = golden.data();
    let files = text.split("===\n").map(|section| {
        let lines = section.split_inclusive('\n').filter(|line| !line.starts_with('>'));
        let file: String = lines.collect();
        let error = load(&file, &[]).err().unwrap_or_else(|| panic!("accepted:\n{file}"));
        let said: String = error.to_string().lines().map(|line| format!("> {line}\n")).collect();
        format!("{file}{said}")
    });
    golden.assert_eq(&files.collect::<Vec<_>>().join("===\n"));
}

#[test]
fn a_file_that_cannot_be_read_is_named() {
    let error = ConfigSource { file: Some("/nowhere/live.yaml".into()), ..source(&[]) }.load();
    let expected = "/nowhere/live.yaml: cannot be read: No such file or directory (os error 2)";
    assert_eq!(error.unwrap_err().to_string(), expected);
}

#[test]
fn an_error_in_a_flag_quotes_the_flag() {
    for (flag, message) in [
        (
            "touch.scope=class",
            "touch.scope: unknown variant `class`, expected `gateway` or `gatewayClass`",
        ),
        (
            "scope=gateway",
            "scope: unknown field `scope`, expected one of `clusters`, `discovery`, `dryRun`, \
            `leaderElection`, `mirror`, `touch`, `orphans`, `limits`, `eventLog`, `events`, `admin`, `log`",
        ),
        ("touch.scope", "expected KEY=VALUE, for example touch.scope=gatewayClass"),
        ("=gateway", "expected KEY=VALUE, for example touch.scope=gatewayClass"),
        ("clusters[9].name=x", "clusters[9].name: no such place"),
        ("clusters[0.name=x", "clusters[0.name: no such place"),
        ("dryRun.x=1", "dryRun.x: no such place"),
        ("touch.windowMs=5", "touch.windowMs: no key any more: it is always 100"),
        ("orphans={minAgeMs: 5}", "orphans.minAgeMs: use orphans.minAge: 5m"),
        ("touch.scope=[", "unclosed bracket '[' at line 1, column 1"),
    ] {
        assert_refused(ONE, &[flag], &format!("--set {flag}: {message}"));
    }
    let two = "clusters: [{name: a, roles: [edge]}, {name: b, roles: [edge]}]";
    let error = ConfigSource { context: Some("c".into()), ..source(&[]) }.load_text(two);
    let expected =
        "--kubeconfig and --context are for a single cluster, but the configuration has 2";
    assert_eq!(error.unwrap_err().to_string(), expected);
}

#[test]
fn without_a_list_of_clusters_there_is_one_with_every_role() {
    for text in ["", "# nothing\n", "---\n", "{}", "clusters: []", "clusters:\n", "dryRun: false"] {
        let mut config = load(text, &[]).unwrap();
        let [cluster] = config.clusters.as_slice() else { panic!("{:?}", config.clusters) };
        assert_eq!(cluster.name.as_str(), "local");
        assert_eq!(cluster.roles, [Role::Upstream, Role::Hub, Role::Edge]);
        assert_eq!((&cluster.kubeconfig, &cluster.context), (&None, &None));
        assert!(!cluster.in_cluster);
        config.clusters.clear();
        assert_eq!(config, Config::default(), "{text}");
    }
    let named = ConfigSource {
        file: None,
        kubeconfig: Some("/etc/k".into()),
        context: Some("two".into()),
        ..source(&[])
    };
    for text in ["", ONE] {
        let config = named.load_text(text).unwrap();
        let [cluster] = &config.clusters[..] else { panic!() };
        assert_eq!(cluster.kubeconfig.as_deref(), Some(Path::new("/etc/k")));
        assert_eq!(cluster.context.as_deref(), Some("two"));
    }
}

#[test]
fn sections_whose_keys_are_commented_out_set_nothing() {
    let text = format!("{ONE}touch:\nlog:\n  # level: debug\nlimits: {{}}\ndiscovery:\n  milo:\n");
    let config = load(&text, &[]).unwrap();
    assert_eq!(Config { clusters: Vec::new(), ..config }, Config::default());
}

#[test]
fn a_section_of_discovery_is_switched_on_by_an_empty_one() {
    let config = load("discovery: {milo: {}}", &[]).unwrap();
    assert!(config.discovery.milo.is_some());
    let config = load("", &["discovery.milo.join=all"]).unwrap();
    assert!(config.discovery.milo.is_some());
}

#[test]
fn flags_override_the_file_and_the_last_one_counts() {
    let text =
        format!("{ONE}touch: {{maxPerSecond: 7, scope: gatewayClass}}\nlog: {{level: warn}}\n");
    let config = load(
        &text,
        &[
            "touch.maxPerSecond=9",
            "log.level=throughline=debug,kube=warn",
            "touch.maxPerSecond=10",
            "clusters[0].context=two",
            "orphans={mode: off, minAge: 1h 30m}",
            "eventLog.size=1.5Gi",
            "mirror.nudgeKey=",
            "dryRun=true",
        ],
    );
    let config = config.unwrap();
    assert_eq!(config.touch.max_per_second, 10);
    assert_eq!(config.touch.scope, TouchScope::GatewayClass);
    assert_eq!(config.log.level, "throughline=debug,kube=warn");
    assert_eq!(config.clusters[0].context.as_deref(), Some("two"));
    assert_eq!(config.orphans.mode, OrphanMode::Off);
    assert_eq!(config.orphans.min_age, Duration::from_secs(5_400));
    assert_eq!(config.event_log.size, Size(3 << 29));
    assert_eq!((config.mirror.nudge_key.as_str(), config.dry_run), ("", true));

    let config =
        load(&text, &["clusters=[{name: up/a, roles: [upstream]}, {name: b, roles: [hub]}]"]);
    let names: Vec<_> = config.unwrap().clusters.iter().map(|c| c.name.to_string()).collect();
    assert_eq!(names, ["up/a", "b"]);
}

#[test]
fn the_hub_role_is_still_read_as_downstream_and_printed_as_hub() {
    let config = load(&ONE.replace("hub", "downstream"), &[]).unwrap();
    assert_eq!(config.clusters[0].roles, [Role::Upstream, Role::Hub, Role::Edge]);
    let printed = serde_json::to_value(&config).unwrap();
    assert_eq!(printed["clusters"][0]["roles"], json!(["upstream", "hub", "edge"]));
}

#[test]
fn the_machine_decides_by_the_keys_and_otherwise_by_the_defaults() {
    let config = load(
        "clusters: [{name: hub, roles: [hub]}]
mirror: {deferredPerSecond: 3, nudgeKey: \"\"}
touch: {enabled: false, key: example.com/t, platformKey: write, scope: gatewayClass, maxPerSecond: 1}
orphans: {mode: delete, minAge: 90s, deletedProjects: true}
limits: {maxShare: 0.25, maxPerMinute: 4}
eventLog: {file: a}
",
        &[],
    );
    let found = serde_json::to_value(config.unwrap().settings()).unwrap();
    let mut expected = serde_json::to_value(Settings::default()).unwrap();
    for (pointer, value) in [
        ("/mirror/deferrablePerSecond", json!(3)),
        ("/mirror/nudge", json!(false)),
        ("/mirror/nudgeKey", json!("")),
        ("/mirror/maxShare", json!(0.25)),
        ("/mirror/maxRemovalsPerMinute", json!(4)),
        ("/touch/enabled", json!(false)),
        ("/touch/key", json!("example.com/t")),
        ("/touch/platformKey", json!("write")),
        ("/touch/scope", json!("gatewayClass")),
        ("/touch/maxPerSecond", json!(1)),
        ("/orphans/mode", json!("delete")),
        ("/orphans/minAgeMs", json!(90_000)),
        ("/orphans/deletedProjects", json!(true)),
        ("/orphans/maxShare", json!(0.25)),
        ("/orphans/maxPerMinute", json!(4)),
    ] {
        *expected.pointer_mut(pointer).unwrap() = value;
    }
    assert_eq!(found, expected);
    assert_eq!(load(ONE, &[]).unwrap().settings(), Settings::default());
}

#[test]
fn the_timings_of_the_election_follow_from_the_duration_of_the_lease() {
    let timings = load(ONE, &[]).unwrap().election_timings();
    assert_eq!(
        (timings.lease_ms, timings.renew_deadline_ms, timings.retry_ms),
        (15_000, 10_000, 2_000)
    );
    for seconds in [8, 600] {
        let set = format!("leaderElection.leaseDuration={seconds}s");
        assert!(load(ONE, &[&set]).unwrap().election_timings().are_usable());
    }
}

/// The settings of a recorded run have the names of its header, in milliseconds.
#[test]
fn a_replay_sets_what_the_header_has() {
    let set = |flags: &[&str]| {
        let flags: Vec<_> = flags.iter().map(|&flag| flag.to_owned()).collect();
        override_settings(&Settings::default(), &flags)
    };
    let settings =
        set(&["touch.windowMs=200", "touch.confirmAfterMs=[1, 2]", "mirror.maxShare=0.5"]).unwrap();
    assert_eq!(settings.touch.window_ms, 200);
    assert_eq!(settings.touch.confirm_after_ms, [1, 2]);
    assert_eq!(settings.mirror.max_share, Fraction::per_mille(500));
    for (flag, message) in [
        ("touch.windowMS=5", "touch.windowMS: no setting of an event log"),
        ("touch=5", "touch: no setting of an event log"),
        ("limits.maxShare=0.5", "limits.maxShare: no setting of an event log"),
        ("touch.windowMs=soon", "touch.windowMs: invalid type: string \"soon\", expected u64"),
        ("touch.windowMs", "expected KEY=VALUE, for example touch.scope=gatewayClass"),
    ] {
        assert_eq!(set(&[flag]).unwrap_err().to_string(), format!("--set {flag}: {message}"));
    }
}

/// A configuration in which every key has another value than its default.
const EVERY_KEY: &str = r#"
clusters:
  - {name: hub, roles: [hub], kubeconfig: /etc/k, context: c}
  - {name: edge, roles: [edge], inCluster: true}
discovery:
  milo: {kubeconfig: /m, context: m, projectKubeconfig: /p, labelSelector: "a in (b, c)", internalServiceDiscovery: true, join: all}
  kubeconfigSecrets: {cluster: hub, namespace: n, labelSelector: a=b, roles: [edge]}
  kubeconfigDir: {path: /d, roles: [upstream, edge]}
dryRun: true
leaderElection: {enabled: false, leaseNamespace: n, leaseName: l, leaseDuration: 1m, shards: 4}
mirror: {deferredPerSecond: 1, nudgeKey: a/b}
touch: {enabled: false, key: a/c, platformKey: off, scope: gatewayClass, maxPerSecond: 0}
orphans: {mode: delete, minAge: 2h 30m, deletedProjects: true}
limits: {maxShare: 0.125, maxPerMinute: 0}
eventLog: {file: "/a #b: c.jsonl", size: 500M, redact: false}
events: {enabled: false}
admin: {address: "[::1]:0", state: everyone}
log: {level: debug, format: text}
"#;

/// The output of `throughline config` loads again to the same configuration.
#[test]
fn a_configuration_survives_being_printed_and_read() {
    let every = load(EVERY_KEY, &[]).unwrap();
    let all = serde_json::to_value(&every).unwrap();
    let default = serde_json::to_value(Config::default()).unwrap();
    for key in pages::keys() {
        let pointer = format!("/{}", key.replace("[]", "/0").replace('.', "/"));
        let value = all.pointer(&pointer).or(all.pointer(&pointer.replace("/0/", "/1/")));
        assert!(value.is_some_and(|v| Some(v) != default.pointer(&pointer)), "{key} is not tried");
    }
    // Whatever the names.
    let names = [
        "off",
        "7",
        "null",
        "~",
        "yes",
        "1e3",
        "0x1f",
        "a: b",
        "#x",
        "- a",
        "line\nbreak",
        "tab\there",
        " blank ",
        "'",
        "\"",
        "org/team",
        "é",
        "{a}",
        "*",
        "&a",
        "!a",
        "2026-11-21",
    ];
    let odd = |name: &&str| json!({"name": name, "roles": ["edge"], "context": name});
    let clusters: Vec<_> = names.iter().map(odd).collect();
    let odd = load(&json!({"clusters": clusters}).to_string(), &[]).unwrap();
    assert_eq!(odd.clusters.len(), names.len());
    for config in [every, odd] {
        let yaml = serde_saphyr::to_string(&config).unwrap();
        let json = serde_json::to_string_pretty(&config).unwrap();
        for text in [yaml, json] {
            assert_eq!(load(&text, &[]).unwrap_or_else(|e| panic!("{e}\n{text}")), config);
        }
    }
}

#[test]
fn the_examples_load() {
    let folder = PathBuf::from("deploy/examples");
    let mut seen = 0;
    for entry in fs::read_dir(folder).unwrap() {
        let file = entry.unwrap().path();
        let loaded = ConfigSource { file: Some(file), ..ConfigSource::default() }.load();
        loaded.unwrap_or_else(|error| panic!("{error}"));
        seen += 1;
    }
    assert_eq!(seen, 3);
}

/// Debug builds alone take constants from the environment, so that tests of the program are short.
#[test]
fn constants_are_set_by_known_names_only() {
    let run = |constants: &str| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_throughline"));
        command.arg("config").env("THROUGHLINE_CONSTANTS", constants);
        let output = command.env_remove("THROUGHLINE_CONFIG").output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let good = json!({"watch": {"timeoutMs": 5}, "shutdownGraceMs": 1,
        "settings": {"touch": {"windowMs": 1}}});
    assert_eq!(run(&good.to_string()), (Some(0), String::new()));
    for (bad, name) in [
        (json!({"wach": 1}), "wach"),
        (json!({"watch": {"timeout": 5}}), "timeout"),
        (json!({"settings": {"touch": {"window": 1}}}), "window"),
    ] {
        let message = format!("throughline: THROUGHLINE_CONSTANTS: unknown name {name}\n");
        assert_eq!(run(&bad.to_string()), (Some(2), message));
    }
    let _: Value = good;
}
