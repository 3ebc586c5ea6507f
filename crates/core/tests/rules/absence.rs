//! Absence is proven: what counts as evidence that an upstream Connector is gone, and which status
//! annotations are removed because of it.

mod lying;

use crate::fleet::{Fleet, ONLINE, REMOVED, name};
use crate::stage::*;

const GRACE: u64 = 5_000;

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
    assert_eq!(fleet.stage.wrong(), [Cause::RemovalsHeld], "once, though the fleet holds them too");
    fleet.allow("false");
    fleet.stage.assert_no_action();
    fleet.allow("true");
    assert_eq!(fleet.removed_until(HOUR + 2_000).len(), 7);
    assert_eq!(fleet.held(), [(Cause::AnnotationRemoved, 7)]);
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

/// Milo gives a project that is made again the namespace `default` of the former, with its uid.
#[test]
fn a_namespace_that_is_shown_again_was_not_deleted() {
    let mut fleet = Fleet::new(2);
    fleet.stage.deleted("up", namespace(UID)).pass_to(1_000);
    fleet.stage.applied("up", namespace(UID)).quiet_to(MINUTE);

    // It vanishes once more, and only a list says so.
    fleet.list(UP, 0..0);
    fleet.list_namespaces([]);
    fleet.assert_none_removed_until(10 * MINUTE);
    fleet.assert_all_held(Cause::NamespaceMissing);
}

#[test]
fn a_namespace_deleted_in_one_upstream_proves_nothing_in_another() {
    let mut fleet = Fleet::new(1);
    fleet.stage.join("other", Role::Upstream);
    fleet.stage.list("other", "Namespace", []).list("other", "Connector", []);
    fleet.stage.deleted("up", namespace(UID));
    fleet.stage.applied("hub", Tenant { cluster: "other", ..UP }.copy("c0", N1));
    fleet.assert_none_removed_until(10 * MINUTE);
    let held = [Cause::NotReplicated, Cause::NamespaceMissing].map(|cause| (cause, 1));
    assert_eq!(fleet.held(), held);
}
