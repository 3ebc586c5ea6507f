//! Orphaned routes, to the millisecond: what must be true before one is deleted, and for how long.

use throughline_core::contract::action::Verb;
use throughline_core::contract::event::{EventKind, Outcome};
use throughline_core::contract::keep_reason::KeepReason;
use throughline_core::contract::note::NoteKind;
use throughline_core::contract::settings::{OrphanMode, Settings};

use crate::stage::{self, Stage, UID, namespace, route_object};

const HOUR_MS: u64 = 3_600_000;

/// An old route with the parents `site` and `blog`, of which only `site` exists.
fn orphan_to_be() -> (Stage, String) {
    let mut settings = Settings::default();
    settings.orphans.mode = OrphanMode::Delete;
    let mut stage = Stage::new(settings);
    let site = stage.upstream_gateway("site");
    stage.applied("up", &site);
    stage.route(HOUR_MS, &["site", "blog"]);
    stage.pass_to(100_000);
    stage.assert_no_action();
    (stage, site)
}

/// Asserts that nothing happens before `ms`, and that the route is deleted then.
fn deleted_at(stage: &mut Stage, ms: u64) {
    stage.pass_to(ms - 1);
    stage.assert_no_action();
    stage.pass_to(ms);
    let delete = stage.only_action();
    assert_eq!((delete.action.verb, delete.action.object.name.as_str()), (Verb::Delete, "lab"));
    assert_eq!(delete.action.precondition.uid.as_deref(), Some("u-r"));
    assert!(delete.action.precondition.resource_version.is_some());
    let absent = delete.action.precondition.absent.unwrap();
    assert_eq!((absent.cluster.as_str(), absent.namespace.as_str()), ("up", "default"));
    assert_eq!(absent.names, ["blog", "site"]);
}

#[test]
fn an_orphan_is_deleted_after_the_settling_time() {
    let (mut stage, site) = orphan_to_be();
    stage.deleted("up", &site);
    deleted_at(&mut stage, 130_000);
}

#[test]
fn a_parent_that_comes_back_restarts_the_settling_time() {
    let (mut stage, site) = orphan_to_be();
    stage.deleted("up", &site);
    stage.pass_to(129_999);
    stage.applied("up", &site);
    stage.pass_to(200_000);
    stage.assert_no_action();
    stage.deleted("up", &site);
    deleted_at(&mut stage, 230_000);
}

#[test]
fn a_young_orphan_waits_for_the_minimum_age() {
    let (mut stage, site) = orphan_to_be();
    stage.route(10_000, &["site", "blog"]);
    stage.deleted("up", &site);
    deleted_at(&mut stage, 100_000 - 10_000 + 300_000);
}

#[test]
fn time_without_a_watch_does_not_count_as_settling() {
    for kind in ["Gateway", "Namespace"] {
        let (mut stage, site) = orphan_to_be();
        stage.deleted("up", &site);
        stage.pass_to(110_000);
        stage.lost("up", kind);
        stage.pass_to(200_000);
        stage.assert_no_action();
        let namespace = namespace(UID);
        let listed: &[&str] = if kind == "Gateway" { &[] } else { &[&namespace] };
        stage.list("up", kind, listed);
        deleted_at(&mut stage, 230_000);
    }
}

#[test]
fn an_orphan_is_kept_while_its_evidence_is_out_of_sight() {
    type Break = fn(&mut Stage);
    let breaks: [(&str, Break); 6] = [
        ("the hub's routes", |s| s.lost("hub", "HTTPRoute")),
        ("upstream's gateways", |s| s.lost("up", "Gateway")),
        ("upstream's namespaces", |s| s.lost("up", "Namespace")),
        ("the cluster is removed", |s| s.event(EventKind::ClusterRemoved { cluster: "up".into() })),
        ("another namespace of that name", |s| {
            s.applied("up", &namespace("6bcb0b35-0000-4000-8000-00000000000f"));
        }),
        ("no leadership", |s| s.event(EventKind::LeadershipLost)),
    ];
    for (what, break_it) in breaks {
        let (mut stage, site) = orphan_to_be();
        stage.deleted("up", &site);
        stage.pass_to(129_999);
        break_it(&mut stage);
        stage.pass_to(HOUR_MS);
        assert_eq!(stage.actions(), [], "{what}");
    }
}

#[test]
fn an_orphan_is_deleted_once_leadership_is_back() {
    let (mut stage, site) = orphan_to_be();
    stage.event(EventKind::LeadershipLost);
    stage.deleted("up", &site);
    stage.pass_to(200_000);
    stage.assert_no_action();
    stage.event(EventKind::LeadershipAcquired);
    assert_eq!(stage.only_action().at.0, stage::START + 200_000);
}

#[test]
fn a_failed_delete_is_tried_again_and_a_successful_one_is_not() {
    let (mut stage, site) = orphan_to_be();
    stage.deleted("up", &site);
    stage.pass_to(130_000);
    let first = stage.only_action();
    stage.fail(first.action.id);
    stage.pass_to(130_999);
    stage.assert_no_action();
    stage.pass_to(131_000);
    let second = stage.only_action();
    stage.finish(&second, Outcome::Refused { error: "403".into() });
    assert!(stage.problems().iter().any(|n| matches!(n, NoteKind::Anomaly(_))));
    // What is refused is tried again every 30 s.
    stage.pass_to(160_999);
    stage.assert_no_action();
    stage.pass_to(161_000);
    let third = stage.only_action();
    stage.succeed(&third);
    stage.pass_to(220_999);
    stage.assert_no_action();
    // The watch never showed that it is gone, so after a while it is deleted again.
    stage.pass_to(221_000);
    assert_eq!(stage.only_action().action.verb, Verb::Delete);
}

