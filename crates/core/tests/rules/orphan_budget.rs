//! The limits on deletes: per minute, and by the share of orphans in one upstream cluster.

use throughline_core::contract::action::Verb;
use throughline_core::contract::event::{EventKind, Outcome};
use throughline_core::contract::keep_reason::KeepReason;
use throughline_core::contract::note::{AnomalyKind, NoteKind};
use throughline_core::contract::settings::{Fraction, OrphanMode, Settings};
use throughline_core::data::ids::{ClusterName, Kind};

use crate::stage::{self, START, Stage, UID};

fn settings(change: impl FnOnce(&mut Settings)) -> Settings {
    let mut settings = Settings::default();
    settings.orphans.mode = OrphanMode::Delete;
    change(&mut settings);
    settings
}

fn route(name: &str, created: u64, version: u64, more: &str) -> String {
    let created = throughline_core::data::time::UnixMillis(created);
    format!(
        r#"{{"kind":"HTTPRoute","metadata":{{"namespace":"ns-{UID}","name":"{name}","uid":"u-{name}","resourceVersion":"{version}","creationTimestamp":"{created}"{more},"labels":{{"meta.datumapis.com/upstream-cluster-name":"cluster-up","meta.datumapis.com/upstream-namespace":"default","meta.datumapis.com/upstream-name":"{name}","meta.datumapis.com/upstream-group":"gateway.networking.k8s.io","meta.datumapis.com/upstream-kind":"HTTPRoute"}}}},"spec":{{"parentRefs":[{{"name":"{name}"}}]}}}}"#
    )
}

/// `routes` old routes, each with its Gateway.
fn fleet(routes: usize, settings: Settings) -> Stage {
    let mut stage = Stage::new(settings);
    for i in 0..routes {
        let gateway = stage.upstream_gateway(&name(i));
        stage.applied("up", &gateway);
        let version = stage.version();
        stage.applied("hub", &route(&name(i), START - 3_600_000, version, ""));
    }
    stage.pass_to(100_000);
    stage.assert_no_action();
    stage
}

fn name(i: usize) -> String {
    format!("app-{i:03}")
}

fn lose_gateways(stage: &mut Stage, which: std::ops::Range<usize>) {
    for i in which {
        let gateway = stage.upstream_gateway(&name(i));
        stage.deleted("up", &gateway);
    }
}

fn regain_gateways(stage: &mut Stage, which: std::ops::Range<usize>) {
    for i in which {
        let gateway = stage.upstream_gateway(&name(i));
        stage.applied("up", &gateway);
    }
}

fn kept(stage: &Stage, reason: KeepReason) -> u64 {
    let counts = stage.machine.orphan_counts();
    counts.kept.iter().find(|(k, _)| *k == reason).map_or(0, |(_, n)| *n)
}

/// When each delete since the last call was decided, in milliseconds.
fn deletes(stage: &mut Stage) -> Vec<u64> {
    let decided = stage.actions();
    assert!(decided.iter().all(|d| d.action.verb == Verb::Delete));
    decided.iter().map(|d| d.at.0 - START).collect()
}

fn held(stage: &mut Stage) -> Vec<(bool, u64, u64)> {
    let held = stage.notes().into_iter().filter_map(|note| match note.kind {
        NoteKind::DeletesHeld { held, orphans, routes, .. } => Some((held, orphans, routes)),
        _ => None,
    });
    held.collect()
}

#[test]
fn deletes_per_minute_are_limited_and_the_others_wait_their_turn() {
    let all = Fraction::per_mille(1_000);
    let mut stage = fleet(25, settings(|s| s.orphans.max_share = all));
    lose_gateways(&mut stage, 0..25);
    stage.pass_to(130_000);
    let first = stage.actions();
    assert_eq!(first.len(), 5, "half of ten at once");
    assert_eq!(first[0].action.object.name, name(0));
    assert_eq!((kept(&stage, KeepReason::Budget), stage.machine.orphan_counts().orphans), (20, 5));
    // What failed for an unknown reason may have been deleted.
    for decision in &first {
        stage.fail(decision.action.id);
    }
    stage.pass_to(141_999);
    stage.assert_no_action();
    stage.pass_to(190_000);
    let second = stage.actions();
    let times: Vec<_> = second.iter().map(|d| d.at.0 - START).collect();
    assert_eq!(times, [142_000, 154_000, 166_000, 178_000, 190_000], "then five a minute");
    // A route that has not had a turn comes before one that has.
    let late: Vec<_> = second.iter().map(|d| d.action.object.name.clone()).collect();
    assert_eq!(late, (5..10).map(name).collect::<Vec<_>>());
}

