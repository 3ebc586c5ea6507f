//! Which of the discovered clusters join and leave: each rule, and what a wrong discovery does.

mod gone;
mod random;
mod stage;

use crate::stage::*;
use stage::{joined, needed, projects};

#[test]
fn another_uid_or_other_roles_make_another_cluster() {
    let mut fleet = joined(&["a"]);
    fleet.offer("a", "2", OfferState::Ready).carries_out(&["leave a replaced", "join a"]);
    fleet.offer("a", "3", OfferState::NotReady).carries_out(&["leave a replaced"]);
    fleet.offer("a", "3", OfferState::Ready).carries_out(&["join a"]);
    // The old one.
    fleet.withdraw("a", "2").pass(MINUTE).asks(&[]);

    let mut fleet = joined(&["a"]);
    let roles = vec![Role::Upstream, Role::Edge];
    fleet.offer_from(SourceName::Milo, "a", "1", roles, OfferState::Ready);
    fleet.carries_out(&["leave a roles_changed", "join a"]);
    // What the shell drops by itself joins again.
    fleet.leave("a").asks(&[]).pass(1_000).asks(&["join a"]);
}

#[test]
fn a_lost_discovery_changes_nothing_and_is_told_once() {
    let mut fleet = joined(&["a", "b"]);
    // It is back within ten seconds.
    fleet.discovery_lost().pass(9_999).discovery_resumed().pass(MINUTE).tells(&[]);
    fleet.discovery_lost().pass(HOUR).discovery_lost().pass(HOUR);
    fleet.tells(&["+discovery_failing milo"]);
    fleet.list_all(&["a", "b"]).pass(MINUTE).tells(&["-discovery_failing milo"]).asks(&[]);
    // The report of an offer a second later does not take the place of a later one.
    fleet.offer("b", "1", OfferState::Ready).discovery_lost();
    fleet.pass(9_999).tells(&[]).pass(1).tells(&["+discovery_failing milo"]);
}

#[test]
fn a_list_that_shrank_by_more_than_a_third_is_not_believed() {
    let names = projects(30);
    for shown in [0, 1, 15, 19] {
        let mut fleet = joined(&names);
        // The same wrong list twice.
        for _ in 0..2 {
            fleet.list_all(&names[..shown]).pass(HOUR).asks(&[]);
        }
        fleet.tells(&[&format!("+clusters_missing {} of 30", 30 - shown)]);
        assert_eq!(fleet.count(MemberState::Held), 30 - shown);
        assert_eq!(fleet.list_all(&names).pass(MINUTE).asks(&[]).wrong(), []);
        assert_eq!(fleet.count(MemberState::Joined), 30);
    }
    let mut fleet = joined(&names);
    assert_eq!(fleet.list_all(&names[10..]).asked().len(), 10, "a third");
    fleet.pass(MINUTE).tells(&[]);
}

/// Few of many idle projects are followed: the source's whole list says whether it can be believed.
#[test]
fn the_share_counts_what_is_offered_and_what_is_followed() {
    let names = projects(30);
    // One of one leaves, but with half of the list; then two of the four that are followed.
    for (followed, missing) in [(1, 15), (4, 2)] {
        let mut fleet = needed(&names);
        for name in &names[..followed] {
            fleet.name(name);
        }
        assert_eq!(fleet.carry_out().len(), followed);
        fleet.list_needed(&names[missing..]).asks(&[]);
    }
    // A control plane that is not listed is never asked.
    needed(&names).list_needed(&[]).name("p3").asks(&[]);
}

#[test]
fn withdrawals_within_a_minute_count_together() {
    let names = projects(9);
    // In a row, a few seconds apart: the first three leave. One in each minute is no accident.
    for (apart_ms, left) in [(5_000, 3), (MINUTE + 5_000, 9)] {
        let mut fleet = joined(&names);
        for name in &names {
            fleet.withdraw(name, "1").pass(apart_ms);
        }
        assert_eq!(fleet.carry_out().len(), left);
    }
}

/// The answer may come after they were too many.
#[test]
fn a_404_releases_a_project_that_is_held_and_no_other() {
    let names = projects(9);
    let mut fleet = joined(&names);
    fleet.withdraw_all(&names[..4]).pass(MINUTE).asks(&[]).tells(&["+clusters_missing 4 of 9"]);
    fleet.gone("p0").carries_out(&["leave p0 withdrawn"]);
    assert_eq!(fleet.count(MemberState::Held), 3, "three of eight");
    // Two of seven are no reason to doubt.
    let left = ["leave p1 withdrawn", "leave p2 withdrawn", "leave p3 withdrawn"];
    fleet.gone("p1").pass(MINUTE).carries_out(&left).tells(&["-clusters_missing 4 of 9"]);
}

