//! The limits on deletes: per minute, and by the share of orphans in one upstream cluster.

use crate::orphans::{deleting, upstream_gateway};
use crate::stage::*;

/// No share of orphans is too many.
fn any_share(settings: &mut Settings) {
    settings.orphans.max_share = Fraction::per_mille(1_000);
}

/// `routes` old routes, each with its Gateway.
fn fleet(routes: usize, change: impl FnOnce(&mut Settings)) -> Stage {
    let mut stage = Stage::new(deleting(change));
    for name in app(0..routes) {
        stage.applied("up", upstream_gateway(&name));
        stage.applied("hub", UP.route(&name, START - HOUR, &[&name]));
    }
    stage.quiet_to(100_000);
    stage
}

fn app(which: Range<usize>) -> Vec<String> {
    which.map(|i| format!("app-{i:03}")).collect()
}

fn lose_gateways(stage: &mut Stage, which: Range<usize>) -> &mut Stage {
    for name in app(which) {
        stage.deleted("up", upstream_gateway(&name));
    }
    stage
}

/// The same fleet after these have lost their Gateway.
fn orphans(routes: usize, lost: usize, change: impl FnOnce(&mut Settings)) -> Stage {
    let mut stage = fleet(routes, change);
    lose_gateways(&mut stage, 0..lost);
    stage
}

/// How many routes are kept for this reason; `None` counts those that nothing keeps.
fn kept(stage: &Stage, cause: Option<Cause>) -> usize {
    stage.machine.candidates().iter().filter(|candidate| candidate.kept == cause).count()
}

/// When each delete since the last call was decided, in milliseconds.
fn deletes(stage: &mut Stage) -> Vec<u64> {
    let decided = stage.actions();
    assert!(decided.iter().all(|d| d.action.verb == Verb::Delete));
    decided.iter().map(time_of).collect()
}

/// Whether it began that deletes are held, and of how many routes.
fn held(stage: &mut Stage) -> Vec<(bool, usize, usize)> {
    let held = stage.problems().into_iter().filter(|(_, p)| p.cause == Cause::DeletesHeld);
    held.map(|(began, p)| (began, p.facts.part, p.facts.whole)).collect()
}

/// By then the limit has made room for another one by itself.
#[test]
fn an_answer_that_comes_late_makes_no_room() {
    let mut stage = orphans(8, 8, any_share);
    let mut decided = stage.pass_to(130_000).actions();
    decided.push(stage.action_at(142_000));
    decided.iter().for_each(|decision| _ = stage.finish(decision, conflict()));
    assert_eq!(deletes(&mut stage), [142_000], "in the place of the sixth alone");
}

#[test]
fn a_limit_of_zero_deletes_nothing() {
    let mut stage = orphans(3, 3, |s| s.orphans.max_per_minute = 0);
    stage.quiet_to(500_000);
    assert_eq!(kept(&stage, Some(Cause::RouteSettling)), 3);
}

#[test]
fn the_share_must_be_exceeded_and_applies_above_a_number_of_routes() {
    // Of 11 routes, 3 are 27 % and 4 are 36 %; of 10 routes, any number may be deleted.
    for (routes, lost, deleted) in [(11, 3, 3), (11, 4, 0), (10, 10, 10), (20, 6, 6), (20, 7, 0)] {
        let decided = orphans(routes, lost, |_| ()).pass_to(500_000).actions();
        let names: BTreeSet<_> = names(&decided).into_iter().collect();
        assert_eq!(names.len(), deleted, "{lost} of {routes}");
    }
}

/// If each route were judged alone, the first would be deleted before the others were counted.
#[test]
fn all_orphans_of_a_moment_are_counted_before_the_first_delete() {
    let mut stage = fleet(20, |s| s.orphans.settle_ms = 0);
    stage.list("up", "Gateway", []).quiet_to(200_000);
    assert_eq!(kept(&stage, Some(Cause::DeletesHeld)), 20);
}

