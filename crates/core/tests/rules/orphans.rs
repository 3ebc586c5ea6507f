//! Orphaned routes, to the millisecond: what must be true before one is deleted, for how long, and how many may
//! go.

use crate::stage::*;

pub(crate) fn deleting(change: impl FnOnce(&mut Settings)) -> Settings {
    settings(|s| {
        s.orphans.mode = OrphanMode::Delete;
        change(s);
    })
}

fn upstream_gateway(name: &str) -> Value {
    object("Gateway", "default", name)
}

/// The route of `orphan_to_be` with another uid and parent.
fn route(uid: &str, parent: &str) -> Value {
    with_uid(UP.route("lab", START - HOUR, &[parent]), uid)
}

/// An old route with the parents `site` and `blog`, of which only `site` exists.
fn orphan_to_be() -> Stage {
    let mut stage = Stage::new(deleting(|_| ()));
    stage.applied("up", upstream_gateway("site")).route(HOUR, &["site", "blog"]);
    stage.quiet_to(100_000);
    stage
}

#[test]
fn a_changed_route_keeps_its_settling_time_and_a_replaced_one_does_not() {
    for (uid, at_ms) in [("u-r", 130_000), ("u-other", 150_000)] {
        let mut stage = orphan_to_be();
        stage.applied("hub", route("u-r", "blog")).pass_to(120_000);
        stage.applied("hub", with_version(route(uid, "blog"), 71));
        let required = stage.next_at(at_ms).action.precondition;
        assert_eq!(required.uid.as_deref(), Some(uid));
        assert_eq!(required.resource_version.as_deref(), Some("71"));
    }
}

/// Only a route with a parent, or of no upstream HTTPRoute, needs no reason.
#[test]
fn each_route_that_may_be_an_orphan_is_listed_with_the_sentence_of_its_cause() {
    let ns = UP.hub_namespace();
    let label = |name: &str, value: &str| {
        let key = format!("meta.datumapis.com/upstream-{name}");
        with(route("u-r", "gone"), json!({"metadata": {"labels": {key: value}}}))
    };
    let foreign = json!({"spec": {"parentRefs": [{"kind": "Service", "name": "gone"}]}});
    let paused = json!({"metadata": {"annotations": {PAUSED: "true"}}});
    for (object, listed) in [
        (route("u-r", "site"), None),
        (label("kind", "GRPCRoute"), None),
        (
            with(route("u-r", "gone"), foreign),
            Some((
                Cause::RouteNotOrphaned,
                "Route NS/lab has a parent that exists, or none that names an upstream Gateway.",
            )),
        ),
        (
            with(route("u-r", "gone"), paused),
            Some((Cause::Paused, "HTTPRoute NS/lab in hub is paused by annotation.")),
        ),
        (
            label("namespace", "other"),
            Some((Cause::NamespaceMissing, "Namespace other, the source of NS/lab, is not in up.")),
        ),
        (
            label("cluster-name", "cluster-a"),
            Some((Cause::UpstreamUnknown, "Hub objects name upstream a, which is not followed.")),
        ),
    ] {
        let mut stage = orphan_to_be();
        stage.applied("hub", object);
        let expected =
            listed.map(|(cause, text)| (Some(cause), Some(text.replace("NS", &ns)))).into_iter();
        let found = stage.machine.candidates();
        let found = found.into_iter().map(|route| (route.kept, route.kept_because));
        assert_eq!(found.collect::<Vec<_>>(), expected.collect::<Vec<_>>());
    }
}

/// Old routes, each with its Gateway.
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

/// How many routes are kept for this reason; `None` counts those that nothing keeps.
fn kept(stage: &Stage, cause: Option<Cause>) -> usize {
    stage.machine.candidates().iter().filter(|candidate| candidate.kept == cause).count()
}

/// Whether it began that deletes are held, and of how many routes.
fn held(stage: &mut Stage) -> Vec<(bool, usize, usize)> {
    let held = stage.problems().into_iter().filter(|(_, p)| p.cause == Cause::DeletesHeld);
    held.map(|(began, p)| (began, p.facts.part, p.facts.whole)).collect()
}

/// By then the limit has made room for another one by itself.
#[test]
fn an_answer_that_comes_late_makes_no_room() {
    let mut stage = fleet(8, |s| s.orphans.max_share = Fraction::per_mille(1_000));
    lose_gateways(&mut stage, 0..8);
    let mut decided = stage.pass_to(130_000).actions();
    decided.push(stage.action_at(142_000));
    decided.iter().for_each(|decision| _ = stage.finish(decision, conflict()));
    assert_eq!(time_of(&stage.only_action()), 142_000, "in the place of the sixth alone");
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
    let deletes = stage.pass_to(642_000).actions();
    let expected = [630_000, 630_000, 630_000, 630_000, 630_000, 642_000];
    assert_eq!(deletes.iter().map(time_of).collect::<Vec<_>>(), expected);
    assert!(deletes.iter().all(|delete| delete.action.verb == Verb::Delete));
}

#[test]
fn the_gateway_watch_must_show_signs_of_life_and_a_bookmark_is_one() {
    let mut stage = fleet(2, |s| s.orphans.settle_ms = 200_000);
    lose_gateways(&mut stage, 0..1);
    // The deletion of the Gateway proves that its watch is live. Those of other kinds or clusters don't.
    stage.pass_without_bookmarks_to(200_000);
    stage.bookmark("up", "Namespace").bookmark("hub", "HTTPRoute").bookmark("edge", "Gateway");
    stage.pass_without_bookmarks_to(300_000).assert_no_action();
    assert_eq!(kept(&stage, Some(Cause::RouteUnproven)), 2);
    stage.bookmark("up", "Gateway");
    assert_eq!(kept(&stage, Some(Cause::RouteSettling)), 1);
    stage.pass_without_bookmarks_to(400_000).bookmark("up", "Gateway");
    assert_eq!(time_of(&stage.pass_without_bookmarks_to(500_000).only_action()), 500_000);
}
