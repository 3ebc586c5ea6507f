//! Turns a file and flags into a [`Config`], or into the list of everything that is wrong.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::discovery::{
    DiscoveryConfig, DiscoveryMode, KubeconfigDirConfig, KubeconfigSecretsConfig, MiloConfig,
};
use super::merge::{ANY, MergedValues};
use super::problem::{ConfigErrors, ConfigProblem};
use super::role::role_name;
use super::validate::{Findings, validate};
use super::{ClusterConfig, Config};
use crate::core::contract::settings::{Settings, TouchScope, TouchSettings};
use crate::core::data::ids::{ClusterName, Role};

/// No configuration is longer, in bytes: one with ten thousand clusters has 1 MiB.
const FILE_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// The name of the only cluster when none is configured.
pub const LOCAL_CLUSTER: &str = "local";

/// A value that a flag sets.
#[derive(Clone, Debug, PartialEq)]
pub enum FlagValue {
    /// The argument of `--set PATH=VALUE`. VALUE is JSON, or else a string.
    Set(String),
    /// A flag for one key.
    Named {
        /// The flag with its value, for error messages: `--window 200ms`.
        flag: String,
        /// For example `touch.windowMs`.
        key: &'static str,
        /// The value as the file would hold it.
        value: Value,
    },
}

/// Values from flags. They override the file, which overrides the defaults.
#[derive(Clone, Debug, Default)]
pub struct Overrides {
    /// `NAME=ROLE[+ROLE…][,kubeconfig=FILE][,context=CTX][,in-cluster]`; if there is any, the
    /// file's clusters are ignored.
    pub clusters: Vec<String>,
    /// The kubeconfig file of the only cluster.
    pub kubeconfig: Option<PathBuf>,
    /// The context of the only cluster.
    pub context: Option<String>,
    /// All other values, in order; the last one for a key counts.
    pub values: Vec<FlagValue>,
}

/// A valid configuration and its warnings.
#[derive(Clone, Debug)]
pub struct LoadedConfig {
    /// `clusters` is never empty.
    pub config: Config,
    pub warnings: Vec<ConfigProblem>,
    /// What [`load_offline`] did not look at: a line for each file. Empty after [`load`].
    pub unchecked: Vec<String>,
}

/// Reads the file, if any, applies the flags and validates the result. Reads the named kubeconfig
/// files (or kubectl's own) but connects to nothing.
///
/// # Errors
/// Everything that is wrong: files that cannot be read, unknown keys, values of the wrong type, and
/// values that contradict each other.
pub fn load(file: Option<&Path>, overrides: &Overrides) -> Result<LoadedConfig, ConfigErrors> {
    load_with(file.map(|file| (file, read(file))), overrides, false)
}

/// As [`load`], for a place where the files that the configuration names are not: no kubeconfig is
/// opened.
///
/// # Errors
/// As [`load`], of what can be seen in the file and the flags.
pub fn load_offline(
    file: Option<&Path>,
    overrides: &Overrides,
) -> Result<LoadedConfig, ConfigErrors> {
    load_with(file.map(|file| (file, read(file))), overrides, true)
}

/// As [`load_offline`], with the file's content.
///
/// # Errors
/// As [`load_offline`].
pub fn load_text_offline(
    file: &Path,
    text: String,
    overrides: &Overrides,
) -> Result<LoadedConfig, ConfigErrors> {
    load_with(Some((file, Ok(text))), overrides, true)
}

/// As [`load`], with the file's content, or why there is none.
pub(super) fn load_text(
    file: &Path,
    text: Result<String, String>,
    overrides: &Overrides,
) -> Result<LoadedConfig, ConfigErrors> {
    load_with(Some((file, text)), overrides, false)
}

