//! What counts as evidence of absence, and about which objects.

use throughline_core::contract::event::EventKind;
use throughline_core::contract::hold_reason::HoldReason;
use throughline_core::contract::note::{AnomalyKind, NoteKind};
use throughline_core::data::ids::Role;
use throughline_core::view::phase::Phase;

use super::MINUTE_MS;
use crate::fleet::{Fleet, name, namespace};
use crate::stage::{UID, status};

/// The upstream Connector has this status.
fn says(fleet: &mut Fleet, number: usize, status: &str) {
    let (v, name) = (fleet.stage.version(), name(number));
    fleet.stage.applied("up", &format!(
        r#"{{"kind":"Connector","metadata":{{"namespace":"default","name":"{name}","uid":"u-{name}","resourceVersion":"{v}"}},"status":{status}}}"#
    ));
}

/// How often it was said that an object can't be read, since the last call.
fn undecodable(fleet: &mut Fleet) -> usize {
    let is_undecodable = |note: &NoteKind| matches!(note, NoteKind::Anomaly(anomaly) if anomaly.anomaly == AnomalyKind::Undecodable);
    fleet.stage.problems().iter().filter(|note| is_undecodable(note)).count()
}

#[test]
fn a_status_that_cannot_be_spelled_is_not_a_missing_one_and_says_nothing_about_others() {
    let nested = "[".repeat(129) + &"]".repeat(129);
    for odd in [format!(r#"{{"x":{nested}}}"#), r#"{"x":1e400}"#.to_owned()] {
        let mut fleet = Fleet::new(3);
        says(&mut fleet, 0, &odd);
        says(&mut fleet, 0, &odd);
        fleet.delete_upstream(1..2);
        assert_eq!(fleet.removed_until(MINUTE_MS), ["c1"], "{odd}");
        assert_eq!(undecodable(&mut fleet), 1);
        let view = fleet.stage.machine.view();
        let phases: Vec<_> = view.connectors.iter().map(|connector| connector.phase).collect();
        assert_eq!(phases, [Phase::Unproven, Phase::Offline, Phase::Settled]);
        let hold = view.connectors[0].hubs[0].hold.as_ref();
        assert_eq!(hold.map(|hold| hold.reason), Some(HoldReason::Unreadable));

        // It can be read again.
        says(&mut fleet, 0, &status(Some("n2")));
        let mirror = fleet.stage.only_action();
        assert_eq!(mirror.action.annotations[0].1, Some(status(Some("n2"))));
        fleet.stage.succeed(&mirror);
        says(&mut fleet, 0, &odd);
        assert_eq!(fleet.removed_until(2 * MINUTE_MS), [] as [&str; 0]);
        assert_eq!(undecodable(&mut fleet), 1, "a new fault is said");
    }
}

#[test]
fn a_connector_whose_first_status_cannot_be_spelled_is_left_alone() {
    let mut fleet = Fleet::new(1);
    fleet.relist(0..0);
    says(&mut fleet, 0, r#"{"x":1e400}"#);
    assert_eq!(fleet.removed_until(MINUTE_MS), [] as [&str; 0]);
}

/// Milo gives a project that is made again the namespace `default` of the former, with its uid.
#[test]
fn a_namespace_that_is_shown_again_was_not_deleted() {
    let mut fleet = Fleet::new(2);
    fleet.stage.deleted("up", &namespace(UID));
    fleet.stage.pass_to(1_000);
    fleet.stage.applied("up", &namespace(UID));
    fleet.stage.pass_to(MINUTE_MS);
    fleet.stage.assert_no_action();

    // It vanishes once more, and only a list says so.
    fleet.relist(0..0);
    fleet.relist_namespaces(&[]);
    assert_eq!(fleet.removed_until(10 * MINUTE_MS), [] as [&str; 0]);
    fleet.assert_all_unproven(HoldReason::NamespaceMissing);
}

#[test]
fn a_namespace_deleted_in_one_upstream_proves_nothing_in_another() {
    let mut fleet = Fleet::new(1);
    let roles = vec![Role::Upstream];
    fleet.stage.event(EventKind::ClusterAdded { cluster: "other".into(), roles });
    for kind in ["Namespace", "Connector"] {
        fleet.stage.list("other", kind, &[]);
    }
    fleet.stage.deleted("up", &namespace(UID));
    let moved = fleet.at_hub(0, Some("n1")).replace("cluster-up", "cluster-other");
    fleet.stage.applied("hub", &moved);
    assert_eq!(fleet.removed_until(10 * MINUTE_MS), [] as [&str; 0]);
    assert_eq!(fleet.held(), [(HoldReason::NamespaceMissing, 1)]);
}
