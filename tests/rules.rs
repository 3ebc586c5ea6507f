//! Corners of the rules, to the millisecond: what the fixtures show in the large.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "support/stage.rs"]
mod stage;

use stage::{Stage, status};
use throughline::core::action::{Anomaly, AnomalyKind, Hop, Noted, Verb};
use throughline::core::event::{Happened, Outcome};
use throughline::core::settings::Settings;

fn settings(change: impl FnOnce(&mut Settings)) -> Settings {
    let mut settings = Settings::default();
    change(&mut settings);
    settings
}

fn is_contention(note: &Noted) -> bool {
    matches!(note, Noted::Anomaly(Anomaly { anomaly: AnomalyKind::Contention, .. }))
}

/// Mirrored and settled: upstream and hub say the same.
fn settled(settings: Settings) -> (Stage, String) {
    let mut stage = Stage::new(settings);
    let online = status(Some("n1"));
    stage.upstream(Some(&online));
    stage.hub(Some(&online));
    stage.nothing();
    stage.notes();
    (stage, online)
}

#[test]
fn spoils_count_as_one_contention_up_to_the_quiet_time_and_not_beyond() {
    for (apart_ms, contention) in [(119_999, true), (120_000, true), (120_001, false)] {
        let (mut stage, online) = settled(settings(|s| s.mirror.contention_count = 2));
        for n in 1..=2 {
            stage.pass_to(n * apart_ms);
            stage.hub(Some("{}"));
            stage.pass_to(n * apart_ms + 1_000);
            let mirror = stage.one();
            assert!(mirror.because.starts_with("another writer"), "{}", mirror.because);
            stage.hub(Some(&online));
            stage.land(&mirror);
            stage.now -= 1_000;
        }
        let told = stage.troubles().iter().filter(|n| is_contention(n)).count();
        assert_eq!(told, usize::from(contention), "{apart_ms} ms apart");
    }
}

#[test]
fn nothing_is_mirrored_where_the_mirror_is_off_or_the_hub_is_not_seen() {
    let mut stage = Stage::new(settings(|s| s.mirror.enabled = false));
    stage.upstream(Some(&status(Some("n1"))));
    stage.hub(None);
    stage.pass_to(60_000);
    stage.nothing();
    assert_eq!(stage.troubles(), []);
    let (mut stage, _) = settled(Settings::default());
    stage.lost("hub", "Connector");
    stage.upstream(Some(&status(None)));
    stage.pass_to(60_000);
    stage.nothing();
}

