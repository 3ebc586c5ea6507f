//! Each fixture replays to its golden. `UPDATE_EXPECT=1` writes the goldens anew.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use throughline::core::action::{Decision, Hop, Note, Noted, Stall, Verb};
use throughline::core::event::{Event, Happened, Outcome};
use throughline::core::ids::{ClusterName, Kind, ObjectKey};
use throughline::core::liveness;
use throughline::core::objects::{
    Body, Object, UPSTREAM_CLUSTER_NAME, UPSTREAM_NAME, UPSTREAM_NAMESPACE, UPSTREAM_STATUS,
    upstream_cluster_name,
};
use throughline::core::settings::{OrphanMode, Settings, Share};
use throughline::core::spelling::spell;
use throughline::core::time::UnixMillis;
use throughline::event_log::{Line, Reader};
use throughline::replay::{Done, Mode, Options, Replay, replay};

/// A longer value is printed by its meaning and hash.
const WHOLE_VALUE_BYTES_MAX: usize = 120;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures")
}

fn names(extension: &str) -> BTreeSet<String> {
    let files = fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path());
    let of_kind = files.filter(|p| p.extension().is_some_and(|e| e == extension));
    of_kind.map(|p| p.file_stem().unwrap().to_str().unwrap().to_owned()).collect()
}

/// What each fixture shows, from the table in the README.
fn titles() -> BTreeMap<String, String> {
    let readme = fs::read_to_string(folder().join("README.md")).unwrap();
    let rows = readme.lines().filter_map(|line| line.strip_prefix("| `"));
    rows.map(|row| {
        let (name, rest) = row.split_once("` | ").unwrap();
        (name.to_owned(), rest.split(" | ").next().unwrap().to_owned())
    })
    .collect()
}

/// What-if replay of a fixture; everything that entered and left the machine goes to the log.
fn replayed(name: &str, change: impl FnOnce(&mut Settings), log: Option<&mut Vec<u8>>) -> Replay {
    let path = folder().join(format!("{name}.jsonl"));
    let mut reader = Reader::open(path.to_str().unwrap()).unwrap();
    let options = Options { mode: Some(Mode::WhatIf), ..Options::default() };
    let settings = |settings: &mut Settings| {
        change(settings);
        Ok(())
    };
    let replay = replay(&mut reader, name, settings, &options, log, |_| {}).unwrap();
    assert_eq!(replay.warnings, Vec::<String>::new(), "{name}");
    replay
}

#[test]
fn every_fixture_has_a_golden_and_a_row_in_the_readme() {
    let fixtures = names("jsonl");
    assert!(fixtures.len() >= 26, "{} fixtures", fixtures.len());
    assert_eq!(fixtures, titles().into_keys().collect(), "rows in fixtures/README.md");
    if std::env::var_os("UPDATE_EXPECT").is_none() {
        assert_eq!(fixtures, names("expected"), "goldens");
    }
}

#[test]
fn every_fixture_replays_to_its_golden() {
    let update = std::env::var_os("UPDATE_EXPECT").is_some();
    let titles = titles();
    let mut failed = String::new();
    for name in names("jsonl") {
        let title = titles.get(&name).map_or("(no row in fixtures/README.md)", String::as_str);
        let came = format!("# {title}\n{}", rendered(&replayed(&name, |_| {}, None)));
        let path = folder().join(format!("{name}.expected"));
        if update {
            fs::write(&path, &came).unwrap();
            continue;
        }
        let expected = fs::read_to_string(&path).unwrap_or_default();
        if came != expected {
            failed += &format!("\n--- fixtures/{name}.expected\n{}", difference(&expected, &came));
        }
    }
    assert!(failed.is_empty(), "UPDATE_EXPECT=1 writes the goldens anew{failed}");
}

/// A log that a what-if writes verifies: the machine alone, fed the same lines, decides the same.
#[test]
fn every_fixture_verifies_when_its_log_is_replayed() {
    for name in names("jsonl") {
        let mut log = Vec::new();
        let first = replayed(&name, |_| {}, Some(&mut log));
        let mut reader = Reader::new("log", log.as_slice()).unwrap();
        let options = Options { mode: Some(Mode::Verify), ..Options::default() };
        let none = None::<Vec<u8>>;
        let second = replay(&mut reader, "log", |_| Ok(()), &options, none, |_| {}).unwrap();
        assert_eq!(second.verdict.problems, Vec::<String>::new(), "{name}");
        assert_eq!(second.actions.len(), first.actions.len(), "{name}");
    }
}

