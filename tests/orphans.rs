//! Orphaned routes, to the millisecond: what has to hold, and from when on.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "support/stage.rs"]
mod stage;

use stage::{Stage, UID, namespace, route_object};
use throughline::core::action::{Noted, Verb};
use throughline::core::event::{Happened, Outcome};
use throughline::core::settings::{OrphanMode, Settings};

const HOUR_MS: u64 = 3_600_000;

/// A route whose parents are `site` and `blog`, of which only `site` is there; it is old.
fn orphan_to_be() -> (Stage, String) {
    let mut settings = Settings::default();
    settings.orphans.mode = OrphanMode::Delete;
    let mut stage = Stage::new(settings);
    let site = stage.upstream_gateway("site");
    stage.applied("up", &site);
    stage.route(HOUR_MS, &["site", "blog"]);
    stage.pass_to(100_000);
    stage.nothing();
    (stage, site)
}

/// Nothing until then, and then the delete.
fn deleted_at(stage: &mut Stage, ms: u64) {
    stage.pass_to(ms - 1);
    stage.nothing();
    stage.pass_to(ms);
    let delete = stage.one();
    assert_eq!((delete.action.verb, delete.action.object.name.as_str()), (Verb::Delete, "lab"));
    assert_eq!(delete.action.precondition.uid.as_deref(), Some("u-r"));
    assert!(delete.action.precondition.resource_version.is_some());
    let absent = delete.action.precondition.absent.unwrap();
    assert_eq!((absent.cluster.as_str(), absent.namespace.as_str()), ("up", "default"));
    assert_eq!(absent.names, ["blog", "site"]);
}

#[test]
fn it_goes_when_it_was_one_for_the_settling_time() {
    let (mut stage, site) = orphan_to_be();
    stage.deleted("up", &site);
    deleted_at(&mut stage, 130_000);
}

#[test]
fn a_parent_that_comes_back_starts_the_settling_anew() {
    let (mut stage, site) = orphan_to_be();
    stage.deleted("up", &site);
    stage.pass_to(129_999);
    stage.applied("up", &site);
    stage.pass_to(200_000);
    stage.nothing();
    stage.deleted("up", &site);
    deleted_at(&mut stage, 230_000);
}

#[test]
fn a_younger_one_waits_for_its_age() {
    let (mut stage, site) = orphan_to_be();
    stage.route(10_000, &["site", "blog"]);
    stage.deleted("up", &site);
    deleted_at(&mut stage, 100_000 - 10_000 + 300_000);
}

#[test]
fn what_was_not_watched_does_not_count() {
    for kind in ["Gateway", "Namespace"] {
        let (mut stage, site) = orphan_to_be();
        stage.deleted("up", &site);
        stage.pass_to(110_000);
        stage.lost("up", kind);
        stage.pass_to(200_000);
        stage.nothing();
        let namespace = namespace(UID);
        let listed: &[&str] = if kind == "Gateway" { &[] } else { &[&namespace] };
        stage.list("up", kind, listed);
        deleted_at(&mut stage, 230_000);
    }
}

#[test]
fn it_stays_while_its_evidence_is_out_of_sight() {
    type Break = fn(&mut Stage);
    let breaks: [(&str, Break); 6] = [
        ("the hub's routes", |s| s.lost("hub", "HTTPRoute")),
        ("upstream's gateways", |s| s.lost("up", "Gateway")),
        ("upstream's namespaces", |s| s.lost("up", "Namespace")),
        ("the cluster is removed", |s| s.tell(Happened::ClusterRemoved { cluster: "up".into() })),
        ("another namespace of that name", |s| {
            s.applied("up", &namespace("6bcb0b35-0000-4000-8000-00000000000f"));
        }),
        ("no leadership", |s| s.tell(Happened::LeadershipLost)),
    ];
    for (what, break_it) in breaks {
        let (mut stage, site) = orphan_to_be();
        stage.deleted("up", &site);
        stage.pass_to(129_999);
        break_it(&mut stage);
        stage.pass_to(HOUR_MS);
        assert_eq!(stage.decided(), [], "{what}");
    }
}

