//! Others write the trigger, too.

use super::*;
use crate::stage::*;

/// Another writer gives the trigger this value.
fn overwrite<'a>(stage: &'a mut Stage, value: &str) -> &'a mut Stage {
    stage.gateway(&format!(r#""{TRIGGER}":"{value}""#));
    stage
}

#[test]
fn an_overwritten_trigger_is_written_again_after_growing_pauses() {
    let mut stage = settled(Settings::default());
    let mut now = 100_000;
    for (n, pause_ms) in [(1, 1_000), (2, 2_000), (3, 4_000), (4, 8_000)] {
        let touch = overwrite(&mut stage, &format!("overwritten-{n}")).next_at(now + pause_ms);
        assert_eq!((value(&touch).n, value(&touch).c), (4 + n, 0));
        assert_eq!(touch.because, "another writer changed the trigger");
        overwrite(&mut stage, &value(&touch).to_string()).succeed(&touch);
        assert_eq!(stage.wrong().contains(&Cause::Overwritten), n >= 3, "overwrite {n}");
        now += pause_ms + 1_000;
        stage.pass_to(now);
    }
    // After a quiet time the pauses start again at the first one.
    stage.settle_to(now + 300_000);
    stage.gateway(r#""other":"key""#);
    assert_eq!(value(&stage.next_at(now + 301_000)).c, 0);
}

/// The API server stores our trigger, another writer changes it, and the watch shows that before the answer
/// to our write comes: the answer is older than what is known.
#[test]
fn what_came_after_a_touch_counts_even_if_its_answer_comes_last() {
    for (is_foreign, after) in
        [(false, r#""other":"key""#.to_owned()), (true, format!(r#""{TRIGGER}":"foreign""#))]
    {
        for shows_own_write in [true, false] {
            let (mut stage, touch) = went_offline();
            let stored = stage.version().to_string();
            if shows_own_write {
                stage.gateway(&carrying(value(&touch)));
            }
            stage.gateway(&after);
            let again = stage.finish(&touch, applied(Some(&stored))).action_at(105_000);
            let required = &again.action.precondition;
            assert_eq!(required.resource_version.is_some(), is_foreign);
            let before = required.annotation.as_deref().map(|before| &before.value);
            assert_eq!(before, (!is_foreign).then_some(&None));
            stage.succeed(&again).gateway(&carrying(value(&again)));
            assert_eq!(stage.settle_to(400_000).len(), 2, "two confirmations, and no other touch");
        }
    }
}

#[test]
fn a_touch_that_the_watch_shows_is_written_whatever_its_outcome() {
    for outcome in [conflict(), unavailable(None)] {
        let (mut stage, touch) = went_offline();
        stage.gateway(&carrying(value(&touch)));
        assert_eq!(value(&stage.finish(&touch, outcome).next_at(105_100)), offline(6, 1));
    }
}

/// Anybody can write the highest number there is. Where it is found at the start, the ones after it begin
/// at 1; wherever it is shown, again and again, no number is used twice.
#[test]
fn the_highest_number_there_is_makes_no_value_be_used_twice() {
    let highest = carrying(Trigger { digest: 1, n: u32::MAX, c: 0 });
    let mut found = Stage::default();
    found.edge(N1).proxy(&["lab"]).gateway(&highest);
    for (first, mut stage) in [(1, found), (5, settled(Settings::default()))] {
        let mut numbers = Vec::new();
        for i in 0..5 {
            stage.gateway(&highest);
            for touch in stage.pass_to(200_000 + 100_000 * i).actions() {
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
        overwrite(&mut stage, "overwritten").settle_to(100_000 + apart_ms);
        overwrite(&mut stage, "overwritten again").next_at(100_000 + apart_ms + pause_ms);
    }
}