#[test]
fn held_deletes_are_reported_once_and_released_when_orphans_are_few() {
    let mut stage = fleet(20, |_| ());
    stage.notes();
    lose_gateways(&mut stage, 0..7);
    assert_eq!(held(&mut stage), [(true, 7, 20)]);
    lose_gateways(&mut stage, 7..10).quiet_to(500_000);
    // Deletes stay held while the evidence is out of sight.
    stage.lost("up", "Gateway").quiet_to(510_000);
    stage.list("up", "Gateway", app(10..20).iter().map(|name| upstream_gateway(name)));
    stage.quiet_to(600_000);
    assert_eq!(held(&mut stage), [8, 9, 10].map(|orphans| (true, orphans, 20)), "it grew");
    // Six are left; their settling time starts again.
    for name in app(6..10) {
        stage.applied("up", upstream_gateway(&name));
    }
    assert_eq!(held(&mut stage).last(), Some(&(false, 7, 20)));
    stage.pass_to(642_000);
    assert_eq!(deletes(&mut stage), [630_000, 630_000, 630_000, 630_000, 630_000, 642_000]);
}

#[test]
fn a_held_cluster_does_not_hold_another() {
    let mut stage = fleet(20, |_| ());
    let other = Tenant::of_project(2);
    stage.join(other.cluster, Role::Upstream);
    stage.list(other.cluster, "Namespace", [other.namespace()]).list(other.cluster, "Gateway", []);
    stage.applied("hub", other.route("other", START - HOUR, &["other"]));
    lose_gateways(&mut stage, 0..20);
    assert_eq!(stage.action_at(131_000).action.object.name, "other");
}

#[test]
fn the_gateway_watch_must_show_signs_of_life_and_a_bookmark_is_one() {
    let mut stage = orphans(2, 1, |s| s.orphans.settle_ms = 200_000);
    // The deletion of the Gateway proves that its watch is live. Those of other kinds or clusters don't.
    stage.pass_without_bookmarks_to(200_000);
    stage.bookmark("up", "Namespace").bookmark("hub", "HTTPRoute").bookmark("edge", "Gateway");
    stage.pass_without_bookmarks_to(300_000).assert_no_action();
    assert_eq!(kept(&stage, Some(Cause::RouteUnproven)), 2);
    stage.bookmark("up", "Gateway");
    assert_eq!(kept(&stage, Some(Cause::RouteSettling)), 1);
    stage.pass_without_bookmarks_to(400_000).bookmark("up", "Gateway");
    stage.pass_without_bookmarks_to(500_000);
    assert_eq!(deletes(&mut stage), [500_000]);
}

/// The counts follow every change, and are zero when no route is left.
#[test]
fn every_route_is_counted_once_and_forgotten() {
    let mut stage = fleet(12, |_| ());
    assert_eq!(stage.machine.candidates(), []);
    lose_gateways(&mut stage, 0..12).pass_to(200_000);
    assert_eq!(kept(&stage, Some(Cause::DeletesHeld)), 12);
    assert_eq!(stage.machine.candidates().len(), 12);
    let because = stage.machine.candidates()[0].kept_because.clone().unwrap();
    assert_eq!(because, "12 of 12 routes of up look orphaned; none is deleted.");
    stage.lost("hub", "HTTPRoute");
    assert_eq!(kept(&stage, Some(Cause::RouteUnproven)), 12);
    stage.list("hub", "HTTPRoute", []);
    assert_eq!(stage.machine.candidates(), []);
    assert_eq!(held(&mut stage).last(), Some(&(false, 12, 12)));
    stage.leave("up").applied("hub", UP.route("new", START, &["new"]));
    assert_eq!(kept(&stage, Some(Cause::UpstreamUnknown)), 1);
    stage.leave("hub");
    assert_eq!(stage.machine.candidates(), []);
}

/// Held deletes are about the first route, and as old as the first hold.
#[test]
fn held_deletes_are_as_old_as_they_are_whichever_orphan_is_the_first() {
    let mut stage = fleet(20, |s| s.orphans.settle_ms = 600_000);
    lose_gateways(&mut stage, 7..14).pass_to(110_000);
    lose_gateways(&mut stage, 0..1).pass_to(120_000);
    let held = stage.began(Cause::DeletesHeld);
    let first = |problem: &Problem| problem.about.object.as_ref().unwrap().name.clone();
    assert_eq!(held.iter().map(first).collect::<Vec<_>>(), ["app-007", "app-000"]);
    assert_eq!((held[1].since, held[1].about.more), (held[0].since, 7));
    let subject = stage.machine.involved_object(&held[1].about).unwrap();
    assert_eq!((subject.kind, &*subject.object.name), (Kind::HttpRoute, "app-000"));
    assert_eq!((subject.cluster.as_str(), subject.uid.as_deref()), ("hub", Some("u-app-000")));
}