#[test]
fn leadership_that_returns_takes_it_up() {
    let (mut stage, site) = orphan_to_be();
    stage.tell(Happened::LeadershipLost);
    stage.deleted("up", &site);
    stage.pass_to(200_000);
    stage.nothing();
    stage.tell(Happened::LeadershipAcquired);
    assert_eq!(stage.one().at.0, stage::START + 200_000);
}

#[test]
fn a_delete_that_failed_is_tried_again_and_one_that_landed_is_not() {
    let (mut stage, site) = orphan_to_be();
    stage.deleted("up", &site);
    stage.pass_to(130_000);
    let first = stage.one();
    stage.fail(first.action.id);
    stage.pass_to(130_999);
    stage.nothing();
    stage.pass_to(131_000);
    let second = stage.one();
    stage.finish(&second, Outcome::Refused { error: "403".into() });
    assert!(stage.troubles().iter().any(|n| matches!(n, Noted::Anomaly(_))));
    stage.pass_to(430_999);
    stage.nothing();
    stage.pass_to(431_000);
    let third = stage.one();
    stage.land(&third);
    stage.pass_to(490_999);
    stage.nothing();
    // Its going was never seen: it is looked at again.
    stage.pass_to(491_000);
    assert_eq!(stage.one().action.verb, Verb::Delete);
}

#[test]
fn it_is_told_once_each_time_its_fate_changes() {
    let (mut stage, site) = orphan_to_be();
    let told = |stage: &mut Stage| -> Vec<Option<String>> {
        let notes = stage.notes().into_iter();
        notes
            .filter_map(|n| match n.what {
                Noted::Orphan { kept, .. } => Some(kept.map(|k| k.to_string())),
                _ => None,
            })
            .collect()
    };
    assert_eq!(told(&mut stage), []);
    stage.deleted("up", &site);
    assert_eq!(told(&mut stage), [Some("it is an orphan for too short a time".to_owned())]);
    stage.pass_to(129_000);
    assert_eq!(told(&mut stage), []);
    stage.applied("up", &site);
    assert_eq!(told(&mut stage), [Some("a parent exists".to_owned())]);
    stage.deleted("up", &site);
    stage.pass_to(200_000);
    assert_eq!(told(&mut stage), [Some("it is an orphan for too short a time".to_owned()), None]);
}

#[test]
fn an_older_version_of_a_route_is_not_believed_but_in_a_list() {
    // The newest version names a parent that lives; the older one a parent that does not.
    for (event, uid, gone) in
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
        assert_eq!(!stage.decided().is_empty(), gone, "{event} {uid}");
    }
}

#[test]
fn a_change_of_the_route_keeps_its_settling_and_another_route_does_not() {
    for (uid, at_ms) in [("u-r", 130_000), ("u-other", 150_000)] {
        let (mut stage, _) = orphan_to_be();
        let now = stage.now;
        stage.applied("hub", &route_object(now, "u-r", "70", "blog"));
        stage.pass_to(120_000);
        stage.applied("hub", &route_object(now, uid, "71", "blog"));
        stage.pass_to(at_ms - 1);
        stage.nothing();
        stage.pass_to(at_ms);
        let delete = stage.one();
        assert_eq!(delete.action.precondition.uid.as_deref(), Some(uid));
        assert_eq!(delete.action.precondition.resource_version.as_deref(), Some("71"));
    }
}

#[test]
fn a_route_that_can_not_be_named_exactly_is_kept() {
    for (uid, version) in [("", "70"), ("u-r", "")] {
        let (mut stage, _) = orphan_to_be();
        let now = stage.now;
        stage.applied("hub", &route_object(now, uid, version, "blog"));
        stage.pass_to(HOUR_MS);
        stage.nothing();
    }
}
