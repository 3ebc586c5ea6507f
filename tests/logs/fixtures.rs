//! Each fixture replays to its golden. `UPDATE_EXPECT=1` rewrites the goldens.

mod golden;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use expect_test::expect_file;
use golden::rendered;
use similar::TextDiff;
use throughline::core::contract::action::Verb;
use throughline::core::contract::cause::State;
use throughline::core::contract::settings::{Fraction, OrphanMode, Settings};
use throughline::core::data::ids::{Kind, ObjectKey};
use throughline::core::data::objects::{Body, UPSTREAM_NAMESPACE};
use throughline::event_log::LogReader;
use throughline::look;
use throughline::look::log::LogMoment;
use throughline::replay::{Replay, ReplayMode, ReplayOptions, replay};

use crate::end::LogEnd;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures")
}

pub(crate) fn names(extension: &str) -> BTreeSet<String> {
    let files = fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path());
    let of_kind = files.filter(|p| p.extension().is_some_and(|e| e == extension));
    of_kind.map(|p| p.file_stem().unwrap().to_str().unwrap().to_owned()).collect()
}

/// The first line of a golden, which a person writes: what the fixture shows.
fn title(name: &str, golden: &str) -> String {
    let first = golden.lines().next().filter(|line| line.starts_with("# "));
    let missing = format!("the first line of fixtures/{name}.expected is not `# what it shows`");
    first.expect(&missing).to_owned()
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
fn every_fixture_replays_to_its_golden() {
    let replays = names("jsonl").into_iter().map(|name| {
        let golden = expect_file![folder().join(format!("{name}.expected"))];
        let title = title(&name, &golden.data());
        let actual = format!("{title}\n{}", rendered(&replayed(&name, |_| {}, None)));
        (golden, name, actual)
    });
    let replays: Vec<_> = replays.collect();
    assert!(replays.len() >= 26, "{} fixtures", replays.len());
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

/// A what-if's log verifies: fed the same events, the machine decides the same. An oracle that shares no
/// code with the rules finds something wrong exactly where the what-if did not converge. It leaves out what
/// is held.
#[test]
fn every_fixture_verifies_and_an_oracle_agrees_with_its_verdict() {
    for name in names("jsonl") {
        let mut log = Vec::new();
        let first = replayed(&name, |_| {}, Some(&mut log));
        let reader = || LogReader::new("log", log.as_slice()).unwrap();
        let options = ReplayOptions { mode: Some(ReplayMode::Verify), ..ReplayOptions::default() };
        let none = None::<Vec<u8>>;
        let second = replay(&mut reader(), "log", |_| Ok(()), &options, none, |_| {}).unwrap();
        assert_eq!(second.verdict.problems, Vec::<String>::new(), "{name}");
        assert_eq!(second.actions.len(), first.actions.len(), "{name}");

        let (fleet, _) = look::log::fleet(&mut reader(), LogMoment::End, true).unwrap();
        let held = fleet.connectors.iter().filter(|connector| connector.state == State::Held);
        let held = held.filter_map(|connector| connector.name.clone()).collect();
        let wrong = LogEnd::read(&log, |_, _| {}).problems(&held);
        let problems = &first.verdict.problems;
        assert_eq!(first.verdict.good, wrong.is_empty(), "{name}: {problems:?}\n{wrong:#?}");
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
    let mut deleted = 0;
    let end = LogEnd::read(&log, |clusters, action| {
        if action.verb != Verb::Delete {
            return;
        }
        deleted += 1;
        let route = clusters.get(&"hub".into(), Kind::HttpRoute, &action.object).unwrap();
        let Body::HttpRoute { parents } = &route.body else { panic!("{route:?}") };
        assert!(!parents.is_empty());
        let namespace = route.meta.labels.get(UPSTREAM_NAMESPACE).unwrap();
        for parent in parents {
            let gateway = ObjectKey::new(namespace, &parent.name);
            assert!(
                clusters.get(&"org/team-1".into(), Kind::Gateway, &gateway).is_none(),
                "{action:?}"
            );
        }
    });
    assert!(deleted > 0, "the recording has orphans");
    assert_eq!(end.problems(&BTreeSet::new()), Vec::<String>::new());
}
