//! Tests name constants beside keys; the program takes them from another place.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use throughline::config::Config;
use throughline::core::contract::settings::Settings;

/// Writes a configuration, and beside it what is no key: the value of the variable `THROUGHLINE_CONSTANTS`.
pub(crate) fn write(file: &Path, config: &Value) {
    let known = serde_json::to_value(Config::default()).unwrap();
    let settings = serde_json::to_value(Settings::default()).unwrap();
    let (mut keys, mut constants) = (json!({}), json!({}));
    for (section, given) in config.as_object().unwrap() {
        match given.as_object().filter(|_| settings.get(section).is_some()) {
            // Some settings of the machine have keys.
            Some(given) => {
                for (name, value) in given {
                    let is_key = known[section].get(name).is_some();
                    let place = if is_key { &mut keys } else { &mut constants["settings"] };
                    place[section][name] = value.clone();
                }
            }
            None => {
                let is_key = known.get(section).is_some();
                let place = if is_key { &mut keys } else { &mut constants };
                place[section] = given.clone();
            }
        }
    }
    fs::write(file, keys.to_string()).unwrap();
    fs::write(beside(file), constants.to_string()).unwrap();
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
