//! Each fixture replays to its golden. `UPDATE_EXPECT=1` rewrites the goldens.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use throughline::core::contract::action::{Decision, Verb};
use throughline::core::contract::event::{Event, EventKind, Outcome};
use throughline::core::contract::membership::Membership;
use throughline::core::contract::note::{Hop, Note, NoteKind, Stall};
use throughline::core::contract::settings::{Fraction, OrphanMode, Settings};
use throughline::core::data::ids::{ClusterName, Kind, ObjectKey};
use throughline::core::data::objects::{
    Body, Object, UPSTREAM_CLUSTER_NAME, UPSTREAM_NAME, UPSTREAM_NAMESPACE, UPSTREAM_STATUS,
    upstream_cluster_name,
};
use throughline::core::data::time::UnixMillis;
use throughline::core::status::go_json::canonical;
use throughline::core::status::liveness;
use throughline::event_log::{LogEntry, LogReader};
use throughline::replay::{ActionRecord, Replay, ReplayMode, ReplayOptions, replay};

/// Longer values are printed as their liveness and hash.
const WHOLE_VALUE_BYTES_MAX: usize = 120;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures")
}

fn names(extension: &str) -> BTreeSet<String> {
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
fn replayed(name: &str, change: impl Fn(&mut Settings), log: Option<&mut Vec<u8>>) -> Replay {
    let path = folder().join(format!("{name}.jsonl"));
    let mut reader = LogReader::open(path.to_str().unwrap()).unwrap();
    let options = ReplayOptions { mode: Some(ReplayMode::WhatIf), ..ReplayOptions::default() };
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
        let actual = format!("# {title}\n{}", rendered(&replayed(&name, |_| {}, None)));
        let path = folder().join(format!("{name}.expected"));
        if update {
            fs::write(&path, &actual).unwrap();
            continue;
        }
        let expected = fs::read_to_string(&path).unwrap_or_default();
        if actual != expected {
            failed +=
                &format!("\n--- fixtures/{name}.expected\n{}", difference(&expected, &actual));
        }
    }
    assert!(failed.is_empty(), "UPDATE_EXPECT=1 rewrites the goldens{failed}");
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

/// The lines that differ, `-` (expected) or `+` (actual), each group under its line number.
fn difference(expected: &str, actual: &str) -> String {
    let (a, b): (Vec<_>, Vec<_>) = (expected.lines().collect(), actual.lines().collect());
    // The length of the longest common subsequence of the rests, for every pair of positions.
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

/// A replay as text: its notes and actions by time, and the verdict.
fn rendered(replay: &Replay) -> String {
    // Notes come before the actions of the same millisecond.
    let mut lines: Vec<(UnixMillis, bool, String)> =
        replay.notes.iter().map(|n| (n.at, false, note(n))).collect();
    lines.extend(replay.memberships.iter().map(|(at, change)| (*at, false, membership(change))));
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

/// One line per action. Actions of the same millisecond that differ only in the object's name share
/// a line.
fn actions(all: &[ActionRecord]) -> Vec<(UnixMillis, String)> {
    let mut lines: Vec<(UnixMillis, String, Vec<&str>)> = Vec::new();
    for record in all {
        let Decision { at, action, because, .. } = &record.decision;
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
        if let Some(project) = &action.precondition.absent_project {
            let _ = write!(line, " if project {} absent", project.cluster);
        }
        let outcome = record.finished.as_ref().map_or("no outcome".into(), |(_, o)| outcome(o));
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
    let liveness = liveness::read(Some(value), None);
    let online = if liveness.online { "online" } else { "offline" };
    let hash = xxhash_rust::xxh3::xxh3_64(value.as_bytes());
    format!("[{online} {:.8}, {} bytes, xxh3 {hash:016x}]", liveness.node_id, value.len())
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

/// A namespace, shortened if it is `ns-<uid>`.
fn ns(key: &ObjectKey) -> String {
    match key.namespace.strip_prefix("ns-") {
        Some(uid) if uid.len() == 36 => format!("ns-{}…", &uid[..8]),
        _ => key.namespace.clone(),
    }
}

fn object(key: &ObjectKey) -> String {
    format!("{}/{}", ns(key), key.name)
}

fn membership(change: &Membership) -> String {
    match change {
        Membership::Join { source, cluster, roles } => {
            let roles: Vec<_> = roles.iter().map(|role| role.as_str()).collect();
            format!("JOIN {cluster} ({}) from {source}", roles.join(", "))
        }
        Membership::Leave { cluster, reason } => format!("LEAVE {cluster}: {}", reason.as_str()),
    }
}

fn note(note: &Note) -> String {
    let stall = |s: &Stall| format!("{} {} {}", s.hop.as_str(), s.cluster, object(&s.connector));
    match &note.kind {
        NoteKind::HopPassed { cluster, connector, hop, online, .. } => {
            let online = if *online { "online" } else { "offline" };
            format!("· {} {cluster} {} {online}", hop.as_str(), object(connector))
        }
        NoteKind::Deferred { cluster, connector, deferred } => {
            let deferred = if *deferred { "deferred" } else { "no longer deferred" };
            format!("· {deferred} {cluster} {}", object(connector))
        }
        NoteKind::Stalled(s) => format!("STALL {}: {}", stall(s), s.reason),
        NoteKind::StallEnded(s) => format!("stall over: {}", stall(s)),
        NoteKind::Anomaly(a) => {
            let about = a.object.as_ref().map(object).unwrap_or_default();
            format!("ANOMALY {:?} {} {about}: {}", a.anomaly, a.cluster, a.detail)
        }
        NoteKind::Orphan { cluster, route, kept: None } => {
            format!("orphan {cluster} {}", object(route))
        }
        NoteKind::Orphan { cluster, route, kept: Some(why) } => {
            format!("route kept {cluster} {}: {why}", object(route))
        }
        NoteKind::OrphanGone { cluster, route } => {
            format!("orphan gone {cluster} {}", object(route))
        }
        NoteKind::Held { cluster, reason, held: 0, .. } => {
            format!("no longer held {cluster}: {}", reason.as_str())
        }
        NoteKind::Held { cluster, reason, held, named } => {
            format!("held {cluster}: {held} of {named}, {}: {}", reason.as_str(), reason.text())
        }
        NoteKind::DeletesHeld { cluster, held, orphans, routes } => {
            let held = if *held { "held" } else { "no longer held" };
            format!("deletes {held} {cluster}: {orphans} orphans of {routes} routes")
        }
        NoteKind::TouchesWaiting { cluster, waiting } => format!("{cluster}: {waiting}"),
        NoteKind::Discovery { source, problem, clusters: 0, .. } => {
            format!("discovery {source}: no longer {}", problem.as_str())
        }
        NoteKind::Discovery { source, problem, clusters, of, detail } => {
            format!("discovery {source}: {} {clusters} of {of}: {detail}", problem.as_str())
        }
        NoteKind::ClusterGone { cluster, connectors: 0, routes: 0 } => {
            format!("no longer gone, or no longer named: {cluster}")
        }
        NoteKind::ClusterGone { cluster, connectors, routes } => {
            format!("GONE {cluster}: {connectors} connectors and {routes} routes name it")
        }
    }
}

fn touches(replay: &Replay) -> impl Iterator<Item = &ActionRecord> {
    replay.actions.iter().filter(|d| d.decision.action.verb == Verb::Touch)
}

#[test]
fn the_incident_heals_within_a_second_without_writes_for_office() {
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
    // The last time upstream became Ready.
    let is_ready = |n: &&Note| {
        matches!(&n.kind, NoteKind::HopPassed { hop: Hop::Upstream, online: true, connector, .. }
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
            LogEntry::Action(_) => {}
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
