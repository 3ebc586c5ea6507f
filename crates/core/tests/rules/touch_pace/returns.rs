//! Gateways that vanish and come back with what they carried.

use super::*;

/// When each Gateway was touched, and the number of the confirmation.
fn touches_of(edge: &Edge) -> Vec<(u64, u32)> {
    edge.touches.iter().map(|(at, _, trigger)| (*at, trigger.c)).collect()
}

#[test]
fn a_gateway_that_vanishes_and_comes_back_with_its_trigger_is_announced_and_confirmed_twice() {
    let expected = [(10_100, 0), (15_100, 1), (70_100, 2)];
    for scope in SCOPES {
        let mut edge = Edge::settled(with_scope(scope), 1, 1);
        let names = edge.names();
        edge.relist(&[]).pass_to(10_000).relist(&names).pass_to(400_000);
        assert_eq!(touches_of(&edge), expected, "{scope:?}");
    }
    // A watch shows it.
    let mut edge = Edge::settled(Settings::default(), 2, 1);
    let gateway = edge.gateway("g0000");
    edge.stage.deleted("edge", &gateway);
    edge.pass_to(10_000).stage.applied("edge", &gateway);
    assert_eq!(touches_of(edge.pass_to(400_000)), expected);
}

#[test]
fn gateways_that_are_only_listed_again_are_not_touched() {
    let mut edge = Edge::settled(Settings::default(), 50, 5);
    let names = edge.names();
    assert_eq!(edge.relist(&names).pass_to(1_000_000).touches, []);
}

/// The first list breaks off after some Gateways, and the second one is complete: all are found at the start.
#[test]
fn gateways_that_only_the_second_attempt_at_the_first_list_shows_are_trusted() {
    let gateways = Edge::settled(Settings::default(), 4, 2).gateways;
    let mut edge = Edge::unlisted(Settings::default(), gateways, 2_000_000);
    edge.list_connectors(&[wrote("carrier", 0, OWNS_ANNOTATION)]);
    let first = edge.gateway("g0000");
    edge.stage.list_started("edge", "Gateway").listed("edge", first).lost("edge", "Gateway");
    let names = edge.names();
    assert_eq!(edge.relist(&names).pass_to(3_000_000).touches, []);
}

/// An API server that shows no Gateways once, and then all of them again, costs a touch and two
/// confirmations for each at the edge's pace. A change does not wait behind them.
#[test]
fn an_edge_that_was_empty_once_is_announced_at_its_pace_and_behind_changes() {
    const COUNT: usize = 5_000;
    let mut edge = Edge::settled(Settings::default(), COUNT, 1_000);
    let names = edge.names();
    edge.relist(&[]).pass_to(1_000).relist(&names).pass_to(11_000);
    edge.flip("c7", OFFLINE).pass_to(12_200);
    let is_of_c7 = |(at, name, _): &&(_, String, _)| *at >= 11_000 && name.ends_with("007");
    let changed = edge.touches.iter().filter(is_of_c7).count();
    assert_eq!(changed, 5, "those of c7, before thousands that wait");
    assert_paced(&edge.pass_to(1_000_000).touches);
    let first = edge.touches.iter().filter(|(.., trigger)| trigger.c == 0).count();
    assert!((COUNT..=COUNT + 5).contains(&first), "{first}");
    assert!(edge.touches.len() <= 3 * (COUNT + 5), "{}", edge.touches.len());
    let last = edge.touches.last().unwrap().0;
    assert!(last <= 400_000, "{last}");
    let confirmed = edge.touches.iter().filter(|(.., trigger)| trigger.c == 2);
    let confirmed: BTreeSet<_> = confirmed.map(|(_, name, _)| name).collect();
    assert_eq!(confirmed.len(), COUNT, "each is confirmed to the end");
}
