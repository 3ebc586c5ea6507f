//! Absence is proven, and the damage of one mistake is bounded: which status annotations are removed
//! when upstream Connectors are missing.

mod evidence;
mod lying;

use throughline_core::contract::event::EventKind;
use throughline_core::contract::hold_reason::HoldReason;
use throughline_core::contract::note::{AnomalyKind, NoteKind};
use throughline_core::contract::settings::Settings;
use throughline_core::data::ids::Kind;
use throughline_core::view::phase::Phase;

use crate::fleet::{Fleet, name, namespace};
use crate::stage::UID;

const GRACE_MS: u64 = 5_000;
const MINUTE_MS: u64 = 60_000;

#[test]
fn a_single_connector_that_is_deleted_loses_its_annotation_after_the_grace_period() {
    let mut fleet = Fleet::new(1);
    fleet.delete_upstream(0..1);
    assert_eq!(fleet.removed_until(GRACE_MS), [] as [&str; 0]);
    fleet.stage.pass_to(GRACE_MS + 1);
    let removal = fleet.stage.only_action();
    let absent = removal.action.precondition.absent.clone().unwrap();
    assert_eq!((absent.kind, &absent.names[..]), (Kind::Connector, &["c0".to_owned()][..]));
    assert_eq!((absent.namespace_uid.as_deref(), absent.namespace_deleted), (Some(UID), false));
    fleet.carry_out(&removal);
    assert_eq!(fleet.stage.machine.phases()[&Phase::Offline], 1);
}

/// The kubeconfig points to a control plane that holds nothing, or the etcd behind it was emptied.
#[test]
fn an_empty_control_plane_removes_nothing() {
    let mut fleet = Fleet::new(200);
    fleet.relist(0..0);
    fleet.relist_namespaces(&[]);
    assert_eq!(fleet.removed_until(60 * MINUTE_MS), [] as [&str; 0]);
    fleet.assert_all_unproven(HoldReason::NamespaceMissing);
    assert_eq!(fleet.held(), [(HoldReason::NamespaceMissing, 200)], "one note, not 200");
    // The right control plane is back.
    fleet.relist_namespaces(&[&namespace(UID)]);
    fleet.relist(0..200);
    fleet.stage.pass_to(60 * MINUTE_MS + 2_000);
    fleet.stage.assert_no_action();
    assert_eq!(fleet.held(), [(HoldReason::NamespaceMissing, 0)]);
    assert_eq!(fleet.stage.machine.phases()[&Phase::Settled], 200);
}

/// A control plane with namespaces and Connectors of the same names is another place.
#[test]
fn a_namespace_with_another_uid_proves_nothing_and_is_not_mirrored() {
    let mut fleet = Fleet::new(20);
    fleet.relist_namespaces(&[&namespace("6bcb0b35-0000-4000-8000-00000000ffff")]);
    fleet.relist(0..0);
    for number in 0..10 {
        fleet.change(number, Some("n2"));
    }
    assert_eq!(fleet.removed_until(10 * MINUTE_MS), [] as [&str; 0]);
    fleet.assert_all_unproven(HoldReason::NamespaceDiffers);
}

/// It was seen there with the right uid, and then seen deleted.
#[test]
fn a_namespace_that_was_seen_deleted_proves_that_its_connectors_are_gone() {
    let mut fleet = Fleet::new(3);
    fleet.delete_upstream(0..2);
    fleet.stage.deleted("up", &namespace(UID));
    let removed = fleet.removed_until(GRACE_MS + 1_000);
    assert_eq!(removed, ["c0", "c1", "c2"], "also one whose own end was not seen");
    let mut fleet = Fleet::new(1);
    fleet.stage.deleted("up", &namespace(UID));
    fleet.relist_namespaces(&[&namespace("6bcb0b35-0000-4000-8000-00000000ffff")]);
    fleet.stage.pass_to(GRACE_MS + 1);
    let removal = fleet.stage.only_action();
    assert!(removal.action.precondition.absent.unwrap().namespace_deleted);
}

