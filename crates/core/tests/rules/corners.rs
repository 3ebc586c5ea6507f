//! Corner cases of the rules, to the millisecond. The fixtures show the usual cases.

mod outcomes;

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

#[test]
fn nothing_is_mirrored_while_the_mirror_is_off() {
    let mut stage = Stage::new(settings(|s| s.mirror.enabled = false));
    stage.upstream(N1).hub(None).quiet_to(MINUTE);
    assert_eq!(stage.problems(), []);
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

/// A dry run goes on as if the write had succeeded: it reports an action once, not again and again.
#[test]
fn a_dry_run_reports_each_decision_once() {
    let (mut stage, mirror) = in_flight(settled(Settings::default()));
    stage.finish(&mirror, Outcome::DryRun).quiet_to(4_000);
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

#[test]
fn a_write_carries_the_latest_observed_version() {
    let (mut stage, mirror) = in_flight(settled(Settings::default()));
    assert_eq!(mirror.action.verb, Verb::Mirror);
    assert_eq!(mirror.action.precondition.uid.as_deref(), Some("u-hub"));
    assert_eq!(mirror.action.precondition.resource_version.as_deref(), Some("2"));
    // The outcome brings the version that the next write is about, before any watch tells.
    let next = stage.finish(&mirror, applied(Some("9"))).upstream(N2).only_action();
    assert_eq!(next.action.precondition.resource_version.as_deref(), Some("9"));
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

/// A connector whose agent reconnects all the time, seven times a second here, for a minute.
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
