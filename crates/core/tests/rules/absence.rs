//! Which status annotations are removed: what proves that an upstream Connector is gone, and that no mistake
//! reaches many.

mod lying;

use crate::fleet::{Fleet, ONLINE, REMOVED, name};
use crate::stage::*;

const GRACE: u64 = 5_000;

#[test]
fn while_too_many_are_missing_none_is_removed_until_a_person_agrees() {
    let mut fleet = Fleet::new(20);
    fleet.delete(UP, 0..4);
    fleet.stage.pass_to(2_000);
    fleet.delete(UP, 4..7);
    fleet.assert_none_removed_until(HOUR);
    assert_eq!(fleet.held(), [(Cause::RemovalsHeld, 7)], "7 of 20");
    let held = (State::Held, Some(Cause::RemovalsHeld), Some(false));
    assert_eq!(fleet.mirrored().iter().filter(|shown| **shown == held).count(), 7);
    assert_eq!(fleet.stage.wrong(), [Cause::RemovalsHeld], "once, though the fleet holds them too");
    fleet.allow("false");
    fleet.stage.assert_no_action();
    fleet.allow("true");
    assert_eq!(fleet.removed_until(HOUR + 2_000).len(), 7);
    assert_eq!(fleet.held(), [(Cause::AnnotationRemoved, 7)]);
}

#[test]
fn an_object_that_can_not_be_read_exists_and_proves_no_absence() {
    let mut fleet = Fleet::new(3);
    fleet.stage.list_started("up", "Connector").unreadable("c0", "metadata.labels: a list");
    fleet.stage.listed("up", UP.connector("c1", N1)).list_finished("up", "Connector");
    fleet.assert_none_removed_until(10 * MINUTE);
    let unreadable = |online| (State::Unknown, Some(Cause::ObjectUnreadable), online);
    assert_eq!(fleet.mirrored(), [unreadable(Some(true)), ONLINE, unreadable(None)]);
    let seen = fleet.stage.fleet();
    let message = "Connector default/c0 in up cannot be decoded.";
    for n in [0, 2] {
        let hop = seen.connectors[n].worst().unwrap();
        assert_eq!(hop.message.as_deref(), Some(message), "c{n}");
    }
    let up = seen.clusters.iter().find(|cluster| cluster.name.as_str() == "up").unwrap();
    assert_eq!(up.unreadable[&Kind::Connector], 1);
    assert!(!fleet.stage.began(Cause::ObjectUnreadable).is_empty());
    // It can be read again: the other one is proven to be missing.
    fleet.says(UP, 0..1, N1);
    assert_eq!(fleet.removed_until(11 * MINUTE), ["c2"]);
}

/// Connector `c0` has this status, which may be no value that a JSON library reads.
fn says(fleet: &mut Fleet, status: &str) {
    let object = UP.connector("c0", None).to_string().replace("null", status);
    fleet.stage.applied("up", object);
}

#[test]
fn a_status_that_cannot_be_spelled_is_not_a_missing_one_and_says_nothing_about_others() {
    let nested = "[".repeat(129) + &"]".repeat(129);
    for odd in [format!(r#"{{"x":{nested}}}"#), r#"{"x":1e400}"#.to_owned()] {
        let mut fleet = Fleet::new(3);
        says(&mut fleet, &odd);
        says(&mut fleet, &odd);
        fleet.delete(UP, 1..2);
        assert_eq!(fleet.removed_until(MINUTE), ["c1"], "{odd}");
        assert_eq!(fleet.stage.began(Cause::ObjectUnreadable).len(), 1);
        let unreadable = (State::Unknown, Some(Cause::ObjectUnreadable), Some(true));
        assert_eq!(fleet.mirrored(), [unreadable, REMOVED, ONLINE]);

        // It can be read again.
        says(&mut fleet, N2.unwrap());
        let mirror = fleet.stage.only_action();
        assert_eq!(written(&mirror), N2);
        fleet.stage.succeed(&mirror);
        says(&mut fleet, &odd);
        fleet.assert_none_removed_until(2 * MINUTE);
        assert_eq!(fleet.stage.began(Cause::ObjectUnreadable).len(), 1, "a new fault");
    }
}

#[test]
fn a_removal_that_waits_for_its_turn_is_pending_and_never_late() {
    let mut fleet = Fleet::of(settings(|s| s.mirror.max_removals_per_minute = 1), &[(UP, 20)]);
    fleet.delete(UP, 0..3);
    assert_eq!(fleet.removed_until(40 * SECOND).len(), 1);
    let pending = (State::Pending, None, Some(false));
    assert_eq!(fleet.mirrored().iter().filter(|shown| **shown == pending).count(), 2);
    assert_eq!(fleet.mirrored().iter().filter(|shown| **shown == ONLINE).count(), 17);
    // A standby does not know which of them the leader's queue has admitted.
    fleet.stage.leads(false);
    fleet.assert_none_removed_until(4 * MINUTE);
    assert_eq!(fleet.mirrored().iter().filter(|shown| **shown == pending).count(), 2);
    fleet.stage.leads(true);
    fleet.removed_until(7 * MINUTE);
    assert_eq!(fleet.mirrored().iter().filter(|shown| **shown == REMOVED).count(), 3);
}

/// Many small projects, each with its only namespace.
fn projects(projects: usize, connectors: usize) -> Fleet {
    let tenants: Vec<_> = (0..projects).map(|n| (Tenant::of_project(n), connectors)).collect();
    Fleet::of(Settings::default(), &tenants)
}

/// Each project is within its own limits. Below the share of the fleet, these count.
#[test]
fn a_mistake_in_every_small_project_is_one_of_the_fleet() {
    for (gone, removed, held) in
        [(60, 0, (Cause::RemovalsHeld, 300)), (18, 90, (Cause::AnnotationRemoved, 90))]
    {
        let mut fleet = projects(60, 5);
        (0..gone).for_each(|n| fleet.delete(Tenant::of_project(n), 0..5));
        assert_eq!(fleet.removed_until(30 * MINUTE).len(), removed);
        assert_eq!(fleet.held(), [held]);
    }
}

/// What the breaker of an upstream that is not live holds is no longer held by the fleet's.
#[test]
fn what_the_fleet_alone_holds_is_said_beside_what_an_upstream_holds() {
    let [large, small] = [Tenant::of_project(0), Tenant::of_project(1)];
    let mut fleet = Fleet::of(Settings::default(), &[(large, 30), (small, 35)]);
    fleet.delete(large, 0..13);
    fleet.delete(small, 0..9);
    fleet.stage.lost(large.cluster, "Connector");
    fleet.assert_none_removed_until(MINUTE);
    let held = fleet.stage.open.values().filter(|open| open.cause == Cause::RemovalsHeld);
    let mut held: Vec<_> = held.map(|open| open.about.more + 1).collect();
    held.sort_unstable();
    assert_eq!(held, [9, 13]);
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
    // The platform removes what is held.
    for number in 4..6 {
        fleet.stage.deleted("hub", NEIGHBOUR.copy(&name(number), N1));
    }
    assert!(!fleet.stage.wrong().contains(&Cause::RemovalsHeld));
}
