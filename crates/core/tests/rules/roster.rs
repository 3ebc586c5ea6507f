//! Who of the discovered clusters joins and leaves: each rule, and what a wrong discovery does.

mod gone;
mod needed;
mod random;
mod stage;

use stage::{Fleet, MINUTE, cluster, projects, refs};
use throughline_core::contract::event::EventKind;
use throughline_core::contract::membership::{MemberState, OfferState, SourceName};
use throughline_core::contract::note::NoteKind;
use throughline_core::data::ids::Role;

fn none() -> [&'static str; 0] {
    []
}

fn broken() -> OfferState {
    OfferState::Broken { error: "exec is not allowed".into() }
}

#[test]
fn a_ready_cluster_joins_and_no_other() {
    let mut fleet = Fleet::joined(&[]);
    fleet.offer("a", "1", OfferState::NotReady);
    fleet.offer("b", "1", OfferState::Deleting);
    fleet.offer("c", "1", broken());
    assert_eq!(fleet.carry_out(), none());
    fleet.offer("a", "1", OfferState::Ready);
    fleet.offer("c", "1", OfferState::Ready);
    assert_eq!(fleet.carry_out(), ["join a", "join c"]);
    fleet.offer("a", "1", OfferState::Ready);
    assert_eq!(fleet.carry_out(), none(), "it has joined");
}

#[test]
fn a_withdrawn_cluster_leaves_and_a_late_withdrawal_of_an_older_one_says_nothing() {
    let mut fleet = Fleet::joined(&["a", "b", "c", "d"]);
    fleet.withdraw("a", "0");
    fleet.pass(MINUTE);
    assert_eq!(fleet.asked(), none());
    fleet.withdraw("a", "1");
    fleet.pass(2_000);
    assert_eq!(fleet.carry_out(), ["leave a withdrawn"]);
    assert_eq!(fleet.count(MemberState::Joined), 3);
}

#[test]
fn only_a_complete_list_proves_that_a_cluster_is_gone() {
    let mut fleet = Fleet::joined(&["a", "b", "c", "d"]);
    fleet.started();
    fleet.offer_all(&["b", "c", "d"]);
    fleet.pass(60 * MINUTE);
    assert_eq!(fleet.asked(), none(), "the list runs");
    fleet.lost();
    fleet.pass(60 * MINUTE);
    assert_eq!(fleet.asked(), none(), "the list broke");
    fleet.list(&["b", "c", "d"]);
    assert_eq!(fleet.carry_out(), ["leave a not_listed"]);
}

#[test]
fn not_ready_deleting_and_broken_members_stay() {
    for state in [OfferState::NotReady, OfferState::Deleting, broken()] {
        let mut fleet = Fleet::joined(&["a"]);
        fleet.offer("a", "1", state);
        fleet.pass(60 * MINUTE);
        assert_eq!(fleet.asked(), none());
        assert_eq!(fleet.count(MemberState::Joined), 1);
    }
}

#[test]
fn another_uid_is_another_cluster() {
    let mut fleet = Fleet::joined(&["a"]);
    fleet.offer("a", "2", OfferState::Ready);
    assert_eq!(fleet.carry_out(), ["leave a replaced", "join a"]);
    fleet.offer("a", "3", OfferState::NotReady);
    assert_eq!(fleet.carry_out(), ["leave a replaced"]);
    fleet.offer("a", "3", OfferState::Ready);
    assert_eq!(fleet.carry_out(), ["join a"]);
    fleet.withdraw("a", "2");
    fleet.pass(MINUTE);
    assert_eq!(fleet.asked(), none(), "the old one");
}

#[test]
fn other_roles_are_joined_anew() {
    let mut fleet = Fleet::joined(&["a"]);
    let (source, roles) = (SourceName::Milo, vec![Role::Upstream, Role::Edge]);
    let (cluster, uid, state) = (cluster("a"), "1".to_owned(), OfferState::Ready);
    fleet.event(EventKind::ClusterOffered { source, cluster, uid, roles, state });
    assert_eq!(fleet.carry_out(), ["leave a roles_changed", "join a"]);
}