/// What a resumed watch brings afterwards is in order and whole: what was known still counts.
#[test]
fn a_resumed_watch_takes_up_what_waited_and_forgets_nothing() {
    let (mut stage, _) = settled(Settings::default());
    stage.lost("hub", "Connector");
    stage.upstream(Some(&status(None)));
    stage.nothing();
    stage.resumed("hub", "Connector");
    let mirror = stage.one();
    assert_eq!(mirror.action.verb, Verb::Mirror);
    stage.land(&mirror);
    // A watch that was never listed can't be resumed, and one that lives needs not to be.
    let mut fresh = Stage::new(Settings::default());
    fresh.upstream(Some(&status(None)));
    fresh.hub(Some("{}"));
    fresh.decided();
    fresh.line(r#""event":"list_started","cluster":"hub","kind":"Connector""#);
    fresh.resumed("hub", "Connector");
    fresh.upstream(Some(&status(Some("n2"))));
    fresh.nothing();
}

/// A dry run goes on as if the write had landed: it is told once, not again and again.
#[test]
fn a_dry_run_tells_each_decision_once() {
    let (mut stage, _) = settled(Settings::default());
    stage.upstream(Some(&status(None)));
    let mirror = stage.one();
    stage.finish(&mirror, Outcome::DryRun);
    stage.pass_to(4_000);
    stage.nothing();
}

#[test]
fn a_stall_outlives_a_lost_watch_and_not_a_cluster_that_is_removed() {
    let (mut stage, _) = settled(Settings::default());
    stage.upstream(Some(&status(None)));
    let mirror = stage.one();
    stage.pass_to(5_000);
    let is = |note: &Noted, over: bool| match note {
        Noted::Stalled(s) => !over && s.hop == Hop::Mirrored,
        Noted::StallEnded(s) => over && s.hop == Hop::Mirrored,
        _ => false,
    };
    assert!(matches!(&stage.troubles()[..], [stall] if is(stall, false)));
    for kind in ["Connector", "Namespace"] {
        stage.lost("up", kind);
        stage.fail(mirror.action.id);
        stage.hub(Some("{}"));
        assert_eq!(stage.troubles(), [], "{kind}");
    }
    stage.tell(Happened::ClusterRemoved { cluster: "up".into() });
    assert!(matches!(&stage.troubles()[..], [stall] if is(stall, true)));
    // Nor one whose upstream namespace turns out to be another, all watches being live.
    let (mut stage, _) = settled(Settings::default());
    stage.upstream(Some(&status(None)));
    stage.pass_to(5_000);
    assert!(matches!(&stage.troubles()[..], [stall] if is(stall, false)));
    stage.applied("up", &stage::namespace("6bcb0b35-0000-4000-8000-00000000000f"));
    assert!(stage.troubles().iter().any(|note| is(note, true)));
}

#[test]
fn a_write_is_about_the_version_that_was_seen_last() {
    let (mut stage, _) = settled(Settings::default());
    stage.upstream(Some(&status(None)));
    let mirror = stage.one();
    assert_eq!(mirror.action.verb, Verb::Mirror);
    assert_eq!(mirror.action.precondition.uid.as_deref(), Some("u-hub"));
    assert_eq!(mirror.action.precondition.resource_version.as_deref(), Some("2"));
    // The outcome brings the version that the next write is about, before any watch tells.
    stage.finish(&mirror, Outcome::Applied { resource_version: Some("9".into()), deleted: None });
    stage.upstream(Some(&status(Some("n2"))));
    assert_eq!(stage.one().action.precondition.resource_version.as_deref(), Some("9"));
}

/// Upstream went offline and the mirror of that is in flight.
fn under_way() -> (Stage, throughline::core::action::Decision) {
    let (mut stage, _) = settled(Settings::default());
    stage.pass_to(10_000);
    stage.upstream(Some(&status(None)));
    let mirror = stage.one();
    (stage, mirror)
}

fn applied(version: Option<&str>) -> Outcome {
    Outcome::Applied { resource_version: version.map(str::to_owned), deleted: None }
}

#[test]
fn what_the_watch_showed_after_a_write_counts_more_than_the_writes_outcome() {
    let (mut stage, mirror) = under_way();
    stage.hub(Some(&status(None))); // version 4: the write itself
    stage.hub(Some("{}")); // version 5: somebody else's
    stage.finish(&mirror, applied(Some("4")));
    let again = stage.one();
    assert_eq!(again.at.0, stage::START + 10_000);
    assert_eq!(again.action.precondition.resource_version.as_deref(), Some("5"));
}

#[test]
fn where_the_order_is_not_known_the_watch_gets_a_moment_to_catch_up() {
    let (mut stage, mirror) = under_way();
    stage.hub(Some("{}"));
    stage.finish(&mirror, applied(None));
    stage.pass_to(10_999);
    stage.nothing();
    stage.pass_to(11_000);
    assert_eq!(stage.one().action.verb, Verb::Mirror);
}

#[test]
fn a_write_that_the_watch_has_shown_is_done() {
    for version in [None, Some("4"), Some("3")] {
        let (mut stage, mirror) = under_way();
        stage.hub(Some(&status(None)));
        stage.finish(&mirror, applied(version));
        stage.nothing();
        // What comes next is not held up.
        stage.upstream(Some(&status(Some("n2"))));
        assert_eq!(stage.one().action.verb, Verb::Mirror, "{version:?}");
    }
}

#[test]
fn a_write_that_no_watch_has_shown_yet_is_believed() {
    for version in [None, Some("9")] {
        let (mut stage, mirror) = under_way();
        stage.finish(&mirror, applied(version));
        stage.pass_to(1_000_000);
        stage.nothing();
        // An older version that turns up late is not a spoiled one.
        stage.line(&format!(
            r#""event":"applied","cluster":"hub","object":{}"#,
            stage::hub_object(2, &status(Some("n1")))
        ));
        assert_eq!(stage.decided().is_empty(), version.is_some());
    }
}

#[test]
fn a_conflict_waits_for_the_version_that_it_conflicts_with() {
    let conflict = || Outcome::Conflict { error: "409".into() };
    let (mut stage, mirror) = under_way();
    stage.finish(&mirror, conflict());
    stage.pass_to(10_999);
    stage.nothing();
    stage.pass_to(11_000);
    assert_eq!(stage.one().action.verb, Verb::Mirror, "nothing was seen, so it looks again");
    let (mut stage, mirror) = under_way();
    stage.finish(&mirror, conflict());
    stage.hub(Some("{}"));
    assert_eq!(stage.one().at.0, stage::START + 10_000, "seen after the outcome");
    let (mut stage, mirror) = under_way();
    stage.hub(Some("{}"));
    stage.finish(&mirror, conflict());
    assert_eq!(stage.one().at.0, stage::START + 10_000, "seen before the outcome");
}