#[test]
fn each_new_verdict_is_reported_once() {
    let (mut stage, site) = orphan_to_be();
    let reported = |stage: &mut Stage| -> Vec<Option<String>> {
        let notes = stage.notes().into_iter();
        notes
            .filter_map(|n| match n.kind {
                NoteKind::Orphan { kept, .. } => Some(kept.map(|k| k.to_string())),
                _ => None,
            })
            .collect()
    };
    assert_eq!(reported(&mut stage), []);
    stage.deleted("up", &site);
    assert_eq!(
        reported(&mut stage),
        [Some("it has not been an orphan for long enough".to_owned())]
    );
    stage.pass_to(129_000);
    assert_eq!(reported(&mut stage), []);
    stage.applied("up", &site);
    assert_eq!(reported(&mut stage), [Some("a parent exists".to_owned())]);
    stage.deleted("up", &site);
    stage.pass_to(200_000);
    assert_eq!(
        reported(&mut stage),
        [Some("it has not been an orphan for long enough".to_owned()), None]
    );
}

/// So that nobody keeps what was said of it: deleted, missing from a list, or replaced.
#[test]
fn the_end_of_an_orphan_is_reported_once_and_of_no_other_route() {
    type End = fn(&mut Stage);
    let ends: [(&str, End); 3] = [
        ("deleted", |stage| {
            let route = route_object(stage.now, "u-r", "71", "site");
            stage.deleted("hub", &route);
        }),
        ("missing", |stage| stage.list("hub", "HTTPRoute", &[])),
        ("replaced", |stage| {
            let other = route_object(stage.now, "u-other", "72", "site");
            stage.applied("hub", &other);
        }),
    ];
    for (what, end) in ends {
        for is_orphan in [false, true] {
            let (mut stage, site) = orphan_to_be();
            if is_orphan {
                stage.deleted("up", &site);
            }
            stage.notes();
            end(&mut stage);
            let notes = stage.notes().into_iter();
            let gone = notes.filter(|note| matches!(note.kind, NoteKind::OrphanGone { .. }));
            assert_eq!(gone.count(), usize::from(is_orphan), "{what}, an orphan: {is_orphan}");
        }
    }
}

#[test]
fn an_older_version_of_a_route_is_ignored_except_in_a_list() {
    // The newest version names a parent that exists; the older one a parent that does not.
    for (event, uid, is_deleted) in
        [("applied", "u-r", false), ("applied", "u-other", true), ("listed", "u-r", true)]
    {
        let (mut stage, _) = orphan_to_be();
        let now = stage.now;
        stage.applied("hub", &route_object(now, "u-r", "70", "site"));
        let older = route_object(now, uid, "60", "blog");
        if event == "listed" {
            stage.list("hub", "HTTPRoute", &[&older]);
        } else {
            stage.applied("hub", &older);
        }
        stage.pass_to(HOUR_MS);
        assert_eq!(!stage.actions().is_empty(), is_deleted, "{event} {uid}");
    }
}

#[test]
fn a_changed_route_keeps_its_settling_time_and_a_replaced_one_does_not() {
    for (uid, at_ms) in [("u-r", 130_000), ("u-other", 150_000)] {
        let (mut stage, _) = orphan_to_be();
        let now = stage.now;
        stage.applied("hub", &route_object(now, "u-r", "70", "blog"));
        stage.pass_to(120_000);
        stage.applied("hub", &route_object(now, uid, "71", "blog"));
        stage.pass_to(at_ms - 1);
        stage.assert_no_action();
        stage.pass_to(at_ms);
        let delete = stage.only_action();
        assert_eq!(delete.action.precondition.uid.as_deref(), Some(uid));
        assert_eq!(delete.action.precondition.resource_version.as_deref(), Some("71"));
    }
}

#[test]
fn a_route_without_uid_or_version_is_kept() {
    for (uid, version) in [("", "70"), ("u-r", "")] {
        let (mut stage, _) = orphan_to_be();
        let now = stage.now;
        stage.applied("hub", &route_object(now, uid, version, "blog"));
        stage.pass_to(HOUR_MS);
        stage.assert_no_action();
    }
}

/// What a person can put right is said first; a silent watch speaks again by itself.
#[test]
fn a_namespace_that_is_not_proved_is_said_whether_or_not_the_watch_is_silent() {
    let (mut stage, _) = orphan_to_be();
    stage.applied("up", &namespace("6bcb0b35-0000-4000-8000-00000000ffff"));
    for is_silent in [false, true] {
        if is_silent {
            stage.pass_without_bookmarks_to(600_000);
            stage.event(EventKind::TimedOut);
        }
        let kept = stage.machine.candidates()[0].kept;
        assert_eq!(kept, Some(KeepReason::NamespaceUnproved), "silent: {is_silent}");
    }
}
