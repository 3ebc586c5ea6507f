//! The house rules that a program can check.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::fs;
use std::path::{Path, PathBuf};

fn files_under(folder: &str, ending: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.to_string_lossy().ends_with(ending) {
                found.push(path);
            }
        }
    }
    assert!(!found.is_empty(), "no *{ending} under {folder}");
    found.sort();
    found
}

/// The machine must give the same actions for the same events: nothing it stands on may know the
/// time, the machine it runs on, or chance.
#[test]
fn the_core_is_pure() {
    const FORBIDDEN: [&str; 14] = [
        "std::time",
        "SystemTime",
        "Instant",
        "std::fs",
        "std::io",
        "std::net",
        "std::env",
        "std::thread",
        "async ",
        "tokio",
        "rand::",
        "RandomState",
        "println!",
        "tracing",
    ];
    for path in files_under("src/core", ".rs") {
        let text = fs::read_to_string(&path).unwrap();
        let code = text.split("#[cfg(test)]").next().unwrap();
        for (number, line) in code.lines().enumerate() {
            let line = line.split("//").next().unwrap();
            for word in FORBIDDEN {
                assert!(!line.contains(word), "{}:{}: {word}", path.display(), number + 1);
            }
        }
    }
}

#[test]
fn no_file_is_a_house_of_its_own() {
    const LINES_MAX: usize = 400;
    let rust = ["src", "tests", "benches"].map(|folder| (folder, ".rs"));
    for (folder, ending) in rust.into_iter().chain([("src", ".js"), ("src", ".css")]) {
        for path in files_under(folder, ending) {
            let lines = fs::read_to_string(&path).unwrap().lines().count();
            assert!(lines <= LINES_MAX, "{} has {lines} lines and wants to be two", path.display());
        }
    }
}

/// lib.rs is the code map: a module that is missing there is not found by a reader.
#[test]
fn every_module_is_in_the_code_map() {
    let map = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("src/lib.rs")).unwrap();
    for line in map.lines() {
        if let Some(module) = line.strip_prefix("pub mod ").and_then(|m| m.strip_suffix(';')) {
            assert!(map.contains(&format!("//! - [`{module}`]")), "{module} is not in the map");
        }
    }
}
