//! Deleted projects that hub objects still name.

use super::none;
use super::stage::{Fleet, MINUTE, deletes};
use throughline_core::contract::action::Verb;
use throughline_core::contract::event::EventKind;
use throughline_core::contract::membership::{JoinRule, MemberState, OfferState, SourceName};
use throughline_core::contract::settings::{OrphanMode, Settings};
use throughline_core::data::ids::{Kind, Role};

#[test]
fn a_deleted_project_that_hub_objects_name_is_told_once() {
    let mut fleet = Fleet::with_gone(Settings::default());
    assert_eq!(fleet.told(), ["gone a 1 1"]);
    fleet.gone("a");
    fleet.pass(MINUTE);
    assert_eq!(fleet.told(), none());
    assert_eq!(fleet.kept("a").as_deref(), Some("cluster_gone"));
    assert_eq!(fleet.count(MemberState::Gone), 1);
    let view = fleet.machine.view();
    let upstream = view.connectors[0].upstream.as_ref().unwrap();
    assert!(upstream.gone && !upstream.exists);
}

#[test]
fn it_ends_when_the_project_is_offered_again_or_nothing_names_it() {
    let mut fleet = Fleet::with_gone(Settings::default());
    fleet.told();
    fleet.offer("a", "2", OfferState::NotReady);
    assert_eq!(fleet.told(), ["gone a 0 0"]);
    assert_eq!(fleet.kept("a").as_deref(), Some("cluster_unknown"));
    let mut fleet = Fleet::with_gone(Settings::default());
    fleet.told();
    fleet.unname("a");
    assert_eq!(fleet.told(), none());
    // An update is no end.
    fleet.route("a");
    assert_eq!(fleet.told(), none());
    fleet.unroute("a");
    assert_eq!(fleet.told(), ["gone a 0 0"]);
}

#[test]
fn a_404_says_nothing_about_a_name_that_is_shown_or_followed() {
    let mut fleet = Fleet::joined(&["a", "b", "c", "d"]);
    fleet.name("a");
    fleet.gone("a");
    assert_eq!(fleet.told(), none(), "it is offered");
    let file = EventKind::ClusterAdded { cluster: "f".into(), roles: vec![Role::Upstream] };
    fleet.event(file);
    fleet.name("f");
    fleet.gone("f");
    assert_eq!(fleet.told(), none(), "it is in the file");
    fleet.gone("x");
    assert_eq!(fleet.told(), none(), "nothing names it");
    fleet.name("x");
    assert_eq!(fleet.machine.unknown_upstreams(), ["x".into()]);
    fleet.lost();
    assert_eq!(fleet.machine.unknown_upstreams(), []);
    fleet.gone("x");
    assert_eq!(fleet.told(), none(), "the source is lost");
}

/// What is reported a second after an offer does not take the place of what is reported later.
#[test]
fn a_discovery_that_is_lost_right_after_an_offer_is_told() {
    let mut fleet = Fleet::joined(&["a", "b"]);
    fleet.pass(MINUTE);
    fleet.told();
    fleet.offer("b", "1", OfferState::Ready);
    fleet.lost();
    fleet.pass(9_999);
    assert_eq!(fleet.told(), none());
    fleet.pass(1);
    assert_eq!(fleet.told(), ["lost 2 of 2"]);
}

/// Rather the root of another Milo than so many deletions.
#[test]
fn many_upstreams_that_no_source_offers_are_not_asked_for() {
    let mut fleet = Fleet::joined(&["a", "b", "c", "d"]);
    let unknown = |fleet: &Fleet| -> Vec<String> {
        fleet.machine.unknown_upstreams().iter().map(ToString::to_string).collect()
    };
    for name in ["x", "a", "y"] {
        fleet.name(name);
    }
    assert_eq!(unknown(&fleet), none(), "2 of 3");
    for name in ["b", "c", "d"] {
        fleet.name(name);
    }
    assert_eq!(unknown(&fleet), ["x", "y"], "2 of 6");
    // One after another is as many.
    fleet.gone("x");
    assert_eq!(unknown(&fleet), ["y"]);
    fleet.name("z");
    assert_eq!(unknown(&fleet), none(), "3 of 7");
    fleet.unname("y");
    assert_eq!(unknown(&fleet), ["z"], "2 of 6, of which x is known");
    // One whose deletion was seen counts as none of them.
    fleet.withdraw("a", "1");
    fleet.pass(2_000);
    fleet.carry_out();
    assert_eq!(unknown(&fleet), ["a", "z"]);
    // A list that is not complete, of whichever source, says nothing.
    let (source, join) = (SourceName::KubeconfigDir, JoinRule::All);
    fleet.event(EventKind::DiscoveryStarted { source, join });
    assert_eq!(unknown(&fleet), none());
}

#[test]
fn a_404_that_comes_before_the_leave_counts_after_it() {
    let mut fleet = Fleet::joined(&["a", "b", "c", "d"]);
    fleet.name("a");
    fleet.withdraw("a", "1");
    fleet.gone("a");
    assert_eq!(fleet.told(), none());
    fleet.pass(2_000);
    fleet.carry_out();
    assert_eq!(fleet.told(), ["gone a 1 0"]);
}

