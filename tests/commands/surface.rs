//! What users and other programs see, held still: a golden for each part, and a corpus of event logs
//! of version 1. A change of the surface is a difference here, which somebody reviews.
//! `UPDATE_EXPECT=1` rewrites the goldens.

mod corpus;
mod shape;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use expect_test::expect_file;
use serde_json::Value;
use throughline::metrics::{Format, MachineCounts, Metrics};

use crate::every_metric;

fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn surface(name: &str) -> PathBuf {
    repository().join("tests/commands/surface").join(name)
}

fn fixture(name: &str) -> String {
    repository().join("fixtures").join(format!("{name}.jsonl")).display().to_string()
}

fn assert_golden(name: &str, text: &str) {
    expect_file![surface(name)].assert_eq(text);
}

/// What the program prints with these arguments.
fn printed(args: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_throughline"));
    let command = command.args(args).env_clear().env("NO_COLOR", "1").stdin(Stdio::null());
    let output = command.output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(!output.stdout.is_empty(), "{args:?}: {error}");
    String::from_utf8(output.stdout).unwrap()
}

fn json(args: &[&str]) -> Value {
    serde_json::from_str(&printed(args)).unwrap()
}

/// The long help of a command and of those below it.
fn describe(path: &[&str], text: &mut String) {
    let help = printed(&[path, &["--help"]].concat());
    let _ = writeln!(
        text,
        "$ throughline {}\n{}\n",
        [path, &["--help"]].concat().join(" "),
        help.trim_end()
    );
    let below = help.split_once("\nCommands:\n").map_or("", |(_, rest)| rest);
    for line in below.lines().take_while(|line| !line.is_empty()) {
        let name = line.strip_prefix("  ").filter(|line| !line.starts_with(' '));
        let name = name.and_then(|line| line.split(' ').next());
        if let Some(name) = name.filter(|name| *name != "help") {
            describe(&[path, &[name]].concat(), text);
        }
    }
}

#[test]
fn help_of_every_command() {
    let mut text = String::new();
    describe(&[], &mut text);
    let lines: Vec<_> = text.trim_end().lines().map(str::trim_end).collect();
    assert_golden("help.txt", &(lines.join("\n") + "\n"));
}

#[test]
fn the_version_names_the_commit_of_the_build() {
    let commit = option_env!("THROUGHLINE_COMMIT").unwrap_or("unknown");
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(printed(&["version"]), format!("throughline {version} (commit {commit})\n"));
}

/// Every key with its default, as `throughline config` prints them.
#[test]
fn configuration_keys() {
    let file = surface("config.yaml");
    let printed = printed(&["config", "--config", file.to_str().unwrap()]);
    let lines = printed.lines().filter(|line| !line.starts_with('#'));
    assert_golden("keys.yaml", &lines.map(|line| format!("{line}\n")).collect::<String>());
}

#[test]
fn metric_names_with_type_and_labels() {
    let metrics = Metrics::new();
    let _requests = every_metric::count(&metrics);
    let scraped = metrics.text(Some(&MachineCounts::default()), Format::Plain);
    let mut families = BTreeMap::<&str, (&str, BTreeSet<&str>)>::new();
    for line in scraped.lines() {
        if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|l| l.split_once(' ')) {
            families.insert(name, (kind, BTreeSet::new()));
            continue;
        }
        let Some((series, labels)) = line.split_once('{').filter(|_| !line.starts_with('#')) else {
            continue;
        };
        let family = series.strip_suffix("_bucket").filter(|name| families.contains_key(name));
        let family = families.get_mut(family.unwrap_or(series));
        let keys = labels.split("=\"").filter_map(|part| part.rsplit(['"', ',', '{']).next());
        let keys = keys.filter(|key| !key.is_empty() && !key.starts_with('}') && *key != "le");
        if let Some((_, known)) = family {
            known.extend(keys);
        }
    }
    let line = |(name, (kind, labels)): (_, (_, BTreeSet<&str>))| {
        format!("{name} {kind} {}", labels.into_iter().collect::<Vec<_>>().join(","))
    };
    let lines: Vec<_> = families.into_iter().map(line).map(|l| l.trim_end().to_owned()).collect();
    assert_golden("metrics.txt", &(lines.join("\n") + "\n"));
}
