//! Parses a file and flags into a [`Config`], or reports their errors.

use std::fs::File;
use std::io::Read;
use std::path::PathBuf;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::old_keys::old_keys;
use super::{ClusterConfig, Config};
use crate::core::contract::settings::Settings;
use crate::core::data::ids::Role;
use crate::outside_text::{brief, one_line};

/// The largest configuration, in bytes: one with ten thousand clusters has 1 MiB.
const FILE_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// The most characters of a line that an error shows.
const SHOWN_MAX: usize = 120;

/// The name of the only cluster when none is configured.
const LOCAL_CLUSTER: &str = "local";

/// The errors in a file or a flag; may have several lines.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ConfigError(String);

/// The sources of a configuration: flags override the file, which overrides the defaults.
#[derive(Clone, Debug, Default)]
pub struct ConfigSource {
    pub file: Option<PathBuf>,
    /// `KEY=VALUE`, in order; the last value of a key counts.
    pub set: Vec<String>,
    /// The kubeconfig file of the only cluster.
    pub kubeconfig: Option<PathBuf>,
    /// The context of the only cluster.
    pub context: Option<String>,
}

impl ConfigSource {
    /// Reads the file, if any, and applies the flags. No other file is opened.
    ///
    /// # Errors
    /// The file can't be read, a key is unknown, a value has the wrong type, or values contradict each
    /// other.
    pub fn load(&self) -> Result<Config, ConfigError> {
        let text = self.read_file()?;
        self.load_text(&text)
    }

    /// As [`ConfigSource::load`], with the file's content.
    ///
    /// # Errors
    /// As [`ConfigSource::load`].
    pub fn load_text(&self, text: &str) -> Result<Config, ConfigError> {
        let name = self.file.as_ref().map(|file| file.display().to_string());
        let name = name.as_deref().unwrap_or("the configuration");
        let file = parse(name, text)?;
        let mut config = self.set.iter().try_fold(file, |config, flag| patch(&config, flag))?;
        self.set_connection(&mut config)?;
        #[cfg(debug_assertions)]
        {
            config.constants = constants_of_tests()?;
        }

        match config.validate().as_slice() {
            [] => Ok(config),
            [problem] => Err(ConfigError(format!("{name}: {problem}"))),
            problems => Err(ConfigError(format!(
                "{name}: {} errors in the configuration:\n  {}",
                problems.len(),
                problems.join("\n  ")
            ))),
        }
    }

    /// The content of the file; empty without one.
    pub(super) fn read_file(&self) -> Result<String, ConfigError> {
        let mut text = String::new();
        let Some(file) = &self.file else { return Ok(text) };
        let refused = |message: String| ConfigError(format!("{}: {message}", file.display()));
        let opened = File::open(file);
        let read = opened.and_then(|f| f.take(FILE_BYTES_MAX + 1).read_to_string(&mut text));
        let bytes = read.map_err(|error| refused(format!("cannot be read: {error}")))?;
        if bytes as u64 > FILE_BYTES_MAX {
            let mib = FILE_BYTES_MAX >> 20;
            return Err(refused(format!("has more than {mib} MiB; name a configuration file")));
        }
        Ok(text)
    }

    /// The only cluster when none is configured.
    pub(super) fn local_cluster(&self) -> ClusterConfig {
        ClusterConfig {
            name: LOCAL_CLUSTER.into(),
            roles: Role::ALL.to_vec(),
            kubeconfig: self.kubeconfig.clone(),
            context: self.context.clone(),
            in_cluster: false,
        }
    }

    fn set_connection(&self, config: &mut Config) -> Result<(), ConfigError> {
        if config.clusters.is_empty() {
            config.clusters.push(self.local_cluster());
        }
        let Self { kubeconfig, context, .. } = self;
        if kubeconfig.is_none() && context.is_none() {
            return Ok(());
        }
        let [cluster] = config.clusters.as_mut_slice() else {
            let message = format!(
                "--kubeconfig and --context are for a single cluster, but the configuration has {}",
                config.clusters.len()
            );
            return Err(ConfigError(message));
        };
        if kubeconfig.is_some() {
            cluster.kubeconfig.clone_from(kubeconfig);
        }
        if context.is_some() {
            cluster.context.clone_from(context);
        }
        Ok(())
    }
}

/// Applies `KEY=VALUE` to the settings of a recorded run; the keys are those of the event log's header.
///
/// # Errors
/// Unknown keys and values of the wrong type.
pub fn override_settings(settings: &Settings, set: &[String]) -> Result<Settings, ConfigError> {
    set.iter().try_fold(settings.clone(), |settings, flag| {
        let names = serde_json::to_value(Settings::default()).unwrap_or_default();
        let (key, value) = split(flag)?;
        let place = key.split('.').try_fold(&names, |here, name| here.get(name));
        if place.is_none_or(Value::is_object) {
            return Err(in_flag(flag, &format!("{key}: no setting of an event log")));
        }
        patch_value(&settings, key, value).map_err(|message| in_flag(flag, &message))
    })
}

/// Accepts only YAML 1.2 booleans, so that `off` stays a string for the keys that accept it.
fn from_yaml<T: DeserializeOwned>(text: &str) -> Result<T, serde_saphyr::Error> {
    let options = serde_saphyr::options! { strict_booleans: true, with_snippet: false };
    serde_saphyr::from_str_with_options(text, options)
}

