//! A mirror and its outcome: which of them the watch shows first, and what a conflict means.

use super::*;
use crate::stage::*;

/// The mirror of an offline status is in flight at 10 s, as are its versions: 2 is replaced by 4.
/// Every difference is mirrored at once, so that what others write here is not deferred.
fn mirror_in_flight() -> (Stage, Decision) {
    let mut stage = settled(settings(|s| s.mirror.defer_ms = 0));
    stage.pass_to(10_000);
    in_flight(stage)
}

fn version(decision: &Decision) -> Option<&str> {
    decision.action.precondition.resource_version.as_deref()
}

#[test]
fn what_the_watch_shows_after_a_write_counts_more_than_its_outcome() {
    let (mut stage, mirror) = mirror_in_flight();
    // Version 4 is the write itself, and 5 somebody else's.
    stage.hub(OFFLINE).hub(Some("{}")).finish(&mirror, applied(Some("4")));
    let again = stage.only_action();
    assert_eq!((time_of(&again), version(&again)), (10_000, Some("5")));
}

#[test]
fn a_write_that_the_watch_has_shown_is_done() {
    for version in [None, Some("4"), Some("3")] {
        let (mut stage, mirror) = mirror_in_flight();
        stage.hub(OFFLINE).finish(&mirror, applied(version)).assert_no_action();
        // What comes next is not held up.
        assert_eq!(stage.upstream(N2).only_action().action.verb, Verb::Mirror, "{version:?}");
    }
}

#[test]
fn a_write_that_the_watch_has_not_shown_yet_is_trusted() {
    for version in [None, Some("9")] {
        let (mut stage, mirror) = mirror_in_flight();
        stage.finish(&mirror, applied(version)).quiet_to(1_000_000);
        // An older version that arrives late is not an overwrite.
        stage.applied("hub", with_version(with_uid(UP.copy("lab", N1), "u-hub"), 2));
        assert_eq!(stage.actions().is_empty(), version.is_some());
    }
}

#[test]
fn the_machine_waits_for_the_version_that_an_outcome_leaves_open() {
    // After a conflict nothing is seen, so it looks again after a second.
    let (mut stage, mirror) = mirror_in_flight();
    assert_eq!(stage.finish(&mirror, conflict()).next_at(11_000).action.verb, Verb::Mirror);
    // What caused it is seen after the outcome, or before.
    let (mut stage, mirror) = mirror_in_flight();
    assert_eq!(time_of(&stage.finish(&mirror, conflict()).hub(Some("{}")).only_action()), 10_000);
    let (mut stage, mirror) = mirror_in_flight();
    assert_eq!(time_of(&stage.hub(Some("{}")).finish(&mirror, conflict()).only_action()), 10_000);
    // After a success without a version the order is unknown, and the watch gets time to catch up.
    let (mut stage, mirror) = mirror_in_flight();
    stage.hub(Some("{}")).finish(&mirror, applied(None));
    assert_eq!(stage.next_at(11_000).action.verb, Verb::Mirror);
}

/// The hub Connector is changed by others between each decision and its write: what they write is
/// not our annotation.
#[test]
fn after_three_conflicts_the_precondition_is_the_annotation_and_not_the_object() {
    // As the watch shows it, to the byte, though throughline would spell it otherwise.
    for old in [Some(r#"{ "conditions": [ ] }"#), None] {
        let mut stage = settled(Settings::default());
        stage.hub(old);
        for _ in 0..3 {
            let mirror = stage.only_action();
            assert!(version(&mirror).is_some());
            assert_eq!(mirror.action.precondition.annotation, None);
            stage.hub(old).assert_no_action();
            stage.finish(&mirror, conflict());
        }
        let mirror = stage.only_action();
        assert_eq!((stage.now, version(&mirror)), (START, None), "without a pause");
        assert_eq!(mirror.action.precondition.uid.as_deref(), Some("u-hub"));
        let annotation = mirror.action.precondition.annotation.as_ref().unwrap();
        assert_eq!((&*annotation.key, annotation.value.as_deref()), (STATUS, old));
        stage.hub(old).finish(&mirror, applied(Some("99"))).assert_no_action();
        // The next one starts with the object's version again.
        let next = stage.upstream(OFFLINE).only_action();
        assert_eq!((version(&next), &next.action.precondition.annotation), (Some("99"), &None));
    }
}
