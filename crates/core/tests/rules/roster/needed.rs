//! Which of the offered projects are joined: those that a hub object names, until ten minutes after the
//! last one does.

use super::stage::{listing, needed};
use crate::stage::*;

/// Project `a` is followed, because a hub Connector names it.
fn followed() -> Stage {
    let mut fleet = needed(&["a"]);
    fleet.name("a").carries_out(&["join a"]);
    fleet
}

#[test]
fn the_first_hub_object_that_names_a_project_has_it_joined() {
    for by_route in [false, true] {
        let mut fleet = needed(&["a", "b"]);
        assert_eq!(fleet.asks(&[]).count(MemberState::Idle), 2);
        match by_route {
            true => fleet.name_route("a"),
            false => fleet.name("a"),
        };
        fleet.carries_out(&["join a"]).name_route("a").name("a").asks(&[]);
        assert_eq!((fleet.count(MemberState::Joined), fleet.count(MemberState::Idle)), (1, 1));
    }
}

#[test]
fn a_project_that_is_named_first_and_offered_later_joins_too() {
    let mut fleet = listing(JoinRule::Needed, Settings::default());
    fleet.name("a").offer("a", "1", OfferState::NotReady).asks(&[]);
    // It is listed, not yet finished: what is shown is there.
    fleet.offer("a", "1", OfferState::Ready).asks(&["join a"]);
    fleet.name("nobody-offers-it").asks(&[]);
}

#[test]
fn ten_minutes_after_the_last_reference_is_gone_it_leaves() {
    let mut fleet = followed();
    // The route names it.
    fleet.name_route("a").unname("a").pass(20 * MINUTE).asks(&[]);
    fleet.unname_route("a").pass(10 * MINUTE - 1).asks(&[]);
    fleet.pass(1).carries_out(&["leave a not_needed"]);
    fleet.name("a").carries_out(&["join a"]);
}

#[test]
fn a_reference_that_comes_back_starts_the_ten_minutes_again() {
    let mut fleet = followed();
    fleet.unname("a").pass(9 * MINUTE).name("a").pass(9 * MINUTE);
    fleet.unname("a").pass(10 * MINUTE - 1).asks(&[]).pass(1).asks(&["leave a not_needed"]);
}

#[test]
fn nothing_is_unneeded_while_a_hub_watch_is_not_live_nor_without_a_hub() {
    for kind in ["Connector", "HTTPRoute"] {
        let mut fleet = followed();
        fleet
            .unname("a")
            .pass(9 * MINUTE)
            .lost("hub", kind)
            .pass(60 * MINUTE)
            .asks(&[])
            .resumed("hub", kind)
            .pass(10 * MINUTE - 1)
            .asks(&[])
            .pass(MINUTE)
            .asks(&["leave a not_needed"]);
    }
    let mut fleet = followed();
    fleet.leave("hub").pass(60 * MINUTE).asks(&[]);
}