/// 200 that nobody may delete would otherwise keep the one from its turn that may be.
#[test]
fn a_delete_that_changed_nothing_makes_room_for_another() {
    let outcomes = [
        Outcome::Conflict { error: "a parent exists".into() },
        Outcome::Refused { error: "403".into() },
        Outcome::NotFound,
    ];
    for outcome in outcomes {
        let mut stage = fleet(12, settings(|s| s.orphans.max_share = Fraction::per_mille(1_000)));
        lose_gateways(&mut stage, 0..12);
        stage.pass_to(130_000);
        let mut tried = Vec::new();
        loop {
            let decided = stage.actions();
            for decision in &decided {
                stage.finish(decision, outcome.clone());
            }
            if decided.is_empty() {
                break;
            }
            tried.extend(decided.iter().map(|d| d.action.object.name.clone()));
        }
        assert_eq!(tried, (0..12).map(name).collect::<Vec<_>>(), "{outcome:?}, at once");
    }
}

/// By then the limit has made room for another one by itself.
#[test]
fn an_answer_that_comes_late_makes_no_room() {
    let mut stage = fleet(8, settings(|s| s.orphans.max_share = Fraction::per_mille(1_000)));
    lose_gateways(&mut stage, 0..8);
    stage.pass_to(130_000);
    let first = stage.actions();
    stage.pass_to(142_000);
    let sixth = stage.only_action();
    for decision in first.iter().chain([&sixth]) {
        stage.finish(decision, Outcome::Conflict { error: "a parent exists".into() });
    }
    assert_eq!(deletes(&mut stage), [142_000], "in the place of the sixth alone");
}

#[test]
fn the_limit_holds_in_every_minute() {
    let all = Fraction::per_mille(1_000);
    let mut stage = fleet(
        5,
        settings(|s| {
            s.orphans.max_share = all;
            s.orphans.max_per_minute = 2;
        }),
    );
    lose_gateways(&mut stage, 0..1);
    stage.pass_to(110_000);
    lose_gateways(&mut stage, 1..5);
    stage.pass_to(255_000);
    assert_eq!(deletes(&mut stage), [130_000, 190_000, 250_000], "one at once, and one a minute");
}

/// The evidence may have gone out of sight while the route waited.
#[test]
fn a_route_is_judged_again_when_its_turn_comes() {
    let mut stage = fleet(
        2,
        settings(|s| {
            s.orphans.max_per_minute = 1;
            s.orphans.fresh_ms = 40_000;
        }),
    );
    lose_gateways(&mut stage, 0..2);
    stage.pass_without_bookmarks_to(130_000);
    assert_eq!(deletes(&mut stage), [130_000]);
    stage.pass_without_bookmarks_to(300_000);
    stage.assert_no_action();
    assert_eq!(kept(&stage, KeepReason::Stale), 2);
}

#[test]
fn a_limit_of_zero_deletes_nothing() {
    let mut stage = fleet(3, settings(|s| s.orphans.max_per_minute = 0));
    lose_gateways(&mut stage, 0..3);
    stage.pass_to(500_000);
    stage.assert_no_action();
    assert_eq!(kept(&stage, KeepReason::Budget), 3);
}

#[test]
fn the_share_must_be_exceeded_and_applies_above_a_number_of_routes() {
    // Of 11 routes, 3 are 27 % and 4 are 36 %; of 10 routes, any number may be deleted.
    for (routes, lost, deleted) in [(11, 3, 3), (11, 4, 0), (10, 10, 10), (20, 6, 6), (20, 7, 0)] {
        let mut stage = fleet(routes, settings(|_| {}));
        lose_gateways(&mut stage, 0..lost);
        stage.pass_to(500_000);
        let decided = stage.actions();
        let names: std::collections::BTreeSet<_> =
            decided.iter().map(|d| d.action.object.name.clone()).collect();
        assert_eq!(names.len(), deleted, "{lost} of {routes}");
    }
}

