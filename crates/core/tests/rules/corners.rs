//! Corner cases of the rules, to the millisecond. The fixtures show the usual cases.

mod outcomes;

use throughline_core::contract::action::{Decision, Verb};
use throughline_core::contract::event::{EventKind, Outcome};
use throughline_core::contract::note::{Anomaly, AnomalyKind, Hop, NoteKind};
use throughline_core::contract::settings::Settings;

use crate::stage::{self, Stage, status};

fn settings(change: impl FnOnce(&mut Settings)) -> Settings {
    let mut settings = Settings::default();
    change(&mut settings);
    settings
}

fn is_contention(note: &NoteKind) -> bool {
    matches!(note, NoteKind::Anomaly(Anomaly { anomaly: AnomalyKind::Contention, .. }))
}

/// Upstream and hub say the same.
fn settled(settings: Settings) -> (Stage, String) {
    let mut stage = Stage::new(settings);
    let online = status(Some("n1"));
    stage.upstream(Some(&online));
    stage.hub(Some(&online));
    stage.assert_no_action();
    stage.notes();
    (stage, online)
}

#[test]
fn overwrites_within_the_quiet_time_count_as_one_contention() {
    for (apart_ms, contention) in [(119_999, true), (120_000, true), (120_001, false)] {
        let (mut stage, online) = settled(settings(|s| s.mirror.contention_count = 2));
        for n in 1..=2 {
            stage.pass_to(n * apart_ms);
            stage.hub(Some("{}"));
            stage.pass_to(n * apart_ms + 1_000);
            let mirror = stage.only_action();
            assert!(mirror.because.starts_with("another writer"), "{}", mirror.because);
            stage.hub(Some(&online));
            stage.succeed(&mirror);
            stage.now -= 1_000;
        }
        let reported = stage.problems().iter().filter(|n| is_contention(n)).count();
        assert_eq!(reported, usize::from(contention), "{apart_ms} ms apart");
    }
}

#[test]
fn nothing_is_mirrored_while_the_mirror_is_off_or_the_hub_is_not_listed() {
    let mut stage = Stage::new(settings(|s| s.mirror.enabled = false));
    stage.upstream(Some(&status(Some("n1"))));
    stage.hub(None);
    stage.pass_to(60_000);
    stage.assert_no_action();
    assert_eq!(stage.problems(), []);
    let (mut stage, _) = settled(Settings::default());
    stage.lost("hub", "Connector");
    stage.upstream(Some(&status(None)));
    stage.pass_to(60_000);
    stage.assert_no_action();
}

/// A resumed watch missed nothing, so what was known before still counts.
#[test]
fn a_resumed_watch_continues_what_waited_and_loses_nothing() {
    let (mut stage, _) = settled(Settings::default());
    stage.lost("hub", "Connector");
    stage.upstream(Some(&status(None)));
    stage.assert_no_action();
    stage.resumed("hub", "Connector");
    let mirror = stage.only_action();
    assert_eq!(mirror.action.verb, Verb::Mirror);
    stage.succeed(&mirror);
    // A watch that was never listed can't be resumed, and one that lives needs not to be.
    let mut fresh = Stage::new(Settings::default());
    fresh.upstream(Some(&status(None)));
    fresh.hub(Some("{}"));
    fresh.actions();
    fresh.list_started("hub", "Connector");
    fresh.resumed("hub", "Connector");
    fresh.upstream(Some(&status(Some("n2"))));
    fresh.assert_no_action();
}

/// A dry run goes on as if the write had succeeded: it reports an action once, not again and again.
#[test]
fn a_dry_run_reports_each_decision_once() {
    let (mut stage, _) = settled(Settings::default());
    stage.upstream(Some(&status(None)));
    let mirror = stage.only_action();
    stage.finish(&mirror, Outcome::DryRun);
    stage.pass_to(4_000);
    stage.assert_no_action();
}