fn load_with(
    file: Option<(&Path, Result<String, String>)>,
    overrides: &Overrides,
    is_offline: bool,
) -> Result<LoadedConfig, ConfigErrors> {
    let fallback = file.as_ref().map_or("defaults".to_owned(), |(f, _)| f.display().to_string());
    let mut merged = MergedValues::new(&Config::default(), example());
    if let Some((_, text)) = file {
        match text.and_then(|text| parse(&text)) {
            Ok(value) => merged.merge_document(&fallback, &value),
            Err(message) => {
                merged.refuse(&fallback, "", message);
                merged.is_complete = false;
            }
        }
    }
    merge_clusters(&mut merged, overrides);
    overrides.values.iter().for_each(|value| merge_flag(&mut merged, value));
    add_local_cluster(&mut merged);

    let mut config: Config = merged.finish().map_err(|problem| ConfigErrors(vec![problem]))?;
    if merged.origin("eventLog.keepBytes").is_none() {
        config.event_log.keep_bytes = config.event_log.keep_bytes_by_count();
    }
    config.event_log.keep = None;
    config.discovery = config.discovery.normalized();
    let findings = validate(&config, &merged, &fallback, is_offline);
    let problems: Vec<_> = merged.problems.into_iter().chain(findings.errors).collect();
    if problems.is_empty() {
        let Findings { warnings, unchecked, .. } = findings;
        Ok(LoadedConfig { config, warnings, unchecked })
    } else {
        Err(ConfigErrors(problems))
    }
}

/// Applies flags to the settings of a recorded run.
///
/// # Errors
/// Unknown keys and values of the wrong type; `settings` is then unchanged.
pub fn override_settings(
    settings: &mut Settings,
    values: &[FlagValue],
) -> Result<(), ConfigErrors> {
    let example = Settings { touch: every_touch_key(), ..Settings::default() };
    let mut merged = MergedValues::new(settings, serde_json::to_value(example).unwrap_or_default());
    values.iter().for_each(|value| merge_flag(&mut merged, value));
    if merged.problems.is_empty() {
        *settings = merged.finish().map_err(|problem| ConfigErrors(vec![problem]))?;
        Ok(())
    } else {
        Err(ConfigErrors(merged.problems))
    }
}

/// A configuration in which every key is present.
fn example() -> Value {
    let mut config = Config { touch: every_touch_key(), ..Config::default() };
    config.event_log.file = Some(PathBuf::new());
    config.executor.queue = Some(1);
    config.event_log.keep = Some(0);
    config.discovery = DiscoveryConfig {
        milo: Some(MiloConfig {
            kubeconfig: Some(PathBuf::new()),
            context: Some(String::new()),
            project_kubeconfig: Some(PathBuf::new()),
            label_selector: Some(String::new()),
            ..MiloConfig::default()
        }),
        kubeconfig_secrets: Some(KubeconfigSecretsConfig::default()),
        kubeconfig_dir: Some(KubeconfigDirConfig::default()),
        mode: Some(DiscoveryMode::Single),
        discovery_kubeconfig_path: Some(PathBuf::new()),
        project_kubeconfig_path: Some(PathBuf::new()),
        internal_service_discovery: Some(false),
    };
    config.leader_election.cluster = Some("".into());
    config.leader_election.lease_namespace = Some(String::new());
    config.clusters = vec![ClusterConfig {
        name: LOCAL_CLUSTER.into(),
        roles: vec![Role::Edge],
        kubeconfig: Some(PathBuf::new()),
        context: Some(String::new()),
        in_cluster: true,
    }];
    serde_json::to_value(config).unwrap_or_default()
}

/// Touch settings in which every key is present: other than at its default, where that leaves one out.
fn every_touch_key() -> TouchSettings {
    let edge_scopes = BTreeMap::from([(ClusterName::from(ANY), TouchScope::Gateway)]);
    TouchSettings { edge_scopes, stand_in_ms: 0, ..TouchSettings::default() }
}

/// The content of a configuration file, or why there is none.
pub(super) fn read(file: &Path) -> Result<String, String> {
    let mut text = String::new();
    let read = File::open(file).and_then(|f| f.take(FILE_BYTES_MAX + 1).read_to_string(&mut text));
    let bytes = read.map_err(|error| format!("cannot be read: {error}"))?;
    if bytes as u64 > FILE_BYTES_MAX {
        return Err(format!(
            "has more than {} MiB; name a configuration file",
            FILE_BYTES_MAX >> 20
        ));
    }
    Ok(text)
}

