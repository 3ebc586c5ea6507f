//! What users and other programs see, held still: a golden for each part, and a corpus of event logs
//! of version 1. A change of the surface is a difference here, which somebody reviews.
//! `UPDATE_EXPECT=1` rewrites the goldens. `transcripts` has the help of each command, and the keys.

mod corpus;
mod shape;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

use expect_test::expect_file;
use serde_json::Value;
use throughline::metrics::{Format, MachineCounts, Metrics};

use crate::every_metric;
use crate::program::printed;

fn assert_golden(name: &str, text: &str) {
    expect_file![format!("surface/{name}")].assert_eq(text);
}

fn json(args: &[&str]) -> Value {
    serde_json::from_str(&printed(args)).unwrap()
}

#[test]
fn the_version_names_the_commit_of_the_build() {
    let commit = option_env!("THROUGHLINE_COMMIT").unwrap_or("unknown");
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(printed(&["version"]), format!("throughline {version} (commit {commit})\n"));
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
