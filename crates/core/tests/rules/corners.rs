//! Corner cases of the mirror, to the millisecond: other writers, and which of a write and its outcome is
//! seen first. The fixtures show the usual cases.

use crate::stage::*;

/// Upstream and hub say the same.
fn settled(settings: Settings) -> Stage {
    let mut stage = Stage::new(settings);
    stage.upstream(N1).hub(N1).assert_no_action();
    stage.notes();
    stage
}

/// Upstream went offline, and the mirror of that is in flight.
fn in_flight(mut stage: Stage) -> (Stage, Decision) {
    let mirror = stage.upstream(OFFLINE).only_action();
    (stage, mirror)
}

#[test]
fn overwrites_within_the_quiet_time_count_as_one_contention() {
    for (apart_ms, contention) in [(119_999, 1), (120_000, 1), (120_001, 0)] {
        let mut stage = settled(settings(|s| s.mirror.contention_count = 2));
        for n in 1..=2 {
            let mirror = stage.pass_to(n * apart_ms).hub(Some("{}")).pass(1_000).only_action();
            assert!(mirror.because.starts_with("another writer"), "{}", mirror.because);
            stage.hub(N1).succeed(&mirror);
            stage.now -= 1_000;
        }
        let reported = stage.began(Cause::Overwritten).len();
        assert_eq!(reported, contention, "{apart_ms} ms apart");
    }
}

/// A resumed watch missed nothing, so what was known before still counts.
#[test]
fn a_resumed_watch_continues_what_waited_and_loses_nothing() {
    let mut stage = settled(Settings::default());
    stage.lost("hub", "Connector").upstream(OFFLINE).quiet_to(MINUTE);
    assert_eq!(stage.resumed("hub", "Connector").only_action().action.verb, Verb::Mirror);
    // A watch that was never listed can't be resumed.
    let mut fresh = Stage::default();
    fresh.upstream(OFFLINE).hub(Some("{}")).actions();
    fresh.list_started("hub", "Connector").resumed("hub", "Connector");
    fresh.upstream(N2).assert_no_action();
}

#[test]
fn what_is_late_stays_so_behind_a_lost_watch_and_ends_with_what_it_is_about() {
    let (mut stage, mirror) = in_flight(settled(Settings::default()));
    assert_eq!(stage.pass_to(5_000).wrong(), [Cause::NotMirrored]);
    for (cluster, kind) in [("up", "Connector"), ("up", "Namespace"), ("hub", "Connector")] {
        stage.lost(cluster, kind).hub(N2);
        assert_eq!(stage.wrong(), [Cause::ClusterUnavailable, Cause::NotMirrored], "{kind}");
        assert_eq!(stage.resumed(cluster, kind).wrong(), [Cause::NotMirrored], "{kind}");
    }
    // An object of the same name is there instead.
    stage.finish(&mirror, forbidden());
    let other = with_uid(UP.copy("lab", OFFLINE), "u-hub-2");
    assert_eq!(stage.list("hub", "Connector", [other]).wrong(), []);
}

/// Then the annotation itself is another one: no busy object, but another writer of the same value.
#[test]
fn a_conflict_over_the_annotation_itself_is_a_contention() {
    let mut stage = settled(Settings::default());
    stage.hub(Some("{}"));
    let mut attempts = 0;
    while stage.time() < MINUTE {
        // Another writer of the annotation, twice in each of our writes.
        for mirror in stage.actions() {
            attempts += 1;
            stage.hub(Some(&format!(r#"{{"n":{attempts}}}"#))).finish(&mirror, conflict());
        }
        let text = format!(r#"{{"t":{}}}"#, stage.time());
        stage.pass(50).hub(Some(&text));
    }
    assert!(attempts <= 12, "{attempts} attempts in a minute");
    assert!(!stage.began(Cause::Overwritten).is_empty());
}

/// On failure this never ends, and the test's time limit does.
#[test]
fn at_the_end_of_time_the_machine_waits() {
    for now in [u64::MAX, u64::MAX - 1] {
        let mut stage = Stage::new(settings(|s| s.late.mirrored_ms = 1));
        // Its outcome never comes, and every pause, time-out and limit from now on saturates.
        drop(stage.upstream(N1).hub(None).only_action());
        stage.now = now;
        stage.event(EventKind::TimedOut);
        let mut actions = 0;
        while let Some(decision) = stage.machine.poll_action() {
            stage.finish(&decision, unavailable(Some(u64::MAX)));
            actions += 1;
            assert!(actions < 10);
        }
        assert!(stage.machine.poll_deadline().is_none_or(|at| at.0 < u64::MAX));
    }
}

/// The annotations that are written.
fn carry_out(stage: &mut Stage) -> Vec<String> {
    let mirrors = stage.actions();
    for mirror in &mirrors {
        assert_eq!(mirror.action.verb, Verb::Mirror);
        stage.hub(written(mirror)).succeed(mirror);
    }
    mirrors.iter().filter_map(written).map(str::to_owned).collect()
}

/// Two installations on one hub, each with an upstream of the same name: both write as `throughline`.
#[test]
fn another_throughline_that_contends_is_named() {
    let mut stage = settled(settings(|s| s.mirror.contention_count = 1));
    for (time, named) in [
        ("2026-01-01T00:00:02Z", "kubectl-annotate"),
        ("2025-01-01T00:00:00Z", "Another throughline"),
    ] {
        let fields = json!([
            {"manager": "kubectl-annotate", "operation": "Update", "time": time},
            {"manager": "throughline", "operation": "Update", "time": "2026-01-01T00:00:01Z"},
        ]);
        let theirs = with_uid(UP.copy("lab", Some(&status(Some("theirs")))), "u-hub");
        stage.applied("hub", with(theirs, json!({"metadata": {"managedFields": fields}})));
        assert_eq!(stage.began(Cause::Overwritten)[0].facts.manager.as_deref(), Some(named));
        carry_out(stage.pass(600_000));
        stage.notes();
    }
}

/// The watches of two clusters have no common order.
#[test]
fn a_standby_that_sees_a_mirror_before_its_cause_calls_nothing_late() {
    let mut stage = settled(Settings::default());
    stage.leads(false).pass(10_000);
    let fields = json!([
        {"manager": "throughline", "operation": "Update", "time": "2026-01-01T00:00:01Z"},
    ]);
    let mirrored = with_uid(UP.copy("lab", Some(&status(Some("n2")))), "u-hub");
    stage.applied("hub", with(mirrored, json!({"metadata": {"managedFields": fields}})));
    assert_eq!(stage.began(Cause::NotMirrored), []);
    stage.pass(4_000).upstream(N2).pass(60_000);
    assert_eq!(stage.began(Cause::NotMirrored), []);
    assert_eq!(stage.began(Cause::Overwritten), []);
}

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
