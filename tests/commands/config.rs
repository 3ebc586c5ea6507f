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

const EVERY_KEY: &str = include_str!("config/every_key.yaml");

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

/// The golden has the settings of `every_key.yaml`, without nudges.
#[test]
fn the_machine_decides_by_the_keys_and_otherwise_by_the_defaults() {
    let config = load(EVERY_KEY, &["mirror.nudgeKey=", "touch.maxPerSecond=2"]);
    let settings = serde_json::to_string_pretty(&config.unwrap().settings()).unwrap();
    expect_file!["config/settings.json"].assert_eq(&(settings + "\n"));
    let default = load(ONE, &[]).unwrap();
    assert_eq!(default.settings(), Settings::default());
    // The timings of the election follow from the duration of the Lease.
    let timings = default.election_timings();
    let timings = (timings.lease_ms, timings.renew_deadline_ms, timings.retry_ms);
    assert_eq!(timings, (15_000, 10_000, 2_000));
}

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