/// If each route were judged alone, the first would be deleted before the others were counted.
#[test]
fn all_orphans_of_a_moment_are_counted_before_the_first_delete() {
    let mut stage = fleet(20, settings(|s| s.orphans.settle_ms = 0));
    stage.list("up", "Gateway", &[]);
    stage.pass_to(200_000);
    stage.assert_no_action();
    assert_eq!(kept(&stage, KeepReason::ShareExceeded), 20);
}

#[test]
fn held_deletes_are_reported_once_and_released_when_orphans_are_few() {
    let mut stage = fleet(20, settings(|_| {}));
    let _ = stage.notes();
    lose_gateways(&mut stage, 0..7);
    let notes = stage.notes();
    let anomalies = notes.iter().filter(
        |n| matches!(&n.kind, NoteKind::Anomaly(a) if a.anomaly == AnomalyKind::TooManyOrphans),
    );
    assert_eq!(anomalies.count(), 1);
    assert!(notes.iter().any(|n| matches!(n.kind, NoteKind::DeletesHeld { held: true, .. })));
    lose_gateways(&mut stage, 7..10);
    stage.pass_to(500_000);
    assert_eq!(held(&mut stage), []);
    stage.assert_no_action();
    // Deletes stay held while the evidence is out of sight.
    stage.lost("up", "Gateway");
    stage.pass_to(510_000);
    assert_eq!(held(&mut stage), []);
    let back: Vec<_> = (10..20).map(|i| stage.upstream_gateway(&name(i))).collect();
    let back: Vec<_> = back.iter().map(String::as_str).collect();
    stage.list("up", "Gateway", &back);
    stage.pass_to(600_000);
    assert_eq!(held(&mut stage), []);
    stage.assert_no_action();
    // Six are left; their settling time starts again.
    regain_gateways(&mut stage, 6..10);
    assert_eq!(held(&mut stage), [(false, 6, 20)]);
    stage.pass_to(629_999);
    stage.assert_no_action();
    stage.pass_to(642_000);
    assert_eq!(deletes(&mut stage), [630_000, 630_000, 630_000, 630_000, 630_000, 642_000]);
}

#[test]
fn a_held_cluster_does_not_hold_another() {
    let mut stage = fleet(20, settings(|_| {}));
    let roles = vec![throughline_core::data::ids::Role::Upstream];
    stage.event(EventKind::ClusterAdded { cluster: "up2".into(), roles });
    stage.event(EventKind::ListStarted { cluster: "up2".into(), kind: Kind::Namespace });
    let namespace = stage::namespace("22222222-0000-4000-8000-000000000002");
    let wire: throughline_core::data::objects::WireObject =
        serde_json::from_str(&namespace).unwrap();
    let object = std::sync::Arc::new(wire.try_into().unwrap());
    stage.event(EventKind::Listed { cluster: "up2".into(), object });
    stage.event(EventKind::ListFinished { cluster: "up2".into(), kind: Kind::Namespace });
    stage.event(EventKind::ListStarted { cluster: "up2".into(), kind: Kind::Gateway });
    stage.event(EventKind::ListFinished { cluster: "up2".into(), kind: Kind::Gateway });
    let version = stage.version();
    let other = route("other", START - 3_600_000, version, "")
        .replace("cluster-up\"", "cluster-up2\"")
        .replace(UID, "22222222-0000-4000-8000-000000000002");
    stage.applied("hub", &other);
    lose_gateways(&mut stage, 0..20);
    stage.pass_to(131_000);
    assert_eq!(stage.only_action().action.object.name, "other");
}

#[test]
fn the_gateway_watch_must_show_signs_of_life_and_a_bookmark_is_one() {
    let mut stage = fleet(2, settings(|s| s.orphans.settle_ms = 200_000));
    lose_gateways(&mut stage, 0..1);
    // The deletion of the Gateway was a sign of life.
    stage.pass_without_bookmarks_to(300_000);
    stage.assert_no_action();
    assert_eq!(kept(&stage, KeepReason::Stale), 1);
    stage.bookmark();
    assert_eq!(kept(&stage, KeepReason::Settling), 1);
    stage.pass_without_bookmarks_to(400_000);
    stage.bookmark();
    stage.pass_without_bookmarks_to(499_999);
    stage.assert_no_action();
    stage.pass_without_bookmarks_to(500_000);
    assert_eq!(deletes(&mut stage), [500_000]);
}

