//! No mistake reaches many: the removals of small upstreams, and those of a fleet of small projects.

use crate::fleet::{Fleet, ONLINE, REMOVED, name};
use crate::stage::*;

const GRACE: u64 = 5_000;

/// How many removals are held because they are too many.
fn held(fleet: &Fleet) -> usize {
    let held = fleet.held().into_iter();
    held.filter(|(cause, _)| *cause == Cause::RemovalsHeld).map(|(_, count)| count).sum()
}

/// Its etcd was restored from a backup that is older than all of them, for example.
#[test]
fn a_small_upstream_of_which_only_lists_lack_everything_loses_nothing() {
    for connectors in [2, 6, 9] {
        let mut fleet = Fleet::new(connectors);
        fleet.list(UP, 0..0);
        fleet.assert_none_removed_until(HOUR);
        assert_eq!(fleet.held(), [(Cause::RemovalsHeld, connectors)], "an empty list");

        let mut fleet = Fleet::beside_an_older_state(connectors);
        fleet.assert_none_removed_until(HOUR);
        assert_eq!(fleet.held(), [(Cause::RemovalsHeld, connectors)], "a restored upstream");
        // A restart forgets that it was restored.
        fleet.stage.lost("up", "Connector");
        fleet.list(UP, 0..0);
        fleet.assert_none_removed_until(2 * HOUR);
    }
}

/// A tenant deletes both of his connectors, and makes them again: their agents have not said anything
/// yet.
#[test]
fn a_status_that_a_watch_saw_vanish_is_seen() {
    let mut fleet = Fleet::new(2);
    for number in 0..2 {
        fleet.delete(UP, number..number + 1);
        fleet.stage.applied("up", with_uid(UP.connector(&name(number), None), "u-again"));
    }
    assert_eq!(fleet.removed_until(GRACE + 500), ["c0", "c1"]);
}

#[test]
fn what_is_held_is_released_by_the_platform() {
    let mut fleet = Fleet::beside_an_older_state(6);
    fleet.assert_none_removed_until(MINUTE);
    for number in 0..6 {
        fleet.stage.deleted("hub", UP.copy(&name(number), N1));
    }
    fleet.stage.quiet_to(2 * MINUTE);
    assert!(!fleet.stage.began(Cause::RemovalsHeld).is_empty());
    assert_eq!(held(&fleet), 0);
}

#[test]
fn a_removal_that_waits_for_its_turn_is_pending_and_never_late() {
    let mut fleet = Fleet::of(settings(|s| s.mirror.max_removals_per_minute = 1), &[(UP, 20)]);
    fleet.delete(UP, 0..3);
    assert_eq!(fleet.removed_until(40 * SECOND).len(), 1);
    let pending = (State::Pending, None, Some(false));
    assert_eq!(fleet.mirrored().iter().filter(|shown| **shown == pending).count(), 2);
    assert_eq!(fleet.mirrored().iter().filter(|shown| **shown == ONLINE).count(), 17);
    fleet.removed_until(5 * MINUTE);
    assert_eq!(fleet.mirrored().iter().filter(|shown| **shown == REMOVED).count(), 3);
}

#[test]
fn removals_that_a_person_allowed_are_written_at_twenty_a_second() {
    let mut fleet = Fleet::new(50);
    fleet.list(UP, 0..0);
    fleet.stage.quiet_to(MINUTE);
    fleet.allow("true");
    for (second, removals) in [(0, 20), (1, 20), (2, 10)] {
        assert_eq!(fleet.removed_until(MINUTE + second * SECOND).len(), removals);
    }
}

/// An instance that was stopped for a while wakes up to an event and to timers that are long due.
#[test]
fn whoever_wakes_late_counts_what_happened_before_it_writes() {
    let mut fleet = Fleet::new(20);
    fleet.delete(UP, 0..6);
    assert_eq!(fleet.stage.pass_to(GRACE + 1).actions().len(), 5);
    // The sixth may go at 17 s. At 20 s, nothing has been decided meanwhile.
    fleet.stage.now = START + 20 * SECOND;
    fleet.delete(UP, 6..7);
    assert_eq!(fleet.stage.actions(), [], "seven of twenty");
}

/// Many small projects, each with its only namespace.
fn projects(projects: usize, connectors: usize) -> Fleet {
    let tenants: Vec<_> = (0..projects).map(|n| (Tenant::of_project(n), connectors)).collect();
    Fleet::of(Settings::default(), &tenants)
}

/// Each project is within its own limits. Below the share of the fleet, these count.
#[test]
fn a_mistake_in_every_small_project_is_one_of_the_fleet() {
    for (gone, removed, too_many) in [(60, 0, 300), (18, 90, 0)] {
        let mut fleet = projects(60, 5);
        (0..gone).for_each(|n| fleet.delete(Tenant::of_project(n), 0..5));
        assert_eq!(fleet.removed_until(30 * MINUTE).len(), removed);
        assert_eq!(held(&fleet), too_many);
    }
}

/// However slowly the mistake proceeds, within ten minutes.
#[test]
fn the_fleet_counts_what_went_within_ten_minutes() {
    let mut fleet = projects(20, 1);
    for n in 0..9 {
        fleet.delete(Tenant::of_project(n), 0..1);
        fleet.removed_until(fleet.now() + MINUTE);
    }
    assert_eq!(held(&fleet), 3, "six of twenty went, and then none");
}

/// Whose removals are held by the fleet waits for no upstream that can't be reached, but for the window.
#[test]
fn an_upstream_that_is_not_live_counts_for_the_window_alone() {
    let mut fleet = projects(22, 1);
    (0..7).for_each(|n| fleet.delete(Tenant::of_project(n), 0..1));
    fleet.assert_none_removed_until(MINUTE);
    for n in 1..7 {
        fleet.stage.lost(Tenant::of_project(n).cluster, "Connector");
    }
    // Seven of 22; they count for ten minutes.
    fleet.assert_none_removed_until(11 * MINUTE);
    assert_eq!(fleet.removed_until(11 * MINUTE + 2 * GRACE).len(), 1, "the only one that is live");
    // They are back, and gone as before: nothing of it is too many for its own project.
    (1..7).for_each(|n| fleet.list(Tenant::of_project(n), 0..0));
    fleet.assert_none_removed_until(20 * MINUTE);
    assert_eq!(fleet.removed_until(HOUR).len(), 6, "after the window of the first");
}

/// What a person allowed in one namespace counts neither among those that would go nor among all.
#[test]
fn what_a_person_allowed_does_not_hide_that_all_the_others_would_go() {
    let mut fleet = Fleet::of(Settings::default(), &[(UP, 4), (NEIGHBOUR, 0)]);
    fleet.shows(NEIGHBOUR, 4..6, N1);
    fleet.list(UP, 0..0);
    fleet.stage.quiet_to(MINUTE);
    fleet.allow("true");
    let removed = fleet.stage.pass_to(2 * MINUTE).actions();
    assert_eq!(names(&removed), ["c0", "c1", "c2", "c3"]);
}