#[test]
fn a_lost_discovery_changes_nothing_and_is_told_once() {
    let mut fleet = Fleet::joined(&["a", "b"]);
    fleet.told();
    fleet.lost();
    fleet.pass(9_999);
    fleet.event(EventKind::DiscoveryResumed { source: SourceName::Milo });
    fleet.pass(MINUTE);
    assert_eq!(fleet.told(), none(), "it was back within ten seconds");
    fleet.lost();
    fleet.pass(60 * MINUTE);
    fleet.lost();
    fleet.pass(60 * MINUTE);
    assert_eq!(fleet.told(), ["lost 2 of 2"]);
    assert_eq!(fleet.asked(), none());
    fleet.list(&["a", "b"]);
    fleet.pass(MINUTE);
    assert_eq!(fleet.told(), ["lost 0 of 2"]);
    assert_eq!(fleet.asked(), none());
}

#[test]
fn a_list_that_shrank_by_more_than_a_third_is_not_believed() {
    let names = projects(30);
    let names = refs(&names);
    for shown in [0, 1, 15, 19] {
        let mut fleet = Fleet::joined(&names);
        fleet.told();
        fleet.list(&names[..shown]);
        fleet.pass(60 * MINUTE);
        // The same wrong list again.
        fleet.list(&names[..shown]);
        fleet.pass(60 * MINUTE);
        assert_eq!(fleet.asked(), none(), "{shown}");
        assert_eq!(fleet.told(), [format!("too_many_missing {} of 30", 30 - shown)]);
        assert_eq!(fleet.count(MemberState::Held), 30 - shown);
        fleet.list(&names);
        fleet.pass(MINUTE);
        assert_eq!(fleet.told(), ["too_many_missing 0 of 30"]);
        assert_eq!(fleet.asked(), none());
        assert_eq!(fleet.count(MemberState::Joined), 30);
    }
    let mut fleet = Fleet::joined(&names);
    fleet.told();
    fleet.list(&names[10..]);
    assert_eq!(fleet.asked().len(), 10, "a third");
    fleet.pass(MINUTE);
    assert_eq!(fleet.told(), none());
}

/// Few of many idle projects are followed: the source's whole list says whether it can be believed.
#[test]
fn the_share_counts_what_is_offered_and_what_is_followed() {
    let names = projects(30);
    let names = refs(&names);
    let mut fleet = Fleet::needed();
    fleet.offer_all(&names);
    fleet.finish();
    fleet.name("p0");
    assert_eq!(fleet.carry_out(), ["join p0"]);
    fleet.list(&names[15..]);
    assert_eq!(fleet.asked(), none(), "one of one, but with half of the list");
    let mut fleet = Fleet::needed();
    fleet.offer_all(&names);
    fleet.finish();
    for name in &names[..4] {
        fleet.name(name);
    }
    fleet.carry_out();
    fleet.list(&names[2..]);
    assert_eq!(fleet.asked(), none(), "two of the four that are followed");
}

#[test]
fn the_only_cluster_of_a_source_can_leave() {
    let mut fleet = Fleet::joined(&["a"]);
    fleet.list(&[]);
    assert_eq!(fleet.asked(), ["leave a not_listed"]);
}

#[test]
fn withdrawals_within_a_minute_count_together() {
    let names = projects(9);
    let names = refs(&names);
    let mut fleet = Fleet::joined(&names);
    fleet.told();
    for name in &names[..4] {
        fleet.withdraw(name, "1");
    }
    fleet.pass(60 * MINUTE);
    assert_eq!(fleet.asked(), none(), "four of nine");
    assert_eq!(fleet.told(), ["too_many_missing 4 of 9"]);
    // In a row, a few seconds apart: the first three leave.
    let mut fleet = Fleet::joined(&names);
    for name in &names[..9] {
        fleet.withdraw(name, "1");
        fleet.pass(5_000);
    }
    assert_eq!(fleet.carry_out().len(), 3);
    // One in each minute is no accident.
    let mut fleet = Fleet::joined(&names);
    for name in &names {
        fleet.withdraw(name, "1");
        fleet.pass(MINUTE + 5_000);
    }
    assert_eq!(fleet.carry_out().len(), 9);
}

/// A person deletes Projects one by one. Nothing of that is inferred.
#[test]
fn projects_whose_root_says_that_they_are_gone_leave_however_many_they_are() {
    let names = projects(13);
    let names = refs(&names);
    let mut fleet = Fleet::joined(&names);
    fleet.told();
    let mut left = Vec::new();
    for name in &names[..7] {
        fleet.withdraw(name, "1");
        fleet.gone(name);
        fleet.pass(5_000);
        left.extend(fleet.carry_out());
    }
    let expected: Vec<_> =
        names[..7].iter().map(|name| format!("leave {name} withdrawn")).collect();
    assert_eq!(left, expected);
    assert_eq!(fleet.told(), none());
    // They make no room for those of which nothing is known but that a list lacks them.
    fleet.list(&names[10..]);
    fleet.pass(60 * MINUTE);
    assert_eq!(fleet.asked(), none(), "three of the six that are left");
}

