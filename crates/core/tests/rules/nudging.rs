//! Nudges of many connectors: what keeps one value from an edge often keeps a thousand.

use crate::fleet::{Fleet, name, number_of};
use crate::stage::*;

const SIZE: usize = 1_000;

/// A thousand connectors that moved to node n2, mirrored; the edge still says n1.
fn moved() -> Fleet {
    let mut fleet = Fleet::new(SIZE);
    for number in 0..SIZE {
        fleet.stage.applied("edge", UP.copy(&name(number), N1));
    }
    fleet.stage.assert_no_action();
    fleet.says(UP, 0..SIZE, N2);
    fleet.take();
    assert!(fleet.written.iter().all(|write| write.verb == Verb::Mirror));
    fleet
}

/// The nudges until `ms`, by second and by connector. From `back_at` on, each brings the value to
/// the edge.
fn nudges(
    fleet: &mut Fleet,
    ms: u64,
    back_at: u64,
) -> (BTreeMap<u64, usize>, BTreeMap<usize, usize>) {
    let (mut by_second, mut by_connector) = (BTreeMap::new(), BTreeMap::new());
    fleet.stage.run_to(ms, |stage, nudge| {
        assert_eq!(nudge.action.verb, Verb::Nudge, "{nudge:?}");
        *by_second.entry(stage.time() / 1_000).or_default() += 1;
        *by_connector.entry(number_of(nudge)).or_default() += 1;
        stage.succeed(nudge);
        if stage.time() >= back_at {
            stage.applied("edge", UP.copy(name_of(nudge), N2));
        }
    });
    (by_second, by_connector)
}

#[test]
fn a_carrier_that_answers_none_is_asked_by_few_and_all_take_turns_once_it_answers() {
    let back_at = 30 * MINUTE;
    let (by_second, by_connector) = nudges(&mut moved(), 40 * MINUTE, back_at);
    let before: usize = by_second.range(..back_at / 1_000).map(|(_, nudges)| nudges).sum();
    // Twenty find out; then one in ten seconds asks.
    assert!((100..=210).contains(&before), "{before} nudges of a carrier that is down");
    assert_eq!(by_connector.len(), SIZE, "each was nudged");
    assert!(*by_second.values().max().unwrap() <= 25, "{by_second:?}");
    let last = by_second.keys().max().unwrap() * 1_000;
    assert!(last <= back_at + 5 * MINUTE, "the last nudge went {last} ms after the start");
}

/// A replicator that spells every status its own way, as soon as each is written.
#[test]
fn a_fleet_for_which_another_writer_contends_is_rewritten_at_a_rate_that_the_carrier_takes() {
    let mut fleet = moved();
    let other = status(Some("other"));
    let overwrite = |stage: &mut Stage, name: &str| {
        stage.applied("hub", UP.copy(name, Some(&other)));
    };
    (0..SIZE).for_each(|number| overwrite(&mut fleet.stage, &name(number)));
    let mut by_minute: BTreeMap<u64, usize> = BTreeMap::new();
    fleet.stage.run_to(60 * MINUTE, |stage, mirror| {
        assert_eq!(mirror.action.verb, Verb::Mirror, "{mirror:?}");
        stage.applied("hub", UP.copy(name_of(mirror), N2)).succeed(mirror);
        *by_minute.entry(stage.time() / MINUTE).or_default() += 1;
        overwrite(stage, name_of(mirror));
    });
    let later: Vec<_> = by_minute.range(5..60).map(|(_, writes)| *writes).collect();
    // A thousand a minute before, all in one second.
    assert!(later.iter().all(|writes| *writes <= 2 * 60 + 10), "{by_minute:?}");
    assert!(later.iter().sum::<usize>() >= 55 * 100, "{by_minute:?}");
}
