//! Deleted projects that hub objects still name.

use super::stage::{deletes, joined, with_gone};
use crate::stage::*;

#[test]
fn a_deleted_project_that_hub_objects_name_is_told_once() {
    let mut fleet = with_gone(Settings::default());
    fleet.tells(&["+project_missing a"]).gone("a").pass(MINUTE).tells(&[]);
    assert_eq!((fleet.kept("a"), fleet.count(MemberState::Gone)), ("project_missing", 1));
    let connector = &fleet.fleet().connectors[0];
    assert_eq!(worst(connector), Some((State::Held, Hop::Mirrored, Some(Cause::ProjectMissing))));
    assert_eq!(connector.upstream.as_ref().unwrap().cluster.as_str(), "a");
    assert_eq!(connector.hops_of(Hop::Upstream).count(), 0, "it is not followed");
    // Its 404 may come before it has left.
    let mut fleet = joined(&["a", "b", "c", "d"]);
    fleet.name("a").withdraw("a", "1").gone("a").tells(&[]).pass(2_000).carry_out();
    fleet.tells(&["+project_missing a"]);
}

#[test]
fn a_404_says_nothing_about_a_name_that_is_shown_or_followed() {
    let mut fleet = joined(&["a", "b", "c", "d"]);
    // It is offered, in the file, or named by nothing.
    fleet.name("a").gone("a").tells(&[]);
    fleet.join("f", Role::Upstream).name("f").gone("f").tells(&[]).gone("x").tells(&[]);
    fleet.name("x");
    assert_eq!(fleet.machine.unknown_upstreams(), ["x".into()]);
    fleet.discovery_lost();
    assert_eq!(fleet.machine.unknown_upstreams(), []);
    fleet.gone("x").tells(&[]);
}

/// Rather the root of another Milo than that many deletions.
#[test]
fn many_upstreams_that_no_source_offers_are_not_asked_for() {
    let mut fleet = joined(&["a", "b", "c", "d"]);
    let expect = |fleet: &Stage, names: &[&str]| {
        let unknown = fleet.machine.unknown_upstreams();
        assert_eq!(unknown.iter().map(ToString::to_string).collect::<Vec<_>>(), names);
    };
    // Two of three are too many; two of six are not.
    expect(fleet.name("x").name("a").name("y"), &[]);
    expect(fleet.name("b").name("c").name("d"), &["x", "y"]);
    // One after another is as many: three of seven are, and two of six of which x is known are not.
    expect(fleet.gone("x"), &["y"]);
    expect(fleet.name("z"), &[]);
    expect(fleet.unname("y"), &["z"]);
    // One whose deletion was seen counts as none of them.
    fleet.withdraw("a", "1").pass(2_000).carry_out();
    expect(&fleet, &["a", "z"]);
    // A list that is not complete, of whichever source, says nothing.
    expect(fleet.started_by(SourceName::KubeconfigDir, JoinRule::All), &[]);
}

#[test]
fn every_rail_of_a_delete_holds_for_it() {
    type Change = fn(&mut Settings);
    let rails: [(&str, &str, Change); 4] = [
        ("the setting", "project_missing", |s| s.orphans.deleted_projects = false),
        ("the mode", "orphan", |s| s.orphans.mode = OrphanMode::Report),
        ("the age", "route_settling", |s| s.orphans.min_age_ms = 100 * HOUR),
        ("the share", "deletes_held", |s| s.orphans.share_from = 0),
    ];
    for (rail, verdict, change) in rails {
        let mut fleet = with_gone(deletes(change));
        assert_eq!(fleet.pass(HOUR).actions(), [], "{rail}");
        assert_eq!(fleet.kept("a"), verdict, "{rail}");
    }
    type Happens = fn(&mut Stage);
    let keeps: [(&str, &str, Happens); 5] = [
        ("the leader", "orphan", |f| _ = f.leads(false)),
        ("the source", "route_unproven", |f| _ = f.discovery_lost()),
        ("the source's list", "route_unproven", |f| _ = f.started(JoinRule::All)),
        ("the hub", "route_unproven", |f| _ = f.lost("hub", "HTTPRoute")),
        ("the project", "upstream_unknown", |f| _ = f.offer("a", "9", OfferState::NotReady)),
    ];
    for (rail, verdict, happens) in keeps {
        let mut fleet = with_gone(deletes(|_| ()));
        happens(fleet.pass(1_000));
        assert_eq!(fleet.pass(10 * MINUTE).actions(), [], "{rail}");
        assert_eq!(fleet.kept("a"), verdict, "{rail}");
    }
    // The settling time starts again.
    let mut fleet = with_gone(deletes(|_| ()));
    fleet.pass(29_000).discovery_lost().pass(1_000).discovery_resumed();
    let at = fleet.time() + 30_000;
    fleet.next_at(at);
}

#[test]
fn it_ends_when_the_project_is_offered_again_or_nothing_names_it() {
    let mut fleet = with_gone(Settings::default());
    fleet.told();
    fleet.offer("a", "2", OfferState::NotReady).tells(&["-project_missing a"]);
    assert_eq!(fleet.kept("a"), "upstream_unknown");
    let mut fleet = with_gone(Settings::default());
    fleet.told();
    // An update is no end.
    fleet.unname("a").name_route("a").tells(&[]);
    fleet.unname_route("a").tells(&["-project_missing a"]);
}
