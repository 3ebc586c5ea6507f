//! What users and other programs see, held still: a golden for each part, and a corpus of event logs
//! of version 1. A change of the surface is a difference here, which somebody reviews.
//! `UPDATE_EXPECT=1` rewrites the goldens.

mod corpus;
mod shape;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use expect_test::expect_file;
use serde_json::Value;
use throughline::metrics::{Format, MachineCounts, Metrics};

use crate::every_metric;
use crate::program::printed;

fn surface(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/commands/surface").join(name)
}

fn assert_golden(name: &str, text: &str) {
    expect_file![surface(name)].assert_eq(text);
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
        let labelled = line.split_once('{').filter(|_| !line.starts_with('#'));
        let Some((series, labels)) = labelled else { continue };
        let keys = labels.split('"').step_by(2).filter_map(|key| key.strip_suffix('='));
        let keys = keys.map(|key| key.trim_start_matches(',')).filter(|key| *key != "le");
        if let Some((_, known)) = families.get_mut(series.trim_end_matches("_bucket")) {
            known.extend(keys);
        }
    }
    let line = |(name, (kind, labels)): (_, (_, BTreeSet<&str>))| {
        format!("{name} {kind} {}", labels.into_iter().collect::<Vec<_>>().join(","))
    };
    let lines: Vec<_> = families.into_iter().map(line).map(|l| l.trim_end().to_owned()).collect();
    assert_golden("metrics.txt", &(lines.join("\n") + "\n"));
}
