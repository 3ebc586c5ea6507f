//! Absence is proven, and the damage of one mistake is bounded: which status annotations are removed
//! when upstream Connectors are missing.

mod evidence;
mod lying;

use crate::fleet::{Fleet, ONLINE, REMOVED, name};
use crate::stage::*;

const GRACE: u64 = 5_000;

#[test]
fn a_single_connector_that_is_deleted_loses_its_annotation_after_the_grace_period() {
    let mut fleet = Fleet::new(1);
    fleet.delete(UP, 0..1);
    let removal = fleet.stage.next_at(GRACE + 1);
    let absent = removal.action.precondition.absent.clone().unwrap();
    assert_eq!((absent.kind, &absent.names[..]), (Kind::Connector, &["c0".to_owned()][..]));
    assert_eq!((absent.namespace_uid.as_deref(), absent.namespace_deleted), (Some(UID), false));
    fleet.stage.applied("hub", UP.copy("c0", None)).succeed(&removal);
    assert_eq!(fleet.mirrored(), [REMOVED]);
}

/// The kubeconfig points to a control plane that holds nothing, or the etcd behind it was emptied.
#[test]
fn an_empty_control_plane_removes_nothing() {
    let mut fleet = Fleet::new(200);
    fleet.list(UP, 0..0);
    fleet.list_namespaces([]);
    fleet.assert_none_removed_until(HOUR);
    fleet.assert_all_held(Cause::NamespaceMissing);
    assert_eq!(fleet.held(), [(Cause::NamespaceMissing, 200)]);
    // The right control plane is back.
    fleet.list_namespaces([namespace(UID)]);
    fleet.list(UP, 0..200);
    fleet.stage.quiet_to(HOUR + 2_000);
    assert_eq!(fleet.held(), []);
    assert_eq!(fleet.mirrored(), [ONLINE; 200]);
}

/// A control plane with namespaces and Connectors of the same names is another place.
#[test]
fn a_namespace_with_another_uid_proves_nothing_and_is_not_mirrored() {
    let mut fleet = Fleet::new(20);
    fleet.list_namespaces([namespace(OTHER_UID)]);
    fleet.list(UP, 0..0);
    fleet.says(UP, 0..10, N2);
    fleet.assert_none_removed_until(10 * MINUTE);
    fleet.assert_all_held(Cause::NamespaceMismatch);
}

/// It was seen there with the right uid, and then seen deleted.
#[test]
fn a_namespace_that_was_seen_deleted_proves_that_its_connectors_are_gone() {
    let mut fleet = Fleet::new(3);
    fleet.delete(UP, 0..2);
    fleet.stage.deleted("up", namespace(UID));
    let removed = fleet.removed_until(GRACE + 1_000);
    assert_eq!(removed, ["c0", "c1", "c2"], "also one whose own end was not seen");
    let mut fleet = Fleet::new(1);
    fleet.stage.deleted("up", namespace(UID));
    fleet.list_namespaces([namespace(OTHER_UID)]);
    let removal = fleet.stage.action_at(GRACE + 1);
    assert!(removal.action.precondition.absent.unwrap().namespace_deleted);
}

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
    assert_eq!(
        fleet.stage.wrong(),
        [Cause::RemovalsHeld],
        "once, though the fleet holds them, too"
    );
    fleet.allow("false");
    fleet.stage.assert_no_action();
    fleet.allow("true");
    assert_eq!(fleet.removed_until(HOUR + 2_000).len(), 7);
    assert_eq!(fleet.held(), [(Cause::AnnotationRemoved, 7)]);
}

#[test]
fn up_to_the_share_they_are_removed_and_the_share_counts_ten_minutes() {
    let mut fleet = Fleet::new(10);
    fleet.delete(UP, 0..3);
    assert_eq!(fleet.removed_until(MINUTE).len(), 3, "3 of 10 is not more than 30 %");
    fleet.delete(UP, 3..4);
    fleet.assert_none_removed_until(10 * MINUTE);
    assert_eq!(fleet.removed_until(11 * MINUTE), ["c3"], "three of them are history by now");
}

/// A standby that takes over knows what its leader removed.
#[test]
fn what_another_instance_removed_counts_as_well() {
    let mut fleet = Fleet::new(10);
    fleet.stage.leads(false);
    fleet.delete(UP, 0..3);
    fleet.stage.pass_to(GRACE + 1_000);
    fleet.shows(UP, 0..3, None);
    fleet.stage.leads(true);
    fleet.delete(UP, 3..4);
    fleet.assert_none_removed_until(10 * MINUTE);
}