#[test]
fn a_stall_survives_a_lost_watch_but_not_the_removal_of_its_cluster() {
    let (mut stage, _) = settled(Settings::default());
    stage.upstream(Some(&status(None)));
    let mirror = stage.only_action();
    stage.pass_to(5_000);
    let is = |note: &NoteKind, over: bool| match note {
        NoteKind::Stalled(s) => !over && s.hop == Hop::Mirrored,
        NoteKind::StallEnded(s) => over && s.hop == Hop::Mirrored,
        _ => false,
    };
    assert!(matches!(&stage.problems()[..], [stall] if is(stall, false)));
    for kind in ["Connector", "Namespace"] {
        stage.lost("up", kind);
        stage.fail(mirror.action.id);
        stage.hub(Some("{}"));
        assert_eq!(stage.problems(), [], "{kind}");
    }
    stage.event(EventKind::ClusterRemoved { cluster: "up".into() });
    assert!(matches!(&stage.problems()[..], [stall] if is(stall, true)));
    // Nor one whose upstream namespace turns out to be another, all watches being live.
    let (mut stage, _) = settled(Settings::default());
    stage.upstream(Some(&status(None)));
    stage.pass_to(5_000);
    assert!(matches!(&stage.problems()[..], [stall] if is(stall, false)));
    stage.applied("up", &stage::namespace("6bcb0b35-0000-4000-8000-00000000000f"));
    assert!(stage.problems().iter().any(|note| is(note, true)));
}

#[test]
fn a_write_carries_the_latest_observed_version() {
    let (mut stage, _) = settled(Settings::default());
    stage.upstream(Some(&status(None)));
    let mirror = stage.only_action();
    assert_eq!(mirror.action.verb, Verb::Mirror);
    assert_eq!(mirror.action.precondition.uid.as_deref(), Some("u-hub"));
    assert_eq!(mirror.action.precondition.resource_version.as_deref(), Some("2"));
    // The outcome brings the version that the next write is about, before any watch tells.
    stage.finish(&mirror, Outcome::Applied { resource_version: Some("9".into()) });
    stage.upstream(Some(&status(Some("n2"))));
    assert_eq!(stage.only_action().action.precondition.resource_version.as_deref(), Some("9"));
}

