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

fn version(decision: &Decision) -> Option<&str> {
    decision.action.precondition.resource_version.as_deref()
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

/// A connector whose agent reconnects seven times a second, for a minute.
#[test]
fn a_connector_that_flaps_has_a_limit_and_its_last_state_arrives() {
    let mut stage = Stage::default();
    let mut mirrors = 0;
    for step in 0..420_u64 {
        stage.upstream(if step % 2 == 0 { N1 } else { N2 });
        if step == 0 {
            stage.hub(None);
        }
        mirrors += carry_out(stage.pass_to(1_000 + step * 143)).len();
    }
    assert!((250..=20 + 5 * 60 + 2).contains(&mirrors), "{mirrors} mirrors in a minute");

    let last = status(Some("last"));
    let at = 1_000 + 420 * 143;
    let arrived = carry_out(stage.upstream(Some(&last)).pass_to(at + 1_000));
    assert_eq!(arrived.last(), Some(&last), "within a second");
    // Ten seconds later a burst of flips is mirrored at once again.
    stage.settle_to(at + 12_000);
    for step in 0..15 {
        let flip = carry_out(stage.upstream(if step % 2 == 0 { N1 } else { N2 }));
        assert_eq!(flip.len(), 1, "flip {step}");
    }
}

/// The hub shows what is written. Returns these annotations.
pub(crate) fn carry_out(stage: &mut Stage) -> Vec<String> {
    let mirrors = stage.actions();
    for mirror in &mirrors {
        stage.hub(written(mirror)).succeed(mirror);
    }
    mirrors.iter().filter_map(written).map(str::to_owned).collect()
}
