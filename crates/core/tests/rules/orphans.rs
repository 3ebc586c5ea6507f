//! Orphaned routes, to the millisecond: what must be true before one is deleted, and for how long.

use crate::stage::*;

pub(crate) fn deleting(change: impl FnOnce(&mut Settings)) -> Settings {
    settings(|s| {
        s.orphans.mode = OrphanMode::Delete;
        change(s);
    })
}

pub(crate) fn upstream_gateway(name: &str) -> Value {
    json!({"kind": "Gateway", "metadata": {
        "namespace": "default", "name": name, "uid": format!("u-{name}")}})
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
fn an_orphan_is_deleted_once_leadership_is_back() {
    let mut stage = orphan_to_be();
    stage.leads(false).deleted("up", upstream_gateway("site")).quiet_to(200_000);
    stage.leads(true);
    assert_eq!(time_of(&stage.only_action()), 200_000);
}

#[test]
fn a_failed_delete_is_tried_again_and_a_successful_one_is_not() {
    let mut stage = orphan_to_be();
    let first = stage.deleted("up", upstream_gateway("site")).action_at(130_000);
    stage.fail(first.action.id);
    let second = stage.next_at(131_000);
    stage.finish(&second, forbidden());
    assert_eq!(stage.wrong(), [Cause::WriteRefused], "the second failure in a row");
    // What is refused is tried again every 30 s.
    let third = stage.next_at(161_000);
    stage.succeed(&third);
    // The watch never showed that it is gone, so after a while it is deleted again.
    assert_eq!(stage.next_at(221_000).action.verb, Verb::Delete);
}

#[test]
fn an_older_version_of_a_route_is_ignored_except_in_a_list() {
    // The newest version names a parent that exists; the older one a parent that does not.
    for (is_listed, uid, is_deleted) in
        [(false, "u-r", false), (false, "u-other", true), (true, "u-r", true)]
    {
        let mut stage = orphan_to_be();
        stage.applied("hub", with_version(route("u-r", "site"), 70));
        let older = with_version(route(uid, "blog"), 60);
        match is_listed {
            true => stage.list("hub", "HTTPRoute", [older]),
            false => stage.applied("hub", older),
        };
        assert_eq!(!stage.pass_to(HOUR).actions().is_empty(), is_deleted, "{is_listed} {uid}");
    }
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
            Some((
                Cause::NamespaceMissing,
                "Namespace other, from which NS/lab was made, is not in up.",
            )),
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

#[test]
fn an_orphan_says_how_long_it_still_waits_for_its_age_and_to_settle() {
    for (age_ms, waits) in [(HOUR, "20 s"), (280_000 - 100_000, "110 s")] {
        let mut stage = orphan_to_be();
        stage.route(age_ms, &["site", "blog"]).deleted("up", upstream_gateway("site"));
        stage.pass_to(110_000);
        let because = stage.machine.candidates()[0].kept_because.clone().unwrap();
        assert!(because.contains(&format!(" waits {waits} ")), "{because}");
    }
}