/// Then the annotation itself is another one: no busy object, but another writer of the same value.
#[test]
fn a_conflict_over_the_annotation_itself_is_a_contention() {
    let (mut stage, _) = settled(Settings::default());
    stage.hub(Some("{}"));
    let mut attempts = 0;
    while stage.now < stage::START + 60_000 {
        // Another writer of the annotation, twice in each of our writes.
        for mirror in stage.actions() {
            attempts += 1;
            stage.hub(Some(&format!(r#"{{"n":{attempts}}}"#)));
            stage.finish(&mirror, Outcome::Conflict { error: "409".into() });
        }
        let at = stage.now - stage::START + 50;
        stage.pass_to(at);
        stage.hub(Some(&format!(r#"{{"t":{at}}}"#)));
    }
    assert!(attempts <= 12, "{attempts} attempts in a minute");
    assert!(stage.problems().iter().any(is_contention));
}

/// An object of the same name is created while the old one's mirror is late and the watch is lost.
#[test]
fn a_stall_ends_with_the_object_that_it_is_about() {
    let (mut stage, _) = settled(Settings::default());
    stage.upstream(Some(&status(None)));
    let mirror = stage.only_action();
    stage.finish(&mirror, Outcome::Refused { error: "403".into() });
    stage.pass_to(5_000);
    stage.problems();
    let replaced = stage.connector_copy("u-hub-2", Some(&status(None)));
    stage.list("hub", "Connector", &[&replaced]);
    assert!(matches!(&stage.problems()[..], [NoteKind::StallEnded(_)]));
    stage.assert_no_action();
}

/// On failure this never ends, and the test's time limit does.
#[test]
fn at_the_end_of_time_the_machine_waits() {
    for now in [u64::MAX, u64::MAX - 1] {
        let mut stage = Stage::new(settings(|s| s.stall.mirrored_ms = 1));
        stage.upstream(Some(&status(Some("n1"))));
        stage.hub(None);
        // Its outcome never comes, and every pause, time-out and stall from now on saturates.
        drop(stage.only_action());
        stage.now = now;
        stage.event(EventKind::TimedOut);
        let mut actions = 0;
        while let Some(decision) = stage.machine.poll_action() {
            let error = throughline_core::contract::error_cause::RequestFailure::recorded(
                "no".to_owned(),
                None,
            );
            let outcome = Outcome::Failed { error, retry_after_ms: Some(u64::MAX) };
            stage.event(EventKind::ActionFinished { id: decision.action.id, outcome });
            actions += 1;
            assert!(actions < 10);
        }
        assert!(stage.machine.poll_deadline().is_none_or(|(at, _)| at.0 < u64::MAX));
    }
}

/// A connector whose agent reconnects all the time, seven times a second here, for a minute.
#[test]
fn a_connector_that_flaps_has_a_budget_and_its_last_state_arrives() {
    let mut stage = Stage::new(Settings::default());
    let mut mirrors = 0;
    let mut annotation = String::new();
    for step in 0..420_u64 {
        let node = if step % 2 == 0 { "n1" } else { "n2" };
        stage.upstream(Some(&status(Some(node))));
        if step == 0 {
            stage.hub(None);
        }
        stage.pass_to(1_000 + step * 143);
        mirrors += carry_out(&mut stage, &mut annotation);
    }
    assert!((250..=20 + 5 * 60 + 2).contains(&mirrors), "{mirrors} mirrors in a minute");
    stage.upstream(Some(&status(Some("last"))));
    let at = 1_000 + 420 * 143;
    stage.pass_to(at + 1_000);
    carry_out(&mut stage, &mut annotation);
    assert_eq!(annotation, status(Some("last")), "within a second");
    // Ten seconds later a burst of flips is mirrored at once again.
    stage.settle_to(at + 12_000);
    for step in 0..15_u64 {
        let node = if step % 2 == 0 { "n1" } else { "n2" };
        stage.upstream(Some(&status(Some(node))));
        assert_eq!(carry_out(&mut stage, &mut annotation), 1, "flip {step}");
    }
}

fn carry_out(stage: &mut Stage, annotation: &mut String) -> usize {
    let mirrors = stage.actions();
    for mirror in &mirrors {
        assert_eq!(mirror.action.verb, Verb::Mirror);
        *annotation = mirror.action.annotations[0].1.clone().unwrap();
        stage.hub(Some(annotation));
        stage.succeed(mirror);
    }
    mirrors.len()
}

/// Two installations on one hub, each with an upstream of the same name: both write as `throughline`.
#[test]
fn another_throughline_that_contends_is_named() {
    let (mut stage, _) = settled(settings(|s| s.mirror.contention_count = 1));
    for (manager, time, named) in [
        ("kubectl-annotate", "2026-01-01T00:00:02Z", Some("kubectl-annotate")),
        ("kubectl-annotate", "2025-01-01T00:00:00Z", Some("throughline")),
    ] {
        let version = stage.version();
        let mut object: serde_json::Value =
            serde_json::from_str(&stage::hub_object(version, &status(Some("theirs")))).unwrap();
        object["metadata"]["managedFields"] = serde_json::json!([
            {"manager": manager, "operation": "Update", "time": time},
            {"manager": "throughline", "operation": "Update", "time": "2026-01-01T00:00:01Z"},
        ]);
        stage.applied("hub", &object.to_string());
        let notes = stage.problems();
        let contention = notes.iter().find_map(|note| match note {
            NoteKind::Anomaly(a) if a.anomaly == AnomalyKind::Contention => Some(a),
            _ => None,
        });
        let Some(anomaly) = contention else { panic!("{notes:?}") };
        assert_eq!(anomaly.manager.as_deref(), named);
        assert_eq!(anomaly.detail.contains("another throughline"), named == Some("throughline"));
        let at = stage.now - stage::START + 600_000;
        stage.pass_to(at);
        for mirror in stage.actions() {
            let ours = mirror.action.annotations[0].1.clone().unwrap();
            stage.hub(Some(&ours));
            stage.succeed(&mirror);
        }
        stage.notes();
    }
}
