//! Each fixture replays to its golden. `UPDATE_EXPECT=1` rewrites the goldens.

mod golden;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use expect_test::expect_file;
use golden::rendered;
use similar::TextDiff;
use throughline::core::contract::action::Verb;
use throughline::core::contract::cause::State;
use throughline::core::contract::event::{Event, EventKind};
use throughline::core::contract::settings::{Fraction, OrphanMode, Settings};
use throughline::core::data::ids::{ClusterName, Kind, ObjectKey};
use throughline::core::data::objects::{
    Body, Object, UPSTREAM_CLUSTER_NAME, UPSTREAM_NAME, UPSTREAM_NAMESPACE, UPSTREAM_STATUS,
    upstream_cluster_name,
};
use throughline::core::status::go_json::canonical;
use throughline::event_log::{LogEntry, LogReader};
use throughline::look;
use throughline::look::log::LogMoment;
use throughline::replay::{Replay, ReplayMode, ReplayOptions, replay};

use crate::oracle;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures")
}

pub(crate) fn names(extension: &str) -> BTreeSet<String> {
    let files = fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path());
    let of_kind = files.filter(|p| p.extension().is_some_and(|e| e == extension));
    of_kind.map(|p| p.file_stem().unwrap().to_str().unwrap().to_owned()).collect()
}

/// The description of each fixture, from the table in its README.
fn titles() -> BTreeMap<String, String> {
    let readme = fs::read_to_string(folder().join("README.md")).unwrap();
    let rows = readme.lines().filter_map(|line| line.strip_prefix("| `"));
    rows.map(|row| {
        let (name, rest) = row.split_once("` | ").unwrap();
        (name.to_owned(), rest.split(" | ").next().unwrap().to_owned())
    })
    .collect()
}

/// Replays a fixture in what-if mode; `log` receives the machine's events and actions.
pub(crate) fn replayed(
    name: &str,
    change: impl Fn(&mut Settings),
    log: Option<&mut Vec<u8>>,
) -> Replay {
    let path = folder().join(format!("{name}.jsonl"));
    let mut reader = LogReader::open(path.to_str().unwrap()).unwrap();
    let options = ReplayOptions { mode: Some(ReplayMode::WhatIf), ..ReplayOptions::default() };
    let settings = |settings: &mut Settings| {
        change(settings);
        Ok(())
    };
    let replay = replay(&mut reader, name, settings, &options, log, |_| {}).unwrap();
    // This one holds an event that is gone: the settings of its header hold for all of it.
    let is_retired = |warning: &String| {
        name == "settings-change-while-running" && warning.contains("wrote \"settings_changed\"")
    };
    assert_eq!(replay.warnings.iter().find(|warning| !is_retired(warning)), None, "{name}");
    replay
}

#[test]
fn every_fixture_has_a_row_in_the_readme() {
    let fixtures = names("jsonl");
    assert!(fixtures.len() >= 26, "{} fixtures", fixtures.len());
    assert_eq!(fixtures, titles().into_keys().collect(), "rows in fixtures/README.md");
}

#[test]
fn every_fixture_replays_to_its_golden() {
    let titles = titles();
    let replays = names("jsonl").into_iter().map(|name| {
        let title = titles.get(&name).map_or("(no row in fixtures/README.md)", String::as_str);
        let actual = format!("# {title}\n{}", rendered(&replayed(&name, |_| {}, None)));
        (expect_file![folder().join(format!("{name}.expected"))], name, actual)
    });
    let replays: Vec<_> = replays.collect();
    // `assert_eq` stops at the first golden that differs; these lines show all of them.
    for (golden, name, actual) in &replays {
        let (expected, replayed) = (golden.data(), format!("replay of {name}"));
        let diff = TextDiff::from_lines(&expected, actual);
        print!("{}", diff.unified_diff().context_radius(0).header(name, &replayed));
    }
    for (golden, _, actual) in &replays {
        golden.assert_eq(actual);
    }
    assert_eq!(names("expected"), names("jsonl"), "goldens and fixtures");
}

/// The log of a what-if verifies: fed the same events, the machine decides the same.
#[test]
fn every_fixture_verifies_when_its_log_is_replayed() {
    for name in names("jsonl") {
        let mut log = Vec::new();
        let first = replayed(&name, |_| {}, Some(&mut log));
        let mut reader = LogReader::new("log", log.as_slice()).unwrap();
        let options = ReplayOptions { mode: Some(ReplayMode::Verify), ..ReplayOptions::default() };
        let none = None::<Vec<u8>>;
        let second = replay(&mut reader, "log", |_| Ok(()), &options, none, |_| {}).unwrap();
        assert_eq!(second.verdict.problems, Vec::<String>::new(), "{name}");
        assert_eq!(second.actions.len(), first.actions.len(), "{name}");
    }
}

