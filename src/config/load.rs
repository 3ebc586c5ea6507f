//! From a file and flags to a [`Config`], with everything that is wrong in one go.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::layers::{ANY, Layers};
use super::problem::{ConfigErrors, Problem};
use super::{ClusterConfig, Config, check};
use crate::core::ids::{ClusterName, Role};
use crate::core::settings::{Settings, TouchScope, TouchSettings};

/// The name of the one cluster of a run that was told of none.
pub const LOCAL_CLUSTER: &str = "local";

/// A value from a flag.
#[derive(Clone, Debug, PartialEq)]
pub enum Given {
    /// `--set PATH=VALUE`, as it was written after `--set`. The value is JSON, or else a text.
    Set(String),
    /// A flag of its own.
    Flag {
        /// The flag with its value, for errors: `--window 200ms`.
        flag: String,
        /// The key that it sets: `touch.windowMs`.
        key: &'static str,
        /// The value, as the file would have it.
        value: Value,
    },
}

/// What flags say. They go before the file, which goes before the defaults.
#[derive(Clone, Debug, Default)]
pub struct Overrides {
    /// `NAME=ROLE[+ROLE…][,kubeconfig=FILE][,context=CTX][,in-cluster]`; any of them replaces all
    /// clusters of the file.
    pub clusters: Vec<String>,
    /// The kubeconfig file, where there is one cluster.
    pub kubeconfig: Option<PathBuf>,
    /// The context, where there is one cluster.
    pub context: Option<String>,
    /// All else, in order; the last one counts.
    pub values: Vec<Given>,
}

/// A configuration that can be used.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The configuration in effect; `clusters` is never empty.
    pub config: Config,
    /// What looks wrong, and may be meant.
    pub warnings: Vec<Problem>,
}

/// Reads the file, if there is one, lays the flags over it, and checks the whole. Looks at the
/// kubeconfig files that are named (or at kubectl's own), and connects to nothing.
///
/// # Errors
/// Everything that is wrong: what can't be read, unknown keys, values that don't fit, and values
/// that make no sense together.
pub fn load(file: Option<&Path>, overrides: &Overrides) -> Result<Loaded, ConfigErrors> {
    let mut layers = Layers::new(&Config::default(), example());
    if let Some(file) = file {
        let name = file.display().to_string();
        match read(file) {
            Ok(value) => layers.lay_tree(&name, &value),
            Err(message) => {
                layers.refuse(&name, "", message);
                layers.complete = false;
            }
        }
    }
    lay_clusters(&mut layers, overrides);
    overrides.values.iter().for_each(|given| lay(&mut layers, given));
    lay_local(&mut layers);

    let config: Config = layers.finish().map_err(|problem| ConfigErrors(vec![problem]))?;
    let fallback = file.map_or("defaults".to_owned(), |file| file.display().to_string());
    let found = check::check(&config, &layers, &fallback);
    let problems: Vec<_> = layers.problems.into_iter().chain(found.errors).collect();
    if problems.is_empty() {
        Ok(Loaded { config, warnings: found.warnings })
    } else {
        Err(ConfigErrors(problems))
    }
}

/// Lays flags over settings, as a replay does.
///
/// # Errors
/// Unknown keys, and values that don't fit; `settings` are then as they were.
pub fn change_settings(settings: &mut Settings, values: &[Given]) -> Result<(), ConfigErrors> {
    let example = Settings { touch: any_edge_scope(), ..Settings::default() };
    let mut layers = Layers::new(settings, serde_json::to_value(example).unwrap_or_default());
    values.iter().for_each(|given| lay(&mut layers, given));
    if layers.problems.is_empty() {
        *settings = layers.finish().map_err(|problem| ConfigErrors(vec![problem]))?;
        Ok(())
    } else {
        Err(ConfigErrors(layers.problems))
    }
}

/// A configuration in which every key is there.
fn example() -> Value {
    let mut config = Config { touch: any_edge_scope(), ..Config::default() };
    config.event_log.file = Some(PathBuf::new());
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

fn any_edge_scope() -> TouchSettings {
    let edge_scopes = BTreeMap::from([(ClusterName::from(ANY), TouchScope::Gateway)]);
    TouchSettings { edge_scopes, ..TouchSettings::default() }
}

fn read(file: &Path) -> Result<Value, String> {
    let text = std::fs::read_to_string(file).map_err(|error| format!("can't be read: {error}"))?;
    // YAML 1.2's booleans only, so that `off` is the word that some keys take.
    let options = serde_saphyr::options! { strict_booleans: true, with_snippet: false };
    serde_saphyr::from_str_with_options(&text, options).map_err(|error| {
        let words = error.render_with_formatter(&serde_saphyr::UserMessageFormatter);
        format!("is no YAML that can be read: {words}")
    })
}

fn lay(layers: &mut Layers, given: &Given) {
    let text = match given {
        Given::Flag { flag, key, value } => return layers.lay_at(flag, key, value),
        Given::Set(text) => text,
    };
    let origin = format!("--set {text}");
    let Some((key, value)) = text.split_once('=') else {
        let message = "expected PATH=VALUE, for example touch.windowMs=200".to_owned();
        return layers.refuse(&origin, "", message);
    };
    let text = Value::from(value);
    let value = serde_json::from_str(value).unwrap_or_else(|_| text.clone());
    let before = layers.problems.len();
    layers.lay_at(&origin, key, &value);
    if layers.problems.len() > before && value != text {
        // A text that looks like something else, such as a cluster named 7.
        let problems = layers.problems.split_off(before);
        layers.lay_at(&origin, key, &text);
        if layers.problems.len() > before {
            layers.problems.truncate(before);
            layers.problems.extend(problems);
        }
    }
}

fn lay_clusters(layers: &mut Layers, overrides: &Overrides) {
    if !overrides.clusters.is_empty() {
        layers.clear("clusters");
    }
    for (i, text) in overrides.clusters.iter().enumerate() {
        let origin = format!("--cluster {text}");
        match cluster(text) {
            Ok(value) => layers.lay_at(&origin, &format!("clusters[{i}]"), &value),
            Err(message) => {
                // It keeps its place, so that the others' numbers are right.
                layers.lay_at(&origin, &format!("clusters[{i}]"), &Value::Null);
                layers.refuse(&origin, format!("clusters[{i}]"), message);
            }
        }
    }
    lay_local(layers);
    let kubeconfig = overrides.kubeconfig.as_ref().map(|path| path.display().to_string());
    let ways = [("kubeconfig", &kubeconfig), ("context", &overrides.context)];
    for (key, value) in ways.into_iter().filter_map(|(k, v)| v.as_deref().map(|v| (k, v))) {
        let origin = format!("--{key} {value}");
        match layers.length("clusters") {
            // The file would have said.
            0 => {}
            1 => layers.lay_at(&origin, &format!("clusters[0].{key}"), &value.into()),
            n => {
                let message = format!(
                    "which of the {n} clusters is meant? accepted: \
                     --cluster NAME=ROLE,{key}={value}, or {key} in the file"
                );
                layers.refuse(&origin, "", message);
            }
        }
    }
}

/// With no clusters said there is one; but a file that can't be read may have said some.
fn lay_local(layers: &mut Layers) {
    if layers.length("clusters") == 0 && layers.complete {
        let all = json!([{ "name": LOCAL_CLUSTER, "roles": ["upstream", "downstream", "edge"] }]);
        layers.lay_at("defaults", "clusters", &all);
    }
}

/// Reads what stands after `--cluster`.
fn cluster(text: &str) -> Result<Value, String> {
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