#[test]
fn while_too_many_are_missing_none_is_removed_until_a_person_agrees() {
    let mut fleet = Fleet::new(20);
    fleet.delete_upstream(0..4);
    fleet.stage.pass_to(2_000);
    fleet.delete_upstream(4..7);
    assert_eq!(fleet.removed_until(60 * MINUTE_MS), [] as [&str; 0], "7 of 20");
    assert_eq!(fleet.held(), [(HoldReason::TooMany, 7)]);
    fleet.allow("false");
    fleet.stage.assert_no_action();
    fleet.allow("true");
    let removed = fleet.removed_until(60 * MINUTE_MS + 2_000);
    assert_eq!(removed.len(), 7);
    assert_eq!(fleet.held(), [(HoldReason::TooMany, 0)]);
}

#[test]
fn up_to_the_share_they_are_removed_and_the_share_counts_ten_minutes() {
    let mut fleet = Fleet::new(10);
    fleet.delete_upstream(0..3);
    assert_eq!(fleet.removed_until(MINUTE_MS).len(), 3, "3 of 10 is not more than 30 %");
    fleet.delete_upstream(3..4);
    assert_eq!(fleet.removed_until(10 * MINUTE_MS), [] as [&str; 0]);
    assert_eq!(fleet.removed_until(11 * MINUTE_MS), ["c3"], "three of them are history by now");
}

/// A standby that takes over knows what its leader removed.
#[test]
fn what_another_instance_removed_counts_as_well() {
    let mut fleet = Fleet::new(10);
    fleet.stage.event(EventKind::LeadershipLost);
    fleet.delete_upstream(0..3);
    fleet.stage.pass_to(GRACE_MS + 1_000);
    for number in 0..3 {
        let object = fleet.at_hub(number, None);
        fleet.stage.applied("hub", &object);
    }
    fleet.stage.event(EventKind::LeadershipAcquired);
    fleet.delete_upstream(3..4);
    assert_eq!(fleet.removed_until(10 * MINUTE_MS), [] as [&str; 0]);
}

/// Below `mirror.shareFrom` there is no share: a project with two connectors may lose one.
#[test]
fn small_upstreams_have_no_share_but_the_budget_bounds_them_all() {
    let mut fleet = Fleet::new(9);
    fleet.delete_upstream(0..9);
    assert_eq!(fleet.removed_until(MINUTE_MS).len(), 9);
    let mut settings = Settings::default();
    settings.mirror.share_from = 1_000;
    let mut fleet = Fleet::with(settings, 40);
    fleet.delete_upstream(0..40);
    let removed: Vec<_> =
        (1..=4).map(|minute| fleet.removed_until(minute * MINUTE_MS + 8_000).len()).collect();
    assert_eq!(removed, [10, 5, 5, 5], "five at 5 s, and one each 12 s");
}

#[test]
fn those_that_come_back_release_the_others() {
    let mut fleet = Fleet::new(10);
    fleet.delete_upstream(0..5);
    assert_eq!(fleet.removed_until(MINUTE_MS), [] as [&str; 0]);
    for number in 0..3 {
        fleet.change(number, Some("n1"));
    }
    assert_eq!(fleet.removed_until(MINUTE_MS + 4_500), [] as [&str; 0], "the grace begins again");
    assert_eq!(fleet.removed_until(2 * MINUTE_MS), ["c3", "c4"]);
}

/// 200 with half of the items.
#[test]
fn half_a_list_removes_nothing() {
    let mut fleet = Fleet::new(200);
    fleet.relist(0..100);
    assert_eq!(fleet.removed_until(60 * MINUTE_MS), [] as [&str; 0]);
    assert_eq!(fleet.held(), [(HoldReason::TooMany, 100)]);
}

#[test]
fn a_status_that_goes_offline_is_said_and_never_held() {
    let mut fleet = Fleet::new(100);
    for number in 0..100 {
        fleet.change(number, None);
    }
    assert_eq!(fleet.stage.actions().len(), 100);
}

