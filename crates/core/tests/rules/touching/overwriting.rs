//! Others write the trigger, too.

use super::*;

#[test]
fn an_overwritten_trigger_is_written_again_after_growing_pauses() {
    let mut stage = settled(Settings::default());
    let mut now = 100_000;
    for (n, pause_ms) in [(1, 1_000), (2, 2_000), (3, 4_000), (4, 8_000)] {
        stage.gateway(&format!(r#""{KEY}":"overwritten-{n}""#));
        stage.pass_to(now + pause_ms - 1);
        stage.assert_no_action();
        stage.pass_to(now + pause_ms);
        let touch = stage.only_action();
        assert_eq!((value(&touch).n, value(&touch).c), (4 + n, 0));
        assert_eq!(touch.because, "another writer changed the trigger");
        stage.gateway(&carrying(value(&touch)));
        stage.succeed(&touch);
        let is = |n: &NoteKind| {
            matches!(n, NoteKind::Anomaly(Anomaly { anomaly: AnomalyKind::Contention, .. }))
        };
        let reported = stage.problems().iter().any(is);
        assert_eq!(reported, n >= 3, "overwrite {n}");
        now += pause_ms + 1_000;
        stage.pass_to(now);
    }
    // After a quiet time the pauses start again at the first one.
    stage.settle_to(now + 300_000);
    stage.gateway(r#""other":"key""#);
    stage.pass_to(now + 300_999);
    stage.assert_no_action();
    stage.pass_to(now + 301_000);
    assert_eq!(value(&stage.only_action()).c, 0);
}

/// The API server stores our trigger, another writer changes it, and the watch shows that before the answer
/// to our write comes: the answer is older than what is known.
#[test]
fn what_came_after_a_touch_counts_even_if_its_answer_comes_last() {
    for after in [r#""other":"key""#.to_owned(), format!(r#""{KEY}":"foreign""#)] {
        for shows_own_write in [true, false] {
            let (mut stage, touch) = went_offline();
            let stored = stage.version();
            if shows_own_write {
                stage.gateway(&carrying(value(&touch)));
            }
            stage.gateway(&after);
            let outcome = Outcome::Applied { resource_version: Some(stored.to_string()) };
            stage.finish(&touch, outcome);
            stage.pass_to(105_000);
            let again = stage.only_action();
            let required = &again.action.precondition;
            assert_eq!(required.resource_version.is_some(), after.contains("foreign"));
            let before = required.annotation.as_deref();
            assert_eq!(
                before.map(|before| &before.value),
                after.contains("other").then_some(&None)
            );
            stage.succeed(&again);
            stage.gateway(&carrying(value(&again)));
            assert_eq!(
                stage.settle_to(400_000).len(),
                2,
                "two confirmations follow, and no other touch"
            );
        }
    }
}

/// Anybody can write the highest number there is. Where it is found at the start, the ones after it begin
/// at 1; wherever it is shown, again and again, no number is used twice.
#[test]
fn the_highest_number_there_is_makes_no_value_be_used_twice() {
    let highest = carrying(Trigger { digest: 1, n: u32::MAX, c: 0 });
    let mut found = Stage::new(Settings::default());
    found.edge(Some(&status(Some("n1"))));
    found.proxy(&["lab"]);
    found.gateway(&highest);
    for (first, mut stage) in [(1, found), (5, settled(Settings::default()))] {
        let mut numbers = Vec::new();
        for i in 0..4 {
            stage.gateway(&highest);
            stage.pass_to(200_000 + 100_000 * i);
            for touch in stage.actions() {
                numbers.push(value(&touch).n);
                stage.fail(touch.action.id);
            }
        }
        assert!(numbers.len() > 4, "{numbers:?}");
        assert!(numbers.iter().copied().eq((first..).take(numbers.len())), "{numbers:?}");
    }
}

#[test]
fn overwrites_of_a_trigger_add_up_until_a_quiet_time_has_passed() {
    for (apart_ms, pause_ms) in [(120_000, 2_000), (120_001, 1_000)] {
        let mut stage = settled(Settings::default());
        stage.gateway(&format!(r#""{KEY}":"overwritten""#));
        stage.settle_to(100_000 + apart_ms);
        stage.gateway(&format!(r#""{KEY}":"overwritten again""#));
        stage.pass_to(100_000 + apart_ms + pause_ms - 1);
        stage.assert_no_action();
        stage.pass_to(100_000 + apart_ms + pause_ms);
        assert_eq!(stage.actions().len(), 1, "{apart_ms} ms apart");
    }
}
