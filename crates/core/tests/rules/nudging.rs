//! Nudges of many connectors: what keeps one value from an edge often keeps a thousand.

use std::collections::BTreeMap;

use throughline_core::contract::action::Verb;

use crate::fleet::{Fleet, name};
use crate::stage::{START, UID, status};

const SIZE: usize = 1_000;
const MINUTE: u64 = 60_000;

/// What connector `number` says at the edge.
fn arrive(fleet: &mut Fleet, number: usize, node: &str) {
    let (v, name) = (fleet.stage.version(), name(number));
    let object = serde_json::json!({"kind": "Connector", "metadata": {
        "namespace": format!("ns-{UID}"), "name": name, "uid": format!("u-edge-{name}"),
        "resourceVersion": v.to_string(),
        "annotations": {"networking.datumapis.com/upstream-status": status(Some(node))}}});
    fleet.stage.applied("edge", &object.to_string());
}

/// A thousand connectors that moved to node n2, mirrored; the edge still says n1.
fn moved() -> Fleet {
    let mut fleet = Fleet::new(SIZE);
    for number in 0..SIZE {
        arrive(&mut fleet, number, "n1");
    }
    fleet.stage.assert_no_action();
    for number in 0..SIZE {
        fleet.change(number, Some("n2"));
    }
    for mirror in fleet.stage.actions() {
        assert_eq!(mirror.action.verb, Verb::Mirror);
        let number: usize = mirror.action.object.name[1..].parse().unwrap();
        let object = fleet.at_hub(number, Some("n2"));
        fleet.stage.applied("hub", &object);
        fleet.stage.succeed(&mirror);
    }
    fleet
}

/// The nudges of each connector until `ms`, by second. `answers` says what a nudge brings.
fn nudges(
    fleet: &mut Fleet,
    ms: u64,
    mut answers: impl FnMut(&mut Fleet, u64, usize),
) -> (BTreeMap<u64, usize>, BTreeMap<usize, usize>) {
    let (mut by_second, mut by_connector) = (BTreeMap::new(), BTreeMap::new());
    while fleet.stage.now < START + ms {
        let now = (fleet.stage.now - START + 100).min(ms);
        fleet.stage.pass_to(now);
        for nudge in fleet.stage.actions() {
            assert_eq!(nudge.action.verb, Verb::Nudge, "{nudge:?}");
            let number: usize = nudge.action.object.name[1..].parse().unwrap();
            *by_second.entry(now / 1_000).or_default() += 1;
            *by_connector.entry(number).or_default() += 1;
            fleet.stage.succeed(&nudge);
            answers(fleet, now, number);
        }
    }
    (by_second, by_connector)
}

#[test]
fn a_thousand_nudges_go_at_a_rate_that_the_carrier_takes() {
    let mut fleet = moved();
    let (by_second, by_connector) =
        nudges(&mut fleet, 5 * MINUTE, |fleet, _, number| arrive(fleet, number, "n2"));
    assert_eq!(by_connector.len(), SIZE, "each was nudged");
    assert!(by_connector.values().all(|nudges| *nudges == 1), "and arrived");
    let most = by_second.values().max().unwrap();
    assert!(*most <= 15, "{most} nudges in one second");
}

#[test]
fn a_carrier_that_answers_none_is_asked_by_few_and_all_take_turns_once_it_answers() {
    let mut fleet = moved();
    let back_at = 30 * MINUTE;
    let mut before = 0;
    let (by_second, by_connector) = nudges(&mut fleet, 40 * MINUTE, |fleet, now, number| {
        if now >= back_at {
            arrive(fleet, number, "n2");
        } else {
            before += 1;
        }
    });
    // Twenty find out; then one in ten seconds asks.
    assert!((100..=210).contains(&before), "{before} nudges of a carrier that is down");
    assert_eq!(by_connector.len(), SIZE, "each was nudged");
    assert!(*by_second.values().max().unwrap() <= 25, "{by_second:?}");
    let last = by_second.keys().max().unwrap() * 1_000;
    assert!(last <= back_at + 5 * MINUTE, "the last nudge went {last} ms after the start");
}

/// A replicator that spells every status its own way, within a second of each write.
#[test]
fn a_fleet_for_which_another_writer_contends_is_rewritten_at_a_rate_that_the_carrier_takes() {
    let mut fleet = moved();
    let mut by_minute: BTreeMap<u64, usize> = BTreeMap::new();
    let overwrite = |fleet: &mut Fleet, number: usize| {
        let object = fleet.at_hub(number, Some("other"));
        fleet.stage.applied("hub", &object);
    };
    (0..SIZE).for_each(|number| overwrite(&mut fleet, number));
    while fleet.stage.now < START + 60 * MINUTE {
        let now = fleet.stage.now - START + 1_000;
        fleet.stage.pass_to(now);
        for mirror in fleet.stage.actions() {
            assert_eq!(mirror.action.verb, Verb::Mirror, "{mirror:?}");
            let number: usize = mirror.action.object.name[1..].parse().unwrap();
            let object = fleet.at_hub(number, Some("n2"));
            fleet.stage.applied("hub", &object);
            fleet.stage.succeed(&mirror);
            *by_minute.entry(now / MINUTE).or_default() += 1;
            overwrite(&mut fleet, number);
        }
    }
    let later: Vec<_> = by_minute.range(5..).map(|(_, writes)| *writes).collect();
    // A thousand a minute before, all in one second.
    assert!(later.iter().all(|writes| *writes <= 2 * 60 + 10), "{by_minute:?}");
    assert!(later.iter().sum::<usize>() >= 55 * 100, "{by_minute:?}");
}