/// Events of other kinds or clusters do not count.
#[test]
fn only_the_upstream_gateway_watch_counts() {
    let mut stage = fleet(2, settings(|s| s.orphans.settle_ms = 200_000));
    lose_gateways(&mut stage, 0..1);
    stage.pass_without_bookmarks_to(200_000);
    let bookmark =
        |cluster: &str, kind| EventKind::Bookmark { cluster: ClusterName::from(cluster), kind };
    for (cluster, kind) in
        [("up", Kind::Namespace), ("hub", Kind::HttpRoute), ("edge", Kind::Gateway)]
    {
        stage.event(bookmark(cluster, kind));
    }
    stage.pass_without_bookmarks_to(300_000);
    stage.assert_no_action();
    assert_eq!(kept(&stage, KeepReason::Stale), 1);
}

#[test]
fn a_cluster_restored_from_an_older_state_keeps_its_orphans() {
    let mut stage = fleet(2, settings(|_| {}));
    lose_gateways(&mut stage, 0..1);
    stage.event(EventKind::ResourceVersionRegressed { cluster: "up".into(), kind: Kind::Gateway });
    stage.pass_to(500_000);
    stage.assert_no_action();
    assert_eq!(kept(&stage, KeepReason::ResourceVersionRegressed), 2);
    stage.list("up", "Gateway", &[]);
    stage.pass_to(900_000);
    stage.assert_no_action();
}

#[test]
fn a_route_is_kept_until_its_finalizers_are_gone() {
    let mut stage = fleet(1, settings(|_| {}));
    let version = stage.version();
    let finalized = route(&name(0), START - 3_600_000, version, r#","finalizers":["x.y/z"]"#);
    stage.applied("hub", &finalized);
    lose_gateways(&mut stage, 0..1);
    stage.pass_to(200_000);
    stage.assert_no_action();
    assert_eq!(kept(&stage, KeepReason::Finalizers), 1);
    let version = stage.version();
    stage.applied("hub", &route(&name(0), START - 3_600_000, version, ""));
    stage.pass_to(230_000);
    assert_eq!(deletes(&mut stage), [230_000]);
}

/// The counts follow every change, and are zero when no route is left.
#[test]
fn every_route_is_counted_once_and_forgotten() {
    let mut stage = fleet(12, settings(|_| {}));
    assert!(!stage.machine.orphan_counts().is_any());
    lose_gateways(&mut stage, 0..12);
    stage.pass_to(200_000);
    assert_eq!(
        (kept(&stage, KeepReason::ShareExceeded), stage.machine.candidates().len()),
        (12, 12)
    );
    stage.lost("hub", "HTTPRoute");
    assert_eq!(kept(&stage, KeepReason::ListsIncomplete), 12);
    stage.list("hub", "HTTPRoute", &[]);
    assert!(!stage.machine.orphan_counts().is_any());
    assert_eq!(stage.machine.candidates(), []);
    assert_eq!(held(&mut stage).last(), Some(&(false, 0, 0)));
    stage.event(EventKind::ClusterRemoved { cluster: "up".into() });
    let version = stage.version();
    stage.applied("hub", &route("new", START, version, ""));
    assert_eq!(kept(&stage, KeepReason::ClusterUnknown), 1);
    stage.event(EventKind::ClusterRemoved { cluster: "hub".into() });
    assert!(!stage.machine.orphan_counts().is_any());
}

/// The note about held deletes refers to the route that has been an orphan for longest.
#[test]
fn held_deletes_are_reported_on_the_oldest_orphan() {
    let mut stage = fleet(20, settings(|s| s.orphans.settle_ms = 600_000));
    lose_gateways(&mut stage, 7..8);
    stage.pass_to(110_000);
    lose_gateways(&mut stage, 0..7);
    stage.pass_to(120_000);
    let notes: Vec<_> = std::iter::from_fn(|| stage.machine.poll_note()).collect();
    let held = notes.iter().find(|n| matches!(n.kind, NoteKind::DeletesHeld { held: true, .. }));
    let subject = stage.machine.involved_object(&held.unwrap().kind).unwrap();
    assert_eq!((subject.kind, subject.object.name), (Kind::HttpRoute, name(7)));
    assert_eq!((subject.cluster.as_str(), subject.uid.as_deref()), ("hub", Some("u-app-007")));
}
