//! The reference page and the example have every key, with its default.

use std::fs;

use serde_json::Value;
use throughline::config::{
    Config, ConfigProblem, DiscoveryConfig, KubeconfigDirConfig, KubeconfigSecretsConfig,
    MiloConfig, Overrides,
};

use crate::{folder, kubeconfig, load_text};

/// Every key with its default.
fn keys(prefix: &str, value: &Value, out: &mut Vec<(String, Value)>) {
    match value {
        Value::Object(keys_below) if !keys_below.is_empty() => {
            for (key, value) in keys_below {
                let dot = if prefix.is_empty() { "" } else { "." };
                keys(&format!("{prefix}{dot}{key}"), value, out);
            }
        }
        value => out.push((prefix.to_owned(), value.clone())),
    }
}

fn defaults() -> Vec<(String, Value)> {
    let mut out = Vec::new();
    keys("", &serde_json::to_value(Config::default()).unwrap(), &mut out);
    out.retain(|(key, _)| key != "clusters");
    assert!(out.len() > 40, "{}", out.len());
    out
}

#[test]
fn the_docs_list_every_key_with_its_default() {
    let docs = fs::read_to_string("docs/reference/configuration.md").unwrap();
    // Sections that are not there by default have defaults, too.
    let mut found = Vec::new();
    let discovery = DiscoveryConfig {
        milo: Some(MiloConfig::default()),
        kubeconfig_secrets: Some(KubeconfigSecretsConfig::default()),
        kubeconfig_dir: Some(KubeconfigDirConfig::default()),
        ..DiscoveryConfig::default()
    };
    keys("discovery", &serde_json::to_value(discovery).unwrap(), &mut found);
    found.retain(|(_, default)| default != "");
    assert!(found.len() > 8, "{}", found.len());
    for (key, default) in defaults().into_iter().chain(found) {
        let default = default.as_str().map_or(default.to_string(), ToOwned::to_owned);
        let row = docs.lines().find(|line| line.starts_with(&format!("| `{key}` ")));
        let row = row.unwrap_or_else(|| panic!("{key} has no row"));
        assert!(
            default == "null" || row.contains(&format!("| `{default}` |")),
            "{key} is {default}, not: {row}"
        );
    }
}

#[test]
fn the_example_loads_and_shows_every_key_with_its_default() {
    let text = fs::read_to_string("deploy/throughline.example.yaml").unwrap();
    let kube = kubeconfig(&folder("example"), &["project-a", "project-b", "edge-1"]);
    let text = text.replace("/etc/throughline/kubeconfig", &kube);
    let loaded = load_text("example-file", &text, &Overrides::default());
    let loaded = loaded.unwrap_or_else(|errors| panic!("{errors}"));
    let in_cluster =
        |warning: &&ConfigProblem| !warning.message.starts_with("not running in a pod");
    assert_eq!(loaded.warnings.iter().find(in_cluster), None);
    assert_eq!(loaded.config.clusters.len(), 4);
    assert_eq!(Config { clusters: Vec::new(), ..loaded.config }, Config::default());

    let shown: Value = serde_saphyr::from_str(&text).unwrap();
    for (key, _) in defaults() {
        let there = key.split('.').try_fold(&shown, |here, step| here.get(step));
        assert!(there.is_some(), "{key} is not in the example");
    }
}
