//! What users and other programs see, held still by a golden for each part: of JSON its shape, which members
//! there are and of which types. A change of the surface is a difference here, which somebody reviews.
//! `UPDATE_EXPECT=1` rewrites the goldens. `transcripts` has the help of each command, and the keys.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use expect_test::expect_file;
use serde_json::Value;
use throughline::admin::Query;
use throughline::config::StateAccess;
use throughline::event_log::LogReader;
use throughline::inspect::log::{self, LogMoment};
use throughline::metrics::{Format, MachineCounts, Metrics};

use crate::every_metric;
use crate::http::Server;
use crate::program::{fixture, printed};

/// Logs that together show most of what can be shown.
const LOGS: [(&str, &str); 8] = [
    ("careless-platform", ""),
    ("../tests/logs/corpus/settings-and-retry", ""),
    ("incident-503", "default/home-lab"),
    ("oversized-status-nothing-fits", "default/home-lab"),
    ("second-writer-keeps-at-it", "default/home-lab"),
    ("three-tiers-through-the-carrier", "default/home-lab"),
    ("upstream-cluster-not-configured", "default/known"),
    ("orphan-is-reported", ""),
];

fn assert_golden(name: &str, text: &str) {
    expect_file![format!("surface/{name}")].assert_eq(text);
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

/// Adds each member under its path, with the type of its value.
fn add(value: &Value, path: &str, members: &mut BTreeMap<String, BTreeSet<&'static str>>) {
    let kind = match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    members.entry(path.to_owned()).or_default().insert(kind);
    match value {
        Value::Array(items) => items.iter().for_each(|v| add(v, &format!("{path}[]"), members)),
        Value::Object(object) => {
            for (key, value) in object {
                // Annotations and labels are data.
                let key = if key.contains('/') { "*" } else { key };
                add(value, &format!("{path}.{key}"), members);
            }
        }
        _ => {}
    }
}

fn assert_shape(name: &str, values: impl IntoIterator<Item = Value>) {
    let mut members = BTreeMap::new();
    values.into_iter().for_each(|value| add(&value, "", &mut members));
    let mut text = String::new();
    for (path, kinds) in members.iter().filter(|(path, _)| !path.is_empty()) {
        let _ =
            writeln!(text, "{path}: {}", kinds.iter().copied().collect::<Vec<_>>().join(" or "));
    }
    assert_golden(name, &text);
}

/// What `/state` says of each log, at its end and in its middle.
#[tokio::test]
async fn shape_of_the_state() {
    let mut states = Vec::new();
    for (name, _) in LOGS {
        for at in [None, Some(LogMoment::Offset(5_000)), Some(LogMoment::Offset(8_000))] {
            let mut reader = LogReader::open(&fixture(name)).unwrap();
            let (fleet, _) = log::fleet(&mut reader, at, true).unwrap();
            let (server, mut asked) = Server::start("127.0.0.1", StateAccess::Loopback).await;
            tokio::spawn(async move {
                if let Some(Query::State(answer)) = asked.recv().await {
                    drop(answer.send(fleet));
                }
            });
            states.push(serde_json::from_str(&server.get("/state").await.body).unwrap());
            server.stop().await;
        }
    }
    assert_shape("state.txt", states);
}

#[test]
fn shape_of_what_commands_print() {
    let of = |words: &str, log: &str| {
        let words: Vec<_> = words.split(' ').collect();
        let out = printed(&[&words[..], &[fixture(log).as_str(), "-o", "json"]].concat());
        serde_json::from_str(&out).unwrap()
    };
    assert_shape("status.txt", LOGS.map(|(log, _)| of("status --log", log)));
    assert_shape("replay.txt", LOGS.map(|(log, _)| of("replay", log)));
    let traced = LOGS.into_iter().filter(|(_, connector)| !connector.is_empty());
    let trace = |(log, of_log): (&str, &str)| of(&format!("trace connector {of_log} --log"), log);
    assert_shape("trace.txt", traced.map(trace));
}