/// An oracle that shares no code with the rules finds something wrong exactly where a what-if did not
/// converge. It leaves out what is held.
#[test]
fn an_oracle_agrees_with_the_verdict_of_every_fixture() {
    let mut disagreements = Vec::new();
    for name in names("jsonl") {
        let mut log = Vec::new();
        let replay = replayed(&name, |_| {}, Some(&mut log));
        let mut reader = LogReader::new("log", log.as_slice()).unwrap();
        let (fleet, _) = look::log::fleet(&mut reader, LogMoment::End, true).unwrap();
        let held = fleet.connectors.iter().filter(|connector| connector.state == State::Held);
        let wrong = oracle::wrong(&log, &held.filter_map(|of| of.name.clone()).collect());
        if replay.verdict.good != wrong.is_empty() {
            disagreements.push((name, replay.verdict.problems, wrong));
        }
    }
    assert!(disagreements.is_empty(), "{disagreements:#?}");
}

type Objects = BTreeMap<(ClusterName, Kind, ObjectKey), std::sync::Arc<Object>>;

/// Applies an event to the objects.
fn apply(objects: &mut Objects, event: &Event) {
    match &event.kind {
        EventKind::Listed { cluster, object } | EventKind::Applied { cluster, object } => {
            let place = (cluster.clone(), object.kind(), object.meta.key());
            objects.insert(place, object.clone());
        }
        EventKind::Deleted { cluster, object } => {
            objects.remove(&(cluster.clone(), object.kind(), object.meta.key()));
        }
        _ => {}
    }
}

#[test]
fn the_careless_platform_converges_and_no_route_with_a_parent_is_deleted() {
    // By default this many orphans are too many to delete.
    let replay = replayed("careless-platform", |s| s.orphans.mode = OrphanMode::Delete, None);
    assert!(replay.actions.iter().all(|done| done.decision.action.verb != Verb::Delete));
    let delete = |settings: &mut Settings| {
        settings.orphans.mode = OrphanMode::Delete;
        settings.orphans.max_share = Fraction::per_mille(1_000);
    };
    let mut log = Vec::new();
    let replay = replayed("careless-platform", delete, Some(&mut log));
    assert!(replay.verdict.good, "{:?}", replay.verdict.problems);
    let cluster = |name: &str| ClusterName::from(name);
    let mut objects = Objects::new();
    let mut deleted = 0;
    let mut reader = LogReader::new("log", log.as_slice()).unwrap();
    while let Some(line) = reader.next_line().unwrap() {
        match line {
            LogEntry::Event(event) => apply(&mut objects, &event),
            LogEntry::Action(decision) if decision.action.verb == Verb::Delete => {
                deleted += 1;
                let place = (cluster("hub"), Kind::HttpRoute, decision.action.object.clone());
                let route = &objects[&place];
                let Body::HttpRoute { parents } = &route.body else { panic!("{route:?}") };
                assert!(!parents.is_empty());
                let namespace = route.meta.labels.get(UPSTREAM_NAMESPACE).unwrap();
                for parent in parents {
                    let gateway = ObjectKey::new(namespace, &parent.name);
                    let place = (cluster("org/team-1"), Kind::Gateway, gateway);
                    assert!(!objects.contains_key(&place), "{decision:?}");
                }
            }
            LogEntry::Action(_) | LogEntry::Retired => {}
        }
    }
    assert!(deleted > 0, "the recording has orphans");
    let mut connectors = 0;
    for ((place, kind, key), object) in &objects {
        if (place.as_str(), *kind) != ("hub", Kind::Connector) {
            continue;
        }
        let label = |key| object.meta.labels.get(key).unwrap();
        let upstream = upstream_cluster_name(label(UPSTREAM_CLUSTER_NAME)).unwrap();
        let upstream_key = ObjectKey::new(label(UPSTREAM_NAMESPACE), label(UPSTREAM_NAME));
        let upstream = objects.get(&(cluster(&upstream), Kind::Connector, upstream_key));
        let expected = upstream.and_then(|c| c.status()).and_then(canonical);
        let actual = object.meta.annotations.get(UPSTREAM_STATUS).and_then(canonical);
        assert_eq!(actual, expected, "{key}");
        connectors += 1;
    }
    assert!(connectors > 0);
}
