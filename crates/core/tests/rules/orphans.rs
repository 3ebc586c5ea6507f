//! Orphaned routes, to the millisecond: what must be true before one is deleted, for how long, and how many may
//! go. `orphans.txt` has it.

use crate::scenes::Row::{self, End, It, Scene};
use crate::scenes::{assert_told, known};
use crate::stage::*;

const SCENES: &[Row] = &[
    // Only a route with a parent, or of no upstream HTTPRoute, needs no reason.
    Scene("a route that has a parent", orphan_to_be),
    It("changed", |s| _ = s.applied("hub", route("u-r", "site"))),
    Scene("a route of no upstream HTTPRoute", orphan_to_be),
    It("changed", |s| _ = s.applied("hub", labelled("kind", "GRPCRoute"))),
    Scene("a route whose parent is no Gateway", orphan_to_be),
    It("changed", |s| {
        let foreign = json!({"spec": {"parentRefs": [{"kind": "Service", "name": "gone"}]}});
        s.applied("hub", with(route("u-r", "gone"), foreign));
    }),
    Scene("a paused route", orphan_to_be),
    It("changed", |s| {
        let paused = json!({"metadata": {"annotations": { PAUSED: "true" }}});
        s.applied("hub", with(route("u-r", "gone"), paused));
    }),
    Scene("a route of another namespace", orphan_to_be),
    It("changed", |s| _ = s.applied("hub", labelled("namespace", "other"))),
    Scene("a route of another upstream", orphan_to_be),
    It("changed", |s| _ = s.applied("hub", labelled("cluster-name", "cluster-a"))),
    Scene("a changed route keeps its settling time", orphan_to_be),
    It("an orphan", |s| _ = s.applied("hub", route("u-r", "blog")).pass_to(120_000)),
    It("changed", |s| _ = s.applied("hub", route("u-r", "blog"))),
    It("deleted", |s| _ = s.pass_to(130_000)),
    Scene("a replaced route does not keep it", orphan_to_be),
    It("an orphan", |s| _ = s.applied("hub", route("u-r", "blog")).pass_to(120_000)),
    It("replaced", |s| _ = s.applied("hub", route("u-other", "blog"))),
    It("deleted", |s| _ = s.pass_to(150_000)),
    Scene("an answer that comes late makes no room", || {
        fleet(8, |s| s.orphans.max_share = Fraction::per_mille(1_000))
    }),
    It("orphans", |s| _ = lose_gateways(s, 0..8).pass_to(130_000)),
    It("the limit makes room for another one by itself", |s| _ = s.pass_to(142_000)),
    End("another in the place of the sixth alone", conflict),
    It("those that failed wait for their turn again", |s| _ = s.pass_to(144_000)),
    Scene("held deletes are reported once and released when orphans are few", || fleet(20, |_| ())),
    It("seven of twenty", |s| _ = lose_gateways(s, 0..7)),
    It("it grows", |s| _ = lose_gateways(s, 7..10).pass_to(500_000)),
    It("the evidence is out of sight", |s| _ = s.lost("up", "Gateway").pass_to(510_000)),
    It("listed", |s| {
        s.list("up", "Gateway", app(10..20).iter().map(|name| upstream_gateway(name)));
        s.pass_to(600_000);
    }),
    It("six are left, and their settling time starts again", |s| {
        app(6..10).iter().for_each(|name| _ = s.applied("up", upstream_gateway(name)));
    }),
    It("settled", |s| _ = s.pass_to(642_000)),
    Scene("the Gateway watch must show signs of life, and a bookmark is one", || {
        fleet(2, |s| s.orphans.settle_ms = 200_000)
    }),
    // It proves that the watch is live. Bookmarks of other kinds or clusters don't.
    It("a deletion", |s| _ = lose_gateways(s, 0..1).pass_without_bookmarks_to(200_000)),
    It("others", |s| _ = s.bookmark("up", "Namespace").bookmark("hub", "HTTPRoute")),
    It("of an edge", |s| _ = s.bookmark("edge", "Gateway").pass_without_bookmarks_to(300_000)),
    It("a bookmark", |s| _ = s.bookmark("up", "Gateway")),
    It("another", |s| _ = s.pass_without_bookmarks_to(400_000).bookmark("up", "Gateway")),
    It("settled", |s| _ = s.pass_without_bookmarks_to(500_000)),
    Scene("a route with other parents settles once more", || Stage::new(deleting(|_| ()))),
    It("route", |s| _ = s.route(HOUR, &["gone"]).pass_to(25_000)),
    It("other parents", |s| _ = s.applied("hub", route("u-r", "other"))),
    It("30 s after the first", |s| _ = s.pass_to(54_999)),
    It("30 s after the second", |s| _ = s.pass_to(55_000)),
];

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

/// The same with another one of its labels, and no parent that exists.
fn labelled(name: &str, value: &str) -> Value {
    let label = format!("meta.datumapis.com/upstream-{name}");
    with(route("u-r", "gone"), json!({"metadata": {"labels": { label: value }}}))
}

/// An old route with the parents `site` and `blog`, of which only `site` exists.
fn orphan_to_be() -> Stage {
    let mut stage = Stage::new(deleting(|_| ()));
    stage.applied("up", upstream_gateway("site")).route(HOUR, &["site", "blog"]);
    stage.quiet_to(100_000);
    stage
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

#[test]
fn each_route_that_may_be_an_orphan_is_listed_with_the_sentence_of_its_cause() {
    assert_told(known(&orphan_to_be()).join("\n"), SCENES, "orphans.txt");
}
