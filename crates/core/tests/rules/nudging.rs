//! Nudges of the carrier.

use crate::fleet::{Fleet, name};
use crate::stage::*;

const SIZE: usize = 1_000;

#[test]
fn a_carrier_that_answers_none_is_asked_by_few_and_all_take_turns_once_it_answers() {
    let mut fleet = Fleet::new(SIZE);
    let copies = (0..SIZE).map(|number| UP.copy(&name(number), N1));
    fleet.stage.join("edge", Role::Edge).list("edge", "Connector", copies);
    fleet.says(UP, 0..SIZE, N2);
    fleet.take();

    let mut refused = 0;
    fleet.stage.run_to(MINUTE, |stage, nudge| {
        refused += 1;
        stage.finish(nudge, forbidden());
    });
    assert!(refused > 200, "{refused} nudges were refused, which no carrier could answer");
    // One that the hub is too slow to answer may be.
    let error = RequestFailure::new(ErrorCause::TimedOut, "no response within 5000 ms");
    let lost = Outcome::Failed { error, retry_after_ms: None };
    let mut unanswered = 0;
    fleet.stage.run_to(5 * MINUTE, |stage, nudge| {
        unanswered += 1;
        stage.finish(nudge, lost.clone());
    });
    assert!((40..=50).contains(&unanswered), "{unanswered}");
    let back_at = 30 * MINUTE;
    let (mut by_second, mut connectors) = (BTreeMap::<_, usize>::new(), BTreeSet::new());
    fleet.stage.run_to(40 * MINUTE, |stage, nudge| {
        assert_eq!(nudge.action.verb, Verb::Nudge, "{nudge:?}");
        *by_second.entry(stage.time() / 1_000).or_default() += 1;
        connectors.insert(name_of(nudge).to_owned());
        stage.succeed(nudge);
        if stage.time() >= back_at {
            stage.applied("edge", UP.copy(name_of(nudge), N2));
        }
    });
    let before: usize = by_second.range(..back_at / 1_000).map(|(_, nudges)| nudges).sum();
    // Twenty find out; then one in ten seconds asks.
    assert!((100..=210).contains(&before), "{before} nudges of a carrier that is down");
    assert_eq!(connectors.len(), SIZE, "each was nudged");
    assert!(*by_second.values().max().unwrap() <= 25, "{by_second:?}");
    let last = by_second.keys().max().unwrap() * 1_000;
    assert!(last <= back_at + 5 * MINUTE, "the last nudge went {last} ms after the start");
}
