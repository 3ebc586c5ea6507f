//! What counts as evidence of absence, and about which objects.

use crate::fleet::{Fleet, ONLINE, REMOVED};
use crate::stage::*;

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
fn a_connector_whose_first_status_cannot_be_spelled_is_left_alone() {
    let mut fleet = Fleet::new(1);
    fleet.list(UP, 0..0);
    says(&mut fleet, r#"{"x":1e400}"#);
    fleet.assert_none_removed_until(MINUTE);
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
    assert_eq!(
        fleet.held(),
        [Cause::NotReplicated, Cause::NamespaceMissing].map(|cause| (cause, 1))
    );
}