#[test]
fn its_routes_are_deleted_only_with_the_setting_and_after_every_wait() {
    let mut fleet = Fleet::with_gone(deletes());
    assert_eq!(fleet.kept("a").as_deref(), Some("settling"));
    fleet.pass(29_999);
    assert_eq!(fleet.deletes(), []);
    fleet.pass(1);
    let deletes = fleet.deletes();
    assert_eq!(deletes.len(), 1, "{deletes:?}");
    let action = &deletes[0].action;
    assert_eq!((action.verb, &*action.object.namespace), (Verb::Delete, "ns-a"));
    let required = &action.precondition;
    let project = required.absent_project.as_ref().unwrap();
    assert_eq!((project.source, project.cluster.as_str()), (SourceName::Milo, "a"));
    assert!(required.absent.is_none());
    assert_eq!(required.uid.as_deref(), Some("u-HTTPRoute-a"));
    assert!(required.resource_version.is_some());
    fleet.succeed(&deletes[0]);
    fleet.pass(60_000 - 1);
    assert_eq!(fleet.deletes(), [], "once");
}

type Change = fn(&mut Settings);

#[test]
fn every_rail_of_a_delete_holds_for_it() {
    let rails: [(&str, &str, Change); 4] = [
        ("the setting", "cluster_gone", |s| s.orphans.deleted_projects = false),
        ("the mode", "orphan", |s| s.orphans.mode = OrphanMode::Report),
        ("the age", "young", |s| s.orphans.min_age_ms = 100 * 3_600_000),
        ("the share", "share_exceeded", |s| s.orphans.share_from = 0),
    ];
    for (rail, verdict, change) in rails {
        let mut settings = deletes();
        change(&mut settings);
        let mut fleet = Fleet::with_gone(settings);
        fleet.pass(60 * MINUTE);
        assert_eq!(fleet.deletes(), [], "{rail}");
        assert_eq!(fleet.kept("a").unwrap_or("orphan".into()), verdict, "{rail}");
    }
    type Happens = fn(&mut Fleet);
    let keeps: [(&str, &str, Happens); 5] = [
        ("the leader", "orphan", |f| f.event(EventKind::LeadershipLost)),
        ("the source", "lists_incomplete", |f| f.lost()),
        ("the source's list", "lists_incomplete", |f| f.started()),
        ("the hub", "lists_incomplete", |f| f.hub_lost(Kind::HttpRoute)),
        ("the project", "cluster_unknown", |f| f.offer("a", "9", OfferState::NotReady)),
    ];
    for (rail, verdict, happens) in keeps {
        let mut fleet = Fleet::with_gone(deletes());
        fleet.pass(1_000);
        happens(&mut fleet);
        fleet.pass(10 * MINUTE);
        assert_eq!(fleet.deletes(), [], "{rail}");
        assert_eq!(fleet.kept("a").unwrap_or("orphan".into()), verdict, "{rail}");
    }
}

/// After a restore of the root from an older state, the projects that it lacks answer 404, too.
#[test]
fn a_project_that_was_not_seen_deleted_keeps_its_routes() {
    let mut fleet = Fleet::new(JoinRule::All, deletes());
    fleet.offer_all(&["a", "b", "c", "d"]);
    fleet.finish();
    fleet.carry_out();
    fleet.route("a");
    fleet.list(&["b", "c", "d"]);
    assert_eq!(fleet.carry_out(), ["leave a not_listed"]);
    fleet.told();
    fleet.gone("a");
    assert_eq!(fleet.told(), ["gone a 0 1"]);
    fleet.pass(60 * MINUTE);
    assert_eq!(fleet.deletes(), []);
    assert_eq!(fleet.kept("a").as_deref(), Some("cluster_gone"));
    // Nor one that was gone before this instance looked.
    fleet.route("old");
    fleet.gone("old");
    fleet.pass(60 * MINUTE);
    assert_eq!(fleet.deletes(), []);
    assert_eq!(fleet.kept("old").as_deref(), Some("cluster_gone"));
}

#[test]
fn the_settling_time_starts_again_when_the_source_was_lost() {
    let mut fleet = Fleet::with_gone(deletes());
    fleet.pass(29_000);
    fleet.lost();
    fleet.pass(1_000);
    fleet.event(EventKind::DiscoveryResumed { source: SourceName::Milo });
    fleet.pass(29_999);
    assert_eq!(fleet.deletes(), []);
    fleet.pass(1);
    assert_eq!(fleet.deletes().len(), 1);
}

/// A root that says of most projects that they are gone is not believed, however slowly it says so.
#[test]
fn the_share_counts_the_routes_of_all_deleted_projects() {
    let mut fleet = Fleet::new(JoinRule::All, deletes());
    let names = super::projects(20);
    fleet.offer_all(&super::refs(&names));
    fleet.finish();
    fleet.carry_out();
    for name in &names {
        fleet.route(name);
    }
    for name in &names[..8] {
        fleet.withdraw(name, "1");
        fleet.pass(2_000);
        fleet.carry_out();
        fleet.gone(name);
        fleet.hub_lost(Kind::HttpRoute);
        fleet.pass(MINUTE);
    }
    // All are seen at once: eight of twenty routes are orphans.
    fleet.hub_resumed(Kind::HttpRoute);
    fleet.pass(10 * MINUTE);
    assert_eq!(fleet.deletes(), []);
    assert_eq!(fleet.kept("p0").as_deref(), Some("share_exceeded"));
    // Two of them come back.
    fleet.offer_all(&["p0", "p1"]);
    fleet.pass(43_000);
    assert_eq!(fleet.deletes().len(), 6);
}
