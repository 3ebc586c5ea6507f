//! Nudges of the carrier.

use crate::fleet::{Fleet, name};
use crate::stage::*;

const SIZE: usize = 1_000;

#[test]
fn a_carrier_that_answers_none_is_asked_by_few_and_all_take_turns_once_it_answers() {
    let mut fleet = Fleet::new(SIZE);
    for number in 0..SIZE {
        fleet.stage.applied("edge", UP.copy(&name(number), N1));
    }
    fleet.says(UP, 0..SIZE, N2);
    fleet.take();

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

#[test]
fn an_edge_that_lacks_a_flip_is_nudged_also_while_what_routes_nothing_waits() {
    let mut stage = Stage::settled(Settings::default());
    let flip = stage.upstream(N2).only_action();
    stage.succeed(&flip).pass_to(608_000).upstream(Some(&status_at("n2", 1)));
    let nudge = stage.next_at(610_000);
    assert_eq!((nudge.action.verb, nudge.urgency), (Verb::Nudge, Urgency::Nudge));
    assert_eq!(stage.wrong(), [Cause::Deferred, Cause::NotCarried]);
    stage.succeed(&nudge).edge(written(&flip));
    let touch = stage.settle_to(612_999);
    assert!(touch.iter().all(|action| action.action.verb == Verb::Touch), "{touch:#?}");
    assert_eq!(stage.wrong(), [Cause::Deferred]);
    assert_eq!(stage.action_at(613_000).urgency, Urgency::Deferrable);
}