/// The lines that only one of both has, `-` (expected) or `+` (came), each run under its line.
fn difference(expected: &str, came: &str) -> String {
    let (a, b): (Vec<_>, Vec<_>) = (expected.lines().collect(), came.lines().collect());
    // How many lines the rest of both have in common, from every place in both.
    let mut common = vec![vec![0_u32; b.len() + 1]; a.len() + 1];
    for i in (0..a.len()).rev() {
        for j in (0..b.len()).rev() {
            common[i][j] = if a[i] == b[j] {
                common[i + 1][j + 1] + 1
            } else {
                common[i + 1][j].max(common[i][j + 1])
            };
        }
    }
    let (mut i, mut j, mut same, mut out) = (0, 0, true, String::new());
    while i < a.len() || j < b.len() {
        if i < a.len() && j < b.len() && a[i] == b[j] {
            (i, j, same) = (i + 1, j + 1, true);
            continue;
        }
        if std::mem::take(&mut same) {
            let _ = writeln!(out, "@@ line {}", i + 1);
        }
        if j == b.len() || (i < a.len() && common[i + 1][j] >= common[i][j + 1]) {
            let _ = writeln!(out, "-{}", a[i]);
            i += 1;
        } else {
            let _ = writeln!(out, "+{}", b[j]);
            j += 1;
        }
    }
    out
}

/// A replay in lines: what was told and done, by time, and the verdict.
fn rendered(replay: &Replay) -> String {
    // At one moment, what was told comes before what was done about it.
    let mut lines: Vec<(UnixMillis, bool, String)> =
        replay.notes.iter().map(|n| (n.at, false, note(n))).collect();
    for (at, line) in actions(&replay.actions) {
        lines.push((at, true, line));
    }
    lines.sort_by_key(|(at, acts, _)| (*at, *acts));
    let mut out = String::new();
    for (at, _, line) in lines {
        let ms = at.since(replay.first_at);
        let _ = writeln!(out, "+{}.{:03}s {line}", ms / 1000, ms % 1000);
    }
    for problem in &replay.verdict.problems {
        let _ = writeln!(out, "problem: {problem}");
    }
    out + if replay.verdict.good { "verdict: converged\n" } else { "verdict: NOT converged\n" }
}

/// One line an action; actions of one moment that differ in the object's name alone share one.
fn actions(all: &[Done]) -> Vec<(UnixMillis, String)> {
    let mut lines: Vec<(UnixMillis, String, Vec<&str>)> = Vec::new();
    for done in all {
        let Decision { at, action, because } = &done.decision;
        let mut line =
            format!("{} {} {}/", action.verb.as_str(), action.cluster, ns(&action.object));
        line.push('\0');
        for (key, value) in &action.annotations {
            let value = value.as_deref().map_or("(removed)".into(), |v| shown(key, v));
            let _ = write!(line, " {key}={value}");
        }
        if let Some(absent) = &action.precondition.absent {
            let names = absent.names.join(",");
            let _ = write!(line, " if {}/{}/{{{names}}} absent", absent.cluster, absent.namespace);
        }
        let outcome = done.finished.as_ref().map_or("no outcome".into(), |(_, o)| outcome(o));
        let _ = write!(line, " → {outcome}  ({because})");
        match lines.last_mut() {
            Some((last_at, last, names)) if last_at == at && *last == line => {
                names.push(&action.object.name);
            }
            _ => lines.push((*at, line, vec![&action.object.name])),
        }
    }
    let named = |(at, line, names): (UnixMillis, String, Vec<&str>)| {
        let names = match names.as_slice() {
            [one] => (*one).to_owned(),
            many => format!("{{{}}}", many.join(",")),
        };
        (at, line.replace('\0', &names))
    };
    lines.into_iter().map(named).collect()
}

fn shown(key: &str, value: &str) -> String {
    if value.len() < WHOLE_VALUE_BYTES_MAX {
        return value.to_owned();
    }
    assert_eq!(key, UPSTREAM_STATUS, "no other value is long");
    let says = liveness::read(Some(value), None);
    let online = if says.online { "online" } else { "offline" };
    let hash = xxhash_rust::xxh3::xxh3_64(value.as_bytes());
    format!("[{online} {:.8}, {} bytes, xxh3 {hash:016x}]", says.node_id, value.len())
}

fn outcome(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Refused { error }
        | Outcome::Conflict { error }
        | Outcome::Failed { error, .. }
        | Outcome::Unanswered { error, .. } => {
            format!("{}: {error}", outcome.name())
        }
        _ => outcome.name().to_owned(),
    }
}

/// A namespace, cut short where it is `ns-<uid>`.
fn ns(key: &ObjectKey) -> String {
    match key.namespace.strip_prefix("ns-") {
        Some(uid) if uid.len() == 36 => format!("ns-{}…", &uid[..8]),
        _ => key.namespace.clone(),
    }
}

fn object(key: &ObjectKey) -> String {
    format!("{}/{}", ns(key), key.name)
}