/// The answer may come after they were too many.
#[test]
fn a_404_releases_a_project_that_is_held_and_no_other() {
    let names = projects(9);
    let names = refs(&names);
    let mut fleet = Fleet::joined(&names);
    fleet.told();
    for name in &names[..4] {
        fleet.withdraw(name, "1");
    }
    fleet.pass(MINUTE);
    assert_eq!(fleet.asked(), none(), "four of nine");
    assert_eq!(fleet.told(), ["too_many_missing 4 of 9"]);
    fleet.gone("p0");
    assert_eq!(fleet.carry_out(), ["leave p0 withdrawn"]);
    assert_eq!(fleet.count(MemberState::Held), 3, "three of eight");
    fleet.gone("p1");
    fleet.pass(MINUTE);
    assert_eq!(
        fleet.carry_out(),
        ["leave p1 withdrawn", "leave p2 withdrawn", "leave p3 withdrawn"],
        "two of seven are no reason to doubt"
    );
    assert_eq!(fleet.told(), ["too_many_missing 0 of 5"]);
}

/// A root that was restored from a backup lacks projects and answers 404 about each.
#[test]
fn a_404_proves_nothing_of_a_project_that_only_a_list_lacks() {
    let names = projects(9);
    let names = refs(&names);
    let mut fleet = Fleet::joined(&names);
    fleet.list(&names[4..]);
    for name in &names[..4] {
        fleet.gone(name);
    }
    fleet.pass(60 * MINUTE);
    assert_eq!(fleet.asked(), none());
    assert_eq!(fleet.count(MemberState::Held), 4);
}

#[test]
fn what_is_held_stays_while_the_discovery_is_lost() {
    let names = projects(9);
    let names = refs(&names);
    let mut fleet = Fleet::joined(&names);
    fleet.withdraw("p0", "1");
    fleet.pass(2_000);
    assert_eq!(fleet.carry_out(), ["leave p0 withdrawn"]);
    for name in &names[1..4] {
        fleet.withdraw(name, "1");
    }
    fleet.pass(2_000);
    assert_eq!(fleet.asked(), none(), "four of nine within a minute");
    fleet.lost();
    fleet.pass(MINUTE);
    assert_eq!(fleet.asked(), none());
    fleet.event(EventKind::DiscoveryResumed { source: SourceName::Milo });
    assert_eq!(fleet.asked(), none(), "three of eight");
    fleet.offer("p1", "1", OfferState::Ready);
    fleet.withdraw("p9", "1");
    fleet.list(&names[4..].iter().chain(&["p1"]).copied().collect::<Vec<_>>());
    assert_eq!(fleet.carry_out(), ["leave p2 withdrawn", "leave p3 withdrawn"]);
}

#[test]
fn what_went_missing_is_not_joined() {
    let mut fleet = Fleet::needed();
    let names = projects(9);
    fleet.offer_all(&refs(&names));
    fleet.finish();
    fleet.list(&[]);
    fleet.name("p3");
    assert_eq!(fleet.asked(), none(), "a control plane that is not listed is never asked");
}

#[test]
fn a_cluster_of_the_configuration_file_has_its_name_and_it_is_told_once() {
    let mut fleet = Fleet::joined(&[]);
    let file = |name| EventKind::ClusterAdded { cluster: cluster(name), roles: vec![Role::Edge] };
    fleet.event(file("a"));
    fleet.told();
    for _ in 0..3 {
        fleet.offer("a", "1", OfferState::Ready);
        fleet.pass(MINUTE);
    }
    assert_eq!(fleet.asked(), none());
    assert_eq!(fleet.told(), ["name_taken 1 of 1"]);
    assert_eq!(fleet.count(MemberState::NameTaken), 1);
    // The file gives it up.
    fleet.event(EventKind::ClusterRemoved { cluster: cluster("a") });
    fleet.pass(2_000);
    assert_eq!(fleet.carry_out(), ["join a"]);
    assert_eq!(fleet.told(), ["name_taken 0 of 1"]);
    // The file takes it from the discovery.
    fleet.event(EventKind::ClusterRemoved { cluster: cluster("a") });
    fleet.event(file("a"));
    fleet.pass(MINUTE);
    assert_eq!(fleet.asked(), none());
    assert_eq!(fleet.count(MemberState::NameTaken), 1);
}