fn parse(name: &str, text: &str) -> Result<Config, ConfigError> {
    // `None`: the file is empty, or contains only comments.
    from_yaml(text).map(Option::unwrap_or_default).map_err(|error| {
        let mut message = located(name, text, &error);
        for hint in old_keys(&from_yaml(text).unwrap_or_default()) {
            message.push('\n');
            message.push_str(&hint);
        }
        ConfigError(message)
    })
}

/// The error with its location, `live.yaml:4:5: unknown field …`, and the line below it.
fn located(name: &str, text: &str, error: &serde_saphyr::Error) -> String {
    let message = error.render_with_formatter(&serde_saphyr::UserMessageFormatter);
    let Some(at) = error.location() else { return format!("{name}: {}", brief(&message)) };
    let line = at.line();
    let column = at.column();
    let message = message.replace(&format!(" at line {line}, column {column}"), "");
    let head = format!("{name}:{line}:{column}: {}", brief(&message));
    let before = |n: u64| usize::try_from(n.saturating_sub(1)).unwrap_or(usize::MAX);
    let shown = text.lines().nth(before(line)).filter(|_| before(column) < SHOWN_MAX);
    let Some(shown) = shown else { return head };

    let shown: String = shown.chars().take(SHOWN_MAX).collect();
    let [gap, indent] = [line.to_string().len(), before(column)].map(|width| " ".repeat(width));
    format!("{head}\n{line} | {}\n{gap} | {indent}^", one_line(&shown))
}

/// Applies `--set KEY=VALUE`.
fn patch(config: &Config, flag: &str) -> Result<Config, ConfigError> {
    let (key, value) = split(flag)?;
    patch_value(config, key, value).map_err(|message| {
        let value: Value = from_yaml(value).unwrap_or_default();
        let tree = key.rsplit('.').fold(value, |below, name| json!({ name: below }));
        let old = old_keys(&tree).into_iter().next();
        in_flag(flag, &old.unwrap_or(message))
    })
}

fn split(flag: &str) -> Result<(&str, &str), ConfigError> {
    let pair = flag.split_once('=').filter(|(key, _)| !key.is_empty());
    pair.ok_or_else(|| in_flag(flag, "expected KEY=VALUE, for example touch.scope=gatewayClass"))
}

fn in_flag(flag: &str, message: &str) -> ConfigError {
    ConfigError(format!("--set {}: {}", brief(flag), brief(message)))
}

/// Sets a key such as `touch.scope` or `clusters[0].context` to a value, which may be any YAML.
fn patch_value<T: Serialize + DeserializeOwned>(
    base: &T,
    key: &str,
    value: &str,
) -> Result<T, String> {
    let value = match value {
        "" => Value::from(""),
        value => from_yaml(value)
            .map_err(|error| error.render_with_formatter(&serde_saphyr::UserMessageFormatter))?,
    };
    let mut tree = serde_json::to_value(base).map_err(|error| error.to_string())?;
    *at(&mut tree, key).ok_or_else(|| format!("{key}: no such place"))? = value;
    serde_path_to_error::deserialize(tree)
        .map_err(|error| format!("{}: {}", error.path(), error.inner()))
}

/// The value of a key; creates it if it does not exist.
fn at<'a>(tree: &'a mut Value, key: &str) -> Option<&'a mut Value> {
    let mut here = tree;
    for part in key.split('.') {
        let (name, indexes) = part.split_at(part.find('[').unwrap_or(part.len()));
        if here.is_null() {
            *here = json!({});
        }
        here = here.as_object_mut()?.entry(name).or_insert(Value::Null);
        for index in indexes.split_inclusive(']') {
            let index = index.strip_prefix('[')?.strip_suffix(']')?;
            here = here.get_mut(index.parse::<usize>().ok()?)?;
        }
    }
    Some(here)
}

/// Tests of the program shorten constants with this variable, which holds JSON of
/// [`Constants`](super::Constants).
#[cfg(debug_assertions)]
fn constants_of_tests() -> Result<super::Constants, ConfigError> {
    let constants = super::Constants::default();
    let Ok(text) = std::env::var("THROUGHLINE_CONSTANTS") else { return Ok(constants) };
    let refused = |message: String| ConfigError(format!("THROUGHLINE_CONSTANTS: {message}"));
    let given: Value = serde_json::from_str(&text).map_err(|error| refused(error.to_string()))?;
    let mut tree = serde_json::to_value(constants).unwrap_or_default();
    merge(&mut tree, given).map_err(|name| refused(format!("unknown name {name}")))?;
    serde_json::from_value(tree).map_err(|error| refused(error.to_string()))
}

/// Merges the given values, or returns a name that does not exist.
#[cfg(debug_assertions)]
fn merge(tree: &mut Value, given: Value) -> Result<(), String> {
    let Value::Object(given) = given else {
        *tree = given;
        return Ok(());
    };
    given.into_iter().try_for_each(|(name, value)| match tree.get_mut(&name) {
        Some(place) => merge(place, value),
        None => Err(name),
    })
}