/// All statuses vanish, as after a backup that restores objects without them.
#[test]
fn statuses_that_vanish_count_as_missing_connectors_do() {
    let mut fleet = Fleet::new(20);
    for number in 0..20 {
        let v = fleet.stage.version();
        let name = name(number);
        fleet.stage.applied("up", &format!(
            r#"{{"kind":"Connector","metadata":{{"namespace":"default","name":"{name}","uid":"u-{name}","resourceVersion":"{v}"}}}}"#
        ));
    }
    assert_eq!(fleet.removed_until(60 * MINUTE_MS), [] as [&str; 0]);
    assert_eq!(fleet.held(), [(HoldReason::TooMany, 20)]);
}

#[test]
fn after_a_restore_old_statuses_wait_and_nothing_is_removed() {
    let mut fleet = Fleet::new(5);
    // The old state says that they are elsewhere, and does not know the last one.
    let old: Vec<_> = (0..4).map(|number| fleet.upstream(number, Some("n0"))).collect();
    fleet.stage.list_started("up", "Connector");
    for object in &old {
        fleet.stage.listed("up", object);
    }
    fleet.stage.version_went_back("up", "Connector");
    fleet.stage.list_finished("up", "Connector");
    fleet.stage.pass_to(30_000);
    fleet.stage.assert_no_action();
    fleet.assert_all_unproven(HoldReason::Restored);
    // One changes: what it says now is new.
    fleet.change(0, Some("n2"));
    let mirror = fleet.stage.only_action();
    assert_eq!(mirror.action.object.name, "c0");
    fleet.stage.succeed(&mirror);
    // The others are believed once the restore has settled; the missing one stays as it is.
    fleet.stage.pass_to(300_001);
    let mirrored: Vec<_> =
        fleet.stage.actions().into_iter().map(|d| d.action.object.name).collect();
    assert_eq!(mirrored, ["c1", "c2", "c3"]);
    fleet.stage.pass_to(60 * MINUTE_MS);
    assert!(fleet.stage.actions().iter().all(|d| d.action.object.name != "c4"));
}

#[test]
fn an_object_that_can_not_be_read_exists_and_proves_no_absence() {
    let mut fleet = Fleet::new(3);
    fleet.stage.list_started("up", "Connector");
    fleet.stage.unreadable("c0", "metadata.labels: a list");
    let object = fleet.upstream(1, Some("n1"));
    fleet.stage.listed("up", &object);
    fleet.stage.list_finished("up", "Connector");
    assert_eq!(fleet.removed_until(10 * MINUTE_MS), [] as [&str; 0]);
    let view = fleet.stage.machine.view();
    let phases: Vec<_> = view.connectors.iter().map(|connector| connector.phase).collect();
    assert_eq!(phases, [Phase::Unproven, Phase::Settled, Phase::Unproven]);
    let up = view.clusters.iter().find(|cluster| cluster.name.as_str() == "up").unwrap();
    assert_eq!(up.unreadable[&Kind::Connector], 1);
    let is_undecodable = |kind: &NoteKind| matches!(kind, NoteKind::Anomaly(a) if a.anomaly == AnomalyKind::Undecodable);
    assert!(fleet.stage.problems().iter().any(is_undecodable));
    // It can be read again: the other one is proven to be missing.
    fleet.change(0, Some("n1"));
    assert_eq!(fleet.removed_until(11 * MINUTE_MS), ["c2"]);
}

/// The hub's kubeconfig leads to the upstream, and the upstream's to the hub.
#[test]
fn swapped_roles_write_nothing() {
    let mut fleet = Fleet::new(0);
    for number in 0..20 {
        let upstream = fleet.upstream(number, Some("n1"));
        fleet.stage.applied("hub", &upstream);
        let at_hub = fleet.at_hub(number, Some("n2"));
        fleet.stage.applied("up", &at_hub);
    }
    assert_eq!(fleet.removed_until(10 * MINUTE_MS), [] as [&str; 0]);
}