#[test]
fn of_two_sources_the_first_has_the_name() {
    let mut fleet = Fleet::joined(&["a"]);
    let source = SourceName::KubeconfigDir;
    fleet.event(EventKind::DiscoveryStarted { source, join: Default::default() });
    fleet.offer_from(source, "a", "", OfferState::Ready);
    fleet.event(EventKind::DiscoveryFinished { source });
    fleet.name("a");
    assert_eq!(fleet.asked(), none());
    fleet.list(&[]);
    assert_eq!(fleet.carry_out(), ["leave a not_listed", "join a"]);
    assert_eq!(fleet.count(MemberState::NameTaken), 0);
}

#[test]
fn broken_offers_are_counted_and_told_in_one_note() {
    let mut fleet = Fleet::joined(&["a"]);
    fleet.told();
    for name in ["a", "b", "c"] {
        fleet.offer(name, "1", broken());
    }
    fleet.pass(MINUTE);
    assert_eq!(fleet.told(), ["broken 3 of 3"]);
    assert_eq!((fleet.count(MemberState::Broken), fleet.count(MemberState::Joined)), (2, 1));
    assert_eq!(fleet.asked(), none());
    fleet.list(&["a", "b", "c"]);
    fleet.pass(MINUTE);
    assert_eq!(fleet.told(), ["broken 0 of 3"]);
}

#[test]
fn a_cluster_that_comes_and_goes_is_listed_a_few_times_a_minute() {
    let mut fleet = Fleet::joined(&["a"]);
    let mut joins = 1;
    for uid in 2..100 {
        fleet.offer("a", &uid.to_string(), OfferState::Ready);
        fleet.pass(500);
        joins += fleet.carry_out().iter().filter(|asked| asked.starts_with("join")).count();
    }
    assert!(joins <= 6, "{joins} joins within 50 s");
    fleet.pass(2 * MINUTE);
    fleet.carry_out();
    assert_eq!(fleet.count(MemberState::Joined), 1, "it joins in the end");
}

#[test]
fn what_the_shell_drops_by_itself_joins_again() {
    let mut fleet = Fleet::joined(&["a"]);
    fleet.event(EventKind::ClusterRemoved { cluster: cluster("a") });
    assert_eq!(fleet.asked(), none());
    fleet.pass(1_000);
    assert_eq!(fleet.asked(), ["join a"]);
}

#[test]
fn what_the_shell_could_not_join_is_asked_for_again_while_it_is_offered() {
    let mut fleet = Fleet::joined(&["a"]);
    for _ in 0..2 {
        fleet.offer("b", "1", OfferState::Ready);
        assert_eq!(fleet.asked(), ["join b"]);
        fleet.event(EventKind::ClusterRemoved { cluster: cluster("b") });
        assert_eq!(fleet.asked(), none(), "not at once");
        assert_eq!(fleet.count(MemberState::Joined), 1, "b is not followed");
        // The reason arrives: its source had withdrawn it.
        fleet.withdraw("b", "1");
        fleet.pass(MINUTE);
        assert_eq!(fleet.asked(), none());
    }
    fleet.offer("b", "2", OfferState::Ready);
    assert_eq!(fleet.asked(), ["join b"]);
    fleet.event(EventKind::ClusterRemoved { cluster: cluster("b") });
    fleet.pass(1_000);
    assert_eq!(fleet.carry_out(), ["join b"], "it is still offered");
    assert_eq!(fleet.count(MemberState::Joined), 2);
    let notes = std::iter::from_fn(|| fleet.machine.poll_note());
    assert_eq!(notes.filter(|note| matches!(note.kind, NoteKind::Anomaly(_))).count(), 0);
}

#[test]
fn nothing_is_kept_of_a_thousand_projects_that_came_and_went() {
    let mut fleet = Fleet::joined(&["stays", "too", "three", "four"]);
    fleet.pass(10 * MINUTE);
    let before = fleet.machine.table_sizes();
    for n in 0..1_000 {
        let name = format!("p{n}");
        fleet.offer(&name, "1", OfferState::Ready);
        fleet.carry_out();
        fleet.withdraw(&name, "1");
        fleet.pass(2 * MINUTE);
        assert_eq!(fleet.carry_out(), [format!("leave {name} withdrawn")]);
    }
    fleet.pass(10 * MINUTE);
    fleet.machine.sweep_names();
    let after = fleet.machine.table_sizes();
    assert_eq!((before.clusters, before.timers), (after.clusters, after.timers));
    assert_eq!(fleet.machine.membership_counts().len(), 1);
}