fn note(note: &Note) -> String {
    let stall = |s: &Stall| format!("{} {} {}", s.hop.as_str(), s.cluster, object(&s.connector));
    match &note.what {
        Noted::HopPassed { cluster, connector, hop, online, .. } => {
            let online = if *online { "online" } else { "offline" };
            format!("· {} {cluster} {} {online}", hop.as_str(), object(connector))
        }
        Noted::Stalled(s) => format!("STALL {}: {}", stall(s), s.reason),
        Noted::StallEnded(s) => format!("stall over: {}", stall(s)),
        Noted::Anomaly(a) => {
            let about = a.object.as_ref().map(object).unwrap_or_default();
            format!("ANOMALY {:?} {} {about}: {}", a.anomaly, a.cluster, a.detail)
        }
        Noted::Orphan { cluster, route, kept: None } => {
            format!("orphan {cluster} {}", object(route))
        }
        Noted::Orphan { cluster, route, kept: Some(why) } => {
            format!("route kept {cluster} {}: {why}", object(route))
        }
        Noted::DeletesHeld { cluster, held, orphans, routes } => {
            let held = if *held { "held" } else { "no longer held" };
            format!("deletes {held} {cluster}: {orphans} orphans of {routes} routes")
        }
    }
}

fn touches(replay: &Replay) -> impl Iterator<Item = &Done> {
    replay.actions.iter().filter(|d| d.decision.action.verb == Verb::Touch)
}

#[test]
fn the_incident_heals_within_a_second_and_office_is_never_written() {
    let replay = replayed("incident-503", |_| {}, None);
    assert!(replay.verdict.good, "{:?}", replay.verdict.problems);
    let touched: BTreeSet<_> = touches(&replay).map(|d| &d.decision.action.object).collect();
    assert_eq!(touched.len(), 26);
    for done in &replay.actions {
        let action = &done.decision.action;
        let about = action.connectors.iter().chain([&action.object]);
        for key in about {
            assert!(!["office", "wiki"].contains(&key.name.as_str()), "{action:?}");
        }
        assert!(
            matches!(done.finished, Some((_, Outcome::Applied { .. }))),
            "each write is needed: {done:?}"
        );
    }
    // The last time that upstream came to say Ready.
    let is_ready = |n: &&Note| {
        matches!(&n.what, Noted::HopPassed { hop: Hop::Upstream, online: true, connector, .. }
            if connector.name == "home-lab")
    };
    let ready_at = replay.notes.iter().rfind(is_ready).unwrap().at;
    let mut healed = BTreeSet::new();
    let mut last = ready_at;
    for done in touches(&replay).filter(|d| d.decision.at >= ready_at) {
        let (finished_at, _) = done.finished.as_ref().unwrap();
        if healed.insert(&done.decision.action.object) {
            last = last.max(*finished_at);
        }
    }
    assert_eq!(healed.len(), 26);
    assert!(last.since(ready_at) < 1_000, "{} ms", last.since(ready_at));
}

type Objects = BTreeMap<(ClusterName, Kind, ObjectKey), std::sync::Arc<Object>>;

/// What the watches showed, line by line.
fn show(objects: &mut Objects, event: &Event) {
    match &event.what {
        Happened::Listed { cluster, object } | Happened::Applied { cluster, object } => {
            let place = (cluster.clone(), object.kind(), object.meta.key());
            objects.insert(place, object.clone());
        }
        Happened::Deleted { cluster, object } => {
            objects.remove(&(cluster.clone(), object.kind(), object.meta.key()));
        }
        _ => {}
    }
}

#[test]
fn the_careless_platform_converges_and_no_route_with_a_living_parent_is_deleted() {
    // More of its routes are orphans than may go unasked.
    let replay = replayed("careless-platform", |s| s.orphans.mode = OrphanMode::Delete, None);
    assert!(replay.actions.iter().all(|done| done.decision.action.verb != Verb::Delete));
    let delete = |settings: &mut Settings| {
        settings.orphans.mode = OrphanMode::Delete;
        settings.orphans.max_share = Share::per_mille(1_000);
    };
    let mut log = Vec::new();
    let replay = replayed("careless-platform", delete, Some(&mut log));
    assert!(replay.verdict.good, "{:?}", replay.verdict.problems);
    let cluster = |name: &str| ClusterName::from(name);
    let mut objects = Objects::new();
    let mut deleted = 0;
    let mut reader = Reader::new("log", log.as_slice()).unwrap();
    while let Some(line) = reader.next_line().unwrap() {
        match line {
            Line::Event(event) => show(&mut objects, &event),
            Line::Action(decision) if decision.action.verb == Verb::Delete => {
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
            Line::Action(_) => {}
        }
    }
    assert!(deleted > 0, "the recording holds orphans");
    let mut replicas = 0;
    for ((place, kind, key), object) in &objects {
        if (place.as_str(), *kind) != ("hub", Kind::Connector) {
            continue;
        }
        let label = |key| object.meta.labels.get(key).unwrap();
        let upstream = upstream_cluster_name(label(UPSTREAM_CLUSTER_NAME)).unwrap();
        let source = ObjectKey::new(label(UPSTREAM_NAMESPACE), label(UPSTREAM_NAME));
        let source = objects.get(&(cluster(&upstream), Kind::Connector, source));
        let should = source.and_then(|s| s.status()).and_then(spell);
        let is = object.meta.annotations.get(UPSTREAM_STATUS).and_then(spell);
        assert_eq!(is, should, "{key}");
        replicas += 1;
    }
    assert!(replicas > 0);
}
