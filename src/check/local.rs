//! Checks this machine: the configuration, and the directory of the event log.

use std::fs::{self, OpenOptions};
use std::io;
use std::path::Path;

use serde_json::Value;

use super::finding::{Check, Draft};
use crate::config::Config;
use crate::core::contract::cause::{About, Cause, Facts};
use crate::core::contract::error_cause::{ErrorCause, RequestFailure};
use crate::core::data::ids::ClusterName;

/// With less free space the event log would fill the disk within minutes.
const ROOM_MIN: u64 = 100 * 1024 * 1024;

/// The configuration was read, so it is valid: shows the keys with other values than the defaults.
pub(super) fn configuration(config: &Config) -> Draft {
    let mut keys = Vec::new();
    let [ours, default] = [config, &Config::default()].map(|config| {
        let mut tree = serde_json::to_value(config).unwrap_or_default();
        tree["clusters"].take();
        tree
    });
    changed("", &ours, &default, &mut keys);
    let clusters = crate::report::count(config.clusters.len(), "cluster");
    let evidence = [vec![clusters], keys].concat().join(", ");
    Draft::passed(Check::Configuration, None, evidence)
}

/// Collects `key=value` for the values that differ.
fn changed(path: &str, ours: &Value, default: &Value, keys: &mut Vec<String>) {
    match ours {
        Value::Object(fields) => {
            for (name, value) in fields {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                changed(&path, value, &default[name.as_str()], keys);
            }
        }
        value if value == default => {}
        Value::String(text) => keys.push(format!("{path}={text}")),
        value => keys.push(format!("{path}={value}")),
    }
}

/// Creates a file beside the event log, and removes it.
pub(super) fn event_log(config: &Config) -> Draft {
    let Some(file) = &config.event_log.file else {
        return Draft::passed(Check::EventLog, None, "`eventLog.file` is not set");
    };
    let folder = match file.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    };
    let free = match free_bytes(folder) {
        Ok(free) if free >= ROOM_MIN => Ok(free),
        Ok(free) => Err(format!("only {} MiB are free", free >> 20)),
        Err(error) => Err(error.to_string()),
    };
    let tried = format!("created a file in {} and removed it", folder.display());
    match free {
        Ok(free) => {
            Draft::passed(Check::EventLog, None, format!("{tried}; {} MiB free", free >> 20))
        }
        Err(error) => {
            let facts = Facts {
                file: Some(file.display().to_string().into()),
                error: Some(RequestFailure::new(ErrorCause::Other, error)),
                ..Facts::default()
            };
            // The subject is this instance.
            let subject = About::cluster(&ClusterName::from("instance"));
            Draft::failed(Check::EventLog, Cause::EventLogFailing, subject, facts, tried)
                .of_no_cluster()
        }
    }
}

fn free_bytes(folder: &Path) -> io::Result<u64> {
    let probe = folder.join(format!(".throughline-check-{}", std::process::id()));
    OpenOptions::new().write(true).create_new(true).open(&probe)?;
    fs::remove_file(&probe)?;
    let room = rustix::fs::statvfs(folder)?;
    Ok(room.f_bavail.saturating_mul(room.f_frsize))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_keys_that_are_not_the_default_are_shown() {
        let mut config = Config { dry_run: true, ..Config::default() };
        config.touch.key = "example.com/k".to_owned();
        let Draft { evidence, .. } = configuration(&config);
        assert_eq!(evidence, "no clusters, dryRun=true, touch.key=example.com/k");
    }

    #[test]
    fn a_folder_that_takes_no_file_fails() {
        let mut config = Config::default();
        assert!(!event_log(&config).is_problem());
        config.event_log.file = Some("/proc/nowhere/log.jsonl".into());
        assert!(event_log(&config).is_problem());
        config.event_log.file = Some(std::env::temp_dir().join("log.jsonl"));
        assert!(!event_log(&config).is_problem());
    }
}
