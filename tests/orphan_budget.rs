//! How many orphans may go, what makes all of them stay, and from when on.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "support/stage.rs"]
mod stage;

use stage::{START, Stage, UID};
use throughline::core::action::{AnomalyKind, Noted, Verb};
use throughline::core::event::{Happened, Outcome};
use throughline::core::ids::{ClusterName, Kind};
use throughline::core::keep::Keep;
use throughline::core::settings::{OrphanMode, Settings, Share};

fn settings(change: impl FnOnce(&mut Settings)) -> Settings {
    let mut settings = Settings::default();
    settings.orphans.mode = OrphanMode::Delete;
    change(&mut settings);
    settings
}

fn route(name: &str, created: u64, version: u64, more: &str) -> String {
    let created = throughline::core::time::UnixMillis(created);
    format!(
        r#"{{"kind":"HTTPRoute","metadata":{{"namespace":"ns-{UID}","name":"{name}","uid":"u-{name}","resourceVersion":"{version}","creationTimestamp":"{created}"{more},"labels":{{"meta.datumapis.com/upstream-cluster-name":"cluster-up","meta.datumapis.com/upstream-namespace":"default","meta.datumapis.com/upstream-name":"{name}","meta.datumapis.com/upstream-group":"gateway.networking.k8s.io","meta.datumapis.com/upstream-kind":"HTTPRoute"}}}},"spec":{{"parentRefs":[{{"name":"{name}"}}]}}}}"#
    )
}

/// So many old routes, each with its Gateway.
fn fleet(routes: usize, settings: Settings) -> Stage {
    let mut stage = Stage::new(settings);
    for i in 0..routes {
        let gateway = stage.upstream_gateway(&name(i));
        stage.applied("up", &gateway);
        let version = stage.version();
        stage.applied("hub", &route(&name(i), START - 3_600_000, version, ""));
    }
    stage.pass_to(100_000);
    stage.nothing();
    stage
}

fn name(i: usize) -> String {
    format!("app-{i:03}")
}

fn lose(stage: &mut Stage, which: std::ops::Range<usize>) {
    for i in which {
        let gateway = stage.upstream_gateway(&name(i));
        stage.deleted("up", &gateway);
    }
}

fn regain(stage: &mut Stage, which: std::ops::Range<usize>) {
    for i in which {
        let gateway = stage.upstream_gateway(&name(i));
        stage.applied("up", &gateway);
    }
}

fn kept(stage: &Stage, keep: Keep) -> u64 {
    let counts = stage.machine.orphan_counts();
    counts.kept.iter().find(|(k, _)| *k == keep).map_or(0, |(_, n)| *n)
}

/// When each delete since the last look was decided, in milliseconds.
fn deletes(stage: &mut Stage) -> Vec<u64> {
    let decided = stage.decided();
    assert!(decided.iter().all(|d| d.action.verb == Verb::Delete));
    decided.iter().map(|d| d.at.0 - START).collect()
}

fn held(stage: &mut Stage) -> Vec<(bool, u64, u64)> {
    let told = stage.notes().into_iter().filter_map(|note| match note.what {
        Noted::DeletesHeld { held, orphans, routes, .. } => Some((held, orphans, routes)),
        _ => None,
    });
    told.collect()
}

#[test]
fn so_many_go_within_a_minute_and_the_others_wait_their_turn() {
    let all = Share::per_mille(1_000);
    let mut stage = fleet(45, settings(|s| s.orphans.max_share = all));
    lose(&mut stage, 0..45);
    stage.pass_to(130_000);
    let first = stage.decided();
    assert_eq!(first.len(), 20);
    assert_eq!(first[0].action.object.name, name(0));
    assert_eq!((kept(&stage, Keep::Budget), stage.machine.orphan_counts().orphans), (25, 20));
    // What came to nothing was decided all the same.
    for decision in &first {
        stage.finish(decision, Outcome::Conflict { error: "a parent exists".into() });
    }
    stage.pass_to(189_999);
    stage.nothing();
    stage.pass_to(190_000);
    let second = stage.decided();
    assert_eq!(second.len(), 20);
    // Who never had a turn comes before who had one.
    let late: Vec<_> = second.iter().map(|d| d.action.object.name.clone()).collect();
    assert_eq!(late[0], name(20));
    stage.pass_to(250_000);
    let third: Vec<_> = stage.decided().iter().map(|d| d.action.object.name.clone()).collect();
    assert_eq!((third.len(), third[0].clone(), third[4].clone()), (20, name(40), name(44)));
}

#[test]
fn the_window_slides() {
    let all = Share::per_mille(1_000);
    let mut stage = fleet(
        5,
        settings(|s| {
            s.orphans.max_share = all;
            s.orphans.max_per_minute = 2;
        }),
    );
    lose(&mut stage, 0..1);
    stage.pass_to(110_000);
    lose(&mut stage, 1..5);
    stage.pass_to(255_000);
    assert_eq!(deletes(&mut stage), [130_000, 140_000, 190_000, 200_000, 250_000]);
}

