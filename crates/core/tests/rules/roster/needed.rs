//! Which of the offered projects are joined: those that a hub object names, until ten minutes after the
//! last one does.

use throughline_core::contract::event::EventKind;
use throughline_core::contract::membership::{MemberState, OfferState};
use throughline_core::data::ids::Kind;

use super::none;
use super::stage::{Fleet, MINUTE, cluster};

#[test]
fn the_first_hub_object_that_names_a_project_has_it_joined() {
    for by_route in [false, true] {
        let mut fleet = Fleet::needed();
        fleet.offer_all(&["a", "b"]);
        fleet.finish();
        assert_eq!(fleet.asked(), none());
        assert_eq!(fleet.count(MemberState::Idle), 2);
        if by_route {
            fleet.route("a")
        } else {
            fleet.name("a")
        }
        assert_eq!(fleet.carry_out(), ["join a"]);
        fleet.route("a");
        fleet.name("a");
        assert_eq!(fleet.asked(), none(), "once");
        assert_eq!((fleet.count(MemberState::Joined), fleet.count(MemberState::Idle)), (1, 1));
    }
}

#[test]
fn a_project_that_is_named_first_and_offered_later_joins_too() {
    let mut fleet = Fleet::needed();
    fleet.name("a");
    fleet.offer("a", "1", OfferState::NotReady);
    assert_eq!(fleet.asked(), none());
    fleet.offer("a", "1", OfferState::Ready);
    assert_eq!(fleet.asked(), ["join a"]);
    // It is listed, not yet finished: what is shown is there.
    fleet.name("nobody-offers-it");
    assert_eq!(fleet.asked(), none());
}

#[test]
fn ten_minutes_after_the_last_reference_is_gone_it_leaves() {
    let mut fleet = Fleet::needed();
    fleet.offer_all(&["a"]);
    fleet.finish();
    fleet.name("a");
    fleet.route("a");
    fleet.carry_out();
    fleet.unname("a");
    fleet.pass(20 * MINUTE);
    assert_eq!(fleet.asked(), none(), "the route names it");
    fleet.unroute("a");
    fleet.pass(10 * MINUTE - 1);
    assert_eq!(fleet.asked(), none());
    fleet.pass(1);
    assert_eq!(fleet.carry_out(), ["leave a not_needed"]);
    fleet.name("a");
    assert_eq!(fleet.carry_out(), ["join a"]);
}

#[test]
fn a_reference_that_comes_back_starts_the_ten_minutes_again() {
    let mut fleet = Fleet::needed();
    fleet.offer_all(&["a"]);
    fleet.finish();
    fleet.name("a");
    fleet.carry_out();
    fleet.unname("a");
    fleet.pass(9 * MINUTE);
    fleet.name("a");
    fleet.pass(9 * MINUTE);
    fleet.unname("a");
    fleet.pass(10 * MINUTE - 1);
    assert_eq!(fleet.asked(), none());
    fleet.pass(1);
    assert_eq!(fleet.asked(), ["leave a not_needed"]);
}

#[test]
fn nothing_is_unneeded_while_a_hub_watch_is_not_live() {
    for kind in [Kind::Connector, Kind::HttpRoute] {
        let mut fleet = Fleet::needed();
        fleet.offer_all(&["a"]);
        fleet.finish();
        fleet.name("a");
        fleet.carry_out();
        fleet.unname("a");
        fleet.pass(9 * MINUTE);
        fleet.hub_lost(kind);
        fleet.pass(60 * MINUTE);
        assert_eq!(fleet.asked(), none(), "{kind:?}");
        fleet.hub_resumed(kind);
        fleet.pass(10 * MINUTE - 1);
        assert_eq!(fleet.asked(), none(), "{kind:?}");
        fleet.pass(MINUTE);
        assert_eq!(fleet.asked(), ["leave a not_needed"], "{kind:?}");
    }
}

#[test]
fn without_a_hub_nobody_is_unneeded() {
    let mut fleet = Fleet::needed();
    fleet.offer_all(&["a"]);
    fleet.finish();
    fleet.name("a");
    fleet.carry_out();
    fleet.event(EventKind::ClusterRemoved { cluster: cluster("hub") });
    fleet.pass(60 * MINUTE);
    assert_eq!(fleet.asked(), none());
}
