//! Tests name constants beside keys; the program takes them from another place.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Map, Value, json};

/// The keys of the sections that hold settings of the machine, too.
const KEYS: [(&str, &[&str]); 3] = [
    ("mirror", &["deferredPerSecond", "nudgeKey"]),
    ("touch", &["enabled", "key", "platformKey", "scope", "maxPerSecond"]),
    ("orphans", &["mode", "minAge", "deletedProjects"]),
];

/// Writes a configuration, and beside it what is no key: the value of the variable `THROUGHLINE_CONSTANTS`.
pub(crate) fn write(file: &Path, config: &Value) {
    let mut keys = config.as_object().unwrap().clone();
    let (mut constants, mut settings) = (Map::new(), Map::new());
    for section in ["watch", "executor"] {
        constants.extend(keys.remove_entry(section));
    }
    for section in ["stall", "retry"] {
        settings.extend(keys.remove_entry(section));
    }
    for (section, known) in KEYS {
        let Some(Value::Object(all)) = keys.remove(section) else { continue };
        let (of_keys, others): (Map<_, _>, Map<_, _>) =
            all.into_iter().partition(|(name, _)| known.contains(&name.as_str()));
        keys.insert(section.to_owned(), of_keys.into());
        settings.insert(section.to_owned(), others.into());
    }
    if let Some(Value::Object(election)) = keys.get_mut("leaderElection") {
        let (renew, retry) = (election.remove("renewDeadlineMs"), election.remove("retryPeriodMs"));
        let timings = json!({ "renewDeadlineMs": renew, "retryMs": retry });
        constants.insert("election".to_owned(), timings);
    }
    if let Some(shutdown) = keys.remove("shutdown") {
        constants.insert("shutdownGraceMs".to_owned(), shutdown["graceMs"].clone());
    }
    constants.insert("settings".to_owned(), settings.into());
    fs::write(file, Value::from(keys).to_string()).unwrap();
    fs::write(beside(file), Value::from(constants).to_string()).unwrap();
}

fn beside(file: &Path) -> PathBuf {
    file.with_extension("constants")
}

/// Gives the program the constants of a configuration that [`write`] wrote.
pub(crate) fn give(command: &mut Command, file: &Path) {
    if let Ok(constants) = fs::read_to_string(beside(file)) {
        command.env("THROUGHLINE_CONSTANTS", constants);
    }
}