/// What it stood on when it began to wait may be out of sight when its turn comes.
#[test]
fn whose_turn_comes_is_judged_once_more() {
    let mut stage = fleet(
        2,
        settings(|s| {
            s.orphans.max_per_minute = 1;
            s.orphans.fresh_ms = 40_000;
        }),
    );
    lose(&mut stage, 0..2);
    stage.pass_in_silence_to(130_000);
    assert_eq!(deletes(&mut stage), [130_000]);
    stage.pass_in_silence_to(300_000);
    stage.nothing();
    assert_eq!(kept(&stage, Keep::Stale), 2);
}

#[test]
fn none_may_go() {
    let mut stage = fleet(3, settings(|s| s.orphans.max_per_minute = 0));
    lose(&mut stage, 0..3);
    stage.pass_to(500_000);
    stage.nothing();
    assert_eq!(kept(&stage, Keep::Budget), 3);
}

#[test]
fn a_share_is_exceeded_by_more_and_counts_from_more_routes_on() {
    // Of 11 routes 3 are 27 %, 4 are 36 %; of 10 any may go.
    for (routes, lost, gone) in [(11, 3, 3), (11, 4, 0), (10, 10, 10), (20, 6, 6), (20, 7, 0)] {
        let mut stage = fleet(routes, settings(|_| {}));
        lose(&mut stage, 0..lost);
        stage.pass_to(500_000);
        let decided = stage.decided();
        let names: std::collections::BTreeSet<_> =
            decided.iter().map(|d| d.action.object.name.clone()).collect();
        assert_eq!(names.len(), gone, "{lost} of {routes}");
    }
}

/// Were each judged when its own time came, the first would go before the others were counted.
#[test]
fn all_of_a_moment_are_counted_before_the_first_goes() {
    let mut stage = fleet(20, settings(|s| s.orphans.settle_ms = 0));
    stage.list("up", "Gateway", &[]);
    stage.pass_to(200_000);
    stage.nothing();
    assert_eq!(kept(&stage, Keep::ShareExceeded), 20);
}

#[test]
fn it_is_told_once_and_ends_when_the_cause_is_gone() {
    let mut stage = fleet(20, settings(|_| {}));
    let _ = stage.notes();
    lose(&mut stage, 0..7);
    let notes = stage.notes();
    let anomalies = notes.iter().filter(
        |n| matches!(&n.what, Noted::Anomaly(a) if a.anomaly == AnomalyKind::TooManyOrphans),
    );
    assert_eq!(anomalies.count(), 1);
    assert!(notes.iter().any(|n| matches!(n.what, Noted::DeletesHeld { held: true, .. })));
    lose(&mut stage, 7..10);
    stage.pass_to(500_000);
    assert_eq!(held(&mut stage), []);
    stage.nothing();
    // What can't be seen is not over.
    stage.lost("up", "Gateway");
    stage.pass_to(510_000);
    assert_eq!(held(&mut stage), []);
    let back: Vec<_> = (10..20).map(|i| stage.upstream_gateway(&name(i))).collect();
    let back: Vec<_> = back.iter().map(String::as_str).collect();
    stage.list("up", "Gateway", &back);
    stage.pass_to(600_000);
    assert_eq!(held(&mut stage), []);
    stage.nothing();
    // Six are left; they settle anew.
    regain(&mut stage, 6..10);
    assert_eq!(held(&mut stage), [(false, 6, 20)]);
    stage.pass_to(629_999);
    stage.nothing();
    stage.pass_to(630_000);
    assert_eq!(deletes(&mut stage), [630_000; 6]);
}

#[test]
fn one_cluster_that_is_held_holds_up_no_other() {
    let mut stage = fleet(20, settings(|_| {}));
    let roles = vec![throughline::core::ids::Role::Upstream];
    stage.tell(Happened::ClusterAdded { cluster: "up2".into(), roles });
    stage.tell(Happened::ListStarted { cluster: "up2".into(), kind: Kind::Namespace });
    let namespace = stage::namespace("22222222-0000-4000-8000-000000000002");
    let wire: throughline::core::objects::Wire = serde_json::from_str(&namespace).unwrap();
    let object = std::sync::Arc::new(wire.try_into().unwrap());
    stage.tell(Happened::Listed { cluster: "up2".into(), object });
    stage.tell(Happened::ListFinished { cluster: "up2".into(), kind: Kind::Namespace });
    stage.tell(Happened::ListStarted { cluster: "up2".into(), kind: Kind::Gateway });
    stage.tell(Happened::ListFinished { cluster: "up2".into(), kind: Kind::Gateway });
    let version = stage.version();
    let other = route("other", START - 3_600_000, version, "")
        .replace("cluster-up\"", "cluster-up2\"")
        .replace(UID, "22222222-0000-4000-8000-000000000002");
    stage.applied("hub", &other);
    lose(&mut stage, 0..20);
    stage.pass_to(131_000);
    assert_eq!(stage.one().action.object.name, "other");
}