fn parse(text: &str) -> Result<Value, String> {
    // YAML 1.2 booleans only, so that `off` stays a string, as some keys accept it.
    let options = serde_saphyr::options! { strict_booleans: true, with_snippet: false };
    serde_saphyr::from_str_with_options(text, options).map_err(|error| {
        let error = error.render_with_formatter(&serde_saphyr::UserMessageFormatter);
        format!("is not valid YAML: {error}")
    })
}

fn merge_flag(merged: &mut MergedValues, flag: &FlagValue) {
    let text = match flag {
        FlagValue::Named { flag, key, value } => return merged.set(flag, key, value),
        FlagValue::Set(text) => text,
    };
    let origin = format!("--set {text}");
    let Some((key, value)) = text.split_once('=') else {
        let message = "expected PATH=VALUE, for example touch.windowMs=200".to_owned();
        return merged.refuse(&origin, "", message);
    };
    let text = Value::from(value);
    let value = serde_json::from_str(value).unwrap_or_else(|_| text.clone());
    let before = merged.problems.len();
    merged.set(&origin, key, &value);
    if merged.problems.len() > before && value != text {
        // Retry as a string: a cluster may be named 7.
        let problems = merged.problems.split_off(before);
        merged.set(&origin, key, &text);
        if merged.problems.len() > before {
            merged.problems.truncate(before);
            merged.problems.extend(problems);
        }
    }
}

fn merge_clusters(merged: &mut MergedValues, overrides: &Overrides) {
    if !overrides.clusters.is_empty() {
        merged.clear_list("clusters");
    }
    for (i, text) in overrides.clusters.iter().enumerate() {
        let origin = format!("--cluster {text}");
        match parse_cluster(text) {
            Ok(value) => merged.set(&origin, &format!("clusters[{i}]"), &value),
            Err(message) => {
                // Keep its place, so that the indexes of the other clusters are right.
                merged.set(&origin, &format!("clusters[{i}]"), &Value::Null);
                merged.refuse(&origin, format!("clusters[{i}]"), message);
            }
        }
    }
    add_local_cluster(merged);
    let kubeconfig = overrides.kubeconfig.as_ref().map(|path| path.display().to_string());
    let flags = [("kubeconfig", &kubeconfig), ("context", &overrides.context)];
    for (key, value) in flags.into_iter().filter_map(|(k, v)| v.as_deref().map(|v| (k, v))) {
        let origin = format!("--{key} {value}");
        match merged.list_len("clusters") {
            // The file could not be read; it may name the cluster.
            0 => {}
            1 => merged.set(&origin, &format!("clusters[0].{key}"), &value.into()),
            n => {
                let message = format!(
                    "applies to a single cluster, but there are {n}; accepted: \
                     --cluster NAME=ROLE,{key}={value}, or {key} in the file"
                );
                merged.refuse(&origin, "", message);
            }
        }
    }
}

/// Adds the default cluster if none is configured, unless a file that cannot be read may name some.
fn add_local_cluster(merged: &mut MergedValues) {
    if merged.list_len("clusters") == 0 && merged.is_complete {
        let roles = [Role::Upstream, Role::Hub, Role::Edge].map(role_name);
        merged.set("defaults", "clusters", &json!([{ "name": LOCAL_CLUSTER, "roles": roles }]));
    }
}

/// Parses the argument of `--cluster`.
fn parse_cluster(text: &str) -> Result<Value, String> {
    const ACCEPTED: &str =
        "accepted: NAME=ROLE[+ROLE…][,kubeconfig=FILE][,context=CTX][,in-cluster]";
    let (name, rest) = text.split_once('=').ok_or(ACCEPTED)?;
    let mut parts = rest.split(',');
    let roles: Vec<_> =
        parts.next().unwrap_or_default().split('+').filter(|role| !role.is_empty()).collect();
    let mut cluster = json!({ "name": name, "roles": roles });
    for part in parts {
        match part.split_once('=') {
            Some((key @ ("kubeconfig" | "context"), value)) => cluster[key] = value.into(),
            None if part == "in-cluster" => cluster["inCluster"] = true.into(),
            _ => return Err(format!("found {part:?}; {ACCEPTED}")),
        }
    }
    Ok(cluster)
}
