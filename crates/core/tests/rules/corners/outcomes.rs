//! A mirror and its outcome: which of them the watch shows first, and what a conflict means.

use super::*;

/// Upstream went offline, and the mirror of that is in flight.
/// Every difference is mirrored at once, so that what others write here is not deferred.
fn mirror_in_flight() -> (Stage, Decision) {
    let (mut stage, _) = settled(settings(|s| s.mirror.defer_ms = 0));
    stage.pass_to(10_000);
    stage.upstream(Some(&status(None)));
    let mirror = stage.only_action();
    (stage, mirror)
}

fn applied(version: Option<&str>) -> Outcome {
    Outcome::Applied { resource_version: version.map(str::to_owned) }
}

#[test]
fn what_the_watch_shows_after_a_write_counts_more_than_its_outcome() {
    let (mut stage, mirror) = mirror_in_flight();
    stage.hub(Some(&status(None))); // version 4: the write itself
    stage.hub(Some("{}")); // version 5: somebody else's
    stage.finish(&mirror, applied(Some("4")));
    let again = stage.only_action();
    assert_eq!(again.at.0, stage::START + 10_000);
    assert_eq!(again.action.precondition.resource_version.as_deref(), Some("5"));
}

#[test]
fn when_the_order_is_unknown_the_watch_gets_time_to_catch_up() {
    let (mut stage, mirror) = mirror_in_flight();
    stage.hub(Some("{}"));
    stage.finish(&mirror, applied(None));
    stage.pass_to(10_999);
    stage.assert_no_action();
    stage.pass_to(11_000);
    assert_eq!(stage.only_action().action.verb, Verb::Mirror);
}

#[test]
fn a_write_that_the_watch_has_shown_is_done() {
    for version in [None, Some("4"), Some("3")] {
        let (mut stage, mirror) = mirror_in_flight();
        stage.hub(Some(&status(None)));
        stage.finish(&mirror, applied(version));
        stage.assert_no_action();
        // What comes next is not held up.
        stage.upstream(Some(&status(Some("n2"))));
        assert_eq!(stage.only_action().action.verb, Verb::Mirror, "{version:?}");
    }
}

#[test]
fn a_write_that_the_watch_has_not_shown_yet_is_trusted() {
    for version in [None, Some("9")] {
        let (mut stage, mirror) = mirror_in_flight();
        stage.finish(&mirror, applied(version));
        stage.pass_to(1_000_000);
        stage.assert_no_action();
        // An older version that arrives late is not an overwrite.
        stage.applied("hub", &stage::hub_object(2, &status(Some("n1"))));
        assert_eq!(stage.actions().is_empty(), version.is_some());
    }
}

#[test]
fn after_a_conflict_the_machine_waits_for_the_version_that_caused_it() {
    let conflict = || Outcome::Conflict { error: "409".into() };
    let (mut stage, mirror) = mirror_in_flight();
    stage.finish(&mirror, conflict());
    stage.pass_to(10_999);
    stage.assert_no_action();
    stage.pass_to(11_000);
    assert_eq!(
        stage.only_action().action.verb,
        Verb::Mirror,
        "nothing was seen, so it looks again"
    );
    let (mut stage, mirror) = mirror_in_flight();
    stage.finish(&mirror, conflict());
    stage.hub(Some("{}"));
    assert_eq!(stage.only_action().at.0, stage::START + 10_000, "seen after the outcome");
    let (mut stage, mirror) = mirror_in_flight();
    stage.hub(Some("{}"));
    stage.finish(&mirror, conflict());
    assert_eq!(stage.only_action().at.0, stage::START + 10_000, "seen before the outcome");
}

/// The hub Connector is changed by others between each decision and its write: what they write is
/// not our annotation.
fn busy(stage: &mut Stage, annotation: Option<&str>, conflicts: u32) -> Vec<Decision> {
    let mut refused = Vec::new();
    for _ in 0..conflicts {
        let mirror = stage.only_action();
        stage.hub(annotation);
        stage.assert_no_action();
        stage.finish(&mirror, Outcome::Conflict { error: "409".into() });
        refused.push(mirror);
    }
    refused
}

#[test]
fn after_three_conflicts_the_precondition_is_the_annotation_and_not_the_object() {
    // As the watch shows it, to the byte, though throughline would spell it otherwise.
    let odd = r#"{ "conditions": [ ] }"#;
    for old in [Some(odd), None] {
        let (mut stage, _) = settled(Settings::default());
        stage.hub(old);
        let conflicts = busy(&mut stage, old, 3);
        for conflict in conflicts {
            let precondition = conflict.action.precondition;
            assert!(precondition.resource_version.is_some() && precondition.annotation.is_none());
        }
        let mirror = stage.only_action();
        let precondition = &mirror.action.precondition;
        assert_eq!(precondition.uid.as_deref(), Some("u-hub"));
        assert_eq!(precondition.resource_version, None);
        let annotation = precondition.annotation.as_ref().unwrap();
        assert_eq!(annotation.key, "networking.datumapis.com/upstream-status");
        assert_eq!(annotation.value.as_deref(), old);
        assert_eq!(stage.now, stage::START, "without a pause");
        stage.hub(old);
        stage.finish(&mirror, applied(Some("99")));
        stage.assert_no_action();
        // The next one starts with the object's version again.
        stage.upstream(Some(&status(None)));
        let next = stage.only_action().action.precondition;
        assert_eq!((next.resource_version.as_deref(), next.annotation), (Some("99"), None));
    }
}