/// Below `mirror.shareFrom` there is no share: a project with two connectors may lose one.
#[test]
fn small_upstreams_have_no_share_but_the_limit_bounds_them_all() {
    let mut fleet = Fleet::of(settings(|s| s.mirror.share_from = 1_000), &[(UP, 40)]);
    fleet.delete(UP, 0..40);
    let removed = (1..=4).map(|minute| fleet.removed_until(minute * MINUTE + 8_000).len());
    let removed: Vec<_> = removed.collect();
    assert_eq!(removed, [10, 5, 5, 5], "five at 5 s, and one each 12 s");
}

#[test]
fn those_that_come_back_release_the_others() {
    let mut fleet = Fleet::new(10);
    fleet.delete(UP, 0..5);
    fleet.assert_none_removed_until(MINUTE);
    fleet.says(UP, 0..3, N1);
    // The grace period begins again.
    fleet.assert_none_removed_until(MINUTE + 4_500);
    assert_eq!(fleet.removed_until(2 * MINUTE), ["c3", "c4"]);
}

#[test]
fn what_only_a_list_or_a_status_lacks_is_too_much_at_once() {
    type Vanish = fn(&mut Fleet);
    let ways: [(Vanish, usize); 2] = [
        // 200 with half of the items.
        (|fleet| fleet.list(UP, 0..100), 100),
        // As after a backup that restores objects without their status.
        (
            |fleet| {
                (0..200).for_each(|n| _ = fleet.stage.applied("up", UP.connector(&name(n), None)))
            },
            200,
        ),
    ];
    for (vanish, held) in ways {
        let mut fleet = Fleet::new(200);
        vanish(&mut fleet);
        fleet.assert_none_removed_until(HOUR);
        assert_eq!(fleet.held(), [(Cause::RemovalsHeld, held)]);
    }
}

#[test]
fn a_status_that_goes_offline_is_said_and_never_held() {
    let mut fleet = Fleet::new(100);
    fleet.says(UP, 0..100, OFFLINE);
    assert_eq!(fleet.stage.actions().len(), 100);
}

#[test]
fn after_a_restore_old_statuses_wait_and_nothing_is_removed() {
    let mut fleet = Fleet::new(5);
    // The old state says that they are elsewhere, and does not know the last one.
    fleet.stage.list_started("up", "Connector");
    for number in 0..4 {
        fleet.stage.listed("up", UP.connector(&name(number), Some(&status(Some("n0")))));
    }
    fleet.stage.version_went_back("up", "Connector").list_finished("up", "Connector");
    fleet.stage.quiet_to(30_000);
    fleet.assert_all_held(Cause::UpstreamRestored);
    // One changes: what it says now is new.
    fleet.says(UP, 0..1, N2);
    let mirror = fleet.stage.only_action();
    assert_eq!(mirror.action.object.name, "c0");
    // The others are believed once the restore has settled; the missing one stays as it is.
    fleet.stage.succeed(&mirror).pass_to(300_001);
    assert_eq!(names(&fleet.stage.actions()), ["c1", "c2", "c3"]);
    fleet.stage.pass_to(HOUR);
    assert!(!names(&fleet.stage.actions()).contains(&"c4"));
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

/// The hub's kubeconfig leads to the upstream, and the upstream's to the hub.
#[test]
fn swapped_roles_write_nothing() {
    let mut fleet = Fleet::new(0);
    for number in 0..20 {
        fleet.stage.applied("hub", UP.connector(&name(number), N1));
        fleet.stage.applied("up", UP.copy(&name(number), N1));
    }
    fleet.assert_none_removed_until(10 * MINUTE);
}

/// A relist of the hub shows another object of the name, made from another upstream.
#[test]
fn a_hold_ends_where_the_hub_connector_is_replaced_by_one_of_another_upstream() {
    let mut fleet = Fleet::new(1);
    fleet.stage.unreadable("c0", "status: a list").pass(MINUTE);
    assert_eq!(fleet.held(), [(Cause::ObjectUnreadable, 1)]);

    let elsewhere = Tenant { cluster: "elsewhere", ..UP };
    fleet.stage.applied("hub", with_uid(elsewhere.copy("c0", N1), "u-2")).pass(MINUTE);
    let others = [Cause::UpstreamUnknown, Cause::NotReplicated].map(|cause| (cause, 1));
    assert_eq!(fleet.held()[1..], others, "the upstream's Connector is still unreadable");
}
