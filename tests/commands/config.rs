//! Loading a configuration: files and flags in, a configuration or what is wrong with it out.

pub(crate) mod pages;

use expect_test::expect_file;
use serde_json::json;
use throughline::config::{Config, ConfigError, ConfigSource};
use throughline::core::contract::settings::Settings;

/// A file of this name, which does not exist, and flags.
pub(crate) fn load(text: &str, set: &[&str]) -> Result<Config, ConfigError> {
    let set = set.iter().map(|&flag| flag.to_owned()).collect();
    ConfigSource { file: Some("live.yaml".into()), set, ..ConfigSource::default() }.load_text(text)
}

const ONE: &str = "clusters: [{name: one, roles: [upstream, hub, edge]}]\n";

/// Each rule and each old key has a file that breaks it. After each file follows what is said about it.
#[test]
fn each_bad_file_is_refused_with_its_message() {
    let golden = expect_file!["config/bad.txt"];
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
    let default = load(ONE, &[]).unwrap();
    assert_eq!(default.settings(), Settings::default());
    // The timings of the election follow from the duration of the Lease.
    let timings = default.election_timings();
    let timings = (timings.lease_ms, timings.renew_deadline_ms, timings.retry_ms);
    assert_eq!(timings, (15_000, 10_000, 2_000));
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
    for (key, ..) in pages::keys() {
        let pointer = format!("/{}", key.replace("[]", "/0").replace('.', "/"));
        let value = all.pointer(&pointer).or(all.pointer(&pointer.replace("/0/", "/1/")));
        assert!(value.is_some_and(|v| Some(v) != default.pointer(&pointer)), "{key} is not tried");
    }
    // Whatever the names.
    let names = "off|7|null|~|yes|1e3|0x1f|a: b|#x|- a|line\nbreak|tab\there| blank |'|\"|org/team|é|{a}|*|&a|!a|2026-11-21";
    let names: Vec<_> = names.split('|').collect();
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
fn an_instance_finds_its_shard_in_its_pods_name_or_in_a_variable() {
    for (pod, variable, index) in
        [("tl-0", None, 0), ("throughline-7", None, 3), ("throughline-7", Some("2"), 2)]
    {
        let variables = |name: &str| match name {
            "POD_NAME" => Some(pod.to_owned()),
            _ => variable.map(str::to_owned),
        };
        let config = load(ONE, &["leaderElection.shards=4"]).unwrap();
        assert_eq!(config.with_shard(variables).unwrap().settings().shard.index, index, "{pod}");
    }
}