#[test]
fn news_must_be_fresh_and_a_bookmark_is_news() {
    let mut stage = fleet(2, settings(|s| s.orphans.settle_ms = 200_000));
    lose(&mut stage, 0..1);
    // The Gateway's going was news.
    stage.pass_in_silence_to(300_000);
    stage.nothing();
    assert_eq!(kept(&stage, Keep::Stale), 1);
    stage.heard();
    assert_eq!(kept(&stage, Keep::Settling), 1);
    stage.pass_in_silence_to(400_000);
    stage.heard();
    stage.pass_in_silence_to(499_999);
    stage.nothing();
    stage.pass_in_silence_to(500_000);
    assert_eq!(deletes(&mut stage), [500_000]);
}

/// News of other kinds, or of other clusters, is none.
#[test]
fn only_news_of_upstreams_gateways_counts() {
    let mut stage = fleet(2, settings(|s| s.orphans.settle_ms = 200_000));
    lose(&mut stage, 0..1);
    stage.pass_in_silence_to(200_000);
    let heard =
        |cluster: &str, kind| Happened::WatchHeard { cluster: ClusterName::from(cluster), kind };
    for (cluster, kind) in
        [("up", Kind::Namespace), ("hub", Kind::HttpRoute), ("edge", Kind::Gateway)]
    {
        stage.tell(heard(cluster, kind));
    }
    stage.pass_in_silence_to(300_000);
    stage.nothing();
    assert_eq!(kept(&stage, Keep::Stale), 1);
}

#[test]
fn a_cluster_that_went_back_keeps_its_orphans() {
    let mut stage = fleet(2, settings(|_| {}));
    lose(&mut stage, 0..1);
    stage.tell(Happened::WentBack { cluster: "up".into(), kind: Kind::Gateway });
    stage.pass_to(500_000);
    stage.nothing();
    assert_eq!(kept(&stage, Keep::WentBack), 2);
    stage.list("up", "Gateway", &[]);
    stage.pass_to(900_000);
    stage.nothing();
}

#[test]
fn finalizers_keep_a_route_until_they_are_gone() {
    let mut stage = fleet(1, settings(|_| {}));
    let version = stage.version();
    let finalized = route(&name(0), START - 3_600_000, version, r#","finalizers":["x.y/z"]"#);
    stage.applied("hub", &finalized);
    lose(&mut stage, 0..1);
    stage.pass_to(200_000);
    stage.nothing();
    assert_eq!(kept(&stage, Keep::Finalizers), 1);
    let version = stage.version();
    stage.applied("hub", &route(&name(0), START - 3_600_000, version, ""));
    stage.pass_to(230_000);
    assert_eq!(deletes(&mut stage), [230_000]);
}

/// Counts follow whatever happens, and are nothing when nothing is left.
#[test]
fn every_route_is_counted_once_and_forgotten() {
    let mut stage = fleet(12, settings(|_| {}));
    assert!(!stage.machine.orphan_counts().is_any());
    lose(&mut stage, 0..12);
    stage.pass_to(200_000);
    assert_eq!((kept(&stage, Keep::ShareExceeded), stage.machine.candidates().len()), (12, 12));
    stage.lost("hub", "HTTPRoute");
    assert_eq!(kept(&stage, Keep::ListsIncomplete), 12);
    stage.list("hub", "HTTPRoute", &[]);
    assert!(!stage.machine.orphan_counts().is_any());
    assert_eq!(stage.machine.candidates(), []);
    assert_eq!(held(&mut stage).last(), Some(&(false, 0, 0)));
    stage.tell(Happened::ClusterRemoved { cluster: "up".into() });
    let version = stage.version();
    stage.applied("hub", &route("new", START, version, ""));
    assert_eq!(kept(&stage, Keep::ClusterUnknown), 1);
    stage.tell(Happened::ClusterRemoved { cluster: "hub".into() });
    assert!(!stage.machine.orphan_counts().is_any());
}

/// One route stands for all that are held: the one that has been an orphan for longest.
#[test]
fn held_deletes_are_told_on_the_longest_orphan() {
    let mut stage = fleet(20, settings(|s| s.orphans.settle_ms = 600_000));
    lose(&mut stage, 7..8);
    stage.pass_to(110_000);
    lose(&mut stage, 0..7);
    stage.pass_to(120_000);
    let notes: Vec<_> = std::iter::from_fn(|| stage.machine.poll_note()).collect();
    let held = notes.iter().find(|n| matches!(n.what, Noted::DeletesHeld { held: true, .. }));
    let subject = stage.machine.subject(&held.unwrap().what).unwrap();
    assert_eq!((subject.kind, subject.object.name), (Kind::HttpRoute, name(7)));
    assert_eq!((subject.cluster.as_str(), subject.uid.as_deref()), ("hub", Some("u-app-007")));
}