#[test]
fn what_is_held_stays_while_the_discovery_is_lost() {
    let names = projects(9);
    let mut fleet = joined(&names);
    fleet.withdraw("p0", "1").pass(2_000).carries_out(&["leave p0 withdrawn"]);
    // Four of nine within a minute, and then three of eight.
    fleet.withdraw_all(&names[1..4]).pass(2_000).asks(&[]);
    fleet.discovery_lost().pass(MINUTE).asks(&[]).discovery_resumed().asks(&[]);
    fleet.offer("p1", "1", OfferState::Ready).withdraw("p9", "1");
    let back: Vec<_> = names[4..].iter().chain(&["p1"]).copied().collect();
    fleet.list_all(&back).carries_out(&["leave p2 withdrawn", "leave p3 withdrawn"]);
}

#[test]
fn a_cluster_of_the_configuration_file_has_its_name_and_it_is_told_once() {
    let mut fleet = joined(&[]);
    fleet.join("a", Role::Edge);
    for _ in 0..3 {
        fleet.offer("a", "1", OfferState::Ready).pass(MINUTE);
    }
    fleet.asks(&[]).tells(&["+cluster_name_taken a"]);
    assert_eq!(fleet.count(MemberState::NameTaken), 1);
    // The file gives it up.
    fleet.leave("a").pass(2_000).carries_out(&["join a"]).tells(&["-cluster_name_taken a"]);
    // The file takes it from the discovery.
    fleet.leave("a").join("a", Role::Edge);
    assert_eq!(fleet.pass(MINUTE).asks(&[]).count(MemberState::NameTaken), 1);
}

#[test]
fn of_two_sources_the_first_has_the_name() {
    let mut fleet = joined(&["a"]);
    let source = SourceName::KubeconfigDir;
    fleet.started_by(source, JoinRule::default());
    fleet.offer_from(source, "a", "", vec![Role::Upstream], OfferState::Ready);
    fleet.event(EventKind::DiscoveryFinished { source }).name("a").asks(&[]);
    fleet.list_all(&[]).carries_out(&["leave a not_listed", "join a"]);
    assert_eq!(fleet.count(MemberState::NameTaken), 0);
}

#[test]
fn broken_offers_are_counted_and_told() {
    let mut fleet = joined(&["a"]);
    for name in ["a", "b", "c"] {
        let error = "exec is not allowed".into();
        fleet.offer(name, "1", OfferState::Broken { error });
    }
    assert_eq!(fleet.pass(MINUTE).asks(&[]).wrong(), [Cause::KubeconfigInvalid; 3]);
    assert_eq!((fleet.count(MemberState::Broken), fleet.count(MemberState::Joined)), (2, 1));
    assert_eq!(fleet.list_all(&["a", "b", "c"]).pass(MINUTE).wrong(), []);
}

#[test]
fn nothing_is_kept_of_a_thousand_projects_that_came_and_went() {
    let mut fleet = joined(&["stays", "too", "three", "four"]);
    let before = fleet.pass(10 * MINUTE).machine.table_sizes();
    for n in 0..1_000 {
        let name = format!("p{n}");
        fleet.offer(&name, "1", OfferState::Ready).carry_out();
        fleet.withdraw(&name, "1").pass(2 * MINUTE);
        fleet.carries_out(&[&format!("leave {name} withdrawn")]);
    }
    assert_eq!(fleet.pass(10 * MINUTE).machine.table_sizes(), before);
    assert_eq!(fleet.machine.membership_counts().len(), 1);
}

#[test]
fn what_nothing_names_for_ten_minutes_leaves_while_the_hub_is_seen() {
    let followed = || {
        let mut fleet = needed(&["a"]);
        fleet.name("a").carries_out(&["join a"]);
        fleet
    };
    let mut fleet = followed();
    fleet.unname("a").pass(9 * MINUTE).name("a").pass(9 * MINUTE);
    fleet.unname("a").pass(10 * MINUTE - 1).asks(&[]).pass(1).asks(&["leave a not_needed"]);
    for kind in ["Connector", "HTTPRoute"] {
        let mut fleet = followed();
        fleet.unname("a").pass(9 * MINUTE).lost("hub", kind).pass(HOUR).asks(&[]);
        fleet.resumed("hub", kind).pass(10 * MINUTE - 1).asks(&[]);
        fleet.pass(MINUTE).asks(&["leave a not_needed"]);
    }
    followed().leave("hub").pass(HOUR).asks(&[]);
}
